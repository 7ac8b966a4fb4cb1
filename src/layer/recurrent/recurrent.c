// SPDX-License-Identifier: MIT
#include "src/layer/recurrent/recurrent.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/codec/codec.h"
#include "src/layer/latent/latent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Planning ----

bool kvern_recurrent_is_asked_for(const kvern_layer *plan)
{
    return plan->recurrence || plan->conv_kernel || plan->conv_dim || plan->key_heads ||
           plan->value_heads || plan->lane_bytes;
}

static size_t channels_of(const kvern_layer *plan)
{
    return 2 * plan->key_heads * plan->k_dim + plan->value_heads * plan->v_dim;
}

static kvern_status check_heads(size_t index, const kvern_layer *plan)
{
    const size_t k_dim = plan->k_dim, v_dim = plan->v_dim;
    if (plan->key_heads == 0 || plan->key_heads > KVERN_MAX_KV_HEADS)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: key_heads is %zu, not 1 to %d", index,
                          plan->key_heads, KVERN_MAX_KV_HEADS);
    if (plan->value_heads == 0 || plan->value_heads > KVERN_MAX_KV_HEADS ||
        plan->value_heads % plan->key_heads)
        return kvern_fail(
            KVERN_ERR_ARGUMENT,
            "layer %zu: value_heads is %zu, not a multiple of key_heads, %zu, up to %d", index,
            plan->value_heads, plan->key_heads, KVERN_MAX_KV_HEADS);
    if (k_dim == 0 || k_dim % 8 || k_dim > KVERN_MAX_HEAD_DIM)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: k_dim is %zu, not a multiple of 8 from 8 to %d", index, k_dim,
                          KVERN_MAX_HEAD_DIM);
    if (v_dim == 0 || v_dim % 8 || v_dim > KVERN_MAX_HEAD_DIM)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: v_dim is %zu, not a multiple of 8 from 8 to %d", index, v_dim,
                          KVERN_MAX_HEAD_DIM);
    return KVERN_OK;
}

static kvern_status check_convolution(size_t index, const kvern_layer *plan)
{
    const size_t channels = plan->conv_kernel ? channels_of(plan) : 0;
    if (plan->conv_kernel == 1 || plan->conv_kernel > KVERN_MAX_CONV_KERNEL)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: conv_kernel is %u, not 0 or 2 to %d",
                          index, (unsigned)plan->conv_kernel, KVERN_MAX_CONV_KERNEL);
    if (plan->conv_dim != channels)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: conv_dim is %zu, not %zu", index,
                          plan->conv_dim, channels);
    return KVERN_OK;
}

static kvern_status check_lane(size_t index, const kvern_layer *plan)
{
    if (plan->conv_kernel || plan->conv_dim || plan->key_heads || plan->value_heads ||
        plan->k_dim || plan->v_dim)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: a lane with heads or a convolution",
                          index);
    if (plan->lane_bytes == 0 || plan->lane_bytes > KVERN_MAX_LANE_BYTES)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: lane_bytes is %zu, not 1 to %zu", index,
                          plan->lane_bytes, KVERN_MAX_LANE_BYTES);
    if (plan->slack > 1)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: slack is %" PRId64 ", and a lane can take back 1 token",
                          index, plan->slack);
    return KVERN_OK;
}

// Fields of other kinds.
static kvern_status check_others(size_t index, const kvern_layer *plan)
{
    const kvern_codec none = {.kind = KVERN_CODEC_F32};
    if (!kvern_codec_equal(&plan->k_codec, &none) || !kvern_codec_equal(&plan->v_codec, &none))
        return kvern_fail(
            KVERN_ERR_UNSUPPORTED,
            "layer %zu: k_codec or v_codec in a recurrent layer, whose state is stored in f32",
            index);
    if (plan->residual || plan->precise_sinks)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: a residual or precise sinks of recurrent state", index);
    if (plan->start != KVERN_NO_START)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: start is %" PRId64 ", and recurrent state is not converted",
                          index, plan->start);
    if (plan->kv_heads || plan->window || plan->keep || plan->chunk ||
        kvern_latent_is_asked_for(plan))
        return kvern_fail(
            KVERN_ERR_ARGUMENT,
            "layer %zu: kv_heads, window, keep, chunk or latents in a recurrent layer", index);
    if (plan->slack < 0 || plan->slack > KVERN_MAX_RECURRENT_SLACK)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: slack is %" PRId64 ", not 0 to %d", index,
                          plan->slack, KVERN_MAX_RECURRENT_SLACK);
    return KVERN_OK;
}

