// SPDX-License-Identifier: MIT
#include "src/file/mlx/mlx_fill.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/codec/codec.h"
#include "src/file/padded_planes.h"
#include "src/math/element.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

kvern_status kvern_mlx_misfit(const kvern_mlx_source *source, const kvern_cache *cache,
                              const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu, %s, and cache %zu of %s, %s: %s",
                      cache->layer, kvern_cache_signature(cache), source->item->entry,
                      source->file->path, kvern_mlx_class_names[source->item->class], text);
}

bool kvern_mlx_is_indexed(const kvern_planned_layer *layer)
{
    return layer->plan.kind == KVERN_LAYER_LATENT && layer->plan.index_dim > 0;
}

// ---- Whether a class fits a layer ----

// What holds every position fits whatever the layer sees of them.
static kvern_status check_window(const kvern_mlx_source *source, const kvern_cache *cache)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    const kvern_mlx_item *item = source->item;
    const bool rotates =
        item->class == KVERN_MLX_ROTATING || item->class == KVERN_MLX_BATCH_ROTATING;
    if (rotates && (plan->kind != KVERN_LAYER_WINDOW || plan->window != item->max_size ||
                    plan->keep != item->keep))
        return kvern_mlx_misfit(source, cache,
                                "a window of %" PRId64 " that keeps %" PRId64
                                ", where the layer has no such one",
                                item->max_size, item->keep);
    if (item->class == KVERN_MLX_CHUNKED &&
        (plan->kind != KVERN_LAYER_CHUNKED || plan->chunk != item->chunk))
        return kvern_mlx_misfit(
            source, cache, "chunks of %" PRId64 ", where the layer has no such ones", item->chunk);
    if (item->class == KVERN_MLX_ARRAYS)
        return kvern_mlx_misfit(source, cache, "arrays, where the layer has positions");
    return KVERN_OK;
}

// An item of one head without windows and codes, such as latents are.
static kvern_status check_latents(const kvern_mlx_source *source, const kvern_cache *cache)
{
    const bool indexed = kvern_mlx_is_indexed(kvern_cache_planned(cache));
    for (size_t i = 0; i < 1 + (size_t)indexed; i++) {
        const kvern_mlx_item *item = source->item + i;
        const bool plain = item->class == KVERN_MLX_KV || item->class == KVERN_MLX_CONCATENATE ||
                           item->class == KVERN_MLX_BATCH;
        if (!plain)
            return kvern_mlx_misfit(source, cache, "latents are in a KVCache or a BatchKVCache");
        if (i == 0 && item->rows && item->values.dim != kvern_cache_planned(cache)->plan.rope_dim)
            return kvern_mlx_misfit(source, cache, "rotated keys of %zu", item->values.dim);
        if (item->rows != source->item->rows)
            return kvern_mlx_misfit(source, cache, "index keys of %zu rows, latents of %zu",
                                    item->rows, source->item->rows);
    }
    return KVERN_OK;
}

// ---- Streams ----

// One stream of the layer and what the file has for it.
typedef struct pairing {
    const kvern_stream_plan *stream;
    const kvern_mlx_item *item;
    const kvern_mlx_stream *from;
    bool codes;      // go over as codes; else as numbers of
    kvern_type type; // the file's, or f32 where they are computed from codes
    void *blocks[3]; // numbers, or words, scales and biases, in columns of the planes
    size_t bytes[3];
} pairing;

typedef struct pairings {
    size_t count;
    pairing of[KVERN_MAX_STREAMS];
    int64_t width; // of the planes
} pairings;

static void pair(const kvern_mlx_source *source, const kvern_stream_plan *stream, pairing *p)
{
    const bool index = stream->lane == KVERN_LANE_INDEX;
    const bool values = stream->lane == KVERN_LANE_V || stream->lane == KVERN_LANE_ROPE;
    *p = (pairing){.stream = stream, .item = source->item + index};
    p->from = values ? &p->item->values : &p->item->keys;
}

