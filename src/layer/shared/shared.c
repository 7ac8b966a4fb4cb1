// SPDX-License-Identifier: MIT
#include "src/layer/shared/shared.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/codec/codec.h"
#include "src/layer/attention/attention.h"
#include "src/layer/latent/latent.h"
#include "src/layer/recurrent/recurrent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Planning ----

static kvern_status check(size_t index, const kvern_layer *plan)
{
    const kvern_codec none = {.kind = KVERN_CODEC_F32};
    if (!kvern_codec_equal(&plan->k_codec, &none) || !kvern_codec_equal(&plan->v_codec, &none) ||
        plan->start != KVERN_NO_START)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: k_codec, v_codec or start in a shared layer, whose keys and "
                          "values are stored as its donor says",
                          index);
    if (plan->window || plan->keep || plan->slack || plan->chunk || plan->residual ||
        plan->precise_sinks || kvern_latent_is_asked_for(plan) ||
        kvern_recurrent_is_asked_for(plan))
        return kvern_fail(
            KVERN_ERR_ARGUMENT,
            "layer %zu: window, keep, slack, chunk, a residual, or fields of latents or recurrent "
            "layers, in a shared layer",
            index);
    return KVERN_OK;
}

static kvern_status check_donor(const kvern_planned_layer *donor, const kvern_planned_layer *layer)
{
    const kvern_layer *plan = &layer->plan, *owner = &donor->plan;
    if (kvern_layer_is_shared(donor))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: its donor, layer %zu, is shared itself and reads layer %zu",
                          layer->index, donor->index, owner->donor);
    if (donor->ops != &kvern_attention_layer)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: its donor, layer %zu, is %s, without keys and values of "
                          "attention",
                          layer->index, donor->index, donor->signature);
    if (plan->kv_heads != owner->kv_heads || plan->k_dim != owner->k_dim ||
        plan->v_dim != owner->v_dim)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: %zu heads of %zu and %zu dims, and layer %zu, which it "
                          "shares, has %zu of %zu and %zu",
                          layer->index, plan->kv_heads, plan->k_dim, plan->v_dim, donor->index,
                          owner->kv_heads, owner->k_dim, owner->v_dim);
    return KVERN_OK;
}

// For example "shared:5:window512+4+64:h1:k256=bf16:v256=bf16".
kvern_status kvern_shared_plan(const kvern_planned_layer *layers, kvern_planned_layer *layer)
{
    const size_t index = layer->plan.donor;
    if (index >= layer->index)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: donor is %zu, which is no earlier layer",
                          layer->index, index);
    kvern_status status = check_donor(&layers[index], layer);
    if (status)
        return status;
    layer->donor = &layers[index];
    layer->window = layers[index].window;
    const int prefix = snprintf(layer->signature, sizeof layer->signature, "shared:%zu:", index);
    const size_t length = strlen(layers[index].signature);
    KVERN_ASSERT(prefix > 0 && (size_t)prefix + length < sizeof layer->signature);
    memcpy(layer->signature + prefix, layers[index].signature, length + 1);
    return KVERN_OK;
}

static bool can(const kvern_planned_layer *layer, kvern_capability capability)
{
    if (capability == KVERN_CAN_BLOCK) // it has none of its own to store: its donor's read is read
        return false;
    return capability == KVERN_CAN_SHARE || layer->donor->ops->can(layer->donor, capability);
}

static uint64_t row_bytes(const kvern_planned_layer *layer, uint64_t tokens)
{
    (void)layer, (void)tokens;
    return 0;
}

// What reads of the donor need is counted there.
static size_t scratch_bytes(const kvern_planned_layer *layer, size_t rows, size_t query_vectors,
                            int64_t tokens)
{
    (void)layer, (void)rows, (void)query_vectors, (void)tokens;
    return 0;
}

// ---- Rows that stay empty ----

static kvern_status prepare(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                            const int64_t *counts, size_t reserve_row, int64_t reserve_tokens)
{
    (void)layer, (void)rows, (void)counts, (void)reserve_row, (void)reserve_tokens;
    return KVERN_OK;
}

static void leave_rows(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    (void)layer, (void)rows;
}

static void keep_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row,
                      int64_t tokens)
{
    (void)layer, (void)rows, (void)row, (void)tokens;
}

static kvern_row_room room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row, const kvern_plan *plan)
{
    (void)layer, (void)rows, (void)row, (void)plan;
    return (kvern_row_room){0};
}

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

static void truncate(const kvern_planned_layer *layer, const kvern_layer_rows *rows, size_t row,
                     int64_t length)
{
    (void)layer, (void)rows, (void)row, (void)length;
}

static kvern_status check_round(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                size_t row, int64_t count)
{
    (void)layer, (void)rows, (void)row, (void)count;
    return KVERN_OK;
}

static int64_t round_limit(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                           size_t row)
{
    (void)layer, (void)rows, (void)row;
    return KVERN_MAX_POSITIONS;
}

static void take_back(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                      const int64_t *begin, const int64_t *lengths)
{
    (void)layer, (void)rows, (void)begin, (void)lengths;
}

// ---- The list: of what is asked about a row, the donor's operations answer ----

const kvern_layer_ops kvern_shared_layer = {
    .check = check,
    .can = can,
    .row_bytes = row_bytes,
    .scratch_bytes = scratch_bytes,
    .prepare = prepare,
    .commit = leave_rows,
    .cancel = leave_rows,
    .keep_room = keep_room,
    .room = room,
    .prepare_settling = prepare_settling,
    .settle = settle,
    .cancel_settling = leave_rows,
    .truncate = truncate,
    .check_round = check_round,
    .round_limit = round_limit,
    .take_back = take_back,
};
