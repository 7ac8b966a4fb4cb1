// SPDX-License-Identifier: MIT
// The rotation of codecs: every vector kernel of this machine against the plain one, bit for bit,
// and the plain one against a matrix in float64 that is written out from docs/arithmetic.md.

#include "src/codec/rotation/rotation.h"
#include "src/cpu/isa.h"
#include "tests/support/check.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/kernel_variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIM KVERN_MAX_STREAM_DIM
#define UNIT 0x1p-24

typedef struct rotation {
    kvern_rotate_fn *there, *back;
} rotation;

#define ENTER(set, SET) [KVERN_ISA_##SET] = {kvern_rotate_##set, kvern_rotate_back_##set},
static const rotation rotations[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};

// ---- Variants ----

static void check_variants(test_random *random, size_t dim)
{
    const kernel_variants variants = kernel_variants_here();
    guarded buffer = guarded_at_end(dim * sizeof(float));
    float *x = malloc(dim * sizeof *x), *wanted[2];
    assert_non_null(x);
    kernel_inputs_fill(random, (mixture)test_random_below(random, MIXTURES), x, dim);
    if (test_random_below(random, 8) == 0)
        x[test_random_below(random, dim)] = kernel_inputs_special(random);
    for (size_t b = 0; b < 2; b++) {
        wanted[b] = malloc(dim * sizeof *x);
        assert_non_null(wanted[b]);
        memcpy(wanted[b], x, dim * sizeof *x);
        (b ? rotations[0].back : rotations[0].there)(dim, wanted[b]);
    }
    for (size_t v = 1; v < 2 * variants.count; v++) {
        const rotation *r = &rotations[kvern_isa_of(variants.features[v / 2])];
        float *at = (float *)(void *)buffer.data;
        memcpy(at, x, dim * sizeof *x);
        (v % 2 ? r->back : r->there)(dim, at);
        check_same_floats(wanted[v % 2], at, dim, kvern_cpu_name(variants.features[v / 2]));
    }
    free(wanted[0]);
    free(wanted[1]);
    free(x);
    guarded_free(&buffer);
}

static void vector_rotations_equal_the_plain_one(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (size_t dim = 16; dim <= MOST_DIM; dim += 16)
        for (int i = 0; i < 4; i++)
            check_variants(&random, dim);
    for (int i = 0; i < 2000; i++)
        check_variants(&random, 16 * (1 + test_random_below(&random, 40)));
}

// ---- Against float64 ----

// Sign number i of a stage, by the words of docs/arithmetic.md.
static double sign(size_t dim, uint64_t stage, size_t i)
{
    uint64_t z = 2 * (uint64_t)dim + stage;
    for (size_t word = 0; word <= i / 64; word++)
        z += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z = z ^ (z >> 31);
    return z >> (i % 64) & 1 ? -1 : 1;
}

// One stage by the definition of the transform: a sum over all numbers, with a sign for each that
// is the parity of the bits that both indices have.
static void stage(size_t dim, uint64_t number, size_t first, size_t n, double *x)
{
    double *y = calloc(n, sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            y[i] += (__builtin_parityll(i & j) ? -1 : 1) * sign(dim, number, j) * x[first + j];
    for (size_t i = 0; i < n; i++)
        x[first + i] = y[i] / sqrt((double)n);
    free(y);
}

static void rotate_exactly(size_t dim, double *x)
{
    size_t n = 1;
    while (2 * n <= dim)
        n *= 2;
    stage(dim, 0, 0, n, x);
    if (n < dim)
        stage(dim, 1, dim - n, n, x);
}

static double norm(size_t dim, const float *x)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++)
        sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

// A stage has log2(n) additions and a product on the way to each number, and a factor that is
// rounded: (log2(n) + 2) * UNIT of the norm, and two stages at most.
static double bound(size_t dim)
{
    return 2 * (log2((double)dim) + 2) * UNIT;
}

static const size_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 512, 576, 1008, 1024};

static void the_rotation_is_the_stated_matrix(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const size_t dim = dims[i];
        float x[MOST_DIM], y[MOST_DIM];
        double exact[MOST_DIM];
        kernel_inputs_fill(&random, ORDINARY, x, dim);
        for (size_t d = 0; d < dim; d++)
            exact[d] = (double)x[d];
        memcpy(y, x, dim * sizeof *x);
        rotate_exactly(dim, exact);
        kvern_rotate_plain(dim, y);
        for (size_t d = 0; d < dim; d++)
            assert_true(fabs((double)y[d] - exact[d]) <= bound(dim) * norm(dim, x));
        assert_true(fabs(norm(dim, y) - norm(dim, x)) <= bound(dim) * norm(dim, x));
        kvern_rotate_back_plain(dim, y);
        for (size_t d = 0; d < dim; d++)
            assert_true(fabs((double)y[d] - (double)x[d]) <= 2 * bound(dim) * norm(dim, x));
    }
}

// Neither one number nor equal ones stay together: no number of the result has more of the norm
// than the larger of what two stages let meet by their signs.
static void nothing_stays_together(void **state)
{
    (void)state;
    for (size_t i = 3; i < sizeof dims / sizeof dims[0]; i++) {
        const size_t dim = dims[i];
        for (size_t one = 0; one <= dim; one++) { // dim: all of them
            float x[MOST_DIM];
            for (size_t d = 0; d < dim; d++)
                x[d] = d == one || one == dim ? 1 : 0;
            const double whole = norm(dim, x);
            kvern_rotate_plain(dim, x);
            for (size_t d = 0; d < dim; d++)
                assert_true(fabs((double)x[d]) <= 0.6 * whole);
        }
    }
}

int main(void)
{
    kernel_variants_print("rotation");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_rotations_equal_the_plain_one),
        cmocka_unit_test(the_rotation_is_the_stated_matrix),
        cmocka_unit_test(nothing_stays_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