static kvern_status check_dims(const kvern_mlx_source *source, const kvern_cache *cache,
                               const pairing *p)
{
    if (p->stream->lane == KVERN_LANE_K &&
        (source->k_pairs % 2 || source->k_pairs > p->stream->dim))
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: %zu dims in pairs of keys of %zu",
                          cache->layer, source->k_pairs, p->stream->dim);
    if (p->item->heads == p->stream->heads && p->from->dim == p->stream->dim)
        return KVERN_OK;
    return kvern_mlx_misfit(source, cache, "%s is %zu heads of %zu, in the file %zu of %zu",
                            p->stream->name, p->stream->heads, p->stream->dim, p->item->heads,
                            p->from->dim);
}

// The codec of the form in which an append would leave a row of that length.
static kvern_codec form_codec(const kvern_cache *cache, const kvern_stream_plan *stream,
                              int64_t length)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    return layer->first_pool && length < layer->plan.start ? kvern_codec_dense(KVERN_BF16)
                                                           : stream->codec;
}

// What the file has of a stream.
static kvern_codec file_codec(const pairing *p)
{
    if (!p->item->bits)
        return kvern_codec_dense(kvern_mlx_type_of(p->from->parts[0]));
    kvern_codec codec = kvern_codec_affine(p->item->bits, p->item->group);
    codec.scales = kvern_mlx_type_of(p->from->parts[1]);
    return codec;
}

// Codes are in the planned codec whatever the length; numbers are what a row of that length stores.
static kvern_status choose_form(const kvern_mlx_source *source, const kvern_cache *cache,
                                pairing *p)
{
    const kvern_codec given = file_codec(p);
    kvern_codec wanted = p->stream->codec;
    bool exact = true;
    for (size_t r = 0; r < p->item->rows && exact; r++) {
        if (source->lengths[r] == 0)
            continue;
        if (!p->item->bits)
            wanted = form_codec(cache, p->stream, source->lengths[r]);
        exact = kvern_codec_equal(&given, &wanted);
    }
    const bool turned = p->item->bits && p->stream->lane == KVERN_LANE_K && source->k_pairs;
    const bool equal = exact;
    exact = exact && !turned; // groups of codes are of other dims
    p->codes = p->item->bits && exact;
    p->type = p->item->bits ? KVERN_F32 : kvern_mlx_type_of(p->from->parts[0]);
    if (exact || source->conversion == KVERN_MLX_CONVERT)
        return KVERN_OK;
    if (equal)
        return kvern_mlx_misfit(source, cache,
                                "codes of keys cannot be turned to pairs of neighbours; a "
                                "conversion can be asked for");
    char stored[KVERN_CODEC_NAME_BYTES], has[KVERN_CODEC_NAME_BYTES];
    kvern_codec_type_of(&wanted)->name(&wanted, stored);
    kvern_codec_type_of(&given)->name(&given, has);
    return kvern_mlx_misfit(source, cache,
                            "%s is stored in %s, in the file in %s; a conversion can be asked for",
                            p->stream->name, stored, has);
}

// ---- Planes ----

static size_t row_bytes(const kvern_tensor *tensor)
{
    return (size_t)tensor->shape[3] * kvern_dtypes[tensor->dtype].bytes;
}

// Bytes of a vector of part `i` in the planes.
static size_t part_bytes(const pairing *p, size_t i)
{
    return p->item->bits && !p->codes ? p->stream->dim * sizeof(float)
                                      : row_bytes(p->from->parts[i]);
}

static size_t parts_of(const pairing *p)
{
    return p->codes ? 3 : 1;
}

static kvern_status take_blocks(kvern_heap *heap, pairing *p, int64_t width)
{
    for (size_t i = 0; i < parts_of(p); i++) {
        size_t bytes = part_bytes(p, i);
        if (!kvern_size_mul(bytes, p->item->rows * p->item->heads, &bytes) ||
            !kvern_size_mul(bytes, (size_t)width, &bytes) || bytes > PTRDIFF_MAX)
            return kvern_fail(KVERN_ERR_OVERFLOW, "%s of %" PRId64 " columns does not fit memory",
                              p->stream->name, width);
        kvern_status status =
            kvern_heap_take(heap, kvern_max_size(bytes, 1), KVERN_HEAP_ALIGNMENT, &p->blocks[i]);
        if (status)
            return status;
        p->bytes[i] = kvern_max_size(bytes, 1);
    }
    return KVERN_OK;
}

