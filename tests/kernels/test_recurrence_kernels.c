// SPDX-License-Identifier: MIT
// The kernels of recurrent layers: every vector one of this machine against the plain one, bit for
// bit, between unreadable pages; the plain ones against their stated order.

#include "src/recurrent/recurrence_kernels.h"
#include "tests/support/check.h"
#include "tests/support/guarded.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"

#include <kvern/math.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 11
#define MOST_K 72
#define MOST_V 72
#define MOST_S ((MOST_V + 31) / 32 * 32 * MOST_K)
#define MOST_CHANNELS 70
#define MOST_TAPS 6

// ---- Inputs ----

// One head's tokens, packed with strides that are a little larger than they need to be.
typedef struct head {
    kvern_recurrence_steps steps; // without pointers
    float q[MOST_TOKENS * (MOST_K + 3)], k[MOST_TOKENS * (MOST_K + 3)];
    float v[MOST_TOKENS * (MOST_V + 3)], decay[MOST_TOKENS * (MOST_K + 3)];
    float beta[MOST_TOKENS * 4], skip;
    bool outputs, has_skip;
    bool elsewhere, has_then; // S is not in place; a head follows
    float s[MOST_S];
} head;

static float special(test_random *random)
{
    static const float values[] = {NAN,    INFINITY, -INFINITY, 3.4e38f, -3.4e38f,
                                   1e-45f, -1e-38f,  0,         -0.0f};
    return values[test_random_below(random, sizeof values / sizeof values[0])];
}

// `spoiled`: with a few of the numbers above among them.
static void fill(test_random *random, float *x, size_t count, float size, bool spoiled)
{
    for (size_t i = 0; i < count; i++)
        x[i] = size * test_random_signed(random);
    for (int i = 0; i < 3 && spoiled; i++)
        x[test_random_below(random, count)] = special(random);
}

static float random_decay(test_random *random)
{
    static const float values[] = {0, 1, 1e-30f, 0.5f, 0x1.fffffep-1f, 1.2e-38f};
    return test_random_below(random, 3) ? fabsf(test_random_signed(random))
                                        : values[test_random_below(random, 6)];
}

static void fill_head(test_random *random, head *h, bool spoiled)
{
    kvern_recurrence_steps *s = &h->steps;
    const size_t count = test_random_below(random, MOST_TOKENS + 1);
    *s = (kvern_recurrence_steps){.count = test_random_below(random, 3) ? count : 1,
                                  .k_dim = 1 + test_random_below(random, MOST_K),
                                  .v_dim = 1 + test_random_below(random, MOST_V)};
    s->q_stride = s->k_dim + test_random_below(random, 3);
    s->k_stride = s->k_dim + test_random_below(random, 3);
    s->v_stride = s->y_stride = s->v_dim + test_random_below(random, 3);
    s->decay_stride = s->k_dim + test_random_below(random, 3);
    s->beta_stride = 1 + test_random_below(random, 3);
    h->outputs = test_random_below(random, 4) != 0;
    h->has_skip = test_random_below(random, 2) != 0;
    h->elsewhere = s->count && test_random_below(random, 2);
    h->has_then = test_random_below(random, 2) != 0;
    h->skip = test_random_signed(random);
    fill(random, h->q, MOST_TOKENS * (MOST_K + 3), 1, spoiled);
    fill(random, h->k, MOST_TOKENS * (MOST_K + 3), 1, spoiled);
    fill(random, h->v, MOST_TOKENS * (MOST_V + 3), 4, spoiled);
    fill(random, h->beta, MOST_TOKENS * 4, 1, spoiled);
    for (size_t i = 0; i < MOST_TOKENS * (MOST_K + 3); i++)
        h->decay[i] = random_decay(random);
    fill(random, h->s, MOST_S, 1, spoiled);
}

// ---- Running ----

// Copies between unreadable pages, each ending where its buffer ends.
typedef struct arena {
    guarded q, k, v, decay, beta, y, s, from, skip;
} arena;

