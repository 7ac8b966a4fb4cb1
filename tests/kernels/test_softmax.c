// SPDX-License-Identifier: MIT
// The kernels of softmax and of merging: the plain ones against their stated order and against
// float64, every vector one of this machine against the plain one, bit for bit.

#include "src/attend/softmax.h"
#include "tests/support/check.h"
#include "tests/support/guarded.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"

#include <kvern/composition.h>
#include <kvern/math.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define MOST_DIM KVERN_MAX_HEAD_DIM
#define MOST_VECTORS 33

// ---- Inputs ----

// One call: what goes in, and what the plain kernel makes of it.
typedef struct call {
    size_t n, dim;
    float softcap;
    uint64_t visible[MOST_VECTORS];
    float weights[MOST_VECTORS * SLOTS];
    float m[MOST_VECTORS], l[MOST_VECTORS];
    float acc[MOST_VECTORS * MOST_DIM];
} call;

static uint64_t random_visible(test_random *random)
{
    const size_t first = test_random_below(random, SLOTS);
    switch (test_random_below(random, 6)) {
    case 0: // a prefix, as full attention has it
        return UINT64_MAX >> first;
    case 1: // a suffix, as a window has it
        return UINT64_MAX << first;
    case 2:
        return UINT64_MAX;
    case 3: // one slot
        return UINT64_C(1) << first;
    case 4: // every other slot
        return UINT64_C(0x5555555555555555) << (first % 2);
    default:
        return test_random_next(random) | UINT64_C(1) << first;
    }
}

static float random_score(test_random *random, int kind)
{
    const float x = test_random_signed(random);
    switch (kind) {
    case 0: // as models have them
        return x * 8;
    case 1: // far apart: most weights vanish
        return x * 300;
    case 2: // huge
        return x * 1e30f;
    case 3: // tiny, and zeros of both signs
        return test_random_below(random, 4) ? x * 1e-38f : copysignf(0, x);
    case 4:
        return -INFINITY;
    case 5: // equal, and below any sentinel that an additive mask would use
        return -1e5f;
    default:
        return test_random_below(random, 8) ? x * 8 : -INFINITY;
    }
}

#define SCORE_KINDS 7

static void fill(test_random *random, call *c)
{
    static const float caps[] = {0, 0, 0.5f, 30, 50, 1e-3f};
    c->n = 1 + test_random_below(random, MOST_VECTORS);
    c->dim = 8 * (1 + test_random_below(random, MOST_DIM / 8));
    c->softcap = caps[test_random_below(random, sizeof caps / sizeof caps[0])];
    for (size_t i = 0; i < c->n; i++) {
        const int kind = (int)test_random_below(random, SCORE_KINDS);
        const bool fresh = test_random_below(random, 4) == 0;
        c->visible[i] = random_visible(random);
        for (size_t p = 0; p < SLOTS; p++)
            c->weights[i * SLOTS + p] = random_score(random, kind);
        c->m[i] = fresh ? -INFINITY : random_score(random, (int)test_random_below(random, 4));
        c->l[i] = fresh ? 0 : 1 + test_random_signed(random);
        for (size_t d = 0; d < c->dim; d++)
            c->acc[i * c->dim + d] = fresh ? 0 : test_random_signed(random) * 4;
    }
}

// A NaN or an infinity in a few scores, seen or not.
static void spoil(test_random *random, call *c)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f};
    for (int i = 0; i < 4; i++)
        c->weights[test_random_below(random, c->n * SLOTS)] =
            special[test_random_below(random, sizeof special / sizeof special[0])];
}

// ---- Comparing ----

// The arrays of a call between unreadable pages.
typedef struct arena {
    guarded weights, m, l, acc, visible;
} arena;