static void give_blocks(kvern_heap *heap, pairings *all)
{
    for (size_t s = 0; s < all->count; s++) {
        for (size_t i = 0; i < 3; i++)
            kvern_heap_give(heap, all->of[s].blocks[i], all->of[s].bytes[i], KVERN_HEAP_ALIGNMENT);
    }
}

// ---- Columns from the file to the planes ----

// Code number `at` of a vector: the low bits of the first word first.
static uint32_t load_code(const unsigned char *words, uint32_t bits, size_t at)
{
    const size_t bit = at * bits, word = bit / 32;
    uint32_t low, high = 0;
    memcpy(&low, words + 4 * word, sizeof low);
    if (bit % 32 + bits > 32)
        memcpy(&high, words + 4 * word + 4, sizeof high);
    const uint64_t both = low | (uint64_t)high << 32;
    return (uint32_t)(both >> bit % 32) & ((1u << bits) - 1);
}

// The values of vector `index` of codes.
static void decode_vector(const pairing *p, size_t index, float *to)
{
    const kvern_tensor *const *parts = p->from->parts;
    const kvern_type type = kvern_mlx_type_of(parts[1]);
    const unsigned char *words = parts[0]->data + index * row_bytes(parts[0]);
    const unsigned char *scales = parts[1]->data + index * row_bytes(parts[1]);
    const unsigned char *biases = parts[2]->data + index * row_bytes(parts[2]);
    for (size_t d = 0; d < p->stream->dim; d++) {
        const int64_t group = (int64_t)(d / p->item->group);
        to[d] =
            kvern_load_element(type, scales, group) * (float)load_code(words, p->item->bits, d) +
            kvern_load_element(type, biases, group);
    }
}

// Columns [begin, end) of the file's vectors from `from` on to the planes' from `to` on.
static void copy_columns(const pairing *p, size_t from, size_t to, int64_t begin, int64_t end)
{
    if (p->item->bits && !p->codes) {
        for (int64_t c = begin; c < end; c++, to++)
            decode_vector(p, from + (size_t)c, (float *)p->blocks[0] + to * p->stream->dim);
        return;
    }
    for (size_t i = 0; i < parts_of(p) && end > begin; i++) {
        const size_t bytes = part_bytes(p, i);
        memcpy((char *)p->blocks[i] + to * bytes,
               p->from->parts[i]->data + (from + (size_t)begin) * bytes,
               (size_t)(end - begin) * bytes);
    }
}

static void copy_stream(const kvern_mlx_source *source, const pairing *p, int64_t width)
{
    const size_t vectors = p->item->rows * p->item->heads * (size_t)width;
    for (size_t r = 0; r < p->item->rows; r++) {
        const kvern_mlx_columns c = kvern_mlx_columns_of(p->item, r, source->lengths[r]);
        for (size_t h = 0; h < p->item->heads; h++) {
            const size_t head = r * p->item->heads + h;
            size_t to = (head + 1) * (size_t)width - (size_t)c.count;
            for (size_t part = 0; part < 3; part++) {
                copy_columns(p, head * (size_t)p->item->width, to, c.begin[part], c.end[part]);
                to += (size_t)(c.end[part] - c.begin[part]);
            }
        }
    }
    if (p->stream->lane == KVERN_LANE_K && !p->codes)
        kvern_mlx_reorder(p->blocks[0], vectors, p->stream->dim, kvern_type_bytes(p->type),
                          source->k_pairs, true);
}

// ---- The layer ----

static void set_plane(const pairing *p, void **numbers, kvern_type *type,
                      kvern_affine_arrays *codes)
{
    *type = p->type;
    if (p->codes)
        *codes = (kvern_affine_arrays){
            .words = p->blocks[0], .scales = p->blocks[1], .biases = p->blocks[2]};
    else
        *numbers = p->blocks[0];
}