static arena arena_create(void)
{
    const size_t keys = MOST_TOKENS * (MOST_K + 3) * sizeof(float);
    const size_t values = MOST_TOKENS * (MOST_V + 3) * sizeof(float);
    return (arena){.q = guarded_at_end(keys),
                   .k = guarded_at_end(keys),
                   .v = guarded_at_end(values),
                   .decay = guarded_at_end(keys),
                   .beta = guarded_at_end(MOST_TOKENS * 4 * sizeof(float)),
                   .y = guarded_at_end(values),
                   .s = guarded_at_end(MOST_S * sizeof(float)),
                   .from = guarded_at_end(MOST_S * sizeof(float)),
                   .skip = guarded_at_end(sizeof(float))};
}

static void arena_destroy(arena *a)
{
    guarded *all[] = {&a->q, &a->k, &a->v, &a->decay, &a->beta, &a->y, &a->s, &a->from, &a->skip};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        guarded_free(all[i]);
}

static void *place(const guarded *buffer, const void *from, size_t floats)
{
    void *to = guarded_last(buffer, floats * sizeof(float));
    if (floats)
        memcpy(to, from, floats * sizeof(float));
    return to;
}

// Floats of `count` tokens of `dim` with a stride: nothing behind the last one.
static size_t extent(size_t count, size_t stride, size_t dim)
{
    return count ? (count - 1) * stride + dim : 0;
}

static size_t s_floats(const head *h)
{
    return (h->steps.v_dim + 31) / 32 * 32 * h->steps.k_dim;
}

typedef enum rule { DELTA, DELTA_CHANNELS, SSD, RULES } rule;

static const char *const RULE_NAMES[] = {"delta", "delta with channels", "ssd"};

typedef struct result {
    float s[MOST_S], y[MOST_TOKENS * (MOST_V + 3)];
} result;

static void run(const arena *a, uint32_t features, rule rule, const head *h, result *out)
{
    const kvern_recurrence_kernels *kernels = kvern_recurrence_kernels_of(features);
    kvern_recurrence_steps steps = h->steps;
    const size_t n = steps.count, y_floats = extent(n, steps.y_stride, steps.v_dim);
    steps.k = place(&a->k, h->k, extent(n, steps.k_stride, steps.k_dim));
    steps.v = place(&a->v, h->v, extent(n, steps.v_stride, steps.v_dim));
    steps.beta = place(&a->beta, h->beta, extent(n, steps.beta_stride, 1));
    steps.decay = place(&a->decay, h->decay,
                        extent(n, steps.decay_stride, rule == DELTA_CHANNELS ? steps.k_dim : 1));
    float *s = place(&a->s, h->s, s_floats(h));
    if (h->elsewhere) {
        steps.from = place(&a->from, h->s, s_floats(h));
        memset(s, 0x55, s_floats(h) * sizeof(float));
    }
    if (h->has_then) // unreadable: it is asked for, not read
        steps.then = (steps.from ? steps.from : s) + s_floats(h);
    memset(out->y, 0x55, sizeof out->y);
    float *y = place(&a->y, out->y, h->outputs ? y_floats : 0);
    if (h->outputs) {
        steps.q = place(&a->q, h->q, extent(n, steps.q_stride, steps.k_dim));
        steps.y = y;
    }
    if (h->has_skip && rule == SSD)
        steps.skip = place(&a->skip, &h->skip, 1);
    (rule == DELTA            ? kernels->delta
     : rule == DELTA_CHANNELS ? kernels->delta_channels
                              : kernels->ssd)(&steps, s);
    memcpy(out->s, s, s_floats(h) * sizeof(float));
    if (h->outputs)
        memcpy(out->y, y, y_floats * sizeof(float));
}

static int rounds(int usual)
{
    return check_is_long() ? 20 * usual : usual;
}

static void vector_steps_equal_plain(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    const kernel_variants variants = kernel_variants_here();
    static head h;
    static result wanted, got;
    arena a = arena_create();
    for (int round = 0; round < rounds(600); round++) {
        fill_head(&random, &h, round % 3 == 0);
        for (int r = DELTA; r < RULES; r++) {
            run(&a, 0, (rule)r, &h, &wanted);
            for (size_t v = 1; v < variants.count; v++) {
                run(&a, variants.features[v], (rule)r, &h, &got);
                check_same_floats(wanted.s, got.s, s_floats(&h), RULE_NAMES[r]);
                check_same_floats(wanted.y, got.y, sizeof got.y / sizeof(float), RULE_NAMES[r]);
            }
        }
    }
    arena_destroy(&a);
}

