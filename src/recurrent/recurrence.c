// SPDX-License-Identifier: MIT
// From a token's inputs to its step: convolution, norms, gates, records, and the order of the work.
#include "src/recurrent/recurrence.h"

#include "src/base/assert.h"
#include "src/math/exp.h"
#include "src/recurrent/recurrence_kernels.h"
#include "src/recurrent/recurrence_layout.h"

#include <kvern/math.h>

#include <string.h>

#define TILE ((size_t)32) // tokens that are processed before they take their steps

// Value heads are run in groups whose S stays in the second-level cache from tile to tile. A group
// reads three pieces of a token's inputs: the longer they are, the better memory is read.
#define GROUP_BYTES ((size_t)512 << 10)

// Value heads that are run together, the key heads that they use, and where their channels begin.
typedef struct group {
    size_t first_head, heads, first_key, keys;
    size_t q, k, v;
} group;

// One call of kvern_recurrence_run, and the group of heads and the tile of tokens that it is at.
typedef struct run {
    const kvern_recurrence_kernels *kernels;
    uint32_t features;
    const kvern_recurrence_shape *shape;
    const kvern_recurrence_weights *weights;
    const kvern_recurrence_tokens *tokens;
    const float *before;
    float *state, *records;
    size_t channels, keys_floats, values_floats, decay_floats; // of a token, decays of a head
    size_t heads_per_key;
    size_t end_head, most_heads; // of the call; of a group
    group group;
    size_t first, count; // the tile
    // Scratch. Per token of the tile: q and k of the group's key heads, v of its value heads; then
    // decay and beta of one head.
    float *q, *k, *v, *decay, *beta;
    size_t stride; // of q, k and v
} run;

// ---- Scratch ----

// Value heads of a group, at most.
static size_t group_heads(const kvern_recurrence_shape *shape)
{
    const size_t heads = GROUP_BYTES / sizeof(float) / kvern_recurrence_head_floats(shape);
    return heads == 0 ? 1 : heads < shape->value_heads ? heads : shape->value_heads;
}

// Channels of a group, at most. It may begin and end in the middle of heads that share a key head.
static size_t group_channels(const kvern_recurrence_shape *shape)
{
    const size_t heads = group_heads(shape);
    const size_t keys = (heads - 1) / (shape->value_heads / shape->key_heads) + 2;
    return 2 * (keys < shape->key_heads ? keys : shape->key_heads) * shape->k_dim +
           heads * shape->v_dim;
}

size_t kvern_recurrence_scratch_floats(const kvern_recurrence_shape *shape)
{
    return TILE * (group_channels(shape) + kvern_recurrence_decay_floats(shape) + 1);
}

static group group_of(const run *r, size_t first_head)
{
    const kvern_recurrence_shape *shape = r->shape;
    const bool ssd = shape->rule == KVERN_RULE_SSD;
    const size_t left = r->end_head - first_head;
    group g = {.first_head = first_head, .heads = left < r->most_heads ? left : r->most_heads};
    g.first_key = first_head / r->heads_per_key;
    g.keys = (first_head + g.heads - 1) / r->heads_per_key + 1 - g.first_key;
    const size_t key_at = g.first_key * shape->k_dim;
    g.q = (ssd ? r->values_floats + r->keys_floats : 0) + key_at;
    g.k = (ssd ? r->values_floats : r->keys_floats) + key_at;
    g.v = (ssd ? 0 : 2 * r->keys_floats) + first_head * shape->v_dim;
    return g;
}

static void lay_out_scratch(run *r, float *scratch)
{
    const size_t k_dim = r->shape->k_dim;
    r->q = scratch;
    r->k = r->q + r->group.keys * k_dim;
    r->v = r->k + r->group.keys * k_dim;
    r->stride = 2 * r->group.keys * k_dim + r->group.heads * r->shape->v_dim;
    r->decay = scratch + TILE * r->stride;
    r->beta = r->decay + TILE * r->decay_floats;
    KVERN_ASSERT(r->stride <= group_channels(r->shape));
}

// ---- Convolution and norms ----

// Asks for `dim` channels of a token some tokens ahead: they are a piece of a row, and the hardware
// does not see that the same piece of the next row is needed next.
static void prefetch_inputs(const run *r, size_t t, size_t channel, size_t dim)
{
    const size_t ahead = t + 4;
    if (ahead >= r->tokens->count)
        return;
    const float *x = r->tokens->x + ahead * r->tokens->x_stride + channel;
    for (size_t c = 0; c < dim; c += 16)
        __builtin_prefetch(x + c, 0, 2);
}

