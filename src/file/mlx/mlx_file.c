// SPDX-License-Identifier: MIT
#include "src/file/mlx/mlx_file.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/file/mlx/mlx_columns.h"

#include <string.h>

#define FIRST_ITEMS 64

// ---- Opening ----

kvern_status kvern_mlx_add_item(kvern_mlx_file *file, kvern_mlx_item **out)
{
    kvern_heap *heap = &file->context->heap;
    if (file->count == KVERN_MAX_LAYERS)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: more than %d caches", file->path,
                          KVERN_MAX_LAYERS);
    if (file->count == file->capacity) {
        const size_t capacity = file->capacity ? 2 * file->capacity : FIRST_ITEMS;
        void *block;
        kvern_status status = kvern_heap_take_zeroed(heap, capacity * sizeof *file->items, &block);
        if (status)
            return status;
        if (file->count)
            memcpy(block, file->items, file->count * sizeof *file->items);
        kvern_heap_give(heap, file->items, file->capacity * sizeof *file->items,
                        KVERN_HEAP_ALIGNMENT);
        file->items = block;
        file->capacity = capacity;
    }
    *out = &file->items[file->count++];
    return KVERN_OK;
}

static kvern_status make_file(kvern_context *context, const char *path, kvern_mlx_file **out)
{
    void *block;
    kvern_status status = kvern_heap_take_zeroed(&context->heap, sizeof(kvern_mlx_file), &block);
    if (status)
        return status;
    kvern_mlx_file *file = block;
    file->context = context;
    file->path_bytes = strlen(path) + 1;
    kvern_context_retain(context);
    *out = file;
    status = kvern_heap_take(&context->heap, file->path_bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (!status)
        file->path = memcpy(block, path, file->path_bytes);
    return status;
}

static kvern_status read_file(kvern_mlx_file *file, kvern_mapping *mapping)
{
    kvern_status status;
    if (kvern_mlx_is_bun(mapping)) {
        kvern_mapping_retain(mapping);
        file->layout = KVERN_MLX_BUN;
        file->mapping = mapping;
        status = kvern_mlx_parse_bun(file);
    } else {
        status = kvern_safetensors_read(mapping, file->path, &file->tensors);
        if (!status)
            status = kvern_mlx_parse(file);
    }
    for (size_t i = 0; i < file->count; i++)
        file->rows = kvern_max_size(file->rows, file->items[i].rows);
    return status;
}

kvern_status kvern_mlx_read(kvern_mapping *mapping, const char *path, kvern_mlx_file **out)
{
    kvern_mlx_file *file = NULL;
    *out = NULL;
    kvern_status status = make_file(mapping->context, path, &file);
    if (!status)
        status = read_file(file, mapping);
    if (status)
        kvern_mlx_close(file);
    else
        *out = file;
    return status;
}

kvern_status kvern_mlx_open(kvern_context *context, const char *path, kvern_mlx_file **out)
{
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    if (!context || !path)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context or path is NULL");
    kvern_mapping *mapping;
    kvern_status status = kvern_mapping_open(context, path, &mapping);
    if (status)
        return status;
    status = kvern_mlx_read(mapping, path, out);
    kvern_mapping_release(mapping);
    return status;
}

void kvern_mlx_close(kvern_mlx_file *file)
{
    if (!file)
        return;
    kvern_context *context = file->context;
    kvern_heap *heap = &context->heap;
    kvern_safetensors_close(&file->tensors);
    kvern_mapping_release(file->mapping);
    kvern_heap_give(heap, file->bun_tensors, file->bun_count * sizeof *file->bun_tensors,
                    KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, file->items, file->capacity * sizeof *file->items, KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, file->notes, file->note_count * sizeof *file->notes,
                    KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, file->tokens, file->token_count * sizeof *file->tokens,
                    KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, file->path, file->path_bytes, KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, file, sizeof *file, KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}

// ---- Facts ----

static const kvern_sized CACHE_SIZES = KVERN_SIZED(kvern_mlx_cache, sizeof(kvern_mlx_cache));

kvern_mlx_layout kvern_mlx_file_layout(const kvern_mlx_file *file)
{
    return file->layout;
}

size_t kvern_mlx_caches(const kvern_mlx_file *file)
{
    return file->count;
}

size_t kvern_mlx_rows(const kvern_mlx_file *file)
{
    return file->rows;
}

// Of the numbers, of the scales, or of the last slot that there is, which is the state.
static const char *dtype_of(const kvern_mlx_item *item)
{
    const kvern_tensor *tensor = item->rows ? item->keys.parts[item->bits ? 1 : 0] : NULL;
    for (size_t e = 0; e < item->slot_count; e++)
        tensor = item->slots[e] ? item->slots[e] : tensor;
    return tensor ? kvern_dtypes[tensor->dtype].name : "";
}

kvern_status kvern_mlx_cache_facts(const kvern_mlx_file *file, size_t index, kvern_mlx_cache *facts)
{
    if (!file || !facts)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or facts is NULL");
    kvern_status status = kvern_sized_check_output(&CACHE_SIZES, facts);
    if (status)
        return status;
    if (index >= file->count)
        return kvern_fail(KVERN_ERR_RANGE, "cache %zu of %zu", index, file->count);
    const kvern_mlx_item *item = &file->items[index];
    const kvern_mlx_cache known = {
        .size = sizeof known,
        .class_name = kvern_mlx_class_names[item->class],
        .entry = item->entry,
        .member = item->member,
        .members = item->members,
        .rows = item->rows,
        .kv_heads = item->heads,
        .k_dim = item->keys.dim,
        .v_dim = item->values.dim,
        .dtype = dtype_of(item),
        .slots = item->slot_count,
        .max_size = item->max_size,
        .keep = item->keep,
        .chunk = item->chunk,
        .bits = item->bits,
        .group = item->group,
    };
    kvern_sized_write(&CACHE_SIZES, &known, facts);
    return KVERN_OK;
}

int64_t kvern_mlx_cache_length(const kvern_mlx_file *file, size_t index, size_t row)
{
    if (index >= file->count || row >= file->rows)
        return -1;
    const kvern_mlx_item *item = &file->items[index];
    if (item->rows && row >= item->rows)
        return -1;
    return kvern_mlx_columns_of(item, row, -1).offset;
}

int64_t kvern_mlx_length(const kvern_mlx_file *file, size_t row)
{
    int64_t length = -1;
    for (size_t i = 0; i < file->count; i++) {
        const int64_t of_cache = kvern_mlx_cache_length(file, i, row);
        if (length >= 0 && of_cache >= 0 && of_cache != length)
            return -1;
        length = of_cache >= 0 ? of_cache : length;
    }
    return length;
}

// ---- User metadata ----

kvern_mlx_note kvern_mlx_file_note(const kvern_mlx_file *file, size_t index)
{
    return index < file->note_count ? file->notes[index] : (kvern_mlx_note){NULL, NULL};
}

const char *kvern_mlx_find_note(const kvern_mlx_file *file, const char *key)
{
    for (size_t i = 0; i < file->note_count; i++) {
        if (strcmp(file->notes[i].key, key) == 0)
            return file->notes[i].value;
    }
    return NULL;
}

const int32_t *kvern_mlx_tokens(const kvern_mlx_file *file, size_t *count)
{
    *count = file->token_count;
    return file->tokens;
}

// ---- Rotated keys ----

void kvern_mlx_reorder(void *vectors, size_t count, size_t dim, size_t element_bytes, size_t dims,
                       bool to_pairs)
{
    char before[KVERN_MAX_HEAD_DIM * sizeof(float)], *at = vectors;
    for (size_t v = 0; v < count && dims; v++, at += dim * element_bytes) {
        memcpy(before, at, dims * element_bytes);
        for (size_t d = 0; d < dims; d++) {
            const size_t half = d / 2 + d % 2 * (dims / 2);
            memcpy(at + (to_pairs ? d : half) * element_bytes,
                   before + (to_pairs ? half : d) * element_bytes, element_bytes);
        }
    }
}
