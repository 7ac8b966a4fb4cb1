// SPDX-License-Identifier: MIT
// The kernels of recurrent layers for one instruction set; equal to recurrence_plain.c bit for bit.
// Included once by recurrence_<isa>.c after a lanes header.
//
// Parameters:
//     RECURRENCE_KERNELS  the name of the kernels
//     RECURRENCE_BLOCKS   blocks of S that go through the tokens together: as many as the sums of
//                         their values need to hide the latency of one fma
//     RECURRENCE_SSD_TOKENS  tokens that an element of S passes through between its load and its
//                         store where the rule is SSD
//
// A block of S, [k_dim][32], is taken through all tokens before the next one. At k_dim 128 it is 16
// KiB, so it stays in the first-level cache, and what a token leaves to do to an element (the outer
// product, y) is done in one pass with what the next token begins with (the decay, m): an element
// is loaded and stored once per token for four operations. A token that comes alone is bound by
// memory: it reads S twice, the second time from the first-level cache, stores it once, and asks
// for the next blocks meanwhile.

#include "src/recurrent/recurrence_kernels.h"

#include "src/math/sigmoid_lanes.h"
#include "src/math/softplus_lanes.h"
#include "src/math/sum.h"
#include "src/math/unroll.h"

#include <math.h>

#define BLOCK KVERN_RECURRENCE_BLOCK

// ---- Values of one or more blocks: `n` vectors, two per block. n is a constant everywhere. ----

typedef struct {
    lanes v[2 * RECURRENCE_BLOCKS];
} values;

LANES_INLINE values values_zero(int n)
{
    values x;
    KVERN_UNROLL
    for (int j = 0; j < n; j++)
        x.v[j] = lanes_zero();
    return x;
}

// Where vector j of key channel 0 is.
LANES_INLINE size_t vector_at(size_t k_dim, int j)
{
    return (size_t)(j / 2) * k_dim * BLOCK + (size_t)(j % 2) * 16;
}

LANES_INLINE values values_load(const float *s, size_t k_dim, int n)
{
    values x;
    KVERN_UNROLL
    for (int j = 0; j < n; j++)
        x.v[j] = lanes_load(s + vector_at(k_dim, j));
    return x;
}

LANES_INLINE void values_store(float *s, size_t k_dim, values x, int n)
{
    KVERN_UNROLL
    for (int j = 0; j < n; j++)
        lanes_store(s + vector_at(k_dim, j), x.v[j]);
}

// The first `count` of a token's values; zeros behind them.
LANES_INLINE values values_load_part(const float *p, size_t count, int n)
{
    values x;
    KVERN_UNROLL
    for (int j = 0; j < n; j++) {
        const size_t before = 16 * (size_t)j;
        if (count >= before + 16)
            x.v[j] = lanes_load(p + before);
        else
            x.v[j] =
                count > before ? lanes_load_part(p + before, (int)(count - before)) : lanes_zero();
    }
    return x;
}

LANES_INLINE void values_store_part(float *p, values x, size_t count, int n)
{
    KVERN_UNROLL
    for (int j = 0; j < n; j++) {
        const size_t before = 16 * (size_t)j;
        if (count >= before + 16)
            lanes_store(p + before, x.v[j]);
        else if (count > before)
            lanes_store_part(p + before, x.v[j], (int)(count - before));
    }
}

LANES_INLINE values values_scale(values x, lanes factor, int n)
{
    KVERN_UNROLL
    for (int j = 0; j < n; j++)
        x.v[j] = lanes_mul(x.v[j], factor);
    return x;
}

// a * b + c, where b is one number for all values.
LANES_INLINE values values_fma(values a, lanes b, values c, int n)
{
    KVERN_UNROLL
    for (int j = 0; j < n; j++)
        c.v[j] = lanes_fma(a.v[j], b, c.v[j]);
    return c;
}

