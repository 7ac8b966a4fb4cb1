// SPDX-License-Identifier: MIT
// SentencePiece vocabularies: equality with the sentencepiece package on small random ones
// (tests/golden/tokenizer/sentencepiece.json), what is plain to see on one known by heart, any
// bytes, and what is refused.

#include "tests/support/golden_json.h"
#include "tests/support/random.h"
#include "tests/support/tiny_sentencepiece.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/support/token_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// --- Against the package

static void add_strings(gguf_builder *builder, const json_t *tokens)
{
    const size_t count = json_array_size(tokens);
    const char **texts = calloc(count, sizeof *texts);
    for (size_t i = 0; i < count; i++)
        texts[i] = json_string_value(json_array_get(tokens, i));
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", texts, count);
    free(texts);
}

static void add_numbers(gguf_builder *builder, const json_t *types, const json_t *scores)
{
    const size_t count = json_array_size(types);
    int32_t *kinds = calloc(count, sizeof *kinds);
    float *values = calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++) {
        kinds[i] = (int32_t)json_integer_value(json_array_get(types, i));
        values[i] = (float)json_number_value(json_array_get(scores, i));
    }
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, kinds, count);
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, values, count);
    free(kinds);
    free(values);
}

static tokenizer *made_of(const json_t *vocabulary)
{
    tokenizer *t;
    engine_error error = {0};
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", "llama");
    add_strings(builder, json_object_get(vocabulary, "tokens"));
    add_numbers(builder, json_object_get(vocabulary, "token_type"),
                json_object_get(vocabulary, "scores"));
    gguf_builder_u32(builder, "tokenizer.ggml.unknown_token_id", 0);
    // Without the key a text gets its prefix.
    if (json_is_false(json_object_get(vocabulary, "add_space_prefix")))
        gguf_builder_bool(builder, "tokenizer.ggml.add_space_prefix", false);
    if (tiny_tokenizer_build(builder, &t, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return t;
}

static void equals_sentencepiece(void **state)
{
    (void)state;
    json_t *golden = golden_json_open("tokenizer/sentencepiece.json", 6);
    for (size_t v = 0; v < json_array_size(golden); v++) {
        const json_t *vocabulary = json_array_get(golden, v);
        const json_t *cases = json_object_get(vocabulary, "cases");
        tokenizer *t = made_of(vocabulary);
        assert_true(json_array_size(cases) > 50);
        token_check_golden(t, cases, false);
        tokenizer_destroy(t);
    }
    json_decref(golden);
}

// --- Known by heart

static tokenizer *tiny(void)
{
    tokenizer *t;
    engine_error error = {0};
    gguf_builder *builder = gguf_builder_create();
    tiny_sp_metadata(builder);
    if (tiny_tokenizer_build(builder, &t, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return t;
}

static void assert_ids(const tokenizer *t, const char *text, size_t bytes, unsigned flags,
                       const int32_t *expected, size_t count)
{
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    if (tokenizer_encode(t, text, bytes, flags, &ids, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids.ids[i], expected[i]);
    token_buffer_free(&ids);
}

#define ASSERT_IDS(t, text, flags, ...)                                                            \
    assert_ids(t, text, sizeof text - 1, flags, (const int32_t[]){__VA_ARGS__},                    \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void merges_by_score_then_from_the_left(void **state)
{
    (void)state;
    tokenizer *t = tiny();
    ASSERT_IDS(t, "abc", 0, TINY_SP_ABC);
    // "ab" and "bc" score the same: the left one comes first, then " a" is out of reach.
    ASSERT_IDS(t, "abcbc", 0, TINY_SP_ABC, TINY_SP_BC);
    // " a" scores above "ab", which then has no "a" left, and "bc" above " ab".
    ASSERT_IDS(t, "c abc", 0, TINY_SP_C, TINY_SP_SPACE_A, TINY_SP_BC);
    ASSERT_IDS(t, "c ab", 0, TINY_SP_C, TINY_SP_SPACE_AB);
    ASSERT_IDS(t, "cab", 0, TINY_SP_C, TINY_SP_AB);
    tokenizer_destroy(t);
}

static void user_defined_tokens_come_first(void **state)
{
    (void)state;
    tokenizer *t = tiny();
    ASSERT_IDS(t, "   a\nb", 0, TINY_SP_TWO_SPACES, TINY_SP_SPACE_A, TINY_SP_LINE, TINY_SP_B);
    // To such a vocabulary U+2581 is a space.
    ASSERT_IDS(t, "\u2581\u2581a\u2581", 0, TINY_SP_TWO_SPACES, TINY_SP_A, TINY_SP_SPACE);
    tokenizer_destroy(t);
}

static void characters_without_a_token_become_bytes(void **state)
{
    (void)state;
    tokenizer *t = tiny();
    ASSERT_IDS(t, "a\u00e9\u00df", 0, TINY_SP_A, TINY_SP_E_ACUTE, TINY_SP_BYTE + 0xc3,
               TINY_SP_BYTE + 0x9f);
    ASSERT_IDS(t, "a\xff\xe2\x96", 0, TINY_SP_A, TINY_SP_BYTE + 0xff, TINY_SP_BYTE + 0xe2,
               TINY_SP_BYTE + 0x96);
    // The text of a byte token is text.
    ASSERT_IDS(t, "<0x41>", 0, TINY_SP_BYTE + '<', TINY_SP_BYTE + '0', TINY_SP_BYTE + 'x',
               TINY_SP_BYTE + '4', TINY_SP_BYTE + '1', TINY_SP_BYTE + '>');
    tokenizer_destroy(t);
}

static void control_tokens_where_allowed(void **state)
{
    (void)state;
    tokenizer *t = tiny();
    ASSERT_IDS(t, "a<eos> a", TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS, TINY_SP_BOS, TINY_SP_A,
               TINY_SP_EOS, TINY_SP_SPACE_A);
    ASSERT_IDS(t, "<eos>", 0, TINY_SP_BYTE + '<', TINY_SP_BYTE + 'e', TINY_SP_BYTE + 'o',
               TINY_SP_BYTE + 's', TINY_SP_BYTE + '>');
    ASSERT_IDS(t, "", TOKENIZER_ADD_BOS, TINY_SP_BOS);
    tokenizer_destroy(t);
}

// A file that says nothing wants the beginning token and the prefix.
static void what_holds_when_the_file_says_nothing(void **state)
{
    (void)state;
    tokenizer *t;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", "llama");
    tiny_sp_tokens(builder);
    tiny_sp_types(builder);
    tiny_sp_scores(builder);
    tiny_sp_ids(builder);
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    assert_true(tokenizer_adds_bos(t));
    ASSERT_IDS(t, "a<eos>ab", TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS, TINY_SP_BOS,
               TINY_SP_SPACE_A, TINY_SP_EOS, TINY_SP_SPACE_AB);
    ASSERT_IDS(t, " a", 0, TINY_SP_TWO_SPACES, TINY_SP_A);
    tokenizer_destroy(t);
}

static void assert_piece(const tokenizer *t, int32_t id, const char *expected)
{
    const tokenizer_text piece = tokenizer_piece(t, id);
    assert_int_equal(piece.size, strlen(expected));
    assert_memory_equal(piece.data, expected, piece.size);
}

static void pieces_and_facts(void **state)
{
    (void)state;
    tokenizer *t = tiny();
    assert_piece(t, TINY_SP_SPACE_AB, " ab");
    assert_piece(t, TINY_SP_TWO_SPACES, "  ");
    assert_piece(t, TINY_SP_BYTE + 'x', "x");
    assert_piece(t, TINY_SP_BYTE + 0xc3, "\xc3");
    assert_piece(t, TINY_SP_EOS, "");
    assert_int_equal(tokenizer_piece_special(t, TINY_SP_EOS).size, 5);
    assert_string_equal(tokenizer_name(t), "llama");
    assert_null(tokenizer_pre(t));
    assert_int_equal(tokenizer_bos(t), TINY_SP_BOS);
    assert_true(tokenizer_is_end(t, TINY_SP_EOS));
    assert_true(tokenizer_is_end(t, TINY_SP_END));
    assert_int_equal(tokenizer_find(t, "\u2581ab", 5), TINY_SP_SPACE_AB);
    tokenizer_destroy(t);
}

// Whatever the bytes: they come back, and a longer text is no other order of growth.
static void any_bytes_come_back(void **state)
{
    (void)state;
    enum { MOST = 20000 };
    static char text[MOST];
    static const char alphabet[] = "abc  \n<>\xe2\x96\x81\xc3\xa9\xff";
    test_random random = test_random_seed(8);
    tokenizer *t = tiny();
    for (size_t run = 0; run < 60; run++) {
        const size_t bytes = run < 50 ? run * 3 : MOST;
        for (size_t i = 0; i < bytes; i++)
            text[i] = run % 2 ? (char)test_random_next(&random)
                              : alphabet[test_random_below(&random, sizeof alphabet - 1)];
        token_buffer ids = TOKEN_BUFFER_INIT;
        assert_int_equal(tokenizer_encode(t, text, bytes, 0, &ids, NULL), KVERN_OK);
        size_t at = 0;
        for (size_t i = 0; i < ids.count; i++) {
            const tokenizer_text piece = tokenizer_piece(t, ids.ids[i]);
            for (size_t k = 0; k < piece.size; k++, at++) {
                if (bytes - at >= 3 && piece.data[k] == ' ' && text[at] != ' ') {
                    assert_memory_equal(text + at, "\u2581", 3);
                    at += 2;
                } else {
                    assert_true(at < bytes && piece.data[k] == text[at]);
                }
            }
        }
        assert_int_equal(at, bytes);
        token_buffer_free(&ids);
    }
    tokenizer_destroy(t);
}

// --- Refused

static void assert_refused(gguf_builder *builder, kvern_status expected, const char *word)
{
    tokenizer *t;
    engine_error error = {0};
    const kvern_status status = tiny_tokenizer_build(builder, &t, &error);
    if (status != expected || !strstr(error.text, word))
        fail_msg("expected %s and \"%s\", got %s: %s", kvern_status_name(expected), word,
                 kvern_status_name(status), error.text);
    assert_null(t);
}

static gguf_builder *without_scores(void)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_sp_names(builder);
    tiny_sp_tokens(builder);
    tiny_sp_types(builder);
    tiny_sp_ids(builder);
    return builder;
}

static void scores_that_are_none(void **state)
{
    (void)state;
    float scores[TINY_SP_COUNT] = {0};
    assert_refused(without_scores(), KVERN_ERR_FORMAT, "tokenizer.ggml.scores");
    gguf_builder *builder = without_scores();
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, TINY_SP_COUNT - 1);
    assert_refused(builder, KVERN_ERR_FORMAT, "tokenizer.ggml.scores");
    builder = without_scores();
    scores[7] = NAN;
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, TINY_SP_COUNT);
    assert_refused(builder, KVERN_ERR_FORMAT, "token 7");
}

static void byte_tokens_that_name_no_byte(void **state)
{
    (void)state;
    static const char *const texts[] = {"<0x4>", "<0x4g>", "<0x4a>", "0x41..", "<0x411", ""};
    const int32_t type = 6;
    const float score = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        gguf_builder *builder = gguf_builder_create();
        tiny_sp_names(builder);
        gguf_builder_strings(builder, "tokenizer.ggml.tokens", &texts[i], 1);
        gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, &type, 1);
        gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, &score, 1);
        assert_refused(builder, KVERN_ERR_FORMAT, "names no byte");
    }
}

