// SPDX-License-Identifier: MIT
// The sampler against a slow definition that sorts everything, against known random numbers, and by
// counting.

#include "engine/sampling/sampler.h"
#include "tests/support/random.h"

#include <kvern/math.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static sampler *create(sampler_options options, size_t vocabulary)
{
    sampler *s;
    engine_error error = {0};
    if (sampler_create(&options, vocabulary, &s, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return s;
}

static int32_t next(sampler *s, const float *logits)
{
    int32_t token = -1;
    engine_error error = {0};
    if (sampler_next(s, logits, NULL, &token, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return token;
}

// The documented generator, written once more.
static double uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) / 9007199254740992.0;
}

// --- The definition: sort all, cut, weigh, walk.

typedef struct entry {
    float logit;
    int32_t id;
} entry;

static int by_rank(const void *left, const void *right)
{
    const entry *a = left;
    const entry *b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static double likelihood_sum(const entry *entries, size_t count, float max)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += (double)kvern_exp(entries[i].logit - max);
    return sum;
}

static int32_t definition(const float *logits, size_t count, const sampler_options *o,
                          uint64_t *random)
{
    entry entries[512];
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY)
            entries[kept++] = (entry){logits[i], (int32_t)i};
    float max = -INFINITY;
    for (size_t i = 0; i < kept; i++)
        max = entries[i].logit > max ? entries[i].logit : max;
    double total = likelihood_sum(entries, kept, max); // in order of id
    if (o->top_k > 0 || o->top_p < 1.0f)
        qsort(entries, kept, sizeof *entries, by_rank);
    if (o->top_k > 0 && o->top_k < kept) {
        kept = o->top_k;
        total = likelihood_sum(entries, kept, max);
    }
    if (o->top_p < 1.0f) {
        size_t keep = 1;
        while (keep < kept && likelihood_sum(entries, keep, max) < (double)o->top_p * total)
            keep++;
        kept = keep;
    }
    double sum = 0.0;
    float weights[512];
    size_t left = 0;
    for (size_t i = 0; i < kept; i++) {
        if (kvern_exp(entries[i].logit - max) < o->min_p)
            continue;
        weights[left] = kvern_exp((entries[i].logit - max) / o->temperature);
        sum += (double)weights[left];
        entries[left++] = entries[i];
    }
    const double target = uniform(random) * sum;
    double walked = 0.0;
    for (size_t i = 0; i < left; i++) {
        walked += (double)weights[i];
        if (walked > target)
            return entries[i].id;
    }
    return -1;
}

static void equals_the_definition(void **state)
{
    (void)state;
    static const uint32_t top_ks[] = {0, 1, 2, 7, 40, 1000};
    static const float top_ps[] = {1.0f, 0.95f, 0.5f, 0.01f, 0.0f};
    static const float min_ps[] = {0.0f, 0.05f, 0.9f, 1.0f};
    static const float temperatures[] = {0.01f, 0.7f, 1.0f, 3.0f};
    test_random random = test_random_seed(3);
    for (int round = 0; round < 6 * 5 * 4 * 4 * 5; round++) {
        float logits[300];
        const size_t count = 1 + test_random_below(&random, 300);
        const sampler_options options = {.temperature = temperatures[round % 4],
                                         .top_k = top_ks[round / 4 % 6],
                                         .top_p = top_ps[round / 24 % 5],
                                         .min_p = min_ps[round / 120 % 4],
                                         .seed = (uint64_t)round};
        sampler *s = create(options, count);
        uint64_t sequence = options.seed;
        for (int draw = 0; draw < 8; draw++) {
            for (size_t i = 0; i < count; i++) {
                logits[i] = 8.0f * test_random_signed(&random);
                if (draw % 2)
                    logits[i] = truncf(logits[i]); // many equal ones
                if (draw % 4 == 3 && i > 0 && test_random_below(&random, 3) == 0)
                    logits[i] = -INFINITY;
            }
            assert_int_equal(next(s, logits), definition(logits, count, &options, &sequence));
        }
        sampler_destroy(s);
    }
}

// --- Single facts

static void greedy_takes_the_largest_and_the_lowest_of_equals(void **state)
{
    (void)state;
    sampler *s = create(sampler_default_options(), 6);
    assert_int_equal(next(s, (float[]){1, 5, 2, 5, 0, 5}), 1);
    assert_int_equal(next(s, (float[]){-3, -3, -3, -3, -3, -2}), 5);
    assert_int_equal(next(s, (float[]){-0.0f, 0.0f, -1, -1, -1, -1}), 0);
    assert_int_equal(next(s, (float[]){-INFINITY, -INFINITY, -1e30f, -1, -INFINITY, -1}), 3);
    sampler_destroy(s);
}

// The first outputs of SplitMix64 with seed 1234567, as its authors' program gives them, decide
// these draws.
static void the_generator_is_splitmix64(void **state)
{
    (void)state;
    static const uint64_t known[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                     UINT64_C(16408922859458223821)};
    enum { COUNT = 256 };
    float logits[COUNT] = {0}; // equal weights: the draw is the top byte of the random number
    sampler_options options = sampler_default_options();
    options.temperature = 1.0f;
    options.seed = 1234567;
    sampler *s = create(options, COUNT);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(next(s, logits), known[i] >> 56);
    sampler_reseed(s, options.seed);
    assert_int_equal(next(s, logits), known[0] >> 56);
    sampler_destroy(s);
}

// The seed before a state of zero makes the first random number zero. A candidate without weight
// that stands first must not be drawn by it.
static void a_random_number_of_zero_draws_no_weightless_token(void **state)
{
    (void)state;
    const float logits[3] = {-1000.0f, 0.0f, 0.0f};
    const sampler_options o = {
        .temperature = 1.0f, .top_p = 1.0f, .seed = 0 - UINT64_C(0x9e3779b97f4a7c15)};
    sampler *s = create(o, 3);
    assert_int_equal(next(s, logits), 1);
    sampler_destroy(s);
}

static void equal_seeds_give_equal_tokens(void **state)
{
    (void)state;
    float logits[1000];
    test_random random = test_random_seed(17);
    for (size_t i = 0; i < 1000; i++)
        logits[i] = 4.0f * test_random_signed(&random);
    const sampler_options options = {
        .temperature = 0.8f, .top_k = 100, .top_p = 0.95f, .min_p = 0.01f, .seed = 42};
    sampler_options other = options;
    other.seed = 43;
    sampler *a = create(options, 1000);
    sampler *b = create(options, 1000);
    sampler *c = create(other, 1000);
    int different = 0;
    for (int i = 0; i < 200; i++) {
        const int32_t token = next(a, logits);
        assert_int_equal(token, next(b, logits));
        different += token != next(c, logits);
    }
    assert_true(different > 100);
    sampler_destroy(a);
    sampler_destroy(b);
    sampler_destroy(c);
}

// Counts of many draws against the exact distribution: five standard deviations.
static void frequencies_follow_the_distribution(void **state)
{
    (void)state;
    enum { COUNT = 8, DRAWS = 200000 };
    const float logits[COUNT] = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -3.0f, 1.5f, -INFINITY};
    static const float temperatures[] = {0.5f, 1.0f, 2.0f};
    for (size_t t = 0; t < 3; t++) {
        const sampler_options options = {.temperature = temperatures[t], .top_p = 1.0f, .seed = 99};
        sampler *s = create(options, COUNT);
        int counts[COUNT] = {0};
        for (int i = 0; i < DRAWS; i++)
            counts[next(s, logits)]++;
        double total = 0.0;
        for (size_t i = 0; i < COUNT; i++)
            total += exp((double)logits[i] / (double)temperatures[t]);
        for (size_t i = 0; i < COUNT; i++) {
            const double p = exp((double)logits[i] / (double)temperatures[t]) / total;
            const double deviation = sqrt(DRAWS * p * (1.0 - p));
            assert_true(fabs(counts[i] - DRAWS * p) <= 5.0 * deviation);
        }
        sampler_destroy(s);
    }
}