// The largest number of floats that is formed of a plan that passes is far from overflow then.
static kvern_status check_sizes(size_t index, const kvern_layer *plan)
{
    const uint64_t most = UINT64_C(1) << 30, slack = (uint64_t)plan->slack;
    const uint64_t heads = plan->value_heads, input = (uint64_t)channels_of(plan);
    const uint64_t s = heads * plan->k_dim * (plan->v_dim + 32);
    const uint64_t record = input + heads * (plan->k_dim + plan->v_dim + 2) + input;
    if ((s + input * plan->conv_kernel) * sizeof(float) > most || slack * record > most / 4)
        return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: a page would exceed 1 GiB", index);
    return KVERN_OK;
}

static kvern_status check(size_t index, const kvern_layer *plan)
{
    kvern_status status = check_others(index, plan);
    if (status)
        return status;
    if (plan->recurrence == KVERN_RECURRENCE_LANE)
        return check_lane(index, plan);
    if (plan->recurrence != KVERN_RECURRENCE_DELTA &&
        plan->recurrence != KVERN_RECURRENCE_DELTA_CHANNELS &&
        plan->recurrence != KVERN_RECURRENCE_SSD)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: recurrence %d is unknown", index,
                          (int)plan->recurrence);
    if (plan->lane_bytes)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: lane_bytes without a lane", index);
    if ((status = check_heads(index, plan)) || (status = check_convolution(index, plan)))
        return status;
    return check_sizes(index, plan);
}

kvern_recurrence_shape kvern_recurrent_shape(const kvern_layer *plan)
{
    kvern_recurrence_shape shape = {
        .rule = KVERN_RULE_DELTA,
        .taps = plan->conv_kernel,
        .key_heads = plan->key_heads,
        .value_heads = plan->value_heads,
        .k_dim = plan->k_dim,
        .v_dim = plan->v_dim,
    };
    if (plan->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS)
        shape.rule = KVERN_RULE_DELTA_CHANNELS;
    else if (plan->recurrence == KVERN_RECURRENCE_SSD)
        shape.rule = KVERN_RULE_SSD;
    KVERN_ASSERT(plan->recurrence != KVERN_RECURRENCE_LANE && plan->value_heads > 0);
    return shape;
}

size_t kvern_recurrent_input_floats(const kvern_layer *plan)
{
    return plan->conv_kernel ? channels_of(plan) : 0;
}

// Pages are whole cache lines.
static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void describe(const kvern_layer *plan, kvern_window *window, kvern_geometry *g)
{
    *window = (kvern_window){.recent = KVERN_EVERY_POSITION};
    memset(g, 0, sizeof *g);
    g->whole = true;
    if (plan->recurrence == KVERN_RECURRENCE_LANE) {
        g->page_bytes = whole_lines(plan->lane_bytes);
        return;
    }
    const kvern_recurrence_shape shape = kvern_recurrent_shape(plan);
    const size_t record =
        kvern_recurrence_record_floats(&shape) + kvern_recurrent_input_floats(plan);
    g->page_bytes = whole_lines(kvern_recurrence_state_floats(&shape) * sizeof(float));
    g->record_bytes = whole_lines((size_t)plan->slack * record * sizeof(float));
}

// For example "delta:h16/32:k128:v128:conv4", "lane:bytes4096".
static void write_kind(const kvern_layer *plan, char *text, size_t bytes)
{
    static const char *const names[] = {
        [KVERN_RECURRENCE_DELTA] = "delta",
        [KVERN_RECURRENCE_DELTA_CHANNELS] = "delta-channels",
        [KVERN_RECURRENCE_SSD] = "ssd",
    };
    if (plan->recurrence == KVERN_RECURRENCE_LANE)
        snprintf(text, bytes, "lane:bytes%zu", plan->lane_bytes);
    else
        snprintf(text, bytes, "%s:h%zu/%zu:k%zu:v%zu:conv%u", names[plan->recurrence],
                 plan->key_heads, plan->value_heads, plan->k_dim, plan->v_dim,
                 (unsigned)plan->conv_kernel);
}

