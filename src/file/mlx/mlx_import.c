// SPDX-License-Identifier: MIT
// Rows from a file: which cache is of which layer, and how long the rows are.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/file/mlx/mlx_fill.h"
#include "src/state/state.h"
#include "src/state/walk.h"

#include <inttypes.h>

static const kvern_sized OPTION_SIZES =
    KVERN_SIZED(kvern_mlx_import_options, sizeof(kvern_mlx_import_options));

void kvern_mlx_import_options_init(kvern_mlx_import_options *options, size_t size)
{
    const kvern_mlx_import_options defaults = {.lengths = NULL};
    kvern_sized_init(&OPTION_SIZES, &defaults, options, size);
}

static kvern_status read_options(const kvern_mlx_import_options *given,
                                 kvern_mlx_import_options *known)
{
    *known = kvern_mlx_import_options_default();
    kvern_status status = given ? kvern_sized_read(&OPTION_SIZES, given, known) : KVERN_OK;
    if (status)
        return status;
    if (known->reserved)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a reserved word of the options is not 0");
    if (known->conversion != KVERN_MLX_EXACT && known->conversion != KVERN_MLX_CONVERT)
        return kvern_fail(KVERN_ERR_ARGUMENT, "unknown conversion %d", (int)known->conversion);
    return KVERN_OK;
}

// ---- Lengths ----

// Of the caches from `first` on, `count` of them, whatever each says of a row.
static kvern_status agree_on_length(const kvern_mlx_file *file, size_t first, size_t count,
                                    size_t row, int64_t *length)
{
    for (size_t i = first; i < first + count; i++) {
        const kvern_mlx_item *item = &file->items[i];
        const int64_t says = kvern_mlx_columns_of(item, row, *length).offset;
        if (says >= 0 && *length >= 0 && says != *length)
            return kvern_mlx_bad(file, item,
                                 "row %zu has %" PRId64 " positions here, %" PRId64 " elsewhere",
                                 row, says, *length);
        if (says >= 0)
            *length = says;
    }
    return KVERN_OK;
}

static kvern_status find_length(const kvern_mlx_file *file, size_t first, size_t count, size_t row,
                                const int64_t *given, int64_t *length)
{
    *length = -1;
    kvern_status status = agree_on_length(file, first, count, row, length);
    if (status)
        return status;
    if (given && (given[row] < 0 || given[row] > KVERN_MAX_POSITIONS ||
                  (*length >= 0 && *length != given[row])))
        return kvern_fail(KVERN_ERR_RANGE,
                          "row %zu: a length of %" PRId64 " is given, and in %s it has %" PRId64,
                          row, given[row], file->path, *length);
    if (given)
        *length = given[row];
    if (*length < 0)
        return kvern_fail(KVERN_ERR_FORMAT,
                          "%s: no cache says how many positions row %zu has; give lengths",
                          file->path, row);
    return KVERN_OK;
}

// Writes the lengths of `rows` rows.
static kvern_status find_lengths(const kvern_mlx_file *file, size_t first, size_t count,
                                 size_t rows, const int64_t *given, int64_t *lengths)
{
    for (size_t i = first; i < first + count; i++) {
        const kvern_mlx_item *item = &file->items[i];
        if (item->rows && item->rows != rows)
            return kvern_mlx_bad(file, item, "%zu rows, and %zu elsewhere", item->rows, rows);
    }
    kvern_status status = KVERN_OK;
    for (size_t r = 0; r < rows && !status; r++)
        status = find_length(file, first, count, r, given, &lengths[r]);
    return status;
}

// ---- Layers and caches ----

// The caches that a layer takes: one, two, or none.
static size_t caches_of(const kvern_planned_layer *layer)
{
    if (layer->plan.kind == KVERN_LAYER_SHARED)
        return 0;
    return kvern_mlx_is_indexed(layer) ? 2 : 1;
}

// Whether the two caches of an indexed layer are a list of two.
static kvern_status check_pair(const kvern_mlx_source *source, const kvern_cache *cache)
{
    if (!kvern_mlx_is_indexed(kvern_cache_planned(cache)) ||
        (source->item->members == 2 && source->item->member == 0))
        return KVERN_OK;
    return kvern_mlx_misfit(source, cache, "latents with index keys are a CacheList of two");
}

static kvern_status check_count(const kvern_mlx_file *file, const kvern_composition *composition)
{
    size_t wanted = 0;
    for (size_t l = 0; l < composition->count; l++)
        wanted += caches_of(&composition->layers[l]);
    if (wanted == file->count)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s has %zu caches, and %zu layers are %zu of them",
                      file->path, file->count, composition->count, wanted);
}

static kvern_status fill_state(const kvern_mlx_file *file, const int64_t *lengths,
                               const kvern_mlx_import_options *options, kvern_state *state)
{
    kvern_mlx_source source = {file, file->items, lengths, options->conversion, options->k_pairs};
    kvern_status status = KVERN_OK;
    for (size_t l = 0; l < state->composition->count && !status; l++) {
        const size_t taken = caches_of(&state->composition->layers[l]);
        if (taken == 0)
            continue;
        if (!(status = check_pair(&source, &state->caches[l])))
            status = kvern_mlx_fill(&source, &state->caches[l]);
        source.item += taken;
    }
    KVERN_ASSERT(status || !kvern_state_walk(state));
    return status;
}

