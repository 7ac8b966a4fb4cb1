// SPDX-License-Identifier: MIT
// The operations between matrix products: against float64, against the stated order of their
// operations, and between instruction sets by memcmp.

#include "engine/kernels/ops.h"
#include "tests/support/random.h"

#include <kvern/cpu.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_N 1200

static const size_t sizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 64, 100, 576, 1000, 1199};
#define SIZES (sizeof sizes / sizeof sizes[0])

// Values of many magnitudes, so that every rounding shows.
static void fill(test_random *random, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = ldexpf(test_random_signed(random), (int)(test_random_next(random) % 12) - 6);
    }
}

static void plain_rms_norm_follows_the_stated_order(void **state)
{
    (void)state;
    const engine_ops *ops = engine_ops_select(0);
    test_random random = test_random_seed(1);
    float x[MAX_N], weight[MAX_N], out[MAX_N];
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        fill(&random, x, n);
        fill(&random, weight, n);
        float lane[16] = {0};
        for (size_t i = 0; i < n; i++) {
            lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
        }
        for (int step = 8; step > 0; step /= 2) {
            for (int j = 0; j < step; j++) {
                lane[j] += lane[j + step];
            }
        }
        float r = 1.0f / sqrtf(lane[0] / (float)n + 1e-5f);
        ops->rms_norm(x, weight, 1e-5f, n, out);
        for (size_t i = 0; i < n; i++) {
            float scaled = x[i] * r;
            assert_true(out[i] == scaled * weight[i]);
        }
    }
}

static void rms_norm_is_near_the_exact_value(void **state)
{
    (void)state;
    const engine_ops *ops = engine_ops_select(0);
    test_random random = test_random_seed(2);
    float x[MAX_N], weight[MAX_N], out[MAX_N];
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        fill(&random, x, n);
        fill(&random, weight, n);
        ops->rms_norm(x, weight, 1e-5f, n, out);
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            sum += (double)x[i] * x[i];
        }
        // The sum of positive terms: at most n/16 + 1 + 4 roundings, halved by the root; then the
        // mean, the epsilon, root, reciprocal and the two products: 6 more.
        double bound = (((double)n / 16 + 5) / 2 + 6) * 0x1p-24;
        for (size_t i = 0; i < n; i++) {
            double exact = x[i] / sqrt(sum / (double)n + 1e-5f) * weight[i];
            assert_true(fabs(out[i] - exact) <= bound * fabs(exact));
        }
    }
}

static void rotation_is_near_the_exact_value(void **state)
{
    (void)state;
    const engine_ops *ops = engine_ops_select(0);
    test_random random = test_random_seed(3);
    enum { DIM = 20, HEADS = 3, STRIDE = 24 };
    float x[HEADS * STRIDE], before[HEADS * STRIDE], table[2 * DIM];
    double angle[DIM / 2];
    for (int i = 0; i < DIM / 2; i++) {
        angle[i] = 6 * test_random_signed(&random);
        table[2 * i] = table[2 * i + 1] = (float)cos(angle[i]);
        table[DIM + 2 * i] = -(float)sin(angle[i]);
        table[DIM + 2 * i + 1] = (float)sin(angle[i]);
    }
    fill(&random, x, HEADS * STRIDE);
    memcpy(before, x, sizeof x);
    ops->rotate_pairs(x, HEADS, STRIDE, table, DIM);
    for (int head = 0; head < HEADS; head++) {
        const float *in = before + head * STRIDE, *out = x + head * STRIDE;
        for (int i = 0; i < DIM / 2; i++) {
            double a = in[2 * i], b = in[2 * i + 1], c = cos(angle[i]), s = sin(angle[i]);
            double bound = 4 * 0x1p-24 * (fabs(a) + fabs(b));
            assert_true(fabs(out[2 * i] - (a * c - b * s)) <= bound);
            assert_true(fabs(out[2 * i + 1] - (a * s + b * c)) <= bound);
        }
        // What lies behind the rotated dimensions is left alone.
        assert_memory_equal(in + DIM, out + DIM, (STRIDE - DIM) * sizeof(float));
    }
}