// Which tokens appear in many draws, as bits.
static unsigned drawn(sampler_options options, const float *logits, size_t count)
{
    unsigned seen = 0;
    sampler *s = create(options, count);
    for (int i = 0; i < 2000; i++)
        seen |= 1u << next(s, logits);
    sampler_destroy(s);
    return seen;
}

static void filters_keep_what_they_say(void **state)
{
    (void)state;
    // probabilities 0.4, 0.3, 0.2, 0.1 in mixed order
    const float logits[4] = {logf(0.2f), logf(0.4f), logf(0.1f), logf(0.3f)};
    const sampler_options plain = {.temperature = 1.0f, .top_p = 1.0f, .seed = 5};
    sampler_options o = plain;
    assert_int_equal(drawn(o, logits, 4), 0xf);
    o.top_k = 2;
    assert_int_equal(drawn(o, logits, 4), 0xa);
    o = plain;
    o.top_p = 0.65f;
    assert_int_equal(drawn(o, logits, 4), 0xa);
    o.top_p = 0.75f;
    assert_int_equal(drawn(o, logits, 4), 0xb);
    o.top_p = 0.0f;
    assert_int_equal(drawn(o, logits, 4), 0x2);
    o = plain;
    o.min_p = 0.4f;
    assert_int_equal(drawn(o, logits, 4), 0xb);
    o.min_p = 1.0f;
    assert_int_equal(drawn(o, logits, 4), 0x2);
    // The filters come before temperature: flattening the rest brings no token back.
    o.min_p = 0.4f;
    o.temperature = 100.0f;
    assert_int_equal(drawn(o, logits, 4), 0xb);
}

