// SPDX-License-Identifier: MIT
// From a token's inputs to its step: convolution, norms, gates, records; and the layout of a state.
#include "src/recurrent/recurrence.h"

#include "src/base/assert.h"
#include "src/math/exp.h"
#include "src/recurrent/recurrence_kernels.h"

#include <kvern/math.h>

#include <string.h>

#define BLOCK KVERN_RECURRENCE_BLOCK
#define TILE ((size_t)32) // tokens that are processed before they take their steps

// ---- Sizes ----

static size_t keys_floats(const kvern_recurrence_shape *shape)
{
    return shape->key_heads * shape->k_dim;
}

static size_t values_floats(const kvern_recurrence_shape *shape)
{
    return shape->value_heads * shape->v_dim;
}

// Decays of a value head per token.
static size_t decay_floats(const kvern_recurrence_shape *shape)
{
    return shape->rule == KVERN_RULE_DELTA_CHANNELS ? shape->k_dim : 1;
}

// Floats of S per value head.
static size_t head_floats(const kvern_recurrence_shape *shape)
{
    return (shape->v_dim + BLOCK - 1) / BLOCK * BLOCK * shape->k_dim;
}

size_t kvern_recurrence_channels(const kvern_recurrence_shape *shape)
{
    return 2 * keys_floats(shape) + values_floats(shape);
}

size_t kvern_recurrence_a_floats(const kvern_recurrence_shape *shape)
{
    return shape->value_heads * decay_floats(shape);
}

size_t kvern_recurrence_b_floats(const kvern_recurrence_shape *shape)
{
    return shape->rule == KVERN_RULE_SSD ? 0 : shape->value_heads;
}

size_t kvern_recurrence_tail_floats(const kvern_recurrence_shape *shape)
{
    return shape->taps ? (shape->taps - 1) * kvern_recurrence_channels(shape) : 0;
}

size_t kvern_recurrence_s_offset(const kvern_recurrence_shape *shape)
{
    return (kvern_recurrence_tail_floats(shape) + 15) / 16 * 16;
}

size_t kvern_recurrence_state_floats(const kvern_recurrence_shape *shape)
{
    return kvern_recurrence_s_offset(shape) + shape->value_heads * head_floats(shape);
}

size_t kvern_recurrence_record_floats(const kvern_recurrence_shape *shape)
{
    return keys_floats(shape) + values_floats(shape) +
           shape->value_heads * (decay_floats(shape) + 1);
}

size_t kvern_recurrence_scratch_floats(const kvern_recurrence_shape *shape)
{
    return TILE * (2 * shape->k_dim + shape->v_dim + decay_floats(shape) + 1);
}

// ---- The layout of S ----

// Where the element of value e and key channel i of a head is.
static size_t element_at(const kvern_recurrence_shape *shape, size_t head, size_t e, size_t i)
{
    return kvern_recurrence_s_offset(shape) + head * head_floats(shape) +
           (e / BLOCK * shape->k_dim + i) * BLOCK + e % BLOCK;
}

void kvern_recurrence_export_s(const kvern_recurrence_shape *shape, const float *state, float *s)
{
    for (size_t head = 0; head < shape->value_heads; head++) {
        for (size_t e = 0; e < shape->v_dim; e++) {
            for (size_t i = 0; i < shape->k_dim; i++)
                *s++ = state[element_at(shape, head, e, i)];
        }
    }
}

void kvern_recurrence_import_s(const kvern_recurrence_shape *shape, const float *s, float *state)
{
    memset(state + kvern_recurrence_s_offset(shape), 0,
           shape->value_heads * head_floats(shape) * sizeof(float));
    for (size_t head = 0; head < shape->value_heads; head++) {
        for (size_t e = 0; e < shape->v_dim; e++) {
            for (size_t i = 0; i < shape->k_dim; i++)
                state[element_at(shape, head, e, i)] = *s++;
        }
    }
}

