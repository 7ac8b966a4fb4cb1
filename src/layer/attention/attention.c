// SPDX-License-Identifier: MIT
#include "src/layer/attention/attention.h"
#include "src/layer/attention/residual.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/latent/latent.h"
#include "src/layer/recurrent/recurrent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Planning ----

static kvern_status check_slack(size_t index, const kvern_layer *layer)
{
    if (layer->slack < 0 || layer->slack > KVERN_MAX_WINDOW)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: slack is %" PRId64 ", not 0 to %" PRId64,
                          index, layer->slack, KVERN_MAX_WINDOW);
    return KVERN_OK;
}

static kvern_status check_window(size_t index, const kvern_layer *layer)
{
    if (layer->window < 1 || layer->window > KVERN_MAX_WINDOW)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: window is %" PRId64 ", not 1 to %" PRId64,
                          index, layer->window, KVERN_MAX_WINDOW);
    if (layer->keep < 0 || layer->keep >= layer->window)
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu: keep is %" PRId64 ", not 0 to window - 1 = %" PRId64, index,
                          layer->keep, layer->window - 1);
    return check_slack(index, layer);
}

static kvern_status check_chunk(size_t index, const kvern_layer *layer)
{
    if (layer->window || layer->keep)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: window or keep in a layer of chunks",
                          index);
    if (layer->chunk < 1 || layer->chunk > KVERN_MAX_WINDOW)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: chunk is %" PRId64 ", not 1 to %" PRId64,
                          index, layer->chunk, KVERN_MAX_WINDOW);
    return check_slack(index, layer);
}

static kvern_status check_sight(size_t index, const kvern_layer *layer)
{
    if (layer->kind == KVERN_LAYER_CHUNKED)
        return check_chunk(index, layer);
    if (layer->chunk)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: chunk in a layer without chunks", index);
    if (layer->kind == KVERN_LAYER_WINDOW)
        return check_window(index, layer);
    if (layer->window || layer->keep || layer->slack)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: window, keep or slack without a sliding window", index);
    return KVERN_OK;
}

// Before the newest positions there is to be something that is not precise.
static kvern_status check_residual(size_t index, const kvern_layer *layer)
{
    const int64_t seen = layer->kind == KVERN_LAYER_CHUNKED ? layer->chunk : layer->window;
    if (layer->kind == KVERN_LAYER_FULL || layer->residual < seen)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_RANGE,
                      "layer %zu: residual is %" PRId64
                      ", not less than what a query sees, %" PRId64,
                      index, layer->residual, seen);
}

static kvern_status check(size_t index, const kvern_layer *plan)
{
    if (plan->kv_heads == 0 || plan->kv_heads > KVERN_MAX_KV_HEADS)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: kv_heads is %zu, not 1 to %d", index,
                          plan->kv_heads, KVERN_MAX_KV_HEADS);
    if (kvern_latent_is_asked_for(plan))
        return kvern_fail(
            KVERN_ERR_ARGUMENT,
            "layer %zu: latent_dim, rope_dim, index_dim or their codecs in a layer of "
            "keys and values",
            index);
    if (kvern_recurrent_is_asked_for(plan))
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: fields of recurrent layers (recurrence to lane_bytes) in a "
                          "layer of keys and values",
                          index);
    kvern_status status = check_sight(index, plan);
    return status ? status : check_residual(index, plan);
}

static kvern_stream_plan stream_of(const char *name, kvern_stream_role role, kvern_lane lane,
                                   size_t heads, size_t dim, kvern_codec codec)
{
    return (kvern_stream_plan){.name = name,
                               .role = role,
                               .lane = lane,
                               .heads = heads,
                               .dim = dim,
                               .most_dim = KVERN_MAX_HEAD_DIM,
                               .codec = codec};
}

// Of a window, the first positions are passed unless they are kept.
static void describe_precise(const kvern_layer *plan, kvern_window *window)
{
    const bool is_full = plan->kind == KVERN_LAYER_FULL;
    const int64_t first =
        is_full ? plan->precise_sinks : kvern_min_i64(plan->precise_sinks, plan->keep);
    window->front = (int64_t)kvern_pages_of(first) * KVERN_PAGE_POSITIONS;
    window->residual = plan->residual;
    window->is_split = window->front > 0 || window->residual > 0;
}

static void describe(const kvern_layer *plan, kvern_window *window, kvern_geometry *g)
{
    *window = (kvern_window){.recent = KVERN_EVERY_POSITION};
    if (plan->kind == KVERN_LAYER_WINDOW)
        *window = (kvern_window){
            .recent = plan->window - plan->keep, .keep = plan->keep, .slack = plan->slack};
    else if (plan->kind == KVERN_LAYER_CHUNKED)
        *window = (kvern_window){.recent = plan->chunk, .slack = plan->slack, .chunk = plan->chunk};
    describe_precise(plan, window);
    KVERN_ASSERT(window->recent >= 1);
    memset(g, 0, sizeof *g);
    g->kv_heads = plan->kv_heads;
    g->stream_count = 2;
    g->streams[0] =
        stream_of("k", KVERN_ROLE_SCORE, KVERN_LANE_K, plan->kv_heads, plan->k_dim, plan->k_codec);
    g->streams[1] =
        stream_of("v", KVERN_ROLE_VALUE, KVERN_LANE_V, plan->kv_heads, plan->v_dim, plan->v_codec);
}