// `dim` channels of token t, after convolution and silu.
static void convolve_token(const run *r, size_t t, size_t channel, size_t dim, float *out)
{
    const size_t taps = r->shape->taps;
    const float *bias = r->weights->conv_bias ? r->weights->conv_bias + channel : NULL;
    const float *rows[KVERN_MAX_CONV_KERNEL];
    if (!taps) {
        memcpy(out, r->tokens->x + t * r->tokens->x_stride + channel, dim * sizeof(float));
        return;
    }
    kvern_find_taps(taps, r->channels, r->state, r->tokens->x, r->tokens->x_stride, t, rows);
    for (size_t j = 0; j < taps; j++)
        rows[j] += channel;
    prefetch_inputs(r, t, channel, dim);
    r->kernels->convolve(dim, taps, rows, r->weights->conv + channel, r->channels, bias, true, out);
}

// q or k of the heads, in place.
static void normalize(const run *r, float factor, float *x)
{
    const size_t dim = r->shape->k_dim;
    if (r->shape->rule == KVERN_RULE_SSD || factor == 0)
        return;
    for (size_t i = 0; i < r->group.keys; i++)
        r->kernels->rms_scale(dim, x + i * dim, r->weights->norm_eps, factor, NULL, x + i * dim);
}

static void prepare_channels(const run *r)
{
    const group *g = &r->group;
    const size_t keys = g->keys * r->shape->k_dim, values = g->heads * r->shape->v_dim;
    for (size_t i = 0; i < r->count; i++) {
        const size_t t = r->first + i, at = i * r->stride;
        if (r->tokens->y) {
            convolve_token(r, t, g->q, keys, r->q + at);
            normalize(r, r->weights->q_factor, r->q + at);
        }
        convolve_token(r, t, g->k, keys, r->k + at);
        normalize(r, r->weights->k_factor, r->k + at);
        convolve_token(r, t, g->v, values, r->v + at);
    }
}

// ---- Gates of one head ----

// One number of each token of the tile.
static void gather(const run *r, const float *from, size_t stride, float *to)
{
    for (size_t t = 0; t < r->count; t++)
        to[t] = from[(r->first + t) * stride];
}

static void betas(const run *r, size_t head)
{
    gather(r, r->tokens->b + head, r->tokens->b_stride, r->beta);
    kvern_sigmoid_array(r->features, r->count, r->beta, r->beta);
    for (size_t t = 0; t < r->count; t++)
        r->beta[t] *= r->weights->beta_factor;
}

// a with its bias, into decay.
static void biased_inputs(const run *r, size_t head)
{
    gather(r, r->tokens->a + head, r->tokens->a_stride, r->decay);
    for (size_t t = 0; t < r->count && r->weights->dt_bias; t++)
        r->decay[t] += r->weights->dt_bias[head];
}

static void gates_of_head(const run *r, size_t head, float rate)
{
    betas(r, head);
    biased_inputs(r, head);
    r->kernels->decay(r->count, r->decay, NULL, rate, r->decay);
}

static void gates_of_channels(const run *r, size_t head, float rate)
{
    const size_t each = r->decay_floats;
    const float *bias = r->weights->dt_bias ? r->weights->dt_bias + head * each : NULL;
    betas(r, head);
    for (size_t t = 0; t < r->count; t++)
        r->kernels->decay(each, r->tokens->a + (r->first + t) * r->tokens->a_stride + head * each,
                          bias, rate, r->decay + t * each);
}

static void gates_of_ssd(const run *r, size_t head, float rate)
{
    biased_inputs(r, head);
    r->kernels->step_size(r->count, r->decay, NULL, r->weights->dt_low, r->weights->dt_high, rate,
                          r->beta, r->decay);
}

static void prepare_gates(const run *r, size_t head)
{
    const float rate = plain_exp(r->weights->a_log[head]);
    switch (r->shape->rule) {
    case KVERN_RULE_DELTA:
        gates_of_head(r, head, rate);
        break;
    case KVERN_RULE_DELTA_CHANNELS:
        gates_of_channels(r, head, rate);
        break;
    case KVERN_RULE_SSD:
        gates_of_ssd(r, head, rate);
        break;
    }
}

// ---- Records: per token all keys, values, decays, betas ----

typedef struct record_places {
    size_t v, decay, beta, floats;
} record_places;

