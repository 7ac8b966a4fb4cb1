// SPDX-License-Identifier: MIT
// What kvern eval adds up, against the definitions in double.

#include "cli/commands/divergence.h"
#include "tests/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCABULARY 301
#define POSITIONS 2500 // more than the first room of the list

static float reference[VOCABULARY], candidate[VOCABULARY];

// Probabilities: exp(logit) over the sum of all, in double.
static void probabilities(const float *logits, double out[VOCABULARY])
{
    double sum = 0;
    for (size_t i = 0; i < VOCABULARY; i++) {
        out[i] = exp((double)logits[i] - (double)logits[0]);
        sum += out[i];
    }
    for (size_t i = 0; i < VOCABULARY; i++)
        out[i] /= sum;
}

static double naive_kl(const double p[VOCABULARY], const double q[VOCABULARY])
{
    double sum = 0;
    for (size_t i = 0; i < VOCABULARY; i++)
        sum += p[i] * log(p[i] / q[i]);
    return sum;
}

static size_t naive_top(const float *logits)
{
    size_t top = 0;
    for (size_t i = 0; i < VOCABULARY; i++)
        top = logits[i] > logits[top] ? i : top;
    return top;
}

// Logits in a range of 2 * `range` around `center`, the candidate's `noise` apart.
static void fill(test_random *random, float center, float range, float noise)
{
    for (size_t i = 0; i < VOCABULARY; i++) {
        reference[i] = center + test_random_signed(random) * range;
        candidate[i] = reference[i] + test_random_signed(random) * noise;
    }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void assert_near(double got, double wanted, double relative, double absolute)
{
    if (!(fabs(got - wanted) <= relative * fabs(wanted) + absolute))
        fail_msg("%.12g instead of %.12g", got, wanted);
}

static void test_against_double(void **state)
{
    (void)state;
    static double all[POSITIONS];
    test_random random = test_random_seed(4);
    divergence d = {0};
    double p[VOCABULARY], q[VOCABULARY], loss = 0, sum = 0;
    size_t same = 0;
    for (size_t i = 0; i < POSITIONS; i++) {
        // Sharp and flat predictions, close and far ones, and logits far from zero.
        static const float CENTERS[] = {0, 40, -300}, RANGES[] = {0.1f, 5, 30};
        static const float NOISES[] = {0.001f, 0.1f, 2, 9};
        const size_t next = i * 7 % VOCABULARY;
        fill(&random, CENTERS[i % 3], RANGES[i / 3 % 3], NOISES[i / 9 % 4]);
        assert_int_equal(divergence_add(&d, reference, candidate, VOCABULARY, (int32_t)next, NULL),
                         KVERN_OK);
        probabilities(reference, p);
        probabilities(candidate, q);
        all[i] = naive_kl(p, q);
        assert_near((double)d.all[i], all[i], 2e-6, 2e-7);
        loss -= log(q[next]);
        sum += all[i];
        same += naive_top(reference) == naive_top(candidate);
    }
    assert_int_equal(d.count, POSITIONS);
    assert_int_equal(d.same_top, same);
    assert_true(same > POSITIONS / 10 && same < POSITIONS * 9 / 10);
    assert_near(log(divergence_perplexity(&d)), loss / POSITIONS, 1e-6, 0);
    assert_near(d.sum, sum, 1e-6, 0);
    qsort(all, POSITIONS, sizeof all[0], ascending);
    assert_near(d.largest, all[POSITIONS - 1], 2e-6, 0);
    assert_near(divergence_quantile(&d, 0.99), all[2474], 2e-6, 0); // 2475 do not exceed it
    assert_near(divergence_quantile(&d, 0.5), all[1249], 2e-6, 2e-7);
    assert_near(divergence_quantile(&d, 1), all[POSITIONS - 1], 2e-6, 0);
    assert_near(divergence_quantile(&d, 0), all[0], 2e-6, 2e-7);
    divergence_free(&d);
    assert_int_equal(d.count, 0);
}

// Equal predictions are exactly equal, by the same pointer or by the same numbers.
static void test_equal_predictions(void **state)
{
    (void)state;
    test_random random = test_random_seed(5);
    divergence numbers = {0}, pointer = {0};
    for (int32_t i = 0; i < 100; i++) {
        fill(&random, -20, 15, 0);
        assert_int_equal(divergence_add(&numbers, reference, candidate, VOCABULARY, i, NULL),
                         KVERN_OK);
        assert_int_equal(divergence_add(&pointer, reference, reference, VOCABULARY, i, NULL),
                         KVERN_OK);
    }
    assert_true(numbers.sum == 0 && numbers.largest == 0 && numbers.same_top == 100);
    assert_true(pointer.sum == 0 && pointer.largest == 0 && pointer.same_top == 100);
    assert_true(divergence_quantile(&numbers, 0.99) == 0);
    assert_true(divergence_perplexity(&numbers) == divergence_perplexity(&pointer));
    divergence_free(&numbers);
    divergence_free(&pointer);
}

static void test_no_positions(void **state)
{
    (void)state;
    divergence d = {0};
    assert_true(divergence_perplexity(&d) == 0);
    assert_true(divergence_quantile(&d, 0.99) == 0);
    divergence_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double),
        cmocka_unit_test(test_equal_predictions),
        cmocka_unit_test(test_no_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
