// SPDX-License-Identifier: MIT
// The tokenizer on Gemma 3's vocabulary of 262144 tokens: equality with the sentencepiece package
// (tests/golden/tokenizer/gemma3.json), any bytes, and the time it takes. KVERN_TEST_GEMMA3 is the
// path of Gemma 3 270M's GGUF file; without it the test is skipped.

#include "engine/tokenizer.h"
#include "tests/support/random.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static gguf_file *file;
static tokenizer *t;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int load_model(void **state)
{
    (void)state;
    engine_error error = {0};
    if (gguf_open(getenv("KVERN_TEST_GEMMA3"), &file, &error) != KVERN_OK ||
        tokenizer_create(file, &t, &error) != KVERN_OK) {
        fprintf(stderr, "%s\n", error.text);
        return -1;
    }
    return 0;
}

static int drop_model(void **state)
{
    (void)state;
    tokenizer_destroy(t);
    gguf_close(file);
    return 0;
}

static bool equals(const token_buffer *ids, const json_t *expected)
{
    if (ids->count != json_array_size(expected))
        return false;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] != json_integer_value(json_array_get(expected, i)))
            return false;
    return true;
}

static void equals_the_reference(void **state)
{
    (void)state;
    json_error_t problem;
    json_t *golden =
        json_load_file(KVERN_TESTS_DIR "/golden/tokenizer/gemma3.json", JSON_ALLOW_NUL, &problem);
    if (!golden)
        fail_msg("gemma3.json: %s", problem.text);
    assert_true(json_array_size(golden) > 250);
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const json_t *entry = json_array_get(golden, i);
        const json_t *text = json_object_get(entry, "text");
        const unsigned flags =
            json_is_true(json_object_get(entry, "special")) ? TOKENIZER_PARSE_SPECIAL : 0;
        token_buffer ids = TOKEN_BUFFER_INIT;
        engine_error error = {0};
        if (tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids,
                             &error) != KVERN_OK)
            fail_msg("case %zu: %s", i, error.text);
        if (!equals(&ids, json_object_get(entry, "ids")))
            fail_msg("case %zu (\"%s\") differs", i, json_string_value(text));
        token_buffer_free(&ids);
    }
    json_decref(golden);
}

static void assert_decodes_to(const token_buffer *ids, const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        const tokenizer_text piece = tokenizer_piece(t, ids->ids[i]);
        assert_true(piece.size > 0 && piece.size <= bytes - at);
        assert_memory_equal(piece.data, text + at, piece.size);
        at += piece.size;
    }
    assert_int_equal(at, bytes);
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    test_random random = test_random_seed(9);
    for (size_t run = 0; run < 2000; run++) {
        char text[64];
        const size_t bytes = test_random_below(&random, sizeof text);
        for (size_t i = 0; i < bytes; i++)
            text[i] = (char)test_random_next(&random);
        token_buffer ids = TOKEN_BUFFER_INIT;
        assert_int_equal(tokenizer_encode(t, text, bytes, 0, &ids, NULL), KVERN_OK);
        assert_decodes_to(&ids, text, bytes);
        token_buffer_free(&ids);
    }
}

static void encode_in_time(const char *name, const char *unit, double most)
{
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = unit[i % strlen(unit)];
    const double start = seconds();
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, text, BYTES, 0, &ids, NULL), KVERN_OK);
    const double taken = seconds() - start;
    print_message("1 MB of %s encoded in %.0f ms\n", name, taken * 1e3);
    assert_true(taken < most);
    assert_decodes_to(&ids, text, BYTES);
    token_buffer_free(&ids);
    free(text);
}

// Far above what an idle machine needs: this is here to catch another order of growth.
static void loads_and_encodes_in_time(void **state)
{
    (void)state;
    tokenizer *again;
    const double start = seconds();
    assert_int_equal(tokenizer_create(file, &again, NULL), KVERN_OK);
    const double taken = seconds() - start;
    print_message("loaded in %.0f ms\n", taken * 1e3);
    assert_true(taken < 2.0);
    tokenizer_destroy(again);
    encode_in_time("lines",
                   "The miller's 12 wheels, turned by the caf\u00e9's stream, ground on.\n", 10.0);
    encode_in_time("one line", "The miller's wheels, turned by the stream, ground on. ", 10.0);
    encode_in_time("one letter", "a", 10.0);
    encode_in_time("spaces", " ", 10.0);
}

static void facts(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_size(t), 262144);
    assert_int_equal(tokenizer_bos(t), 2);
    assert_true(tokenizer_adds_bos(t));
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<end_of_turn>", 13)));
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<eos>", 5)));
    assert_false(tokenizer_is_end(t, tokenizer_find(t, "<start_of_turn>", 15)));
}

int main(void)
{
    if (!getenv("KVERN_TEST_GEMMA3")) {
        printf("skipped: KVERN_TEST_GEMMA3 is not set\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(loads_and_encodes_in_time),
        cmocka_unit_test(facts),
    };
    return cmocka_run_group_tests(tests, load_model, drop_model);
}