// ---- The definition ----

// docs/arithmetic.md, "Recurrent layers", once more, for value e of a head.
static void reference(rule rule, const head *h, size_t e, result *out)
{
    const kvern_recurrence_steps *p = &h->steps;
    float *s = out->s + e / 32 * 32 * p->k_dim + e % 32;
    for (size_t t = 0; t < p->count; t++) {
        const float *k = h->k + t * p->k_stride, *q = h->q + t * p->q_stride;
        const float v = h->v[t * p->v_stride + e], beta = h->beta[t * p->beta_stride];
        float m = 0, y = 0;
        for (size_t i = 0; i < p->k_dim; i++) {
            s[i * 32] =
                s[i * 32] * h->decay[t * p->decay_stride + (rule == DELTA_CHANNELS ? i : 0)];
            m = fmaf(s[i * 32], k[i], m);
        }
        const float d = rule == SSD ? beta * v : beta * (v - m);
        for (size_t i = 0; i < p->k_dim; i++) {
            s[i * 32] = fmaf(k[i], d, s[i * 32]);
            y = fmaf(s[i * 32], q[i], y);
        }
        if (rule == SSD && h->has_skip)
            y = fmaf(h->skip, v, y);
        if (h->outputs)
            out->y[t * p->y_stride + e] = y;
    }
}

static void plain_steps_follow_the_stated_order(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    static head h;
    static result wanted, got;
    arena a = arena_create();
    for (int round = 0; round < rounds(100); round++) {
        fill_head(&random, &h, round % 3 == 0);
        const size_t v_dim = h.steps.v_dim, k_dim = h.steps.k_dim;
        for (int r = DELTA; r < RULES; r++) {
            memcpy(wanted.s, h.s, sizeof h.s);
            memset(wanted.y, 0x55, sizeof wanted.y);
            for (size_t e = 0; e < v_dim; e++)
                reference((rule)r, &h, e, &wanted);
            run(&a, 0, (rule)r, &h, &got);
            check_same_floats(wanted.y, got.y, sizeof got.y / sizeof(float), RULE_NAMES[r]);
            for (size_t e = 0; e < v_dim; e++) {
                for (size_t i = 0; i < k_dim; i++) {
                    const size_t at = (e / 32 * k_dim + i) * 32 + e % 32;
                    check_same_floats(wanted.s + at, got.s + at, 1, RULE_NAMES[r]);
                }
            }
        }
    }
    arena_destroy(&a);
}

// A new state has zeros behind v_dim, and ordinary numbers leave them there.
static void lanes_behind_the_values_stay_zero(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 2);
    const kernel_variants variants = kernel_variants_here();
    static head h;
    static result got;
    arena a = arena_create();
    for (int round = 0; round < 60; round++) {
        fill_head(&random, &h, false);
        memset(h.s, 0, sizeof h.s);
        for (int r = DELTA; r < RULES; r++) {
            for (size_t v = 0; v < variants.count; v++) {
                run(&a, variants.features[v], (rule)r, &h, &got);
                for (size_t at = 0; at < s_floats(&h); at++) {
                    const size_t e = at / (32 * h.steps.k_dim) * 32 + at % 32;
                    assert_true(e < h.steps.v_dim || (got.s[at] == 0 && !signbit(got.s[at])));
                }
            }
        }
    }
    arena_destroy(&a);
}

// ---- Convolution ----

typedef struct convolution {
    size_t channels, taps, stride;
    float x[MOST_TAPS * MOST_CHANNELS], weight[MOST_TAPS * (MOST_CHANNELS + 3)];
    float bias[MOST_CHANNELS];
    bool has_bias, silu;
} convolution;