// Where the blocks from value `first` on are before the first token.
LANES_INLINE const float *before(const kvern_recurrence_steps *steps, size_t first, const float *s)
{
    return steps->from ? steps->from + first * steps->k_dim : s;
}

// ---- What is needed next ----

// While the blocks from value `first` on take token t: a share of the tokens that follow, for the
// second-level cache. It is asked for bit by bit: requests that are under way hold up every other
// miss.
LANES_INLINE void ask_ahead(const kvern_recurrence_steps *steps, size_t t, size_t first, int n)
{
    const kvern_recurrence_ahead *ahead = &steps->ahead;
    for (size_t p = 0; t < ahead->count && p < KVERN_RECURRENCE_PIECES; p++) {
        const kvern_recurrence_piece *piece = &ahead->pieces[p];
        const float *at = piece->from + t * piece->stride;
        const size_t begin = first / BLOCK * piece->share;
        const size_t share = begin + (size_t)n / 2 * piece->share;
        const size_t end = share < piece->floats ? share : piece->floats;
        for (size_t c = begin; c < end; c += 16)
            __builtin_prefetch(at + c, 0, 2);
    }
}

// While a single token passes through S, which comes from memory: requests for the blocks that
// follow, in steps, for the second-level cache.
typedef struct requests {
    const float *at;
    size_t step; // floats for every key channel, a multiple of 16
} requests;

// Those of one of `passes` over the blocks from value `first` on. Where nothing is known to follow,
// what is at hand is asked for again and again.
LANES_INLINE requests requests_of(const kvern_recurrence_steps *steps, size_t first,
                                  const float *from, int pass, int passes, int n)
{
    const bool is_last = first + 16 * (size_t)n >= steps->v_dim;
    const float *next = is_last ? steps->then : from + 16 * (size_t)n * steps->k_dim;
    const size_t step = (size_t)(16 * n / passes);
    return next ? (requests){next + (size_t)pass * steps->k_dim * step, step} : (requests){from, 0};
}

LANES_INLINE void request(requests *r, int lines)
{
    KVERN_UNROLL
    for (int j = 0; j < lines; j++)
        __builtin_prefetch(r->at + 16 * j, 0, 2);
    r->at += r->step;
}

// Outputs of token t, which will be stored: stores leave in order, and one that waits for its line
// holds up those of S.
LANES_INLINE void ask_outputs(const kvern_recurrence_steps *steps, size_t t, size_t first, int n)
{
    if (t >= steps->count)
        return;
    const float *y = steps->y + t * steps->y_stride + first;
    KVERN_UNROLL
    for (int j = 0; j < n; j++) {
        if (first + 16 * (size_t)j < steps->v_dim)
            __builtin_prefetch(y + 16 * j, 1, 3);
    }
}

// ---- Delta ----

// What token t adds: beta (v - m).
LANES_INLINE values difference(const kvern_recurrence_steps *steps, size_t t, size_t first,
                               values m, int n)
{
    const float *v = steps->v + t * steps->v_stride + first;
    const lanes beta = lanes_set(steps->beta[t * steps->beta_stride]);
    values d = values_load_part(v, steps->v_dim - first, n);
    KVERN_UNROLL
    for (int j = 0; j < n; j++)
        d.v[j] = lanes_mul(beta, lanes_sub(d.v[j], m.v[j]));
    return d;
}

