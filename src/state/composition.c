// SPDX-License-Identifier: MIT
#include "src/state/composition.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/codec/codec.h"
#include "src/layer/shared/shared.h"
#include "src/rows/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_PAGE_BYTES ((size_t)1 << 30)

const kvern_sized kvern_layer_sizes =
    KVERN_SIZED(kvern_layer, KVERN_SIZE_TO(kvern_layer, start), KVERN_SIZE_TO(kvern_layer, chunk));

void kvern_layer_init(kvern_layer *layer, size_t size, size_t kv_heads, size_t head_dim)
{
    const kvern_layer defaults = {
        .kind = KVERN_LAYER_FULL,
        .kv_heads = kv_heads,
        .k_dim = head_dim,
        .v_dim = head_dim,
        .k_codec = kvern_codec_dense(KVERN_BF16),
        .v_codec = kvern_codec_dense(KVERN_BF16),
        .start = KVERN_NO_START,
    };
    kvern_sized_init(&kvern_layer_sizes, &defaults, layer, size);
}

// Rotation spreads what a latent has in few numbers over all of them, and its results meet the
// projections of all heads: nothing that somebody should get who has asked for few bits alone.
static kvern_status check_rotation(const kvern_planned_layer *layer,
                                   const kvern_stream_plan *stream, const char *codec)
{
    const bool latents = stream->lane == KVERN_LANE_LATENT || stream->lane == KVERN_LANE_ROPE;
    const bool rotated = stream->type->kernels_of(&stream->codec, 0)->rotate != NULL;
    if (latents && rotated && !layer->plan.rotated_latents)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: %s_codec is %s, of rotated vectors, and rotated_latents is 0",
                          layer->index, stream->name, codec);
    return KVERN_OK;
}

static kvern_status check_stream(const kvern_planned_layer *layer, kvern_stream_plan *stream)
{
    const size_t index = layer->index;
    const kvern_codec *codec = &stream->codec;
    const size_t dim = stream->dim;
    if (kvern_codec_has_reserved(codec))
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: a reserved word of %s_codec is not 0",
                          index, stream->name);
    const kvern_codec_type *type = kvern_codec_type_of(codec);
    if (!type)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: %s_codec is unknown: kind %d, %u bits, group %u, scales %d",
                          index, stream->name, (int)codec->kind, (unsigned)codec->bits,
                          (unsigned)codec->group, (int)codec->scales);
    if (dim == 0 || dim % 8 != 0 || dim > stream->most_dim)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: %s_dim is %zu, not a multiple of 8 from 8 to %zu", index,
                          stream->name, dim, stream->most_dim);
    char codec_name[KVERN_CODEC_NAME_BYTES];
    type->name(codec, codec_name);
    if (dim % type->dim_unit(codec))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: %s_dim is %zu, not a multiple of %zu, as %s needs it", index,
                          stream->name, dim, type->dim_unit(codec), codec_name);
    stream->type = type;
    return check_rotation(layer, stream, codec_name);
}

static kvern_status check_layer(const kvern_planned_layer *layer)
{
    const kvern_layer *plan = &layer->plan;
    if (!layer->ops)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: kind %d is unknown", layer->index,
                          (int)plan->kind);
    if (plan->start < KVERN_NO_START || plan->start > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: start is %" PRId64, layer->index,
                          plan->start);
    if (plan->residual < 0 || plan->residual > KVERN_MAX_WINDOW || plan->precise_sinks < 0 ||
        plan->precise_sinks > KVERN_MAX_WINDOW)
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu: residual is %" PRId64 ", precise_sinks %" PRId64
                          ", not 0 to %" PRId64,
                          layer->index, plan->residual, plan->precise_sinks, KVERN_MAX_WINDOW);
    if (plan->donor && plan->kind != KVERN_LAYER_SHARED)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: a donor in a layer that is not shared",
                          layer->index);
    return layer->ops->check(layer->index, plan);
}

static void plan_stream(kvern_stream_plan *stream, uint32_t features, size_t offset)
{
    stream->kernels = *stream->type->kernels_of(&stream->codec, features);
    KVERN_ASSERT(stream->dim % 8 == 0 && stream->dim <= KVERN_MAX_STREAM_DIM);
    stream->block_bytes = stream->type->block_bytes(&stream->codec, stream->dim);
    stream->offset = offset;
    KVERN_ASSERT(stream->block_bytes > 0 && stream->block_bytes % 64 == 0); // blocks stay aligned
}

// Where values are keys, blocks are decoded before they are read, so that a query is what it is.
static void plan_queries(kvern_geometry *g)
{
    const kvern_stream_plan *keys = kvern_stream_for(g, KVERN_ROLE_SCORE);
    for (size_t s = 0; s < g->stream_count; s++)
        g->query_dim += g->streams[s].role & KVERN_ROLE_SCORE ? g->streams[s].dim : 0;
    g->query_floats =
        kvern_values_are_keys(g) ? g->query_dim : keys->type->query_floats(&keys->codec, keys->dim);
    KVERN_ASSERT(g->query_floats >= g->query_dim);
}

