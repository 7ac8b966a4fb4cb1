// SPDX-License-Identifier: MIT
// What the tokenizer refuses: files that contradict themselves or hold kinds that are not known,
// and texts that cannot be written.

#include "engine/tokenizer/tokenizer.h"
#include "tests/support/tiny_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// The sentence must name the culprit.
static void assert_refused(gguf_builder *builder, kvern_status expected, const char *word)
{
    tokenizer *t;
    engine_error error = {0};
    const kvern_status status = tiny_tokenizer_build(builder, &t, &error);
    if (status != expected || error.status != expected || !strstr(error.text, word))
        fail_msg("expected %s and \"%s\", got %s: %s", kvern_status_name(expected), word,
                 kvern_status_name(status), error.text);
    assert_null(t);
}

static void a_file_without_a_tokenizer(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "general.architecture", "llama");
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.model");
    builder = gguf_builder_create();
    gguf_builder_u32(builder, "tokenizer.ggml.model", 2);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.model");
}

static void kinds_that_are_not_known_are_named(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", "quipu");
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "quipu");
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "knots-v2");
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "knots-v2");
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "\033[31m");
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "\"?[31m\"");
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "smollm2");
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "qwen2"); // the known ones are listed
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "");
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "tokenizer.ggml.pre");
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, NULL);
    gguf_builder_u32(builder, "tokenizer.ggml.pre", 3);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.pre");
}

// A file without tokenizer.ggml.pre, and one that calls it "default", may be of any kind: it is
// split as the caller says, or refused.
static void a_file_that_does_not_say_how_it_is_split(void **state)
{
    (void)state;
    static const char *const unsaid[] = {NULL, "default"};
    static const struct {
        const char *asked;
        kvern_status status;
        const char *word;
    } cases[] = {
        {NULL, KVERN_ERR_UNSUPPORTED, "--pre NAME tells it: gpt-2"},
        {"smollm", KVERN_OK, "smollm"},
        {"llama-bpe", KVERN_OK, "llama-bpe"},
        {"knots", KVERN_ERR_ARGUMENT, "no pre-tokenizer is named \"knots\"; known are: gpt-2"},
        {"default", KVERN_ERR_ARGUMENT, "no pre-tokenizer is named \"default\""},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        gguf_builder *builder = gguf_builder_create();
        gguf_file *file;
        tokenizer *t;
        size_t bytes;
        engine_error error = {0};
        tiny_tokenizer_metadata(builder, unsaid[i % 2]);
        void *data = gguf_builder_finish(builder, &bytes);
        gguf_builder_destroy(builder);
        assert_int_equal(gguf_open_memory(data, bytes, &file, NULL), KVERN_OK);
        assert_int_equal(tokenizer_create(file, cases[i / 2].asked, &t, &error),
                         cases[i / 2].status);
        if (t)
            assert_string_equal(tokenizer_pre(t), cases[i / 2].word);
        else if (!strstr(error.text, cases[i / 2].word))
            fail_msg("%s", error.text);
        tokenizer_destroy(t);
        gguf_close(file);
        free(data);
    }
}

// Keys that change the tokens of a text and cannot be honoured are refused by name; a value that
// changes nothing is accepted.
static void keys_are_honoured_or_refused(void **state)
{
    (void)state;
    static const char *const flags[] = {
        "add_eos_token",
        "add_sep_token",
        "remove_extra_whitespaces",
        "normalizer.lowercase",
        "normalizer.strip_accents",
        "treat_whitespace_as_suffix",
        "add_space_prefix",
    };
    tokenizer *t;
    for (size_t i = 0; i < 2 * sizeof flags / sizeof *flags; i++) {
        char key[80];
        gguf_builder *builder = gguf_builder_create();
        snprintf(key, sizeof key, "tokenizer.ggml.%s", flags[i / 2]);
        tiny_tokenizer_metadata(builder, "gpt-2");
        gguf_builder_bool(builder, key, i % 2);
        if (i % 2) {
            assert_refused(builder, KVERN_ERR_UNSUPPORTED, key);
        } else {
            assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
            tokenizer_destroy(t);
        }
    }
    static const char *const unknown[] = {"tokenizer.ggml.knots", "tokenizer.rwkv.world",
                                          "tokenizer.knots"};
    for (size_t i = 0; i < 3; i++) {
        gguf_builder *builder = gguf_builder_create();
        tiny_tokenizer_metadata(builder, "gpt-2");
        gguf_builder_string(builder, unknown[i], "x");
        assert_refused(builder, KVERN_ERR_UNSUPPORTED, unknown[i]);
    }
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "gpt-2");
    gguf_builder_u32(builder, "tokenizer.ggml.mask_token_id", 3);
    gguf_builder_string(builder, "tokenizer.chat_template.tool_use", "x");
    gguf_builder_bool(builder, "tokenizer.ggml.escape_whitespaces", true);
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    tokenizer_destroy(t);
}