static bool can(const kvern_planned_layer *layer, kvern_capability capability)
{
    (void)layer;
    switch (capability) {
    case KVERN_CAN_DECODE:
    case KVERN_CAN_WINDOW:
    case KVERN_CAN_KNOWN:
    case KVERN_CAN_FORK:
    case KVERN_CAN_RECUR:
        return true;
    case KVERN_CAN_TRIM:
    case KVERN_CAN_BIDIRECTIONAL:
    case KVERN_CAN_BLOCK:
    case KVERN_CAN_LATENT:
    case KVERN_CAN_SHARE:
        return false;
    }
    return false;
}

static uint64_t row_bytes(const kvern_planned_layer *layer, uint64_t tokens)
{
    if (tokens > KVERN_MAX_POSITIONS)
        return UINT64_MAX;
    const kvern_plan plan = {.tokens = (int64_t)tokens, .chunk = 1, .round = 1};
    const kvern_row_room room = kvern_recurrent_room(layer, NULL, 0, &plan);
    return (uint64_t)room.pages * layer->geometry.page_bytes +
           (uint64_t)room.later * layer->geometry.record_bytes;
}

size_t kvern_recurrent_scratch_bytes(const kvern_planned_layer *layer)
{
    if (kvern_recurrent_is_lane(layer))
        return 0;
    const kvern_recurrence_shape shape = kvern_recurrent_shape(&layer->plan);
    return whole_lines(kvern_recurrence_scratch_floats(&shape) * sizeof(float));
}

// Whatever the number of queries: there are none.
static size_t scratch_bytes(const kvern_planned_layer *layer, size_t rows, size_t query_vectors,
                            int64_t tokens)
{
    (void)rows, (void)query_vectors, (void)tokens;
    return layer->context->executor.threads * kvern_recurrent_scratch_bytes(layer);
}

// ---- Other kinds ----

kvern_status kvern_recurrent_check_kind(const kvern_planned_layer *layer)
{
    if (layer->ops == &kvern_recurrent_layer)
        return KVERN_OK;
    return kvern_layer_fail_kind(layer, "recurrent state");
}

// ---- Settling: there is nothing to do ----

static kvern_status prepare_settling(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                     const int64_t *counts, bool pending, bool shared,
                                     size_t *conversions)
{
    (void)layer, (void)rows, (void)counts, (void)pending, (void)shared, (void)conversions;
    return KVERN_OK;
}

static void settle(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row)
{
    (void)layer, (void)rows, (void)row;
}

static void cancel_settling(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer, (void)rows;
}

// ---- Going back ----

static int64_t trimmable(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row)
{
    (void)layer, (void)rows, (void)row;
    return 0;
}

static int64_t min_reusable(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            size_t row)
{
    (void)layer;
    return rows->rows[row].length;
}

static int64_t max_append(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                          size_t row)
{
    (void)layer;
    return KVERN_MAX_POSITIONS - rows->rows[row].length;
}

// ---- The list ----

const kvern_layer_ops kvern_recurrent_layer = {
    .check = check,
    .describe = describe,
    .write_kind = write_kind,
    .can = can,
    .row_bytes = row_bytes,
    .scratch_bytes = scratch_bytes,
    .prepare = kvern_recurrent_prepare,
    .commit = kvern_recurrent_commit,
    .cancel = kvern_recurrent_cancel,
    .keep_room = kvern_recurrent_keep_room,
    .room = kvern_recurrent_room,
    .prepare_settling = prepare_settling,
    .settle = settle,
    .cancel_settling = cancel_settling,
    .trimmable = trimmable,
    .min_reusable = min_reusable,
    .max_append = max_append,
    .truncate = kvern_recurrent_truncate,
    .check_round = kvern_recurrent_check_round,
    .round_limit = kvern_recurrent_round_limit,
    .take_back = kvern_recurrent_take_back,
};