static void what_would_change_a_text_is_refused(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_sp_metadata(builder);
    gguf_builder_bool(builder, "tokenizer.ggml.remove_extra_whitespaces", true);
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "remove_extra_whitespaces");
    builder = gguf_builder_create();
    tiny_sp_metadata(builder);
    gguf_builder_array(builder, "tokenizer.ggml.precompiled_charsmap", GGUF_UINT8, "abc", 3);
    assert_refused(builder, KVERN_ERR_UNSUPPORTED, "precompiled_charsmap");
    builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", "llama");
    gguf_builder_u32(builder, "tokenizer.ggml.add_space_prefix", 1);
    tiny_sp_tokens(builder);
    tiny_sp_types(builder);
    tiny_sp_scores(builder);
    assert_refused(builder, KVERN_ERR_FORMAT, "add_space_prefix");
}

// A vocabulary without byte tokens cannot write every text.
static void a_byte_without_a_token_is_named(void **state)
{
    (void)state;
    static const char *const texts[] = {"\u2581", "a", "\u2581a"};
    const float scores[] = {-1, -2, -3};
    tokenizer *t;
    gguf_builder *builder = gguf_builder_create();
    tiny_sp_names(builder);
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", texts, 3);
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, 3);
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    ASSERT_IDS(t, "a a", 0, 1, 2);
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    assert_int_equal(tokenizer_encode(t, "a ab", 4, 0, &ids, &error), KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "0x62"));
    assert_int_equal(ids.count, 0);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_sentencepiece),
        cmocka_unit_test(merges_by_score_then_from_the_left),
        cmocka_unit_test(user_defined_tokens_come_first),
        cmocka_unit_test(characters_without_a_token_become_bytes),
        cmocka_unit_test(control_tokens_where_allowed),
        cmocka_unit_test(what_holds_when_the_file_says_nothing),
        cmocka_unit_test(pieces_and_facts),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(scores_that_are_none),
        cmocka_unit_test(byte_tokens_that_name_no_byte),
        cmocka_unit_test(what_would_change_a_text_is_refused),
        cmocka_unit_test(a_byte_without_a_token_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
