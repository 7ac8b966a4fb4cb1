// SPDX-License-Identifier: MIT
#include "src/layer/latent/latent.h"

#include "src/base/fail.h"
#include "src/codec/codec.h"
#include "src/layer/attention/attention.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const kvern_codec none = {.kind = KVERN_CODEC_F32};

bool kvern_latent_is_asked_for(const kvern_layer *plan)
{
    return plan->latent_dim || plan->rope_dim || plan->index_dim || plan->rotated_latents ||
           !kvern_codec_equal(&plan->latent_codec, &none) ||
           !kvern_codec_equal(&plan->rope_codec, &none) ||
           !kvern_codec_equal(&plan->index_codec, &none);
}

kvern_status kvern_latent_check_streams(const kvern_planned_layer *layer)
{
    return layer->ops == &kvern_latent_layer ? KVERN_OK : kvern_attention_check_kind(layer);
}

// ---- Planning ----

// Fields of keys and values, of windows and of conversions would be without effect.
static kvern_status check_others(size_t index, const kvern_layer *plan)
{
    if (!kvern_codec_equal(&plan->k_codec, &none) || !kvern_codec_equal(&plan->v_codec, &none))
        return kvern_fail(
            KVERN_ERR_UNSUPPORTED,
            "layer %zu: k_codec or v_codec in a layer of latents: these are stored as "
            "latent_codec, rope_codec and index_codec say",
            index);
    if (plan->window || plan->keep || plan->slack || plan->chunk)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: latents with a sliding window or chunks", index);
    if (plan->start != KVERN_NO_START)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: latents with a start", index);
    if (plan->residual || plan->precise_sinks)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: latents with a residual or precise sinks", index);
    return KVERN_OK;
}

static kvern_status check(size_t index, const kvern_layer *plan)
{
    if (plan->kv_heads != 1)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: latents with %zu kv_heads, not 1", index,
                          plan->kv_heads);
    if (plan->v_dim != plan->latent_dim || plan->k_dim < plan->latent_dim ||
        plan->k_dim - plan->latent_dim != plan->rope_dim)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: k_dim %zu and v_dim %zu, with a latent_dim of %zu and a "
                          "rope_dim of %zu",
                          index, plan->k_dim, plan->v_dim, plan->latent_dim, plan->rope_dim);
    if ((plan->rope_dim == 0 && !kvern_codec_equal(&plan->rope_codec, &none)) ||
        (plan->index_dim == 0 && !kvern_codec_equal(&plan->index_codec, &none)))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: a codec of a lane without numbers",
                          index);
    if (plan->rotated_latents > 1)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: rotated_latents is %" PRIu64 ", neither 0 nor 1", index,
                          plan->rotated_latents);
    return check_others(index, plan);
}

static void add_stream(kvern_geometry *g, const char *name, kvern_stream_role role, kvern_lane lane,
                       size_t dim, size_t most_dim, kvern_codec codec)
{
    g->streams[g->stream_count++] = (kvern_stream_plan){.name = name,
                                                        .role = role,
                                                        .lane = lane,
                                                        .heads = 1,
                                                        .dim = dim,
                                                        .most_dim = most_dim,
                                                        .codec = codec};
}

// The two that queries are scored against follow each other: in f32 they are one block of keys.
static void describe(const kvern_layer *plan, kvern_window *window, kvern_geometry *g)
{
    *window = (kvern_window){.recent = KVERN_EVERY_POSITION};
    memset(g, 0, sizeof *g);
    g->kv_heads = 1;
    add_stream(g, "latent", KVERN_ROLE_BOTH, KVERN_LANE_LATENT, plan->latent_dim,
               KVERN_MAX_LATENT_DIM, plan->latent_codec);
    if (plan->rope_dim)
        add_stream(g, "rope", KVERN_ROLE_SCORE, KVERN_LANE_ROPE, plan->rope_dim, KVERN_MAX_ROPE_DIM,
                   plan->rope_codec);
    if (plan->index_dim)
        add_stream(g, "index", KVERN_ROLE_INDEX, KVERN_LANE_INDEX, plan->index_dim,
                   KVERN_MAX_INDEX_DIM, plan->index_codec);
}

static void write_kind(const kvern_layer *plan, char *text, size_t bytes)
{
    (void)plan;
    snprintf(text, bytes, "latent");
}

static bool can(const kvern_planned_layer *layer, kvern_capability capability)
{
    (void)layer;
    switch (capability) {
    case KVERN_CAN_DECODE:
    case KVERN_CAN_WINDOW:
    case KVERN_CAN_KNOWN:
    case KVERN_CAN_TRIM:
    case KVERN_CAN_FORK:
    case KVERN_CAN_LATENT:
        return true;
    case KVERN_CAN_BIDIRECTIONAL:
    case KVERN_CAN_BLOCK:
    case KVERN_CAN_RECUR:
    case KVERN_CAN_SHARE:
        return false;
    }
    return false;
}

// ---- The list ----

const kvern_layer_ops kvern_latent_layer = {
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