static record_places record_places_of(const kvern_recurrence_shape *shape)
{
    record_places at;
    at.v = kvern_recurrence_keys_floats(shape);
    at.decay = at.v + kvern_recurrence_values_floats(shape);
    at.beta = at.decay + shape->value_heads * kvern_recurrence_decay_floats(shape);
    at.floats = at.beta + shape->value_heads;
    return at;
}

size_t kvern_recurrence_record_floats(const kvern_recurrence_shape *shape)
{
    return record_places_of(shape).floats;
}

// A key is recorded by the group that has the first of its value heads.
static void record_channels(const run *r)
{
    const record_places at = record_places_of(r->shape);
    const size_t skipped = r->group.first_head % r->heads_per_key ? 1 : 0, dim = r->shape->k_dim;
    for (size_t t = 0; t < r->count; t++) {
        float *record = r->records + (r->first + t) * at.floats;
        memcpy(record + (r->group.first_key + skipped) * dim, r->k + t * r->stride + skipped * dim,
               (r->group.keys - skipped) * dim * sizeof(float));
        memcpy(record + at.v + r->group.first_head * r->shape->v_dim, r->v + t * r->stride,
               r->group.heads * r->shape->v_dim * sizeof(float));
    }
}

static void record_gates(const run *r, size_t head)
{
    const record_places at = record_places_of(r->shape);
    for (size_t t = 0; t < r->count; t++) {
        float *record = r->records + (r->first + t) * at.floats;
        memcpy(record + at.decay + head * r->decay_floats, r->decay + t * r->decay_floats,
               r->decay_floats * sizeof(float));
        record[at.beta + head] = r->beta[t];
    }
}

// ---- Steps ----

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

// Where S of a head is before the first token: NULL where it is in place. A new row's is made here.
static const float *s_before(const kvern_recurrence_shape *shape, const float *before, float *state,
                             size_t head)
{
    const size_t at = kvern_recurrence_head_offset(shape, head);
    if (!before)
        memset(state + at, 0, kvern_recurrence_head_floats(shape) * sizeof *state);
    return before && before != state ? before + at : NULL;
}

// S of the next head before `end`, as it was before the first token: NULL where there is none.
static const float *then_of(const kvern_recurrence_shape *shape, const float *before, size_t head,
                            size_t end)
{
    const bool any = before && head + 1 < end;
    return any ? before + kvern_recurrence_head_offset(shape, head + 1) : NULL;
}

static size_t whole_lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

// What head number `index` of the group asks for of a piece of a token's inputs.
static kvern_recurrence_piece share_of(const run *r, size_t index, const float *from, size_t stride,
                                       size_t floats)
{
    const size_t blocks = (r->shape->v_dim - 1) / KVERN_RECURRENCE_BLOCK + 1;
    const size_t each = whole_lines((floats + r->group.heads - 1) / r->group.heads);
    const size_t begin = index * each < floats ? index * each : floats;
    return (kvern_recurrence_piece){
        .from = from + begin,
        .stride = stride,
        .floats = floats - begin < each ? floats - begin : each,
        .share = whole_lines((each + blocks - 1) / blocks),
    };
}

// The inputs of the next tile: of this group, or the first one of the next group.
static kvern_recurrence_ahead look_ahead(const run *r, size_t index)
{
    const kvern_recurrence_tokens *tokens = r->tokens;
    kvern_recurrence_ahead ahead = {0};
    group g = r->group;
    size_t first = r->first + r->count;
    if (first == tokens->count && g.first_head + g.heads < r->end_head) {
        g = group_of(r, g.first_head + g.heads);
        first = 0;
    }
    ahead.count = tokens->count - first < TILE ? tokens->count - first : TILE;
    if (ahead.count == 0)
        return ahead;
    const float *x = tokens->x + first * tokens->x_stride;
    const float *a = tokens->a + first * tokens->a_stride + g.first_head * r->decay_floats;
    const size_t keys = g.keys * r->shape->k_dim, values = g.heads * r->shape->v_dim;
    const size_t decays = r->decay_floats > 1 ? g.heads * r->decay_floats : 0;
    ahead.pieces[0] = share_of(r, index, x + g.q, tokens->x_stride, tokens->y ? keys : 0);
    ahead.pieces[1] = share_of(r, index, x + g.k, tokens->x_stride, keys);
    ahead.pieces[2] = share_of(r, index, x + g.v, tokens->x_stride, values);
    ahead.pieces[3] = share_of(r, index, a, tokens->a_stride, decays);
    return ahead;
}