static void arena_create(arena *a)
{
    a->weights = guarded_at_end(MOST_VECTORS * SLOTS * sizeof(float));
    a->m = guarded_at_end(MOST_VECTORS * sizeof(float));
    a->l = guarded_at_end(MOST_VECTORS * sizeof(float));
    a->acc = guarded_at_end(MOST_VECTORS * MOST_DIM * sizeof(float));
    a->visible = guarded_at_end(MOST_VECTORS * sizeof(uint64_t));
}

static void arena_destroy(arena *a)
{
    guarded_free(&a->weights);
    guarded_free(&a->m);
    guarded_free(&a->l);
    guarded_free(&a->acc);
    guarded_free(&a->visible);
}

// A copy that ends where the buffer ends.
static void *place(const guarded *buffer, const void *from, size_t bytes)
{
    return memcpy(guarded_last(buffer, bytes), from, bytes);
}

static void run(const arena *a, uint32_t features, const call *in, call *out)
{
    const size_t n = in->n;
    float *w = place(&a->weights, in->weights, n * SLOTS * sizeof(float));
    float *m = place(&a->m, in->m, n * sizeof(float));
    float *l = place(&a->l, in->l, n * sizeof(float));
    float *acc = place(&a->acc, in->acc, n * in->dim * sizeof(float));
    const uint64_t *visible = place(&a->visible, in->visible, n * sizeof(uint64_t));
    kvern_softmax_kernels_of(features).softmax(n, w, visible, in->softcap, m, l, acc, in->dim);
    *out = *in;
    memcpy(out->weights, w, n * SLOTS * sizeof(float));
    memcpy(out->m, m, n * sizeof(float));
    memcpy(out->l, l, n * sizeof(float));
    memcpy(out->acc, acc, n * in->dim * sizeof(float));
}

static void expect_same(const call *wanted, const call *got, const char *what)
{
    // Which of two zeros is the larger one differs, and nobody sees it: only differences with m are
    // used, and exp gives 1 for both.
    for (size_t i = 0; i < wanted->n; i++)
        assert_true(wanted->m[i] == got->m[i]);
    check_same_floats(wanted->l, got->l, wanted->n, what);
    check_same_floats(wanted->weights, got->weights, wanted->n * SLOTS, what);
    check_same_floats(wanted->acc, got->acc, wanted->n * wanted->dim, what);
}

static size_t rounds(void)
{
    return check_is_long() ? 200000 : 4000;
}

static void vector_softmax_equals_plain(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    const kernel_variants variants = kernel_variants_here();
    static call in, wanted, got;
    arena a;
    arena_create(&a);
    for (size_t round = 0; round < rounds(); round++) {
        fill(&random, &in);
        if (round % 4 == 0)
            spoil(&random, &in);
        run(&a, 0, &in, &wanted);
        for (size_t v = 1; v < variants.count; v++) {
            run(&a, variants.features[v], &in, &got);
            expect_same(&wanted, &got, kvern_cpu_name(variants.features[v]));
        }
    }
    arena_destroy(&a);
}

// Whatever an invisible slot holds: no bit of any result changes, and its weight is +0.
static void invisible_scores_do_not_matter(void **state)
{
    (void)state;
    static const float junk[] = {NAN, INFINITY, -INFINITY, 3e38f, 0};
    test_random random = test_random_seed(check_seed() + 1);
    const kernel_variants variants = kernel_variants_here();
    static call in, wanted, got;
    arena a;
    arena_create(&a);
    for (size_t round = 0; round < rounds() / 4; round++) {
        fill(&random, &in);
        run(&a, 0, &in, &wanted);
        for (size_t i = 0; i < in.n * SLOTS; i++) {
            if (in.visible[i / SLOTS] >> i % SLOTS & 1)
                continue;
            in.weights[i] = junk[test_random_below(&random, sizeof junk / sizeof junk[0])];
            assert_true(wanted.weights[i] == 0 && !signbit(wanted.weights[i]));
        }
        for (size_t v = 0; v < variants.count; v++) {
            run(&a, variants.features[v], &in, &got);
            expect_same(&wanted, &got, kvern_cpu_name(variants.features[v]));
        }
    }
    arena_destroy(&a);
}