static void equal_logits_are_cut_at_the_lower_id(void **state)
{
    (void)state;
    const float logits[6] = {1, 2, 2, 2, 2, 0};
    sampler_options o = {.temperature = 1.0f, .top_k = 2, .top_p = 1.0f};
    assert_int_equal(drawn(o, logits, 6), 0x6);
}

static void extreme_temperatures_and_logits(void **state)
{
    (void)state;
    const float logits[4] = {-3.4e38f, 3.4e38f, 3.3e38f, 0.0f};
    sampler_options o = {.temperature = 1e-38f, .top_p = 0.999f};
    assert_int_equal(drawn(o, logits, 4), 0x2);
    o.temperature = 3.4e38f;
    o.top_p = 1.0f;
    assert_int_equal(drawn(o, logits, 4) & 0x2, 0x2);
    const float one[1] = {-5.0f};
    assert_int_equal(drawn(o, one, 1), 0x1);
}

// A refused call leaves the token and the random sequence alone.
static void bad_logits_are_refused(void **state)
{
    (void)state;
    const float good[3] = {1, 2, 3};
    const float bad[3][3] = {{1, NAN, 3}, {1, 2, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
    static const char *const words[3] = {"token 1", "token 2", "zero"};
    sampler_options o = {.temperature = 1.0f, .top_p = 1.0f, .seed = 1};
    for (int greedy = 0; greedy < 2; greedy++) {
        sampler *s = create(o, 3);
        sampler *same = create(o, 3);
        for (size_t i = 0; i < 3; i++) {
            int32_t token = 77;
            engine_error error = {0};
            assert_int_equal(sampler_next(s, bad[i], NULL, &token, &error), KVERN_ERR_ARGUMENT);
            assert_int_equal(token, 77);
            assert_non_null(strstr(error.text, words[i]));
            assert_int_equal(sampler_next(s, bad[i], NULL, &token, NULL), KVERN_ERR_ARGUMENT);
        }
        for (int i = 0; i < 20; i++)
            assert_int_equal(next(s, good), next(same, good));
        sampler_destroy(s);
        sampler_destroy(same);
        o.temperature = 0.0f;
    }
}

static void assert_refused(sampler_options options, size_t vocabulary, const char *word)
{
    sampler *s;
    engine_error error = {0};
    assert_int_equal(sampler_create(&options, vocabulary, &s, &error), KVERN_ERR_ARGUMENT);
    assert_null(s);
    assert_non_null(strstr(error.text, word));
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    const float bad_temperatures[] = {-0.1f, NAN, INFINITY};
    const float bad_parts[] = {-0.1f, 1.1f, NAN};
    for (size_t i = 0; i < 3; i++) {
        sampler_options o = sampler_default_options();
        o.temperature = bad_temperatures[i];
        assert_refused(o, 10, "temperature");
        o = sampler_default_options();
        o.top_p = bad_parts[i];
        assert_refused(o, 10, "top-p");
        o = sampler_default_options();
        o.min_p = bad_parts[i];
        assert_refused(o, 10, "min-p");
    }
    assert_refused(sampler_default_options(), 0, "vocabulary");
    assert_refused(sampler_default_options(), (size_t)INT32_MAX + 1, "vocabulary");
    sampler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_definition),
        cmocka_unit_test(greedy_takes_the_largest_and_the_lowest_of_equals),
        cmocka_unit_test(the_generator_is_splitmix64),
        cmocka_unit_test(a_random_number_of_zero_draws_no_weightless_token),
        cmocka_unit_test(equal_seeds_give_equal_tokens),
        cmocka_unit_test(frequencies_follow_the_distribution),
        cmocka_unit_test(filters_keep_what_they_say),
        cmocka_unit_test(equal_logits_are_cut_at_the_lower_id),
        cmocka_unit_test(extreme_temperatures_and_logits),
        cmocka_unit_test(bad_logits_are_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
