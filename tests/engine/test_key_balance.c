// SPDX-License-Identifier: MIT
// Norm weights that are moved between queries and keys: products keep their bits, rotary pairs stay
// pairs, and what a quantized key costs falls.

#include "engine/model/key_balance.h"
#include "tests/support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define DIM 80

typedef struct weights {
    float q[DIM], k[DIM];
} weights;

static weights random_weights(test_random *random)
{
    weights w;
    for (size_t d = 0; d < DIM; d++) {
        w.q[d] = ldexpf(test_random_signed(random), (int)(test_random_next(random) % 12) - 6);
        w.k[d] = ldexpf(test_random_signed(random), (int)(test_random_next(random) % 12) - 6);
    }
    return w;
}

static int exponent_at(const weights *before, const weights *after, size_t d)
{
    const int exponent = ilogbf(after->k[d] / before->k[d]);
    assert_true(after->k[d] == ldexpf(before->k[d], exponent));
    assert_true(after->q[d] == ldexpf(before->q[d], -exponent));
    return exponent;
}

static void check_pairs(size_t rope_dim, engine_rope_style style)
{
    test_random random = test_random_seed(rope_dim + (size_t)style);
    const weights before = random_weights(&random);
    weights after = before;
    key_balance(after.q, after.k, DIM, rope_dim, style);
    assert_memory_not_equal(&after, &before, sizeof after);
    for (size_t i = 0; i < rope_dim / 2; i++) {
        const size_t a = style == ENGINE_ROPE_PAIRS ? 2 * i : i;
        const size_t b = style == ENGINE_ROPE_PAIRS ? 2 * i + 1 : i + rope_dim / 2;
        assert_int_equal(exponent_at(&before, &after, a), exponent_at(&before, &after, b));
    }
    for (size_t d = rope_dim; d < DIM; d++) {
        (void)exponent_at(&before, &after, d);
    }
}

static void products_and_rotary_pairs_stay_exact(void **state)
{
    (void)state;
    const size_t rope_dims[] = {0, 2, 20, 64, DIM};
    for (size_t i = 0; i < sizeof rope_dims / sizeof *rope_dims; i++) {
        check_pairs(rope_dims[i], ENGINE_ROPE_PAIRS);
        check_pairs(rope_dims[i], ENGINE_ROPE_HALVES);
    }
}

// What the error of a score grows with, where the error of a key is spread over its numbers.
static double cost(const weights *w)
{
    double q = 0, k = 0;
    for (size_t d = 0; d < DIM; d++) {
        q += (double)w->q[d] * w->q[d];
        k += (double)w->k[d] * w->k[d];
    }
    return q * k;
}

static void a_key_that_its_query_does_not_look_at_sets_no_scale(void **state)
{
    (void)state;
    weights w;
    for (size_t d = 0; d < DIM; d++) {
        w.q[d] = w.k[d] = 1;
    }
    w.k[3] = w.k[3 + DIM / 2] = 64;
    w.q[3] = w.q[3 + DIM / 2] = 1.0f / 64;
    const double before = cost(&w);
    key_balance(w.q, w.k, DIM, DIM, ENGINE_ROPE_HALVES);
    assert_true(w.k[3] == 1 && w.q[3] == 1);
    assert_true(cost(&w) < before / 50); // (80 * (78 + 2 * 64^2)) / 80^2 = 103 without the pair
}

// Each number's own error falls to within a factor of what is least: s is off by 2^(1/2) at most.
static void the_cost_falls_to_near_the_least(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        test_random random = test_random_seed(seed);
        weights w = random_weights(&random);
        double least = 0;
        for (size_t d = 0; d < DIM; d++) {
            least += fabs((double)w.q[d] * w.k[d]);
        }
        const double before = cost(&w);
        key_balance(w.q, w.k, DIM, 0, ENGINE_ROPE_PAIRS);
        // A term is |q k| s^2 or |q k| / s^2 of the least one, with s^2 within 2 of its place.
        assert_true(cost(&w) <= 4 * least * least);
        assert_true(cost(&w) < before);
    }
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    weights w = {.q = {0, 1, 0, 1}, .k = {1, 0, 0, 1}};
    key_balance(w.q, w.k, 4, 0, ENGINE_ROPE_PAIRS);
    const float q[] = {0, 1, 0, 1}, k[] = {1.0f / 256, 0, 0, 1};
    assert_memory_equal(w.q, q, sizeof q);
    assert_memory_equal(w.k, k, sizeof k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_and_rotary_pairs_stay_exact),
        cmocka_unit_test(a_key_that_its_query_does_not_look_at_sets_no_scale),
        cmocka_unit_test(the_cost_falls_to_near_the_least),
        cmocka_unit_test(zeros_stay_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