// One pass over the blocks, which are at `from` and go to s, does some of: `finish` token t (outer
// product, and y where `outputs`), `begin` the next token (decay, m).
LANES_INLINE void delta_pass(const kvern_recurrence_steps *steps, size_t t, const float *from,
                             float *s, values d, values *y, values *m, bool finish, bool begin,
                             bool outputs, bool channels, int n)
{
    const size_t next = finish ? t + 1 : t, k_dim = steps->k_dim;
    const float *k = steps->k + t * steps->k_stride;
    const float *q = outputs ? steps->q + t * steps->q_stride : NULL;
    const float *next_k = begin ? steps->k + next * steps->k_stride : NULL;
    const float *decay = begin ? steps->decay + next * steps->decay_stride : NULL;
    const lanes one_decay = begin && !channels ? lanes_set(*decay) : lanes_zero();
    values sum_y = values_zero(n), sum_m = values_zero(n);
    for (size_t i = 0; i < k_dim; i++) {
        values x = values_load(from + i * BLOCK, k_dim, n);
        if (finish)
            x = values_fma(d, lanes_set(k[i]), x, n);
        if (finish && outputs)
            sum_y = values_fma(x, lanes_set(q[i]), sum_y, n);
        if (begin) {
            x = values_scale(x, channels ? lanes_set(decay[i]) : one_decay, n);
            sum_m = values_fma(x, lanes_set(next_k[i]), sum_m, n);
        }
        values_store(s + i * BLOCK, k_dim, x, n);
    }
    *y = sum_y;
    *m = sum_m;
}

// ---- Delta, one token: S comes from memory and goes back to it ----

// m, without a store: the second pass decays S again. Memory is read in both.
LANES_INLINE values recall(const kvern_recurrence_steps *steps, size_t first, const float *from,
                           bool channels, int n)
{
    requests next = requests_of(steps, first, from, 0, 2, n);
    values m = values_zero(n);
    for (size_t i = 0; i < steps->k_dim; i++) {
        request(&next, n / 2);
        const values x = values_scale(values_load(from + i * BLOCK, steps->k_dim, n),
                                      lanes_set(steps->decay[channels ? i : 0]), n);
        m = values_fma(x, lanes_set(steps->k[i]), m, n);
    }
    return m;
}

LANES_INLINE values renew(const kvern_recurrence_steps *steps, size_t first, const float *from,
                          float *s, values d, bool outputs, bool channels, int n)
{
    requests next = requests_of(steps, first, from, 1, 2, n);
    values y = values_zero(n);
    for (size_t i = 0; i < steps->k_dim; i++) {
        request(&next, n / 2);
        values x = values_scale(values_load(from + i * BLOCK, steps->k_dim, n),
                                lanes_set(steps->decay[channels ? i : 0]), n);
        x = values_fma(d, lanes_set(steps->k[i]), x, n);
        if (outputs)
            y = values_fma(x, lanes_set(steps->q[i]), y, n);
        values_store(s + i * BLOCK, steps->k_dim, x, n);
    }
    return y;
}

LANES_INLINE void delta_once(const kvern_recurrence_steps *steps, size_t first, float *s,
                             bool outputs, bool channels, int n)
{
    const float *from = before(steps, first, s);
    const values m = recall(steps, first, from, channels, n);
    const values d = difference(steps, 0, first, m, n);
    ask_ahead(steps, 0, first, n);
    const values y = renew(steps, first, from, s, d, outputs, channels, n);
    if (outputs)
        values_store_part(steps->y + first, y, steps->v_dim - first, n);
}

// ---- Delta, several tokens ----

LANES_INLINE void delta_blocks(const kvern_recurrence_steps *steps, size_t first, float *s,
                               bool outputs, bool channels, int n)
{
    values y, m, d = values_zero(n);
    if (steps->count == 1) {
        delta_once(steps, first, s, outputs, channels, n);
        return;
    }
    delta_pass(steps, 0, before(steps, first, s), s, d, &y, &m, false, true, false, channels, n);
    for (size_t t = 0; t < steps->count; t++) {
        d = difference(steps, t, first, m, n);
        if (outputs)
            ask_outputs(steps, t + 1, first, n);
        ask_ahead(steps, t, first, n);
        if (t + 1 < steps->count)
            delta_pass(steps, t, s, s, d, &y, &m, true, true, outputs, channels, n);
        else
            delta_pass(steps, t, s, s, d, &y, &m, true, false, outputs, channels, n);
        if (outputs)
            values_store_part(steps->y + t * steps->y_stride + first, y, steps->v_dim - first, n);
    }
}