void kvern_recurrence_move_tail(const kvern_recurrence_shape *shape, float *state, size_t count,
                                const float *x, size_t x_stride)
{
    const size_t channels = kvern_recurrence_channels(shape);
    const size_t rows = shape->taps ? shape->taps - 1 : 0;
    const size_t kept = count < rows ? rows - count : 0;
    memmove(state, state + (rows - kept) * channels, kept * channels * sizeof(float));
    for (size_t r = kept; r < rows; r++)
        memcpy(state + r * channels, x + (count + r - rows) * x_stride, channels * sizeof(float));
}

// ---- Tokens before their steps ----

// One call of kvern_recurrence_run.
typedef struct run {
    const kvern_recurrence_kernels *kernels;
    uint32_t features;
    const kvern_recurrence_shape *shape;
    const kvern_recurrence_weights *weights;
    const kvern_recurrence_tokens *tokens;
    float *state;
    float *records;
    // Scratch: TILE tokens of one head each.
    float *q, *k, *v, *decay, *beta;
} run;

// Where the channels of the heads begin.
static size_t q_channel(const kvern_recurrence_shape *shape, size_t key_head)
{
    const size_t before =
        shape->rule == KVERN_RULE_SSD ? values_floats(shape) + keys_floats(shape) : 0;
    return before + key_head * shape->k_dim;
}

static size_t k_channel(const kvern_recurrence_shape *shape, size_t key_head)
{
    const size_t before = shape->rule == KVERN_RULE_SSD ? values_floats(shape) : keys_floats(shape);
    return before + key_head * shape->k_dim;
}

static size_t v_channel(const kvern_recurrence_shape *shape, size_t value_head)
{
    const size_t before = shape->rule == KVERN_RULE_SSD ? 0 : 2 * keys_floats(shape);
    return before + value_head * shape->v_dim;
}

// The inputs of channel `channel` that the taps of token t meet.
static void find_taps(const run *r, size_t t, size_t channel,
                      const float *rows[KVERN_RECURRENCE_MOST_TAPS])
{
    const size_t taps = r->shape->taps, channels = kvern_recurrence_channels(r->shape);
    KVERN_ASSERT(taps <= KVERN_RECURRENCE_MOST_TAPS);
    for (size_t j = 0; j < taps; j++) {
        const size_t at = t + j; // in the tail and the tokens as one sequence
        rows[j] =
            channel + (at < taps - 1 ? r->state + at * channels
                                     : r->tokens->x + (at - (taps - 1)) * r->tokens->x_stride);
    }
}

// `dim` channels of the tokens first to first + count - 1, after convolution and silu.
static void convolve_tokens(const run *r, size_t first, size_t count, size_t channel, size_t dim,
                            float *out)
{
    const size_t channels = kvern_recurrence_channels(r->shape), taps = r->shape->taps;
    const float *bias = r->weights->conv_bias ? r->weights->conv_bias + channel : NULL;
    const float *rows[KVERN_RECURRENCE_MOST_TAPS];
    for (size_t t = 0; t < count; t++) {
        if (!taps) {
            memcpy(out + t * dim, r->tokens->x + (first + t) * r->tokens->x_stride + channel,
                   dim * sizeof(float));
            continue;
        }
        find_taps(r, first + t, channel, rows);
        r->kernels->convolve(dim, taps, rows, r->weights->conv + channel, channels, bias, true,
                             out + t * dim);
    }
}

static void normalize(const run *r, size_t count, float factor, float *x)
{
    const size_t dim = r->shape->k_dim;
    if (r->shape->rule == KVERN_RULE_SSD || factor == 0)
        return;
    for (size_t t = 0; t < count; t++)
        r->kernels->rms_scale(dim, x + t * dim, r->weights->norm_eps, factor, NULL, x + t * dim);
}

static void prepare_keys(const run *r, size_t first, size_t count, size_t key_head)
{
    const kvern_recurrence_shape *shape = r->shape;
    if (r->tokens->y)
        convolve_tokens(r, first, count, q_channel(shape, key_head), shape->k_dim, r->q);
    convolve_tokens(r, first, count, k_channel(shape, key_head), shape->k_dim, r->k);
    if (r->tokens->y)
        normalize(r, count, r->weights->q_factor, r->q);
    normalize(r, count, r->weights->k_factor, r->k);
}