static kvern_status import_rows(const kvern_mlx_file *file, kvern_composition *composition,
                                const kvern_mlx_import_options *options, int64_t *lengths,
                                kvern_state **out)
{
    kvern_status status = find_lengths(file, 0, file->count, file->rows, options->lengths, lengths);
    if (!status)
        status = kvern_state_create(composition, file->rows, out);
    if (status)
        return status;
    if ((status = fill_state(file, lengths, options, *out))) {
        kvern_state_destroy(*out);
        *out = NULL;
    }
    return status;
}

kvern_status kvern_mlx_import(const kvern_mlx_file *file, kvern_composition *composition,
                              const kvern_mlx_import_options *given, kvern_state **out)
{
    kvern_mlx_import_options options;
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    if (!file || !composition)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or composition is NULL");
    kvern_status status = read_options(given, &options);
    if (!status)
        status = check_count(file, composition);
    if (status)
        return status;
    kvern_heap *heap = &composition->context->heap;
    const size_t bytes = (file->rows + 1) * sizeof(int64_t);
    void *block;
    if ((status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block)))
        return status;
    status = import_rows(file, composition, &options, block, out);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}

// ---- One cache ----

static kvern_status check_empty(const kvern_mlx_source *source, const kvern_cache *cache)
{
    kvern_status status = kvern_cache_check_alone(cache);
    if (status)
        return status;
    const size_t rows = cache->batch->row_count;
    if (source->item->rows && source->item->rows != rows)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows, and cache %zu of %s has %zu", rows,
                          source->item->entry, source->file->path, source->item->rows);
    for (size_t r = 0; r < rows; r++) {
        if (cache->batch->lengths[r])
            return kvern_fail(KVERN_ERR_BUSY, "row %zu is not empty", r);
    }
    return check_pair(source, cache);
}

// Through a cache of its own, so that all rows come or none.
static kvern_status fill_alone(const kvern_mlx_source *source, kvern_cache *cache)
{
    const size_t rows = cache->batch->row_count;
    kvern_cache *filled;
    kvern_status status = kvern_cache_create(cache->composition, cache->layer, rows, &filled);
    if (status)
        return status;
    status = kvern_mlx_fill(source, filled);
    size_t r = 0;
    for (; r < rows && !status; r++)
        status = kvern_cache_adopt(cache, r, filled, r);
    for (; status && r > 0; r--)
        kvern_cache_reset_row(cache, r - 1);
    kvern_cache_destroy(filled);
    return status;
}

kvern_status kvern_mlx_import_cache(const kvern_mlx_file *file, size_t index,
                                    const kvern_mlx_import_options *given, kvern_cache *cache)
{
    kvern_mlx_import_options options;
    if (!file || !cache)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or cache is NULL");
    const size_t taken = caches_of(kvern_cache_planned(cache));
    if (index >= file->count || taken > file->count - index)
        return kvern_fail(KVERN_ERR_RANGE, "cache %zu of %zu", index, file->count);
    kvern_mlx_source source = {.file = file, .item = &file->items[index]};
    kvern_status status = read_options(given, &options);
    if (!status)
        status = check_empty(&source, cache);
    if (status)
        return status;
    kvern_heap *heap = &kvern_cache_context(cache)->heap;
    const size_t rows = cache->batch->row_count, bytes = (rows + 1) * sizeof(int64_t);
    void *block;
    if ((status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block)))
        return status;
    source.lengths = block;
    source.conversion = options.conversion;
    source.k_pairs = options.k_pairs;
    if (!(status = find_lengths(file, index, taken, rows, options.lengths, block)))
        status = fill_alone(&source, cache);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}

// ---- The layer of a cache ----

static kvern_codec codec_of(const kvern_mlx_item *item, const kvern_mlx_stream *stream)
{
    const kvern_type type = kvern_mlx_type_of(stream->parts[item->bits ? 1 : 0]);
    if (!item->bits)
        return kvern_codec_dense(type);
    kvern_codec codec = kvern_codec_affine(item->bits, item->group);
    codec.scales = type;
    return codec;
}

kvern_status kvern_mlx_layer(const kvern_mlx_file *file, size_t index, kvern_layer *layer)
{
    if (!file || !layer)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or layer is NULL");
    kvern_status status = kvern_sized_check_output(&kvern_layer_sizes, layer);
    if (status)
        return status;
    if (index >= file->count)
        return kvern_fail(KVERN_ERR_RANGE, "cache %zu of %zu", index, file->count);
    const kvern_mlx_item *item = &file->items[index];
    if (item->rows == 0 || item->class == KVERN_MLX_ARRAYS)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: cache %zu, %s, does not say what it is",
                          file->path, item->entry, kvern_mlx_class_names[item->class]);
    kvern_layer made = kvern_layer_default(item->heads, item->keys.dim);
    if (item->max_size)
        made = kvern_layer_window(item->heads, item->keys.dim, item->max_size);
    else if (item->chunk)
        made = kvern_layer_chunked(item->heads, item->keys.dim, item->chunk);
    made.keep = item->keep;
    made.v_dim = item->values.dim;
    made.k_codec = codec_of(item, &item->keys);
    made.v_codec = codec_of(item, &item->values);
    kvern_sized_write(&kvern_layer_sizes, &made, layer);
    return KVERN_OK;
}