// Completes the streams that a layer has listed; their sizes are far from overflow one by one.
static kvern_status plan_geometry(const kvern_planned_layer *layer, kvern_geometry *g)
{
    KVERN_ASSERT(g->stream_count <= KVERN_MAX_STREAMS && (g->whole || g->page_bytes == 0));
    for (size_t s = 0; s < g->stream_count; s++) {
        kvern_stream_plan *stream = &g->streams[s];
        kvern_status status = check_stream(layer, stream);
        if (status)
            return status;
        plan_stream(stream, layer->context->cpu_features, g->page_bytes);
        g->page_bytes += stream->heads * stream->block_bytes;
        if (g->page_bytes > MOST_PAGE_BYTES)
            return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: a page would exceed 1 GiB",
                              layer->index);
    }
    if (!g->whole)
        plan_queries(g);
    return KVERN_OK;
}

// A pool that an earlier layer uses for that form, with pages of that size; or a new one. Under a
// budget, pages of the first form are to go back one by one when rows are converted: then there is
// room for the new ones. That costs them their huge pages.
static kvern_status choose_pool(kvern_composition *composition, size_t index, size_t page_bytes,
                                bool first, kvern_pool **out)
{
    for (size_t i = 0; i < index; i++) {
        const kvern_planned_layer *layer = &composition->layers[i];
        kvern_pool *pool = first ? layer->first_pool : layer->pool;
        if (!first && layer->record_pool && kvern_pool_page_bytes(layer->record_pool) == page_bytes)
            pool = layer->record_pool;
        if (!pool || kvern_pool_page_bytes(pool) != page_bytes)
            continue;
        kvern_pool_retain(pool);
        *out = pool;
        return KVERN_OK;
    }
    return kvern_pool_create(composition->context, page_bytes,
                             first && composition->context->heap.budget_bytes != 0, out);
}

// A page may have to be converted where it lies (src/rows/convert_page.h), so no stream may grow;
// and what is precise is bf16.
static kvern_status check_growth(const kvern_planned_layer *layer)
{
    const kvern_geometry *first = &layer->first, *planned = &layer->geometry;
    KVERN_ASSERT(first->stream_count == planned->stream_count);
    for (size_t s = 0; s < planned->stream_count; s++) {
        const kvern_stream_plan *stream = &planned->streams[s];
        char codec[KVERN_CODEC_NAME_BYTES];
        if (stream->block_bytes <= first->streams[s].block_bytes)
            continue;
        stream->type->name(&stream->codec, codec);
        return kvern_fail(
            KVERN_ERR_UNSUPPORTED, "layer %zu: %s with %s in %s, which takes more room than bf16",
            layer->index, layer->window.is_split ? "residual" : "start", stream->name, codec);
    }
    return KVERN_OK;
}

// The form of rows before start, and of what is kept precise: bf16.
static kvern_status plan_first(kvern_composition *composition, size_t index)
{
    kvern_planned_layer *layer = &composition->layers[index];
    kvern_geometry *first = &layer->first;
    kvern_window window;
    layer->ops->describe(&layer->plan, &window, first);
    for (size_t s = 0; s < first->stream_count; s++)
        first->streams[s].codec = kvern_codec_dense(KVERN_BF16);
    kvern_status status = plan_geometry(layer, first);
    if (!status)
        status = check_growth(layer);
    if (status)
        return status;
    return choose_pool(composition, index, first->page_bytes, true, &layer->first_pool);
}

// For example "window512+4+64:h1:k256=affine4g64bf16:v256=bf16:start0".
static void write_signature(const kvern_planned_layer *layer, char *text)
{
    const kvern_layer *plan = &layer->plan;
    char *const end = text + KVERN_SIGNATURE_BYTES;
    layer->ops->write_kind(plan, text, KVERN_SIGNATURE_BYTES);
    text += strlen(text);
    for (size_t s = 0; s < layer->geometry.stream_count; s++) {
        const kvern_stream_plan *stream = &layer->geometry.streams[s];
        char codec[KVERN_CODEC_NAME_BYTES];
        stream->type->name(&stream->codec, codec);
        text += snprintf(text, (size_t)(end - text), ":%s%zu=%s", stream->name, stream->dim, codec);
        KVERN_ASSERT(text < end);
    }
    if (plan->start != KVERN_NO_START)
        text += snprintf(text, (size_t)(end - text), ":start%" PRId64, plan->start);
    KVERN_ASSERT(text < end);
    if (layer->window.is_split)
        snprintf(text, (size_t)(end - text), ":precise%" PRId64 "+%" PRId64, plan->precise_sinks,
                 plan->residual);
    KVERN_ASSERT(strlen(text) + 1 < (size_t)(end - text)); // nothing was cut off
}