// softplus(a + dt_bias), into decay.
static void step_sizes(const run *r, size_t first, size_t count, size_t head)
{
    const size_t each = decay_floats(r->shape);
    const float *bias = r->weights->dt_bias ? r->weights->dt_bias + head * each : NULL;
    for (size_t t = 0; t < count; t++) {
        const float *a = r->tokens->a + (first + t) * r->tokens->a_stride + head * each;
        for (size_t i = 0; i < each; i++)
            r->decay[t * each + i] = bias ? a[i] + bias[i] : a[i];
    }
    kvern_softplus_array(r->features, count * each, r->decay, r->decay);
}

static void delta_betas(const run *r, size_t first, size_t count, size_t head)
{
    for (size_t t = 0; t < count; t++)
        r->beta[t] = r->tokens->b[(first + t) * r->tokens->b_stride + head];
    kvern_sigmoid_array(r->features, count, r->beta, r->beta);
    for (size_t t = 0; t < count; t++)
        r->beta[t] *= r->weights->beta_factor;
}

// dt within its limits; a NaN stays one.
static void limit_step_sizes(const run *r, size_t count)
{
    const float low = r->weights->dt_low, high = r->weights->dt_high;
    for (size_t t = 0; t < count; t++) {
        const float dt = r->decay[t];
        r->decay[t] = r->beta[t] = dt < low ? low : dt > high ? high : dt;
    }
}

static void prepare_gates(const run *r, size_t first, size_t count, size_t head)
{
    const float rate = plain_exp(r->weights->a_log[head]);
    const size_t decays = count * decay_floats(r->shape);
    step_sizes(r, first, count, head);
    if (r->shape->rule == KVERN_RULE_SSD)
        limit_step_sizes(r, count);
    else
        delta_betas(r, first, count, head);
    for (size_t i = 0; i < decays; i++)
        r->decay[i] = -(rate * r->decay[i]);
    kvern_exp_array(r->features, decays, r->decay, r->decay);
}

// ---- Records: per token all keys, values, decays, betas ----

static float *record_v(const kvern_recurrence_shape *shape, float *record)
{
    return record + keys_floats(shape);
}

static float *record_decay(const kvern_recurrence_shape *shape, float *record)
{
    return record_v(shape, record) + values_floats(shape);
}

static float *record_beta(const kvern_recurrence_shape *shape, float *record)
{
    return record_decay(shape, record) + shape->value_heads * decay_floats(shape);
}

static void record_keys(const run *r, size_t first, size_t count, size_t key_head)
{
    const size_t floats = kvern_recurrence_record_floats(r->shape), dim = r->shape->k_dim;
    for (size_t t = 0; t < count; t++)
        memcpy(r->records + (first + t) * floats + key_head * dim, r->k + t * dim,
               dim * sizeof(float));
}

static void record_head(const run *r, size_t first, size_t count, size_t head)
{
    const kvern_recurrence_shape *shape = r->shape;
    const size_t decays = decay_floats(shape), dim = shape->v_dim;
    for (size_t t = 0; t < count; t++) {
        float *record = r->records + (first + t) * kvern_recurrence_record_floats(shape);
        memcpy(record_v(shape, record) + head * dim, r->v + t * dim, dim * sizeof(float));
        memcpy(record_decay(shape, record) + head * decays, r->decay + t * decays,
               decays * sizeof(float));
        record_beta(shape, record)[head] = r->beta[t];
    }
}

// ---- Steps ----

static float *s_of(const kvern_recurrence_shape *shape, float *state, size_t head)
{
    return state + element_at(shape, head, 0, 0);
}

static void take_steps(const kvern_recurrence_kernels *kernels, kvern_recurrence_rule rule,
                       const kvern_recurrence_steps *steps, float *s)
{
    switch (rule) {
    case KVERN_RULE_DELTA:
        kernels->delta(steps, s);
        break;
    case KVERN_RULE_DELTA_CHANNELS:
        kernels->delta_channels(steps, s);
        break;
    case KVERN_RULE_SSD:
        kernels->ssd(steps, s);
        break;
    }
}