LANES_INLINE void delta_head(const kvern_recurrence_steps *steps, float *s, bool outputs,
                             bool channels)
{
    size_t first = 0;
    if (!steps->count)
        return;
    for (; first + (RECURRENCE_BLOCKS - 1) * BLOCK < steps->v_dim;
         first += RECURRENCE_BLOCKS * BLOCK)
        delta_blocks(steps, first, s + first * steps->k_dim, outputs, channels,
                     2 * RECURRENCE_BLOCKS);
    if (RECURRENCE_BLOCKS > 1 && first < steps->v_dim)
        delta_blocks(steps, first, s + first * steps->k_dim, outputs, channels, 2);
}

static void delta(const kvern_recurrence_steps *steps, float *s)
{
    if (steps->q)
        delta_head(steps, s, true, false);
    else
        delta_head(steps, s, false, false);
}

static void delta_channels(const kvern_recurrence_steps *steps, float *s)
{
    if (steps->q)
        delta_head(steps, s, true, true);
    else
        delta_head(steps, s, false, true);
}

// ---- SSD: nothing of a token depends on the one before but S itself, so an element passes through
// several tokens in a register ----

// `tokens` of them from t on, at most RECURRENCE_SSD_TOKENS, for the blocks from value `first` on.
LANES_INLINE void ssd_tokens(const kvern_recurrence_steps *steps, size_t t, size_t first,
                             const float *from, float *s, bool outputs, int tokens, int n)
{
    const size_t left = steps->v_dim - first, k_dim = steps->k_dim;
    requests next = requests_of(steps, first, from, 0, 1, n);
    const float *k[RECURRENCE_SSD_TOKENS], *q[RECURRENCE_SSD_TOKENS];
    values d[RECURRENCE_SSD_TOKENS], y[RECURRENCE_SSD_TOKENS];
    lanes decay[RECURRENCE_SSD_TOKENS];
    KVERN_UNROLL
    for (int j = 0; j < tokens; j++) {
        const size_t at = t + (size_t)j;
        k[j] = steps->k + at * steps->k_stride;
        q[j] = outputs ? steps->q + at * steps->q_stride : NULL;
        d[j] = values_load_part(steps->v + at * steps->v_stride + first, left, n);
        d[j] = values_scale(d[j], lanes_set(steps->beta[at * steps->beta_stride]), n);
        decay[j] = lanes_set(steps->decay[at * steps->decay_stride]);
        y[j] = values_zero(n);
    }
    for (size_t i = 0; i < k_dim; i++) {
        if (tokens == 1)
            request(&next, n);
        values e = values_load(from + i * BLOCK, k_dim, n);
        KVERN_UNROLL
        for (int j = 0; j < tokens; j++) {
            e = values_fma(d[j], lanes_set(k[j][i]), values_scale(e, decay[j], n), n);
            if (outputs)
                y[j] = values_fma(e, lanes_set(q[j][i]), y[j], n);
        }
        values_store(s + i * BLOCK, k_dim, e, n);
    }
    KVERN_UNROLL
    for (int j = 0; j < tokens && outputs; j++) {
        const size_t at = t + (size_t)j;
        if (steps->skip) {
            const values x = values_load_part(steps->v + at * steps->v_stride + first, left, n);
            y[j] = values_fma(x, lanes_set(*steps->skip), y[j], n);
        }
        values_store_part(steps->y + at * steps->y_stride + first, y[j], left, n);
    }
}

LANES_INLINE void ssd_blocks(const kvern_recurrence_steps *steps, size_t first, float *s,
                             bool outputs, int n)
{
    const float *from = before(steps, first, s);
    size_t t = 0;
    for (; t + RECURRENCE_SSD_TOKENS <= steps->count; t += RECURRENCE_SSD_TOKENS) {
        for (size_t j = 0; j < RECURRENCE_SSD_TOKENS; j++) {
            if (outputs)
                ask_outputs(steps, t + RECURRENCE_SSD_TOKENS + j, first, n);
            ask_ahead(steps, t + j, first, n);
        }
        ssd_tokens(steps, t, first, from, s, outputs, RECURRENCE_SSD_TOKENS, n);
        from = s;
    }
    for (; t < steps->count; t++) {
        ssd_tokens(steps, t, first, from, s, outputs, 1, n);
        from = s;
    }
}

