// SPDX-License-Identifier: MIT
// The byte-pair tokenizer on a vocabulary that is known by heart. Refusals are in
// test_tokenizer_hostile.c, word splitting in test_tokenizer_split.c, a real vocabulary in
// test_tokenizer_real.c.

#include "engine/tokenizer/tokenizer.h"
#include "tests/support/random.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/support/token_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static token_buffer encode(const tokenizer *t, const char *text, size_t bytes, unsigned flags)
{
    token_buffer out = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    if (tokenizer_encode(t, text, bytes, flags, &out, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return out;
}

static void assert_ids(const token_buffer *ids, const int32_t *expected, size_t count)
{
    assert_int_equal(ids->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids->ids[i], expected[i]);
}

static void assert_encodes(const tokenizer *t, const char *text, unsigned flags,
                           const int32_t *expected, size_t count)
{
    token_buffer ids = encode(t, text, strlen(text), flags);
    assert_ids(&ids, expected, count);
    token_buffer_free(&ids);
}

#define IDS(...)                                                                                   \
    (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

#define BYTE(c) (TINY_BYTE + (unsigned char)(c))

// The id of a token by its text.
static int32_t id_of(const tokenizer *t, const char *text)
{
    const int32_t id = tokenizer_find(t, text, strlen(text));
    if (id == TOKENIZER_NO_TOKEN)
        fail_msg("no token \"%s\"", text);
    return id;
}

static void assert_round_trip(const tokenizer *t, const char *text, size_t bytes, unsigned flags)
{
    token_buffer ids = encode(t, text, bytes, flags);
    token_check_text(t, &ids, text, bytes, flags);
    token_buffer_free(&ids);
}

static const char *const all_pre[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

// --- Merges

static void merges_by_rank_then_from_the_left(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    assert_encodes(t, " the", 0, IDS(id_of(t, "\u0120the")));
    assert_encodes(t, "hello", 0, IDS(id_of(t, "hello")));
    assert_encodes(t, " hell", 0, IDS(id_of(t, "\u0120hell")));
    // "b c" ranks before "a b", so the left pair loses; alone it merges.
    assert_encodes(t, "abc", 0, IDS(BYTE('a'), id_of(t, "bc")));
    assert_encodes(t, "abx", 0, IDS(id_of(t, "ab"), BYTE('x')));
    assert_encodes(t, "abbc", 0, IDS(id_of(t, "abbc")));
    // Equal pairs merge from the left: aa aa a, and then "aa a" ranks before "aa aa".
    assert_encodes(t, "aaa", 0, IDS(id_of(t, "aaa")));
    assert_encodes(t, "aaaaa", 0, IDS(id_of(t, "aa"), id_of(t, "aaa")));
    assert_encodes(t, "aaaaaaaa", 0, IDS(id_of(t, "aaaaaaaa")));
    assert_encodes(t, "caf\u00e9", 0,
                   IDS(BYTE('c'), BYTE('a'), BYTE('f'), id_of(t, "\u00c3\u00a9")));
    assert_encodes(t, "", 0, NULL, 0);
    tokenizer_destroy(t);
}

static void words_bound_merges(void **state)
{
    (void)state;
    tokenizer *gpt2 = tiny_tokenizer_create("gpt-2");
    tokenizer *smollm = tiny_tokenizer_create("smollm");
    assert_encodes(gpt2, "12", 0, IDS(id_of(gpt2, "12")));
    assert_encodes(smollm, "12", 0, IDS(BYTE('1'), BYTE('2')));
    // Of a run of spaces the last one goes to the word.
    assert_encodes(gpt2, "   the", 0, IDS(id_of(gpt2, "\u0120\u0120"), id_of(gpt2, "\u0120the")));
    assert_encodes(gpt2, "he's", 0, IDS(id_of(gpt2, "he"), id_of(gpt2, "'s")));
    tokenizer_destroy(gpt2);
    tokenizer_destroy(smollm);
}

// Every pair of rank, one after another, by the definition; quadratic.
static size_t merge_slowly(const tokenizer *t, int32_t *ids, size_t count)
{
    for (size_t rank = 0; rank < tiny_merge_count; rank++) {
        char left[32];
        char right[32];
        assert_int_equal(sscanf(tiny_merges[rank], "%31s %31s", left, right), 2);
        char product[64];
        snprintf(product, sizeof product, "%s%s", left, right);
        const int32_t made = id_of(t, product);
        bool merged = false;
        for (size_t i = 0; !tokenizer_is_control(t, made) && i + 1 < count; i++) {
            if (ids[i] != id_of(t, left) || ids[i + 1] != id_of(t, right))
                continue;
            ids[i] = made;
            memmove(ids + i + 1, ids + i + 2, (count - i - 2) * sizeof *ids);
            count--;
            merged = true;
            break;
        }
        if (merged)
            rank = SIZE_MAX; // from the best rank again
    }
    return count;
}

static void merging_equals_the_definition(void **state)
{
    (void)state;
    static const char alphabet[] = "abchelloinertv";
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    test_random random = test_random_seed(23);
    for (int round = 0; round < 3000; round++) {
        char word[40];
        int32_t expected[40];
        const size_t size = 1 + test_random_below(&random, sizeof word);
        const size_t letters = 3 + test_random_below(&random, sizeof alphabet - 3);
        for (size_t i = 0; i < size; i++) {
            word[i] = alphabet[test_random_below(&random, letters)];
            expected[i] = BYTE(word[i]);
        }
        const size_t count = merge_slowly(t, expected, size);
        token_buffer ids = encode(t, word, size, 0);
        assert_ids(&ids, expected, count);
        token_buffer_free(&ids);
    }
    tokenizer_destroy(t);
}

static void whole_words_where_the_pre_tokenizer_says_so(void **state)
{
    (void)state;
    // "aaab" is a token that no merge makes.
    const char *tokens[300];
    size_t count = tiny_token_count();
    for (size_t i = 0; i < count; i++)
        tokens[i] = tiny_token_text(i);
    tokens[count++] = "aaab";
    tokens[count++] = "\u0120qqq";
    for (int whole = 0; whole < 2; whole++) {
        gguf_builder *builder = gguf_builder_create();
        tiny_tokenizer_names(builder, whole ? "llama-bpe" : "gpt-2");
        gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, count);
        tiny_tokenizer_merges(builder);
        tokenizer *t;
        engine_error error = {0};
        assert_int_equal(tiny_tokenizer_build(builder, &t, &error), KVERN_OK);
        if (whole) {
            assert_encodes(t, "aaab qqq", 0, IDS((int32_t)count - 2, (int32_t)count - 1));
            assert_encodes(t, "aaabx", 0, IDS(id_of(t, "aaa"), BYTE('b'), BYTE('x')));
        } else {
            assert_encodes(t, "aaab", 0, IDS(id_of(t, "aaa"), BYTE('b')));
        }
        tokenizer_destroy(t);
    }
}

// --- Special tokens

static void control_tokens_only_where_allowed(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    assert_encodes(t, "a<|im_end|>b", TOKENIZER_PARSE_SPECIAL,
                   IDS(BYTE('a'), TINY_IM_END, BYTE('b')));
    assert_encodes(t, "<|im_start|><|im_end|>", TOKENIZER_PARSE_SPECIAL,
                   IDS(TINY_IM_START, TINY_IM_END));
    assert_encodes(t, "<unk>", TOKENIZER_PARSE_SPECIAL, IDS(TINY_UNKNOWN));
    assert_encodes(t, "<|", 0, IDS(BYTE('<'), BYTE('|')));
    token_buffer raw = encode(t, "a<|im_end|>b<unk>", 17, 0);
    for (size_t i = 0; i < raw.count; i++)
        assert_true(raw.ids[i] >= TINY_BYTE);
    token_buffer_free(&raw);
    tokenizer_destroy(t);
}

// --- Marks

enum { MARK_START = 4, MARK_END, TAG, PLAIN_MARK, PLAIN_TAG };

// A vocabulary whose marks have other types than control.
static tokenizer *with_marks(const char *model, const char *template)
{
    static const char *const texts[] = {
        "a", "b", "<", "|", "<|im_start|>", "<end>", "<b>", "<|x|>", "<|y|>",
        "e", "n", "d", ">", "im",           "x",     "<|x", "|>"};
    static const int32_t types[] = {1, 1, 1, 1, 4, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const float scores[sizeof types / sizeof *types] = {0};
    tokenizer *t;
    engine_error error = {0};
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", model);
    gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", texts, 17);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, 17);
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, 17);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    gguf_builder_bool(builder, "tokenizer.ggml.add_space_prefix", false);
    if (template)
        gguf_builder_string(builder, "tokenizer.chat_template", template);
    if (tiny_tokenizer_build(builder, &t, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return t;
}

// Tokens that the template has, and those that every template of a kind has, are control tokens;
// tags that it does not have stay part of ordinary text.
static void marks_are_control_tokens(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "llama"};
    for (size_t i = 0; i < 2; i++) {
        tokenizer *t = with_marks(models[i], "x <end> <|x|> </b> {{ '<' }}");
        assert_true(tokenizer_is_mark(t, MARK_START)); // known
        assert_true(tokenizer_is_mark(t, MARK_END));
        assert_true(tokenizer_is_mark(t, PLAIN_MARK));
        assert_false(tokenizer_is_mark(t, TAG));
        assert_false(tokenizer_is_mark(t, PLAIN_TAG));
        assert_false(tokenizer_is_mark(t, 0));
        assert_false(tokenizer_is_mark(t, -1));
        assert_encodes(t, "<end><b>", 0, IDS(2, 9, 10, 11, 12, TAG));
        assert_encodes(t, "<end><b>", TOKENIZER_PARSE_SPECIAL, IDS(MARK_END, TAG));
        assert_encodes(t, "<|x|>", TOKENIZER_PARSE_SPECIAL, IDS(PLAIN_MARK));
        assert_int_equal(tokenizer_piece(t, PLAIN_MARK).size, 0); // is not shown
        assert_int_equal(tokenizer_piece(t, MARK_END).size, 5);   // as "<think>", which is
        tokenizer_destroy(t);
        t = with_marks(models[i], NULL);
        assert_true(tokenizer_is_mark(t, MARK_START));
        assert_false(tokenizer_is_mark(t, MARK_END));
        assert_encodes(t, "<end>", 0, IDS(MARK_END));
        tokenizer_destroy(t);
    }
}

// "<|im_end|>" ends an answer whatever its type, if it is a mark.
static void marks_end_an_answer(void **state)
{
    (void)state;
    for (int32_t type = 1; type <= 4; type += 3) {
        gguf_builder *builder = gguf_builder_create();
        tokenizer *t;
        gguf_builder_string(builder, "tokenizer.ggml.model", "gpt2");
        gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
        gguf_builder_strings(builder, "tokenizer.ggml.tokens",
                             (const char *[]){"<|im_end|>", "</s>", "<|eot_id|>"}, 3);
        gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32,
                           (int32_t[]){type, type, type}, 3);
        gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
        assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
        assert_true(tokenizer_is_end(t, 0));
        assert_false(tokenizer_is_end(t, 1)); // a tag of texts, unless a template has it
        assert_true(tokenizer_is_end(t, 2));
        tokenizer_destroy(t);
    }
}

// The last merge makes the control token "evil": what a user types must not get there.
static void merges_make_no_control_token(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        tokenizer *t = tiny_tokenizer_create(all_pre[i]);
        assert_encodes(t, "evil", 0, IDS(id_of(t, "ev"), id_of(t, "il")));
        assert_encodes(t, "evil", TOKENIZER_PARSE_SPECIAL, IDS(TINY_EVIL));
        tokenizer_destroy(t);
    }
}

static void user_defined_tokens_everywhere_and_the_longest(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    for (unsigned flags = 0; flags <= TOKENIZER_PARSE_SPECIAL; flags += TOKENIZER_PARSE_SPECIAL) {
        assert_encodes(t, "x<tool>y", flags, IDS(BYTE('x'), TINY_TOOL, BYTE('y')));
        assert_encodes(t, "<tool>call<tool>cal", flags,
                       IDS(TINY_TOOL_CALL, TINY_TOOL, BYTE('c'), BYTE('a'), BYTE('l')));
        assert_encodes(t, "[PAD6]", flags,
                       IDS(BYTE('['), BYTE('P'), BYTE('A'), BYTE('D'), BYTE('6'), BYTE(']')));
    }
    tokenizer_destroy(t);
}

static void parts_separate_marks_from_what_a_user_wrote(void **state)
{
    (void)state;
    static const char text[] = "<|im_start|>he<|im_end|>ll<|im_end|>";
    const tokenizer_part parts[] = {{12, true}, {2, true}, {10, false}, {2, false}, {10, true}};
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode_parts(t, text, parts, 5, 0, &ids, NULL), KVERN_OK);
    assert_int_equal(ids.ids[0], TINY_IM_START);
    assert_int_equal(ids.ids[1], id_of(t, "he"));
    assert_int_equal(ids.ids[ids.count - 2], id_of(t, "ll"));
    assert_int_equal(ids.ids[ids.count - 1], TINY_IM_END);
    for (size_t i = 2; i < ids.count - 1; i++)
        assert_true(ids.ids[i] >= TINY_BYTE);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

static void parts_do_not_cut_words_and_make_no_marks(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    const tokenizer_part word[] = {{1, true}, {0, false}, {2, false}, {2, true}};
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode_parts(t, "hello", word, 4, 0, &ids, NULL), KVERN_OK);
    assert_ids(&ids, IDS(id_of(t, "hello")));
    token_buffer_free(&ids);
    const tokenizer_part mark[] = {{5, true}, {5, true}};
    assert_int_equal(tokenizer_encode_parts(t, "<|im_end|>", mark, 2, 0, &ids, NULL), KVERN_OK);
    assert_true(ids.count > 1 && ids.ids[0] == BYTE('<'));
    token_buffer_free(&ids);
    assert_int_equal(tokenizer_encode_parts(t, "", NULL, 0, 0, &ids, NULL), KVERN_OK);
    assert_int_equal(ids.count, 0);
    tokenizer_destroy(t);
}

static void bos_when_the_file_asks_for_it(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        int said; // add_bos_token: 0, 1, or -1 for no key
        bool adds;
    } cases[] = {{"gpt-2", -1, false},    {"gpt-2", 1, true},      {"gpt-2", 0, false},
                 {"llama-bpe", -1, true}, {"llama-bpe", 0, false}, {"qwen2", -1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_builder *builder = gguf_builder_create();
        tiny_tokenizer_metadata(builder, cases[i].pre);
        if (cases[i].said >= 0)
            gguf_builder_bool(builder, "tokenizer.ggml.add_bos_token", cases[i].said);
        tokenizer *t;
        assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
        assert_int_equal(tokenizer_adds_bos(t), cases[i].adds);
        assert_encodes(t, "a", 0, IDS(BYTE('a')));
        if (cases[i].adds) {
            assert_encodes(t, "a", TOKENIZER_ADD_BOS, IDS(TINY_IM_START, BYTE('a')));
            assert_encodes(t, "", TOKENIZER_ADD_BOS, IDS(TINY_IM_START));
        } else {
            assert_encodes(t, "a", TOKENIZER_ADD_BOS, IDS(BYTE('a')));
        }
        tokenizer_destroy(t);
    }
}

static void encoding_appends(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, "he", 2, 0, &ids, NULL), KVERN_OK);
    assert_int_equal(tokenizer_encode(t, "ll", 2, 0, &ids, NULL), KVERN_OK);
    assert_ids(&ids, IDS(id_of(t, "he"), id_of(t, "ll")));
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