static void run_head(const run *r, size_t first, size_t count, size_t head)
{
    const kvern_recurrence_shape *shape = r->shape;
    const kvern_recurrence_tokens *tokens = r->tokens;
    convolve_tokens(r, first, count, v_channel(shape, head), shape->v_dim, r->v);
    prepare_gates(r, first, count, head);
    if (r->records)
        record_head(r, first, count, head);
    kvern_recurrence_steps steps = {
        .count = count,
        .k_dim = shape->k_dim,
        .v_dim = shape->v_dim,
        .k = r->k,
        .v = r->v,
        .decay = r->decay,
        .beta = r->beta,
        .q_stride = shape->k_dim,
        .k_stride = shape->k_dim,
        .v_stride = shape->v_dim,
        .decay_stride = decay_floats(shape),
        .beta_stride = 1,
        .skip = r->weights->skip ? r->weights->skip + head : NULL,
    };
    if (tokens->y) {
        steps.q = r->q;
        steps.y = tokens->y + first * tokens->y_stride + head * shape->v_dim;
        steps.y_stride = tokens->y_stride;
    }
    take_steps(r->kernels, shape->rule, &steps, s_of(shape, r->state, head));
}

// The value heads first_head to end_head - 1, which share a key head.
static void run_key_head(const run *r, size_t first_head, size_t end_head)
{
    const size_t share = r->shape->value_heads / r->shape->key_heads;
    const size_t key_head = first_head / share;
    KVERN_ASSERT(first_head < end_head && (end_head - 1) / share == key_head);
    for (size_t first = 0; first < r->tokens->count; first += TILE) {
        const size_t left = r->tokens->count - first, count = left < TILE ? left : TILE;
        prepare_keys(r, first, count, key_head);
        if (r->records && first_head % share == 0) // who has the first one records the key
            record_keys(r, first, count, key_head);
        for (size_t head = first_head; head < end_head; head++)
            run_head(r, first, count, head);
    }
}

void kvern_recurrence_run(uint32_t features, const kvern_recurrence_shape *shape,
                          const kvern_recurrence_weights *weights, float *state,
                          const kvern_recurrence_tokens *tokens, float *records, size_t first_head,
                          size_t heads, float *scratch)
{
    KVERN_ASSERT(shape->key_heads > 0 && shape->value_heads % shape->key_heads == 0);
    KVERN_ASSERT(first_head + heads <= shape->value_heads);
    const size_t share = shape->value_heads / shape->key_heads, end_head = first_head + heads;
    run r = {kvern_recurrence_kernels_of(features),
             features,
             shape,
             weights,
             tokens,
             state,
             records,
             .q = scratch};
    r.k = r.q + TILE * shape->k_dim;
    r.v = r.k + TILE * shape->k_dim;
    r.decay = r.v + TILE * shape->v_dim;
    r.beta = r.decay + TILE * decay_floats(shape);
    while (first_head < end_head) {
        const size_t next = (first_head / share + 1) * share;
        run_key_head(&r, first_head, next < end_head ? next : end_head);
        first_head = next;
    }
}

void kvern_recurrence_replay(uint32_t features, const kvern_recurrence_shape *shape, float *state,
                             const float *records, size_t count, size_t first_head, size_t heads)
{
    KVERN_ASSERT(first_head + heads <= shape->value_heads);
    const kvern_recurrence_kernels *kernels = kvern_recurrence_kernels_of(features);
    const size_t floats = kvern_recurrence_record_floats(shape);
    const size_t share = shape->value_heads / shape->key_heads;
    for (size_t head = first_head; head < first_head + heads; head++) {
        const kvern_recurrence_steps steps = {
            .count = count,
            .k_dim = shape->k_dim,
            .v_dim = shape->v_dim,
            .k = records + head / share * shape->k_dim,
            .v = records + keys_floats(shape) + head * shape->v_dim,
            .decay =
                records + keys_floats(shape) + values_floats(shape) + head * decay_floats(shape),
            .beta = records + floats - shape->value_heads + head,
            .k_stride = floats,
            .v_stride = floats,
            .decay_stride = floats,
            .beta_stride = floats,
        };
        take_steps(kernels, shape->rule, &steps, s_of(shape, state, head));
    }
}
