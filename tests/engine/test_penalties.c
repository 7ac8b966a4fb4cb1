// SPDX-License-Identifier: MIT
// Penalties and biases: values worked out by hand, a slow definition, and that neutral ones change
// no bit.

#include "engine/sampling/penalties.h"
#include "engine/sampling/sampler.h"
#include "tests/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCABULARY 40

static void values(void **state)
{
    (void)state;
    static const int32_t tokens[] = {0, 1, 0, 2, 0, 1};
    uint32_t counts[4] = {0};
    float logits[4] = {3.0f, -2.0f, 0.0f, 5.0f};
    const penalty_options options = {
        .repeat = 2.0f, .presence = 0.5f, .frequency = 0.25f, .window = PENALTY_WINDOW_ALL};
    penalties_apply(&options, &(sampled_sequence){.tokens = tokens, .count = 6}, counts, logits);
    const float expected[4] = {3.0f / 2 - 3 * 0.25f - 0.5f, -2.0f * 2 - 2 * 0.25f - 0.5f,
                               -0.25f - 0.5f, 5.0f};
    assert_memory_equal(logits, expected, sizeof expected);
    assert_memory_equal(counts, (uint32_t[4]){0}, sizeof counts);
}

// Only the newest tokens count, and guesses are newer than the sequence.
static void windows(void **state)
{
    (void)state;
    static const int32_t tokens[] = {0, 1, 2}, guesses[] = {3, 3};
    static const float expected[6][4] = {{9, 9, 9, 9}, {9, 9, 9, 8}, {9, 9, 9, 7},
                                         {9, 9, 8, 7}, {9, 8, 8, 7}, {8, 8, 8, 7}};
    for (size_t window = 0; window < 6; window++) {
        uint32_t counts[4] = {0};
        float logits[4] = {9, 9, 9, 9};
        penalties_apply(&(penalty_options){.frequency = 1.0f, .window = window},
                        &(sampled_sequence){tokens, 3, guesses, 2}, counts, logits);
        assert_memory_equal(logits, expected[window], sizeof logits);
    }
}

// The definition, token by token.
static float defined(const penalty_options *o, const int32_t *tokens, size_t count, int32_t token,
                     float logit)
{
    size_t occurrences = 0;
    for (size_t i = count > o->window ? count - o->window : 0; i < count; i++) {
        occurrences += tokens[i] == token;
    }
    if (occurrences == 0) {
        return logit;
    }
    const float repeated = logit > 0 ? logit / o->repeat : logit * o->repeat;
    return repeated - (float)occurrences * o->frequency - o->presence;
}

static void equals_the_definition(void **state)
{
    (void)state;
    test_random random = test_random_seed(5);
    uint32_t counts[VOCABULARY] = {0};
    for (int round = 0; round < 2000; round++) {
        int32_t tokens[100];
        float logits[VOCABULARY], before[VOCABULARY];
        const size_t count = test_random_below(&random, 100);
        const size_t known = test_random_below(&random, count + 1);
        const penalty_options options = {.repeat = 0.5f + (float)test_random_below(&random, 10),
                                         .presence = test_random_signed(&random),
                                         .frequency = test_random_signed(&random),
                                         .window = test_random_below(&random, 120)};
        for (size_t i = 0; i < count; i++) {
            tokens[i] = (int32_t)test_random_below(&random, VOCABULARY);
        }
        for (size_t i = 0; i < VOCABULARY; i++) {
            before[i] = logits[i] = 9 * test_random_signed(&random);
        }
        const sampled_sequence sequence = {tokens, known, tokens + known, count - known};
        penalties_apply(&options, &sequence, counts, logits);
        for (size_t i = 0; i < VOCABULARY; i++) {
            const float wanted = defined(&options, tokens, count, (int32_t)i, before[i]);
            assert_memory_equal(&logits[i], &wanted, sizeof wanted);
            assert_int_equal(counts[i], 0);
        }
    }
}