LANES_INLINE void ssd_head(const kvern_recurrence_steps *steps, float *s, bool outputs)
{
    size_t first = 0;
    for (; first + (RECURRENCE_BLOCKS - 1) * BLOCK < steps->v_dim;
         first += RECURRENCE_BLOCKS * BLOCK)
        ssd_blocks(steps, first, s + first * steps->k_dim, outputs, 2 * RECURRENCE_BLOCKS);
    if (RECURRENCE_BLOCKS > 1 && first < steps->v_dim)
        ssd_blocks(steps, first, s + first * steps->k_dim, outputs, 2);
}

static void ssd(const kvern_recurrence_steps *steps, float *s)
{
    if (steps->q)
        ssd_head(steps, s, true);
    else
        ssd_head(steps, s, false);
}

// ---- What comes before ----

LANES_INLINE lanes load_some(const float *p, int count)
{
    return count == 16 ? lanes_load(p) : lanes_load_part(p, count);
}

LANES_INLINE void store_some(float *p, lanes v, int count)
{
    if (count == 16)
        lanes_store(p, v);
    else
        lanes_store_part(p, v, count);
}

// Channels c to c + count - 1.
LANES_INLINE void convolve_lanes(size_t c, int count, size_t taps, const float *const *rows,
                                 const float *weight, size_t weight_stride, const float *bias,
                                 bool silu, float *out)
{
    lanes sum = bias ? load_some(bias + c, count) : lanes_zero();
    for (size_t j = 0; j < taps; j++)
        sum = lanes_fma(load_some(weight + j * weight_stride + c, count),
                        load_some(rows[j] + c, count), sum);
    store_some(out + c, silu ? lanes_silu(sum) : sum, count);
}

// The four taps and the silu that models have, without loops in the loop.
static void convolve_four(size_t channels, const float *const *rows, const float *weight,
                          size_t weight_stride, const float *bias, float *out)
{
    const float *x0 = rows[0], *x1 = rows[1], *x2 = rows[2], *x3 = rows[3];
    const float *w0 = weight, *w1 = w0 + weight_stride, *w2 = w1 + weight_stride;
    const float *w3 = w2 + weight_stride;
    for (size_t c = 0; c < channels; c += 16) {
        lanes sum = bias ? lanes_load(bias + c) : lanes_zero();
        sum = lanes_fma(lanes_load(w0 + c), lanes_load(x0 + c), sum);
        sum = lanes_fma(lanes_load(w1 + c), lanes_load(x1 + c), sum);
        sum = lanes_fma(lanes_load(w2 + c), lanes_load(x2 + c), sum);
        sum = lanes_fma(lanes_load(w3 + c), lanes_load(x3 + c), sum);
        lanes_store(out + c, lanes_silu(sum));
    }
}

static void convolve(size_t channels, size_t taps, const float *const *rows, const float *weight,
                     size_t weight_stride, const float *bias, bool silu, float *out)
{
    size_t c = 0;
    if (taps == 4 && silu) {
        c = channels / 16 * 16;
        convolve_four(c, rows, weight, weight_stride, bias, out);
    }
    for (; c < channels; c += 16)
        convolve_lanes(c, channels - c < 16 ? (int)(channels - c) : 16, taps, rows, weight,
                       weight_stride, bias, silu, out);
}

