// SPDX-License-Identifier: MIT
// The tokenizer on Gemma 3's vocabulary of 262144 tokens: equality with the sentencepiece package
// (tests/golden/tokenizer/gemma3.json), any bytes, and the time it takes. KVERN_TEST_GEMMA3 is the
// path of Gemma 3 270M's GGUF file; without it the test is skipped.

#include "tests/support/check.h"
#include "tests/support/golden_json.h"
#include "tests/support/random.h"
#include "tests/support/real_model.h"
#include "tests/support/token_check.h"

#define VARIABLE "KVERN_TEST_GEMMA3"

static real_tokenizer real;

static int load_model(void **state)
{
    (void)state;
    return real_tokenizer_open(VARIABLE, &real);
}

static int drop_model(void **state)
{
    (void)state;
    return real_tokenizer_close(&real);
}

static void equals_the_reference(void **state)
{
    (void)state;
    json_t *golden = golden_json_open("tokenizer/gemma3.json", 250);
    token_check_golden(real.tokens, golden, false); // U+2581 comes back as a space
    json_decref(golden);
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
        assert_ok(tokenizer_encode(real.tokens, text, bytes, 0, &ids, NULL));
        token_check_text(real.tokens, &ids, text, bytes, 0);
        token_buffer_free(&ids);
    }
}

static void loads_and_encodes_in_time(void **state)
{
    (void)state;
    static const char *const units[][2] = {
        {"lines", "The miller's 12 wheels, turned by the caf\u00e9's stream, ground on.\n"},
        {"one line", "The miller's wheels, turned by the stream, ground on. "},
        {"one letter", "a"},
        {"spaces", " "},
    };
    real_tokenizer_expect_load_in_time(&real);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        real_tokenizer_expect_encode_in_time(&real, units[i][0], units[i][1]);
}

static void facts(void **state)
{
    (void)state;
    const tokenizer *t = real.tokens;
    assert_int_equal(tokenizer_size(t), 262144);
    assert_int_equal(tokenizer_bos(t), 2);
    assert_true(tokenizer_adds_bos(t));
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<end_of_turn>", 13)));
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<eos>", 5)));
    assert_false(tokenizer_is_end(t, tokenizer_find(t, "<start_of_turn>", 15)));
}

int main(void)
{
    if (real_model_is_missing(VARIABLE))
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(loads_and_encodes_in_time),
        cmocka_unit_test(facts),
    };
    return cmocka_run_group_tests(tests, load_model, drop_model);
}