static void run_head(const run *r, size_t head)
{
    const kvern_recurrence_shape *shape = r->shape;
    const size_t key_at = (head / r->heads_per_key - r->group.first_key) * shape->k_dim;
    kvern_recurrence_steps steps = {
        .count = r->count,
        .k_dim = shape->k_dim,
        .v_dim = shape->v_dim,
        .k = r->k + key_at,
        .v = r->v + (head - r->group.first_head) * shape->v_dim,
        .decay = r->decay,
        .beta = r->beta,
        .q_stride = r->stride,
        .k_stride = r->stride,
        .v_stride = r->stride,
        .decay_stride = r->decay_floats,
        .beta_stride = 1,
        .skip = r->weights->skip ? r->weights->skip + head : NULL,
        .from = r->first == 0 ? s_before(r->shape, r->before, r->state, head) : NULL,
        .then = then_of(r->shape, r->before, head, r->end_head),
        .ahead = look_ahead(r, head - r->group.first_head),
    };
    if (r->tokens->y) {
        steps.q = r->q + key_at;
        steps.y = r->tokens->y + r->first * r->tokens->y_stride + head * shape->v_dim;
        steps.y_stride = r->tokens->y_stride;
    }
    take_steps(r->kernels, shape->rule, &steps,
               r->state + kvern_recurrence_head_offset(shape, head));
}

static void run_tile(const run *r)
{
    prepare_channels(r);
    if (r->records)
        record_channels(r);
    for (size_t head = r->group.first_head; head < r->group.first_head + r->group.heads; head++) {
        prepare_gates(r, head);
        if (r->records)
            record_gates(r, head);
        run_head(r, head);
    }
}

static void run_group(run *r, size_t first_head, float *scratch)
{
    r->group = group_of(r, first_head);
    lay_out_scratch(r, scratch);
    for (r->first = 0; r->first < r->tokens->count; r->first += r->count) {
        const size_t left = r->tokens->count - r->first;
        r->count = left < TILE ? left : TILE;
        run_tile(r);
    }
}

void kvern_recurrence_run(uint32_t features, const kvern_recurrence_shape *shape,
                          const kvern_recurrence_weights *weights, const float *before,
                          float *state, const kvern_recurrence_tokens *tokens, float *records,
                          size_t first_head, size_t heads, float *scratch)
{
    KVERN_ASSERT(shape->key_heads > 0 && shape->value_heads % shape->key_heads == 0);
    KVERN_ASSERT(first_head + heads <= shape->value_heads);
    run r = {
        .kernels = kvern_recurrence_kernels_of(features),
        .features = features,
        .shape = shape,
        .weights = weights,
        .tokens = tokens,
        .before = before,
        .state = state,
        .records = records,
        .channels = kvern_recurrence_channels(shape),
        .keys_floats = kvern_recurrence_keys_floats(shape),
        .values_floats = kvern_recurrence_values_floats(shape),
        .decay_floats = kvern_recurrence_decay_floats(shape),
        .heads_per_key = shape->value_heads / shape->key_heads,
        .end_head = first_head + heads,
        .most_heads = group_heads(shape),
    };
    for (size_t head = first_head; head < r.end_head; head += r.most_heads)
        run_group(&r, head, scratch);
}

void kvern_recurrence_replay(uint32_t features, const kvern_recurrence_shape *shape,
                             const float *before, float *state, const float *records, size_t count,
                             size_t first_head, size_t heads)
{
    KVERN_ASSERT(first_head + heads <= shape->value_heads);
    const kvern_recurrence_kernels *kernels = kvern_recurrence_kernels_of(features);
    const record_places at = record_places_of(shape);
    const size_t heads_per_key = shape->value_heads / shape->key_heads;
    for (size_t head = first_head; head < first_head + heads; head++) {
        const kvern_recurrence_steps steps = {
            .count = count,
            .k_dim = shape->k_dim,
            .v_dim = shape->v_dim,
            .k = records + head / heads_per_key * shape->k_dim,
            .v = records + at.v + head * shape->v_dim,
            .decay = records + at.decay + head * kvern_recurrence_decay_floats(shape),
            .beta = records + at.beta + head,
            .k_stride = at.floats,
            .v_stride = at.floats,
            .decay_stride = at.floats,
            .beta_stride = at.floats,
            .from = s_before(shape, before, state, head),
            .then = then_of(shape, before, head, first_head + heads),
        };
        take_steps(kernels, shape->rule, &steps, state + kvern_recurrence_head_offset(shape, head));
    }
}