// ---- The definition ----

// docs/arithmetic.md, steps 3 and 4, once more, for one vector.
static void reference(call *c, size_t i)
{
    float *w = c->weights + i * SLOTS, m = c->m[i], lane[16];
    for (int p = 0; p < SLOTS; p++) {
        if (!(c->visible[i] >> p & 1))
            continue;
        if (c->softcap > 0)
            w[p] = c->softcap * kvern_tanh(w[p] / c->softcap);
        if (w[p] > m)
            m = w[p];
    }
    if (m > c->m[i]) {
        const float shrink = kvern_exp(c->m[i] - m);
        c->l[i] *= shrink;
        for (size_t d = 0; d < c->dim; d++)
            c->acc[i * c->dim + d] *= shrink;
        c->m[i] = m;
    }
    for (int p = 0; p < SLOTS; p++)
        w[p] = c->visible[i] >> p & 1 ? kvern_exp(w[p] - (m == -INFINITY ? 0 : m)) : 0;
    for (int j = 0; j < 16; j++)
        lane[j] = ((w[j] + w[j + 16]) + w[j + 32]) + w[j + 48];
    for (int step = 8; step > 0; step /= 2) {
        for (int j = 0; j < step; j++)
            lane[j] += lane[j + step];
    }
    c->l[i] += lane[0];
}

static void plain_softmax_follows_the_stated_order(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 2);
    static call in, wanted, got;
    arena a;
    arena_create(&a);
    for (size_t round = 0; round < 500; round++) {
        fill(&random, &in);
        if (round % 4 == 0)
            spoil(&random, &in);
        wanted = in;
        for (size_t i = 0; i < in.n; i++)
            reference(&wanted, i);
        run(&a, 0, &in, &got);
        expect_same(&wanted, &got, "plain");
    }
    arena_destroy(&a);
}

// A vector that starts empty: weights in [0, 1], the largest exactly 1, each within the bound of
// exp (1 ulp) and of its argument's rounding (|s - m| times 2^-24) of the true value.
static void weights_are_near_the_true_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 3);
    static call in, got;
    arena a;
    arena_create(&a);
    for (size_t round = 0; round < 300; round++) {
        fill(&random, &in);
        in.softcap = 0;
        for (size_t i = 0; i < in.n * SLOTS; i++)
            in.weights[i] = test_random_signed(&random) * 40;
        for (size_t i = 0; i < in.n; i++)
            in.m[i] = -INFINITY;
        run(&a, 0, &in, &got);
        for (size_t i = 0; i < in.n * SLOTS; i++) {
            if (!(in.visible[i / SLOTS] >> i % SLOTS & 1))
                continue;
            const double below = (double)in.weights[i] - (double)got.m[i / SLOTS];
            assert_true(below <= 0);
            const double exact = exp(below);
            const double error = fabs((double)got.weights[i] - exact);
            assert_true(error <= exact * (0x1p-23 + 1.01 * -below * 0x1p-24));
        }
    }
    arena_destroy(&a);
}

// Results of two ranges of positions, as spans leave them, extremes included.
static void fill_partials(test_random *random, call *c)
{
    static const float largest[] = {-INFINITY, INFINITY, NAN, 0, -0.0f, 3.4e38f, -3.4e38f};
    fill(random, c);
    for (size_t i = 0; i < c->n; i++)
        if (test_random_below(random, 3) == 0)
            c->m[i] = largest[test_random_below(random, sizeof largest / sizeof largest[0])];
    c->acc[test_random_below(random, c->n * c->dim)] = -0.0f;
}