static void rms_scale(size_t n, const float *x, float eps, float factor, const float *weight,
                      float *out)
{
    lanes sum = lanes_zero();
    float lane[16];
    for (size_t i = 0; i < n; i += 16) {
        const lanes v = load_some(x + i, n - i < 16 ? (int)(n - i) : 16);
        sum = lanes_fma(v, v, sum);
    }
    lanes_store(lane, sum);
    const float scale = factor / sqrtf(kvern_sum16(lane) / (float)n + eps);
    for (size_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        lanes v = lanes_mul(load_some(x + i, count), lanes_set(scale));
        if (weight)
            v = lanes_mul(v, load_some(weight + i, count));
        store_some(out + i, v, count);
    }
}

LANES_INLINE lanes activate(kvern_activation activation, lanes x)
{
    switch (activation) {
    case KVERN_ACTIVATION_SILU:
        return lanes_silu(x);
    case KVERN_ACTIVATION_SIGMOID:
        return lanes_sigmoid(x);
    default:
        return x;
    }
}

static void normalize_gated(size_t n, const float *x, const float *z, const float *weight,
                            float eps, kvern_activation activation, bool gate_first, float *out)
{
    lanes sum = lanes_zero();
    float lane[16];
    for (size_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        lanes u = load_some(x + i, count);
        if (gate_first)
            u = lanes_mul(u, activate(activation, load_some(z + i, count)));
        sum = lanes_fma(u, u, sum);
    }
    lanes_store(lane, sum);
    const float scale = 1 / sqrtf(kvern_sum16(lane) / (float)n + eps);
    for (size_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        const lanes gate = activate(activation, load_some(z + i, count));
        lanes y = load_some(x + i, count);
        if (gate_first)
            y = lanes_mul(y, gate);
        y = lanes_mul(y, lanes_set(scale));
        if (weight)
            y = lanes_mul(y, load_some(weight + i, count));
        store_some(out + i, gate_first ? y : lanes_mul(y, gate), count);
    }
}

static void step_size(size_t n, const float *a, const float *bias, float low, float high,
                      float rate, float *dt, float *decay)
{
    const lanes least = lanes_set(low), most = lanes_set(high);
    for (size_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        lanes x = load_some(a + i, count);
        if (bias)
            x = lanes_add(x, load_some(bias + i, count));
        x = lanes_softplus(x);
        const lanes below_most = lanes_select(lanes_gt(x, most), most, x);
        x = lanes_select(lanes_lt(x, least), least, below_most);
        store_some(dt + i, x, count);
        if (decay)
            store_some(decay + i, lanes_exp(lanes_neg(lanes_mul(lanes_set(rate), x))), count);
    }
}

// In passes over a piece: one chain of all operations is so long that too few of them are at work
// at the same time.
#define PIECE 128

static void decay_piece(size_t n, const float *a, const float *bias, float rate, float *out)
{
    float x[PIECE], e[PIECE];
    for (size_t i = 0; i < n; i += 16) {
        const int count = n - i < 16 ? (int)(n - i) : 16;
        lanes v = load_some(a + i, count);
        if (bias)
            v = lanes_add(v, load_some(bias + i, count));
        lanes_store(x + i, v);
        lanes_store(e + i, lanes_softplus_exp(v));
    }
    for (size_t i = 0; i < n; i += 16) {
        const lanes dt = lanes_softplus_rest(lanes_load(x + i), lanes_load(e + i));
        lanes_store(x + i, lanes_neg(lanes_mul(lanes_set(rate), dt)));
    }
    for (size_t i = 0; i < n; i += 16)
        store_some(out + i, lanes_exp(lanes_load(x + i)), n - i < 16 ? (int)(n - i) : 16);
}

static void decay(size_t n, const float *a, const float *bias, float rate, float *out)
{
    for (size_t i = 0; i < n; i += PIECE)
        decay_piece(n - i < PIECE ? n - i : PIECE, a + i, bias ? bias + i : NULL, rate, out + i);
}

const kvern_recurrence_kernels RECURRENCE_KERNELS = {
    .delta = delta,
    .delta_channels = delta_channels,
    .ssd = ssd,
    .convolve = convolve,
    .rms_scale = rms_scale,
    .normalize_gated = normalize_gated,
    .decay = decay,
    .step_size = step_size,
};