static void rotation_of_halves_is_near_the_exact_value(void **state)
{
    (void)state;
    const engine_ops *ops = engine_ops_select(0);
    test_random random = test_random_seed(4);
    enum { DIM = 44, PAIRS = DIM / 2, HEADS = 3, STRIDE = 48 };
    float x[HEADS * STRIDE], before[HEADS * STRIDE], table[DIM];
    double angle[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        angle[i] = 6 * test_random_signed(&random);
        table[i] = (float)cos(angle[i]);
        table[PAIRS + i] = (float)sin(angle[i]);
    }
    fill(&random, x, HEADS * STRIDE);
    memcpy(before, x, sizeof x);
    ops->rotate_halves(x, HEADS, STRIDE, table, DIM);
    for (int head = 0; head < HEADS; head++) {
        const float *in = before + head * STRIDE, *out = x + head * STRIDE;
        for (int i = 0; i < PAIRS; i++) {
            double a = in[i], b = in[PAIRS + i], c = cos(angle[i]), s = sin(angle[i]);
            double bound = 4 * 0x1p-24 * (fabs(a) + fabs(b));
            assert_true(fabs(out[i] - (a * c - b * s)) <= bound);
            assert_true(fabs(out[PAIRS + i] - (a * s + b * c)) <= bound);
        }
        assert_memory_equal(in + DIM, out + DIM, (STRIDE - DIM) * sizeof(float));
    }
}

typedef struct results {
    float norm[MAX_N], rotated[MAX_N], halves[MAX_N], sum[MAX_N], product[MAX_N], scaled[MAX_N];
} results;

// Runs everything on inputs that depend on n alone, at an odd address.
static void run_all(const engine_ops *ops, size_t n, results *out)
{
    static float storage[3 * (MAX_N + 1)];
    float *x = storage + 1, *y = x + MAX_N, *table = y + MAX_N - MAX_N / 2;
    test_random random = test_random_seed(n);
    fill(&random, storage, 3 * MAX_N);
    memset(out, 0, sizeof *out);
    ops->rms_norm(x, y, 1e-6f, n, out->norm);
    memcpy(out->sum, x, n * sizeof *x);
    ops->add(out->sum, y, n);
    memcpy(out->scaled, x, n * sizeof *x);
    ops->add_scaled(out->scaled, y[0], y, n);
    memcpy(out->product, x, n * sizeof *x);
    ops->multiply(out->product, y, n);
    size_t dim = n / 2 / 2 * 2; // two heads
    memcpy(out->rotated, x, n * sizeof *x);
    ops->rotate_pairs(out->rotated, dim ? 2 : 0, dim, table, dim);
    memcpy(out->halves, x, n * sizeof *x);
    ops->rotate_halves(out->halves, dim ? 2 : 0, dim, table, dim);
}

static void instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t sets[] = {KVERN_CPU_AVX2, KVERN_CPU_AVX2 | KVERN_CPU_AVX512};
    static results plain, other;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if ((kvern_cpu_features() & sets[i]) != sets[i]) {
            printf("not run here: %s\n", kvern_cpu_name(sets[i]));
            continue;
        }
        printf("compared with plain: %s\n", kvern_cpu_name(sets[i]));
        for (size_t n = 1; n < MAX_N; n += n < 140 ? 1 : 53) {
            run_all(engine_ops_select(0), n, &plain);
            run_all(engine_ops_select(sets[i]), n, &other);
            assert_memory_equal(&plain, &other, sizeof plain);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rms_norm_follows_the_stated_order),
        cmocka_unit_test(rms_norm_is_near_the_exact_value),
        cmocka_unit_test(rotation_is_near_the_exact_value),
        cmocka_unit_test(rotation_of_halves_is_near_the_exact_value),
        cmocka_unit_test(instruction_sets_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