static void token_lists_that_are_none(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.tokens");
    builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", NULL, 0);
    tiny_tokenizer_merges(builder);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.tokens");
    builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_array(builder, "tokenizer.ggml.tokens", GGUF_UINT32, (uint32_t[]){1, 2}, 2);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.tokens");
    builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_string(builder, "tokenizer.ggml.tokens", "abc");
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.tokens");
}

static gguf_builder *with_types(gguf_value_type element, const void *types, size_t count)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", (const char *[]){"a", "b"}, 2);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", element, types, count);
    return builder;
}

static void token_types_that_do_not_fit(void **state)
{
    (void)state;
    static const char key[] = "tokenizer.ggml.token_type";
    assert_refused(with_types(GGUF_INT32, (int32_t[]){1, 1, 1}, 3), KVERN_ERR_FORMAT, key);
    assert_refused(with_types(GGUF_INT32, (int32_t[]){1}, 1), KVERN_ERR_FORMAT, key);
    assert_refused(with_types(GGUF_INT32, (int32_t[]){1, 7}, 2), KVERN_ERR_FORMAT, "token 1 is 7");
    assert_refused(with_types(GGUF_INT32, (int32_t[]){0, 1}, 2), KVERN_ERR_FORMAT, "token 0 is 0");
    assert_refused(with_types(GGUF_INT32, (int32_t[]){1, -3}, 2), KVERN_ERR_FORMAT, "-3");
    assert_refused(with_types(GGUF_FLOAT32, (float[]){1, 1}, 2), KVERN_ERR_FORMAT, key);
    tokenizer *t;
    assert_int_equal(tiny_tokenizer_build(with_types(GGUF_UINT8, (uint8_t[]){1, 6}, 2), &t, NULL),
                     KVERN_OK);
    tokenizer_destroy(t);
}

static gguf_builder *with_merge(const char *merge)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    tiny_tokenizer_tokens(builder);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", (const char *[]){"h e", merge}, 2);
    return builder;
}

static void merges_that_are_none(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    tiny_tokenizer_tokens(builder);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.merges");
    builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    tiny_tokenizer_tokens(builder);
    gguf_builder_array(builder, "tokenizer.ggml.merges", GGUF_UINT8, (uint8_t[]){1, 2}, 2);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.merges");
    static const char *const bad[] = {"", " ", "he", "he ", " he", "q q", "h zz", "zz e", "h e e"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(with_merge(bad[i]), KVERN_ERR_FORMAT, "element 1");
}

static void ids_that_are_none(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        for (int kind = 0; kind < 3; kind++) {
            gguf_builder *builder = gguf_builder_create();
            tiny_tokenizer_names(builder, "gpt-2");
            tiny_tokenizer_tokens(builder);
            tiny_tokenizer_merges(builder);
            if (kind == 0)
                gguf_builder_u32(builder, keys[i], (uint32_t)tiny_token_count());
            else if (kind == 1)
                gguf_builder_i32(builder, keys[i], -1);
            else
                gguf_builder_string(builder, keys[i], "<s>");
            assert_refused(builder, KVERN_ERR_FORMAT, keys[i]);
        }
    }
}

static void bos_without_an_id(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    tiny_tokenizer_tokens(builder);
    tiny_tokenizer_merges(builder);
    gguf_builder_bool(builder, "tokenizer.ggml.add_bos_token", true);
    assert_refused(builder, KVERN_ERR_FORMAT, "add_bos_token");
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "gpt-2");
    gguf_builder_u8(builder, "tokenizer.ggml.add_bos_token", 1);
    assert_refused(builder, KVERN_ERR_FORMAT, "add_bos_token");
}

// Text that is not UTF-8, texts twice, texts outside the alphabet, only empty texts: odd, yet
// usable.
static void odd_vocabularies_work(void **state)
{
    (void)state;
    const char *tokens[] = {"\xff\xfe", "a", "a", "\u4e2d", "", "b", "ab"};
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, 7);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", (const char *[]){"a b", "a b"}, 2);
    tokenizer *t;
    engine_error error = {0};
    assert_int_equal(tiny_tokenizer_build(builder, &t, &error), KVERN_OK);
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, "aab", 3, 0, &ids, &error), KVERN_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[0], 1);
    assert_int_equal(ids.ids[1], 6);
    assert_memory_equal(tokenizer_piece(t, 0).data, "\xff\xfe", 2);
    assert_memory_equal(tokenizer_piece(t, 3).data, "\u4e2d", 3);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
    builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", (const char *[]){"", ""}, 2);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    assert_int_equal(tiny_tokenizer_build(builder, &t, &error), KVERN_OK);
    assert_int_equal(tokenizer_piece(t, 1).size, 0);
    tokenizer_destroy(t);
}