static sampler *create(const sampler_options *options)
{
    sampler *s;
    engine_error error = {0};
    if (sampler_create(options, VOCABULARY, &s, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return s;
}

static int32_t next(sampler *s, const float *logits, const int32_t *tokens, size_t count)
{
    int32_t token = -1;
    const sampled_sequence sequence = {.tokens = tokens, .count = count};
    assert_int_equal(sampler_next(s, logits, &sequence, &token, NULL), KVERN_OK);
    return token;
}

// Each of these is none: what is sampled is what was sampled before there were any.
static void neutral_penalties_change_nothing(void **state)
{
    (void)state;
    static const penalty_options neutral[] = {
        {.repeat = 1.0f, .window = 64}, {.repeat = 1.5f, .presence = 1.0f}, {.window = 64}};
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) {
        const sampler_options plain = {.temperature = 1.0f, .top_p = 0.9f, .seed = 3};
        sampler_options with = plain;
        with.penalties = neutral[i];
        sampler *a = create(&plain), *b = create(&with);
        test_random random = test_random_seed(9);
        int32_t tokens[50];
        for (size_t t = 0; t < 50; t++) {
            float logits[VOCABULARY];
            for (size_t l = 0; l < VOCABULARY; l++) {
                logits[l] = 4 * test_random_signed(&random);
            }
            tokens[t] = next(a, logits, NULL, 0);
            assert_int_equal(next(b, logits, tokens, t), tokens[t]);
        }
        sampler_destroy(a);
        sampler_destroy(b);
    }
}

// Greedy, too: the best token gives way to the next one as often as it occurs.
static void greedy_sees_penalties_and_biases(void **state)
{
    (void)state;
    static const int32_t once[] = {7}, twice[] = {7, 7};
    static const logit_bias forbidden[] = {{7, -INFINITY}}, favoured[] = {{9, 1.5f}, {9, 1.0f}};
    float logits[VOCABULARY] = {0};
    logits[7] = 3.0f;
    logits[8] = 1.0f;
    sampler_options options = {.penalties = {.frequency = 1.25f, .window = 8}};
    sampler *s = create(&options);
    assert_int_equal(next(s, logits, NULL, 0), 7);
    assert_int_equal(next(s, logits, once, 1), 7);
    assert_int_equal(next(s, logits, twice, 2), 8);
    assert_int_equal(next(s, logits, once, 1), 7); // nothing is remembered
    sampler_destroy(s);
    options = (sampler_options){.biases = forbidden, .bias_count = 1};
    s = create(&options);
    assert_int_equal(next(s, logits, NULL, 0), 8);
    sampler_destroy(s);
    options = (sampler_options){.biases = favoured, .bias_count = 2};
    s = create(&options);
    logits[7] = 2.0f;
    assert_int_equal(next(s, logits, NULL, 0), 9);
    assert_true(logits[7] == 2.0f && logits[9] == 0.0f); // read only
    sampler_destroy(s);
}

static void what_leaves_nothing_is_refused(void **state)
{
    (void)state;
    static const logit_bias all[] = {{0, -INFINITY}, {1, -INFINITY}};
    const sampler_options options = {.biases = all, .bias_count = 2};
    const float logits[2] = {1, 2};
    sampler *s;
    int32_t token = 77;
    assert_int_equal(sampler_create(&options, 2, &s, NULL), KVERN_OK);
    assert_int_equal(sampler_next(s, logits, NULL, &token, NULL), KVERN_ERR_ARGUMENT);
    assert_int_equal(token, 77);
    sampler_destroy(s);
}

static void refused(const sampler_options *options, const char *part)
{
    sampler *s;
    engine_error error = {0};
    assert_int_equal(sampler_create(options, VOCABULARY, &s, &error), KVERN_ERR_ARGUMENT);
    assert_null(s);
    assert_non_null(strstr(error.text, part));
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    refused(&(sampler_options){.penalties = {.repeat = -1}}, "repeat penalty is -1");
    refused(&(sampler_options){.penalties = {.repeat = NAN}}, "repeat");
    refused(&(sampler_options){.penalties = {.presence = INFINITY}}, "presence");
    refused(&(sampler_options){.penalties = {.frequency = NAN}}, "frequency");
    const logit_bias bad[] = {{VOCABULARY, 1}, {-1, 1}, {3, NAN}, {3, INFINITY}};
    for (size_t i = 0; i < 4; i++) {
        refused(&(sampler_options){.biases = &bad[i], .bias_count = 1}, "bias");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(windows),
        cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(neutral_penalties_change_nothing),
        cmocka_unit_test(greedy_sees_penalties_and_biases),
        cmocka_unit_test(what_leaves_nothing_is_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