static kvern_status plan_streams(kvern_composition *composition, kvern_planned_layer *layer)
{
    const size_t index = layer->index;
    kvern_geometry *g = &layer->geometry;
    kvern_status status = plan_geometry(layer, g);
    if (status)
        return status;
    write_signature(layer, layer->signature);
    status = choose_pool(composition, index, g->page_bytes, false, &layer->pool);
    if (!status && g->record_bytes)
        status = choose_pool(composition, index, g->record_bytes, false, &layer->record_pool);
    if (!status && layer->window.is_split)
        layer->coded_set = composition->sets++;
    const bool has_first = layer->plan.start != KVERN_NO_START || layer->window.is_split;
    return status || !has_first ? status : plan_first(composition, index);
}

static kvern_status plan_layer(kvern_composition *composition, size_t index,
                               const kvern_layer *layers)
{
    kvern_planned_layer *layer = &composition->layers[index];
    layer->index = index;
    layer->context = composition->context;
    layer->donor = layer;
    kvern_status status = kvern_sized_read_entry(&kvern_layer_sizes, layers, index, &layer->plan);
    if (status)
        return status;
    layer->ops = kvern_layer_ops_of(layer->plan.kind);
    if ((status = check_layer(layer)))
        return status;
    if (layer->plan.kind == KVERN_LAYER_SHARED)
        return kvern_shared_plan(composition->layers, layer);
    layer->ops->describe(&layer->plan, &layer->window, &layer->geometry);
    return plan_streams(composition, layer);
}

static size_t composition_bytes(size_t count)
{
    return sizeof(kvern_composition) + count * sizeof(kvern_planned_layer);
}

kvern_status kvern_composition_create(kvern_context *context, const kvern_layer *layers,
                                      size_t count, kvern_composition **out)
{
    if (out)
        *out = NULL;
    if (!context || !layers || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context, layers or out is NULL");
    if (count == 0 || count > KVERN_MAX_LAYERS)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%zu layers, not 1 to %d", count, KVERN_MAX_LAYERS);
    void *block;
    kvern_status status = kvern_heap_take_zeroed(&context->heap, composition_bytes(count), &block);
    if (status)
        return status;
    kvern_composition *composition = block;
    kvern_context_retain(context);
    composition->references = 1;
    composition->context = context;
    composition->count = composition->sets = count;
    for (size_t i = 0; i < count && !status; i++)
        status = plan_layer(composition, i, layers);
    if (status)
        kvern_composition_release(composition);
    else
        *out = composition;
    return status;
}

void kvern_composition_retain(kvern_composition *composition)
{
    atomic_fetch_add_explicit(&composition->references, 1, memory_order_relaxed);
}

void kvern_composition_release(kvern_composition *composition)
{
    if (!composition || atomic_fetch_sub(&composition->references, 1) != 1)
        return;
    kvern_context *context = composition->context;
    for (size_t i = 0; i < composition->count; i++) {
        kvern_pool_release(composition->layers[i].pool);
        kvern_pool_release(composition->layers[i].first_pool);
        kvern_pool_release(composition->layers[i].record_pool);
    }
    kvern_heap_give(&context->heap, composition, composition_bytes(composition->count),
                    KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}

size_t kvern_composition_layers(const kvern_composition *composition)
{
    return composition->count;
}

const kvern_layer *kvern_composition_layer(const kvern_composition *composition, size_t layer)
{
    return layer < composition->count ? &composition->layers[layer].plan : NULL;
}

const char *kvern_composition_signature(const kvern_composition *composition, size_t layer)
{
    return layer < composition->count ? composition->layers[layer].signature : NULL;
}

uint64_t kvern_composition_layer_bytes_per_token(const kvern_composition *composition, size_t layer)
{
    if (layer >= composition->count)
        return 0;
    const kvern_geometry *g = &composition->layers[layer].geometry;
    return g->whole ? 0 : g->page_bytes / KVERN_PAGE_POSITIONS;
}

uint64_t kvern_composition_bytes_per_token(const kvern_composition *composition)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < composition->count; i++)
        bytes += kvern_composition_layer_bytes_per_token(composition, i);
    return bytes;
}

static uint64_t row_bytes(const kvern_planned_layer *layer, uint64_t tokens)
{
    return layer->ops->row_bytes(layer, tokens);
}

uint64_t kvern_composition_layer_row_bytes(const kvern_composition *composition, size_t layer,
                                           uint64_t tokens)
{
    return layer < composition->count ? row_bytes(&composition->layers[layer], tokens) : 0;
}

uint64_t kvern_composition_row_bytes(const kvern_composition *composition, uint64_t tokens)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < composition->count; i++) {
        const uint64_t layer = row_bytes(&composition->layers[i], tokens);
        if (layer > UINT64_MAX - bytes)
            return UINT64_MAX;
        bytes += layer;
    }
    return bytes;
}

bool kvern_composition_can(const kvern_composition *composition, size_t layer,
                           kvern_capability capability)
{
    if (layer >= composition->count)
        return false;
    const kvern_planned_layer *planned = &composition->layers[layer];
    return planned->ops->can(planned, capability);
}