// For example "window512+4+64:h1", "chunk8192+64:h8".
static void write_kind(const kvern_layer *plan, char *text, size_t bytes)
{
    if (plan->kind == KVERN_LAYER_WINDOW)
        snprintf(text, bytes, "window%" PRId64 "+%" PRId64 "+%" PRId64 ":h%zu", plan->window,
                 plan->keep, plan->slack, plan->kv_heads);
    else if (plan->kind == KVERN_LAYER_CHUNKED)
        snprintf(text, bytes, "chunk%" PRId64 "+%" PRId64 ":h%zu", plan->chunk, plan->slack,
                 plan->kv_heads);
    else
        snprintf(text, bytes, "full:h%zu", plan->kv_heads);
}

static bool can(const kvern_planned_layer *layer, kvern_capability capability)
{
    switch (capability) {
    case KVERN_CAN_DECODE:
    case KVERN_CAN_WINDOW:
    case KVERN_CAN_KNOWN:
    case KVERN_CAN_FORK:
    case KVERN_CAN_BIDIRECTIONAL:
        return true;
    case KVERN_CAN_TRIM:
        return layer->plan.kind == KVERN_LAYER_FULL && !layer->window.is_split;
    case KVERN_CAN_BLOCK:
        return layer->plan.kind != KVERN_LAYER_CHUNKED;
    case KVERN_CAN_LATENT:
    case KVERN_CAN_RECUR:
    case KVERN_CAN_SHARE:
        return false;
    }
    return false;
}

// Of a row that grows by decodes, its pages of both forms.
static uint64_t split_row_bytes(const kvern_planned_layer *layer, bool waits, int64_t tokens)
{
    uint64_t precise, coded, bytes;
    if (!kvern_u64_mul(kvern_reserved_pages(layer, waits, tokens), layer->first.page_bytes,
                       &precise) ||
        !kvern_u64_mul(waits ? 0 : kvern_residual_coded_pages(layer, tokens, 1),
                       layer->geometry.page_bytes, &coded) ||
        __builtin_add_overflow(precise, coded, &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t kvern_attention_row_bytes(const kvern_planned_layer *layer, uint64_t tokens)
{
    const kvern_layer *plan = &layer->plan;
    const bool first = plan->start != KVERN_NO_START && tokens < (uint64_t)plan->start;
    uint64_t bytes;
    if (layer->window.is_split && tokens <= KVERN_MAX_POSITIONS)
        return split_row_bytes(layer, first, (int64_t)tokens);
    if (tokens > KVERN_MAX_POSITIONS ||
        !kvern_u64_mul(kvern_planned_pages(layer, (int64_t)tokens),
                       first ? layer->first.page_bytes : layer->geometry.page_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

// Query vectors that fill whole KV heads: at least `query_vectors`.
static size_t whole_heads(const kvern_geometry *g, size_t query_vectors)
{
    const size_t rest = query_vectors % g->kv_heads;
    return rest && query_vectors <= SIZE_MAX - g->kv_heads ? query_vectors + g->kv_heads - rest
                                                           : query_vectors;
}

size_t kvern_attention_scratch_bytes(const kvern_planned_layer *layer, size_t rows,
                                     size_t query_vectors, int64_t tokens)
{
    const kvern_view view = {
        .geometry = &layer->geometry,
        .query_floats = kvern_max_size(layer->geometry.query_floats, layer->first.query_floats),
        .window = layer->window,
        .row_count = rows,
    };
    return kvern_attend_scratch_bytes(layer->context, &view,
                                      whole_heads(&layer->geometry, query_vectors), tokens);
}

// ---- Other kinds ----

kvern_status kvern_attention_check_kind(const kvern_planned_layer *layer)
{
    if (layer->ops == &kvern_attention_layer)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu: of kind %d, %s, which has no keys and values of attention",
                      layer->index, (int)layer->plan.kind, layer->signature);
}

// ---- The list ----

const kvern_layer_ops kvern_attention_layer = {
    .check = check,
    .describe = describe,
    .write_kind = write_kind,
    .can = can,
    .row_bytes = kvern_attention_row_bytes,
    .scratch_bytes = kvern_attention_scratch_bytes,
    .prepare = kvern_attention_prepare,
    .commit = kvern_attention_commit,
    .cancel = kvern_attention_cancel,
    .keep_room = kvern_attention_keep_room,
    .room = kvern_attention_room,
    .check_tokens = kvern_attention_check_tokens,
    .store = kvern_attention_store,
    .check_donor = kvern_attention_check_donor,
    .fill_read = kvern_attention_fill_read,
    .prepare_settling = kvern_attention_prepare_settling,
    .settle = kvern_attention_settle,
    .cancel_settling = kvern_attention_cancel_settling,
    .trimmable = kvern_attention_trimmable,
    .min_reusable = kvern_attention_min_reusable,
    .max_append = kvern_attention_max_append,
    .truncate = kvern_attention_truncate,
    .check_round = kvern_attention_check_round,
    .round_limit = kvern_attention_round_limit,
    .take_back = kvern_attention_take_back,
};