// docs/arithmetic.md, step 5.
static void merge_as_stated(const call *part, call *total)
{
    for (size_t i = 0; i < total->n; i++) {
        const float m = part->m[i] > total->m[i] ? part->m[i] : total->m[i];
        const float base = m == -INFINITY ? 0 : m;
        const float differences[2] = {total->m[i] - base, part->m[i] - base};
        float weight[2];
        kvern_exp_array(0, 2, differences, weight);
        total->m[i] = m;
        total->l[i] = fmaf(part->l[i], weight[1], total->l[i] * weight[0]);
        for (size_t d = i * total->dim; d < (i + 1) * total->dim; d++)
            total->acc[d] = fmaf(part->acc[d], weight[1], total->acc[d] * weight[0]);
    }
}

static void kernels_merge_as_stated(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 4);
    const kernel_variants variants = kernel_variants_here();
    static call total, part, wanted;
    arena a, b;
    arena_create(&a);
    arena_create(&b);
    for (int round = 0; round < 600; round++) {
        fill_partials(&random, &total);
        fill_partials(&random, &part);
        part.n = total.n;
        part.dim = total.dim;
        wanted = total;
        merge_as_stated(&part, &wanted);
        const size_t n = total.n, values = total.n * total.dim * sizeof(float);
        const float *m_part = place(&b.m, part.m, n * sizeof(float));
        const float *l_part = place(&b.l, part.l, n * sizeof(float));
        const float *acc_part = place(&b.acc, part.acc, values);
        for (size_t v = 0; v < variants.count; v++) {
            float *m = place(&a.m, total.m, n * sizeof(float));
            float *l = place(&a.l, total.l, n * sizeof(float));
            float *acc = place(&a.acc, total.acc, values);
            kvern_softmax_kernels_of(variants.features[v])
                .merge(n, m, l, acc, m_part, l_part, acc_part, total.dim);
            const char *name = kvern_cpu_name(variants.features[v]);
            check_same_floats(wanted.m, m, n, name);
            check_same_floats(wanted.l, l, n, name);
            check_same_floats(wanted.acc, acc, n * total.dim, name);
        }
    }
    arena_destroy(&a);
    arena_destroy(&b);
}

static void kernels_scale_and_divide_as_stated(void **state)
{
    (void)state;
    static const float factors[] = {0, 1, 0.5f, 1e-38f, INFINITY, 0.1f, -3};
    test_random random = test_random_seed(check_seed() + 5);
    const kernel_variants variants = kernel_variants_here();
    guarded to = guarded_at_end(MOST_DIM * sizeof(float));
    float start[MOST_DIM], scaled[MOST_DIM], divided[MOST_DIM];
    for (size_t round = 0; round < 10 * MOST_DIM / 8; round++) {
        const size_t dim = 8 * (1 + round % (MOST_DIM / 8)), bytes = dim * sizeof(float);
        const float factor =
            factors[test_random_below(&random, sizeof factors / sizeof factors[0])];
        for (size_t d = 0; d < dim; d++)
            start[d] =
                ldexpf(test_random_signed(&random), (int)test_random_below(&random, 40) - 20);
        start[test_random_below(&random, dim)] = -0.0f;
        for (size_t d = 0; d < dim; d++) {
            scaled[d] = start[d] * factor;
            divided[d] = start[d] / factor;
        }
        for (size_t v = 0; v < variants.count; v++) {
            const kvern_softmax_kernels kernels = kvern_softmax_kernels_of(variants.features[v]);
            const char *name = kvern_cpu_name(variants.features[v]);
            float *target = place(&to, start, bytes);
            kernels.scale(dim, target, factor, target);
            check_same_floats(scaled, target, dim, name);
            target = place(&to, start, bytes);
            kernels.divide(dim, target, factor, target);
            check_same_floats(divided, target, dim, name);
        }
    }
    guarded_free(&to);
}

int main(void)
{
    kernel_variants_print("softmax");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_softmax_follows_the_stated_order),
        cmocka_unit_test(weights_are_near_the_true_ones),
        cmocka_unit_test(vector_softmax_equals_plain),
        cmocka_unit_test(invisible_scores_do_not_matter),
        cmocka_unit_test(kernels_merge_as_stated),
        cmocka_unit_test(kernels_scale_and_divide_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