// A pair that comes again keeps its first rank: "a b" goes before "b c".
static void repeated_merges_keep_their_first_rank(void **state)
{
    (void)state;
    const char *tokens[] = {"a", "b", "c", "ab", "bc"};
    const char *merges[] = {"a b", "b c", "a b"};
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, 5);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", merges, 3);
    tokenizer *t;
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, "abc", 3, 0, &ids, NULL), KVERN_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(ids.ids[0], 3);
    assert_int_equal(ids.ids[1], 2);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

// One text as control, user-defined and ordinary token, each twice.
static void texts_that_several_tokens_have(void **state)
{
    (void)state;
    const char *tokens[] = {"ab", "xy", "xy", "a", "b", "ab", "ab", "x", "y", "</s>"};
    const int32_t types[] = {3, 4, 4, 1, 1, 1, 1, 1, 1, 1};
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, 10);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, 10);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", (const char *[]){"a b"}, 1);
    tokenizer *t;
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, "abxy", 4, 0, &ids, NULL), KVERN_OK);
    assert_int_equal(tokenizer_encode(t, "ab", 2, TOKENIZER_PARSE_SPECIAL, &ids, NULL), KVERN_OK);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.ids[0], 5); // ordinary text makes the ordinary token, the first of them
    assert_int_equal(ids.ids[1], 1);
    assert_int_equal(ids.ids[2], 0);
    assert_int_equal(tokenizer_find(t, "ab", 2), 5);
    assert_int_equal(tokenizer_find(t, "xy", 2), 1);
    assert_false(tokenizer_is_end(t, 9)); // its text means the end only in a control token
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

// Many special tokens that begin alike: the longest match, without looking at each of them.
static void special_tokens_that_begin_alike(void **state)
{
    (void)state;
    enum { COUNT = 2000, LENGTH = 60000 };
    static char texts[COUNT][COUNT / 8 + 8];
    const char *tokens[COUNT + 1];
    int32_t types[COUNT + 1];
    for (size_t i = 0; i < COUNT; i++) {
        memset(texts[i], 'a', i / 8 + 1);
        snprintf(texts[i] + i / 8 + 1, 4, "%zu", i % 8);
        tokens[i] = texts[i];
        types[i] = 4;
    }
    tokens[COUNT] = "a";
    types[COUNT] = 1;
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, COUNT + 1);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, COUNT + 1);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    tokenizer *t;
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    char *text = malloc(LENGTH);
    memset(text, 'a', LENGTH);
    text[LENGTH - 1] = '3';
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, text, LENGTH, 0, &ids, NULL), KVERN_OK);
    const size_t longest = COUNT / 8; // letters of the longest token
    assert_int_equal(ids.count, LENGTH - 1 - longest + 1);
    assert_int_equal(ids.ids[0], COUNT);
    assert_int_equal(ids.ids[ids.count - 1], COUNT - 8 + 3);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
    free(text);
}

// A byte that the vocabulary cannot write is refused by name; what was in the buffer stays.
static void bytes_without_a_token(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", (const char *[]){"a", "\u0120"}, 2);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    tokenizer *t;
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    assert_int_equal(tokenizer_encode(t, "a a", 3, 0, &ids, &error), KVERN_OK);
    assert_int_equal(tokenizer_encode(t, "aa aab\x04", 7, 0, &ids, &error), KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "0x62"));
    assert_non_null(strstr(error.text, "byte 5"));
    assert_int_equal(tokenizer_encode(t, "a \xff", 3, 0, &ids, &error), KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "0xff"));
    assert_int_equal(ids.count, 3);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

static void texts_beyond_the_limit(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    assert_int_equal(tokenizer_encode(t, "a", (size_t)INT32_MAX + 1, 0, &ids, &error),
                     KVERN_ERR_RANGE);
    const tokenizer_part parts[] = {{INT32_MAX, false}, {SIZE_MAX, false}};
    assert_int_equal(tokenizer_encode_parts(t, "a", parts, 2, 0, &ids, &error), KVERN_ERR_RANGE);
    assert_int_equal(token_buffer_reserve(&ids, SIZE_MAX / 2), KVERN_ERR_OVERFLOW);
    assert_int_equal(ids.count, 0);
    tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_without_a_tokenizer),
        cmocka_unit_test(kinds_that_are_not_known_are_named),
        cmocka_unit_test(a_file_that_does_not_say_how_it_is_split),
        cmocka_unit_test(keys_are_honoured_or_refused),
        cmocka_unit_test(token_lists_that_are_none),
        cmocka_unit_test(token_types_that_do_not_fit),
        cmocka_unit_test(merges_that_are_none),
        cmocka_unit_test(ids_that_are_none),
        cmocka_unit_test(bos_without_an_id),
        cmocka_unit_test(odd_vocabularies_work),
        cmocka_unit_test(repeated_merges_keep_their_first_rank),
        cmocka_unit_test(texts_that_several_tokens_have),
        cmocka_unit_test(special_tokens_that_begin_alike),
        cmocka_unit_test(bytes_without_a_token),
        cmocka_unit_test(texts_beyond_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