static void fill_convolution(test_random *random, convolution *c, bool spoiled)
{
    c->channels = test_random_below(random, MOST_CHANNELS + 1);
    c->taps = 1 + test_random_below(random, MOST_TAPS);
    c->stride = c->channels + test_random_below(random, 3);
    c->has_bias = test_random_below(random, 2) != 0;
    c->silu = test_random_below(random, 3) != 0;
    fill(random, c->x, MOST_TAPS * MOST_CHANNELS, 8, spoiled);
    fill(random, c->weight, MOST_TAPS * (MOST_CHANNELS + 3), 2, spoiled);
    fill(random, c->bias, MOST_CHANNELS, 1, spoiled);
}

static void run_convolution(guarded buffers[], uint32_t features, const convolution *c, float *out)
{
    const float *rows[MOST_TAPS];
    for (size_t j = 0; j < c->taps; j++)
        rows[j] = place(&buffers[j], c->x + j * MOST_CHANNELS, c->channels);
    const float *weight =
        place(&buffers[MOST_TAPS], c->weight, extent(c->taps, c->stride, c->channels));
    const float *bias = place(&buffers[MOST_TAPS + 1], c->bias, c->channels);
    float *y = guarded_last(&buffers[MOST_TAPS + 2], c->channels * sizeof(float));
    kvern_recurrence_kernels_of(features)->convolve(c->channels, c->taps, rows, weight, c->stride,
                                                    c->has_bias ? bias : NULL, c->silu, y);
    memcpy(out, y, c->channels * sizeof(float));
}

static void reference_convolution(const convolution *c, float *out)
{
    for (size_t i = 0; i < c->channels; i++) {
        float sum = c->has_bias ? c->bias[i] : 0;
        for (size_t j = 0; j < c->taps; j++)
            sum = fmaf(c->weight[j * c->stride + i], c->x[j * MOST_CHANNELS + i], sum);
        out[i] = sum;
        if (c->silu)
            kvern_silu_array(0, 1, &sum, &out[i]);
    }
}

static void kernels_convolve_as_stated(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 3);
    const kernel_variants variants = kernel_variants_here();
    static convolution c;
    float wanted[MOST_CHANNELS], got[MOST_CHANNELS];
    guarded buffers[MOST_TAPS + 3];
    for (size_t i = 0; i < MOST_TAPS + 3; i++)
        buffers[i] = guarded_at_end(MOST_TAPS * (MOST_CHANNELS + 3) * sizeof(float));
    for (int round = 0; round < rounds(3000); round++) {
        fill_convolution(&random, &c, round % 3 == 0);
        reference_convolution(&c, wanted);
        for (size_t v = 0; v < variants.count; v++) {
            run_convolution(buffers, variants.features[v], &c, got);
            check_same_floats(wanted, got, c.channels, kvern_cpu_name(variants.features[v]));
        }
    }
    for (size_t i = 0; i < MOST_TAPS + 3; i++)
        guarded_free(&buffers[i]);
}

// ---- Norms ----

static void reference_norm(size_t n, const float *x, float eps, float factor, const float *weight,
                           float *out)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    for (size_t step = 8; step > 0; step /= 2) {
        for (size_t i = 0; i < step; i++)
            lane[i] += lane[i + step];
    }
    const float scale = factor / sqrtf(lane[0] / (float)n + eps);
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i] * scale;
        if (weight)
            out[i] *= weight[i];
    }
}