static void set_planes(const pairing *p, kvern_padded_planes *planes)
{
    switch (p->stream->lane) {
    case KVERN_LANE_K:
        set_plane(p, &planes->k, &planes->k_type, &planes->k_codes);
        break;
    case KVERN_LANE_V:
        set_plane(p, &planes->v, &planes->v_type, &planes->v_codes);
        break;
    case KVERN_LANE_LATENT:
        set_plane(p, &planes->latent, &planes->latent_type, &planes->latent_codes);
        break;
    case KVERN_LANE_ROPE:
        set_plane(p, &planes->rope, &planes->rope_type, &planes->rope_codes);
        break;
    case KVERN_LANE_INDEX:
        set_plane(p, &planes->index, &planes->index_type, &planes->index_codes);
        break;
    }
}

static kvern_status import_planes(const kvern_mlx_source *source, kvern_cache *cache,
                                  const pairings *all)
{
    const size_t rows = source->item->rows;
    kvern_heap *heap = &kvern_cache_context(cache)->heap;
    void *block;
    kvern_status status =
        kvern_heap_take(heap, 2 * rows * sizeof(int64_t), KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_padded_planes planes = kvern_padded_planes_default();
    planes.width = all->width;
    planes.left_padding = block;
    planes.offsets = planes.left_padding + rows;
    for (size_t r = 0; r < rows; r++) {
        planes.left_padding[r] =
            all->width - kvern_mlx_columns_of(source->item, r, source->lengths[r]).count;
        planes.offsets[r] = source->lengths[r];
    }
    for (size_t s = 0; s < all->count; s++)
        set_planes(&all->of[s], &planes);
    status = kvern_cache_fill_padded(cache, &planes);
    kvern_heap_give(heap, block, 2 * rows * sizeof(int64_t), KVERN_HEAP_ALIGNMENT);
    return status;
}

static kvern_status copy_planes(const kvern_mlx_source *source, kvern_cache *cache, pairings *all)
{
    kvern_heap *heap = &kvern_cache_context(cache)->heap;
    kvern_status status = KVERN_OK;
    for (size_t s = 0; s < all->count && !status; s++)
        status = take_blocks(heap, &all->of[s], all->width);
    if (!status) {
        for (size_t s = 0; s < all->count; s++)
            copy_stream(source, &all->of[s], all->width);
        status = import_planes(source, cache, all);
    }
    give_blocks(heap, all);
    return status;
}

// Columns that the planes need. The older layout does not say how many columns of a chunked cache
// are filled; the length of the row does.
static kvern_status find_width(const kvern_mlx_source *source, pairings *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const kvern_mlx_item *item = all->of[i].item;
        for (size_t r = 0; r < item->rows; r++) {
            const int64_t length = source->lengths[r];
            const kvern_mlx_columns c = kvern_mlx_columns_of(item, r, length);
            if (item->class == KVERN_MLX_CHUNKED &&
                (c.count > item->width || (c.count == 0 && length > 0)))
                return kvern_mlx_bad(source->file, item,
                                     "%" PRId64 " columns, where a row of %" PRId64 " from %" PRId64
                                     " on has %s",
                                     item->width, length, item->start, c.count ? "more" : "none");
            all->width = kvern_max_i64(all->width, c.count);
        }
    }
    return KVERN_OK;
}

static kvern_status fill_positions(const kvern_mlx_source *source, kvern_cache *cache)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const bool latents = layer->plan.kind == KVERN_LAYER_LATENT;
    kvern_status status = latents ? check_latents(source, cache) : check_window(source, cache);
    if (status || source->item->rows == 0)
        return status; // an empty cache
    pairings all = {.count = layer->geometry.stream_count};
    for (size_t s = 0; s < all.count && !status; s++) {
        pair(source, &layer->geometry.streams[s], &all.of[s]);
        if (!(status = check_dims(source, cache, &all.of[s])))
            status = choose_form(source, cache, &all.of[s]);
    }
    if (!status)
        status = find_width(source, &all);
    return status || all.width == 0 ? status : copy_planes(source, cache, &all);
}

kvern_status kvern_mlx_fill(const kvern_mlx_source *source, kvern_cache *cache)
{
    return kvern_cache_planned(cache)->plan.kind == KVERN_LAYER_RECURRENT
               ? kvern_mlx_fill_recurrent(source, cache)
               : fill_positions(source, cache);
}