// --- Round trips

static void every_byte_and_pair_of_bytes(void **state)
{
    (void)state;
    for (size_t pre = 0; pre < 4; pre++) {
        tokenizer *t = tiny_tokenizer_create(all_pre[pre]);
        for (unsigned pair = 0; pair < 65536; pair++) {
            const char text[2] = {(char)(pair >> 8), (char)pair};
            if (pair < 256)
                assert_round_trip(t, text + 1, 1, 0);
            assert_round_trip(t, text, 2, 0);
        }
        tokenizer_destroy(t);
    }
}

static void random_bytes(void **state)
{
    (void)state;
    static const char *const fragments[] = {
        "<|im_end|>",   "<tool>",   "\u4e2d\u6587",   "\U0001f468\u200d\U0001f469",
        "e\u0301",      "\r\n",     "    ",           "12 345",
        "\u0645\u0631", "\xff\xfe", "\xf0\x9f",       "'s 'S",
        "\xc3",         "\u3000 ",  "hello the aaaa", "\xed\xa0\x80",
        "\t\t",         "!?"};
    test_random random = test_random_seed(31);
    for (size_t pre = 0; pre < 4; pre++) {
        tokenizer *t = tiny_tokenizer_create(all_pre[pre]);
        for (int round = 0; round < 3000; round++) {
            char text[512];
            size_t size = 0;
            while (size < 400 && test_random_below(&random, 20) > 0) {
                const char *fragment = fragments[test_random_below(&random, 18)];
                if (test_random_below(&random, 3) == 0) {
                    text[size++] = (char)test_random_next(&random);
                } else {
                    memcpy(text + size, fragment, strlen(fragment));
                    size += strlen(fragment);
                }
            }
            assert_round_trip(t, text, size, 0);
            assert_round_trip(t, text, size, TOKENIZER_PARSE_SPECIAL);
        }
        tokenizer_destroy(t);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// A quadratic merge, or a pre-tokenizer that looks at the rest of the text for every word, would
// take hours.
static void long_words_and_runs(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    static const char *const patterns[] = {"a", "hello", " ",      "\n",   " \n",
                                           "1", "\xff",  "\u00e9", "<|im_"};
    char *text = malloc(BYTES);
    const double start = seconds();
    for (size_t pre = 0; pre < 4; pre++) {
        tokenizer *t = tiny_tokenizer_create(all_pre[pre]);
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            for (size_t i = 0; i < BYTES; i++)
                text[i] = patterns[p][i % strlen(patterns[p])];
            assert_round_trip(t, text, BYTES, TOKENIZER_PARSE_SPECIAL);
        }
        tokenizer_destroy(t);
    }
    assert_true(seconds() - start < 300.0);
    free(text);
}

// --- Access

static void pieces(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("gpt-2");
    const tokenizer_text the = tokenizer_piece(t, id_of(t, "\u0120the"));
    assert_int_equal(the.size, 4);
    assert_memory_equal(the.data, " the", 4);
    for (unsigned byte = 0; byte < 256; byte++) {
        const tokenizer_text piece = tokenizer_piece(t, (int32_t)(TINY_BYTE + byte));
        assert_int_equal(piece.size, 1);
        assert_int_equal((unsigned char)piece.data[0], byte);
    }
    static const int32_t hidden[] = {TINY_IM_END, TINY_UNKNOWN, TINY_UNUSED, TINY_EMPTY,
                                     -1,          INT32_MAX,    INT32_MIN};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        assert_int_equal(tokenizer_piece(t, hidden[i]).size, 0);
    assert_memory_equal(tokenizer_piece(t, TINY_TOOL).data, "<tool>", 6);
    assert_memory_equal(tokenizer_piece_special(t, TINY_IM_END).data, "<|im_end|>", 10);
    assert_int_equal(tokenizer_piece_special(t, TINY_IM_END).size, 10);
    assert_int_equal(tokenizer_piece_special(t, (int32_t)tokenizer_size(t)).size, 0);
    tokenizer_destroy(t);
}

static void facts(void **state)
{
    (void)state;
    tokenizer *t = tiny_tokenizer_create("smollm");
    assert_int_equal(tokenizer_size(t), tiny_token_count());
    assert_int_equal(tokenizer_bos(t), TINY_IM_START);
    assert_int_equal(tokenizer_eos(t), TINY_IM_END);
    assert_int_equal(tokenizer_eot(t), TOKENIZER_NO_TOKEN);
    assert_int_equal(tokenizer_padding(t), TOKENIZER_NO_TOKEN);
    assert_int_equal(tokenizer_unknown(t), TINY_UNKNOWN);
    assert_string_equal(tokenizer_name(t), "gpt2");
    assert_string_equal(tokenizer_pre(t), "smollm");
    assert_true(tokenizer_is_control(t, TINY_EVIL));
    assert_false(tokenizer_is_control(t, TINY_TOOL));
    assert_false(tokenizer_is_control(t, -1));
    assert_true(tokenizer_is_end(t, TINY_IM_END));
    assert_true(tokenizer_is_end(t, TINY_ENDOFTEXT));
    assert_false(tokenizer_is_end(t, TINY_IM_START));
    assert_false(tokenizer_is_end(t, TOKENIZER_NO_TOKEN));
    assert_int_equal(tokenizer_find(t, "nowhere", 7), TOKENIZER_NO_TOKEN);
    assert_int_equal(tokenizer_find(t, "", 0), TOKENIZER_NO_TOKEN);
    tokenizer_destroy(t);
    tokenizer_destroy(NULL);
}

static void end_tokens_that_the_file_names(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "gpt-2");
    gguf_builder_u32(builder, "tokenizer.ggml.eot_token_id", TINY_EVIL);
    gguf_builder_u32(builder, "tokenizer.ggml.eom_token_id", TINY_TOOL);
    gguf_builder_u32(builder, "tokenizer.ggml.fim_pad_token_id", TINY_BYTE);
    tokenizer *t;
    assert_int_equal(tiny_tokenizer_build(builder, &t, NULL), KVERN_OK);
    assert_true(tokenizer_is_end(t, TINY_EVIL));
    assert_true(tokenizer_is_end(t, TINY_TOOL));
    assert_int_equal(tokenizer_eot(t), TINY_EVIL);
    assert_true(tokenizer_is_end(t, TINY_BYTE));
    assert_string_equal(tokenizer_pre(t), "gpt-2");
    tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank_then_from_the_left),
        cmocka_unit_test(words_bound_merges),
        cmocka_unit_test(merging_equals_the_definition),
        cmocka_unit_test(whole_words_where_the_pre_tokenizer_says_so),
        cmocka_unit_test(control_tokens_only_where_allowed),
        cmocka_unit_test(marks_are_control_tokens),
        cmocka_unit_test(marks_end_an_answer),
        cmocka_unit_test(merges_make_no_control_token),
        cmocka_unit_test(user_defined_tokens_everywhere_and_the_longest),
        cmocka_unit_test(parts_separate_marks_from_what_a_user_wrote),
        cmocka_unit_test(parts_do_not_cut_words_and_make_no_marks),
        cmocka_unit_test(bos_when_the_file_asks_for_it),
        cmocka_unit_test(encoding_appends),
        cmocka_unit_test(every_byte_and_pair_of_bytes),
        cmocka_unit_test(random_bytes),
        cmocka_unit_test(long_words_and_runs),
        cmocka_unit_test(pieces),
        cmocka_unit_test(facts),
        cmocka_unit_test(end_tokens_that_the_file_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