static void kernels_normalize_as_stated(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 4);
    const kernel_variants variants = kernel_variants_here();
    float x[MOST_CHANNELS], weight[MOST_CHANNELS], wanted[MOST_CHANNELS];
    guarded from = guarded_at_end(sizeof x), to = guarded_at_end(sizeof x);
    guarded by = guarded_at_end(sizeof x);
    for (int round = 0; round < rounds(3000); round++) {
        const size_t n = 1 + test_random_below(&random, MOST_CHANNELS);
        const float eps = test_random_below(&random, 3) ? 1e-6f : 0;
        const float factor = test_random_below(&random, 3) ? 1 : 0.0883883f;
        const bool weighted = test_random_below(&random, 2) != 0;
        fill(&random, x, n, round % 7 == 0 ? 1e-22f : 3, round % 3 == 0);
        fill(&random, weight, n, 1, false);
        reference_norm(n, x, eps, factor, weighted ? weight : NULL, wanted);
        for (size_t v = 0; v < variants.count; v++) {
            const kvern_recurrence_kernels *kernels =
                kvern_recurrence_kernels_of(variants.features[v]);
            const char *name = kvern_cpu_name(variants.features[v]);
            float *in = place(&from, x, n), *w = place(&by, weight, n);
            float *out = guarded_last(&to, n * sizeof(float));
            kernels->rms_scale(n, in, eps, factor, weighted ? w : NULL, out);
            check_same_floats(wanted, out, n, name);
            kernels->rms_scale(n, in, eps, factor, weighted ? w : NULL, in); // in place
            check_same_floats(wanted, in, n, name);
        }
    }
    guarded_free(&from);
    guarded_free(&to);
    guarded_free(&by);
}

// The norm of kvern/recurrent_math.h.
static void reference_gated_norm(size_t n, const float *x, const float *z, const float *weight,
                                 float eps, kvern_activation activation, bool gate_first,
                                 float *out)
{
    float gate[MOST_CHANNELS], u[MOST_CHANNELS];
    memcpy(gate, z, n * sizeof(float));
    if (activation == KVERN_ACTIVATION_SILU)
        kvern_silu_array(0, n, gate, gate);
    if (activation == KVERN_ACTIVATION_SIGMOID)
        kvern_sigmoid_array(0, n, gate, gate);
    for (size_t i = 0; i < n; i++)
        u[i] = gate_first ? x[i] * gate[i] : x[i];
    reference_norm(n, u, eps, 1, weight, out);
    for (size_t i = 0; i < n && !gate_first; i++)
        out[i] *= gate[i];
}

static void kernels_normalize_with_gates_as_stated(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 6);
    const kernel_variants variants = kernel_variants_here();
    float x[MOST_CHANNELS], z[MOST_CHANNELS], weight[MOST_CHANNELS], wanted[MOST_CHANNELS];
    guarded xs = guarded_at_end(sizeof x), zs = guarded_at_end(sizeof x);
    guarded weights = guarded_at_end(sizeof x), outs = guarded_at_end(sizeof x);
    for (int round = 0; round < rounds(3000); round++) {
        const size_t n = 1 + test_random_below(&random, MOST_CHANNELS);
        const kvern_activation activation = (kvern_activation)test_random_below(&random, 3);
        const bool gate_first = test_random_below(&random, 2) != 0;
        const bool weighted = test_random_below(&random, 2) != 0;
        fill(&random, x, n, 3, round % 3 == 0);
        fill(&random, z, n, round % 2 ? 3 : 100, round % 5 == 0);
        fill(&random, weight, n, 1, false);
        reference_gated_norm(n, x, z, weighted ? weight : NULL, 1e-6f, activation, gate_first,
                             wanted);
        for (size_t v = 0; v < variants.count; v++) {
            const kvern_recurrence_kernels *kernels =
                kvern_recurrence_kernels_of(variants.features[v]);
            for (int where = 0; where < 3; where++) { // another place, over x, over z
                float *in = place(&xs, x, n), *gate = place(&zs, z, n);
                float *w = place(&weights, weight, n);
                float *out = where == 0   ? guarded_last(&outs, n * sizeof(float))
                             : where == 1 ? in
                                          : gate;
                kernels->normalize_gated(n, in, gate, weighted ? w : NULL, 1e-6f, activation,
                                         gate_first, out);
                check_same_floats(wanted, out, n, kvern_cpu_name(variants.features[v]));
            }
        }
    }
    guarded_free(&xs);
    guarded_free(&zs);
    guarded_free(&weights);
    guarded_free(&outs);
}

// ---- Decays ----

static void kernels_give_step_sizes_as_stated(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 7);
    const kernel_variants variants = kernel_variants_here();
    float a[MOST_CHANNELS], bias[MOST_CHANNELS], dt[MOST_CHANNELS], decay[MOST_CHANNELS];
    guarded from = guarded_at_end(sizeof a), by = guarded_at_end(sizeof a);
    guarded to = guarded_at_end(sizeof a), other = guarded_at_end(sizeof a);
    for (int round = 0; round < rounds(3000); round++) {
        const size_t n = test_random_below(&random, MOST_CHANNELS + 1);
        const float rate = kvern_exp(4 * test_random_signed(&random));
        const float low = round % 3 ? 0.001f : 0, high = round % 4 ? 3 : INFINITY;
        const bool biased = test_random_below(&random, 2) != 0;
        fill(&random, a, MOST_CHANNELS, round % 2 ? 4 : 100, round % 3 == 0);
        fill(&random, bias, MOST_CHANNELS, 2, false);
        for (size_t i = 0; i < n; i++) {
            dt[i] = kvern_softplus(biased ? a[i] + bias[i] : a[i]);
            dt[i] = dt[i] < low ? low : dt[i] > high ? high : dt[i];
            decay[i] = kvern_exp(-(rate * dt[i]));
        }
        for (size_t v = 0; v < variants.count; v++) {
            const kvern_recurrence_kernels *kernels =
                kvern_recurrence_kernels_of(variants.features[v]);
            const char *name = kvern_cpu_name(variants.features[v]);
            float *in = place(&from, a, n), *added = place(&by, bias, n);
            float *out = guarded_last(&to, n * sizeof(float));
            float *decays = guarded_last(&other, n * sizeof(float));
            kernels->step_size(n, in, biased ? added : NULL, low, high, rate, out, decays);
            check_same_floats(dt, out, n, name);
            check_same_floats(decay, decays, n, name);
            kernels->step_size(n, in, biased ? added : NULL, low, high, rate, in, NULL); // in place
            check_same_floats(dt, in, n, name);
        }
    }
    guarded_free(&from);
    guarded_free(&by);
    guarded_free(&to);
    guarded_free(&other);
}

static void kernels_decay_as_stated(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 5);
    const kernel_variants variants = kernel_variants_here();
    float a[MOST_CHANNELS], bias[MOST_CHANNELS], wanted[MOST_CHANNELS];
    guarded from = guarded_at_end(sizeof a), to = guarded_at_end(sizeof a);
    guarded by = guarded_at_end(sizeof a);
    for (int round = 0; round < rounds(3000); round++) {
        const size_t n = test_random_below(&random, MOST_CHANNELS + 1);
        const float rate = kvern_exp(4 * test_random_signed(&random));
        const bool biased = test_random_below(&random, 2) != 0;
        fill(&random, a, MOST_CHANNELS, round % 2 ? 4 : 100, round % 3 == 0);
        fill(&random, bias, MOST_CHANNELS, 2, false);
        for (size_t i = 0; i < n; i++)
            wanted[i] = kvern_exp(-(rate * kvern_softplus(biased ? a[i] + bias[i] : a[i])));
        for (size_t v = 0; v < variants.count; v++) {
            const kvern_recurrence_kernels *kernels =
                kvern_recurrence_kernels_of(variants.features[v]);
            float *in = place(&from, a, n), *added = place(&by, bias, n);
            float *out = guarded_last(&to, n * sizeof(float));
            kernels->decay(n, in, biased ? added : NULL, rate, out);
            check_same_floats(wanted, out, n, kvern_cpu_name(variants.features[v]));
            kernels->decay(n, in, biased ? added : NULL, rate, in); // in place
            check_same_floats(wanted, in, n, kvern_cpu_name(variants.features[v]));
        }
    }
    guarded_free(&from);
    guarded_free(&to);
    guarded_free(&by);
}

int main(void)
{
    kernel_variants_print("recurrence");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_steps_follow_the_stated_order),
        cmocka_unit_test(vector_steps_equal_plain),
        cmocka_unit_test(lanes_behind_the_values_stay_zero),
        cmocka_unit_test(kernels_convolve_as_stated),
        cmocka_unit_test(kernels_normalize_as_stated),
        cmocka_unit_test(kernels_normalize_with_gates_as_stated),
        cmocka_unit_test(kernels_give_step_sizes_as_stated),
        cmocka_unit_test(kernels_decay_as_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
