// SPDX-License-Identifier: MIT
#include "engine/gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdlib.h>

// Fills shape and elements. The product fits an int64_t, so that callers may count in either type.
static kvern_status take_shape(gguf_cursor *cursor, gguf_tensor *tensor)
{
    size_t at = cursor->at;
    kvern_status status = gguf_take_u32(cursor, "the number of dimensions", &tensor->dims);
    if (status != KVERN_OK) {
        return status;
    }
    if (tensor->dims < 1 || tensor->dims > GGUF_MAX_DIMS) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "%u dimensions, not 1 to %d", tensor->dims,
                         GGUF_MAX_DIMS);
    }
    int64_t elements = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        tensor->shape[i] = 1;
        if (i >= tensor->dims) {
            continue;
        }
        at = cursor->at;
        status = gguf_take_u64(cursor, "the shape", &tensor->shape[i]);
        if (status != KVERN_OK) {
            return status;
        }
        if (tensor->shape[i] == 0) {
            return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "shape[%u] is 0", i);
        }
        if (__builtin_mul_overflow(elements, tensor->shape[i], &elements)) {
            return gguf_fail(cursor, KVERN_ERR_FORMAT, at,
                             "the number of elements overflows at shape[%u] = %" PRIu64, i,
                             tensor->shape[i]);
        }
    }
    tensor->elements = (uint64_t)elements;
    return KVERN_OK;
}

// Fills type, known and bytes.
static kvern_status take_type(gguf_cursor *cursor, gguf_tensor *tensor)
{
    size_t at = cursor->at;
    kvern_status status = gguf_take_u32(cursor, "the type", &tensor->type);
    if (status != KVERN_OK) {
        return status;
    }
    size_t block_elements, block_bytes;
    tensor->known = element_type_block(tensor->type, &block_elements, &block_bytes);
    if (!tensor->known) {
        return KVERN_OK;
    }
    if (tensor->shape[0] % block_elements) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at,
                         "shape[0] = %" PRIu64 " is no multiple of the %zu elements in a %s block",
                         tensor->shape[0], block_elements, element_type_name(tensor->type));
    }
    if (__builtin_mul_overflow(tensor->elements / block_elements, block_bytes, &tensor->bytes)) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "the number of bytes overflows");
    }
    return KVERN_OK;
}

static kvern_status take_description(gguf_cursor *cursor, gguf_placed_tensor *placed)
{
    placed->description_at = cursor->at;
    kvern_status status =
        gguf_take_name(cursor, "the name", GGUF_MAX_TENSOR_NAME_BYTES, &placed->tensor.name);
    if (status == KVERN_OK) {
        status = take_shape(cursor, &placed->tensor);
    }
    if (status == KVERN_OK) {
        status = take_type(cursor, &placed->tensor);
    }
    if (status == KVERN_OK) {
        status = gguf_take_u64(cursor, "the offset", &placed->offset);
    }
    return status;
}

static kvern_status take_descriptions(gguf_cursor *cursor, gguf_file *file)
{
    for (size_t i = 0; i < file->tensor_count; i++) {
        gguf_cursor_begin_item(cursor, "tensor", i);
        kvern_status status = take_description(cursor, &file->tensors[i]);
        if (status != KVERN_OK) {
            return status;
        }
    }
    return KVERN_OK;
}

// Makes a tensor the subject of the error sentences again, after all descriptions were read.
static void return_to(gguf_cursor *cursor, const gguf_file *file, const gguf_placed_tensor *placed)
{
    gguf_cursor_begin_item(cursor, "tensor", (size_t)(placed - file->tensors));
    cursor->item_name = placed->tensor.name;
    cursor->at = placed->description_at;
}

static kvern_status sort_names(gguf_cursor *cursor, gguf_file *file)
{
    const gguf_string *repeated;
    if (!name_index_build(&file->tensor_names, file->tensors, sizeof *file->tensors,
                          file->tensor_count, &repeated)) {
        return gguf_fail(cursor, KVERN_ERR_MEMORY, cursor->at, "no memory for %zu tensor names",
                         file->tensor_count);
    }
    if (repeated) {
        return_to(cursor, file, (const gguf_placed_tensor *)repeated);
        return gguf_fail(cursor, KVERN_ERR_FORMAT, cursor->at, "the name occurs twice");
    }
    return KVERN_OK;
}

// A tensor of unknown type has an unknown size; it has at least one byte.
static size_t least_bytes(const gguf_tensor *tensor)
{
    return tensor->known ? tensor->bytes : 1;
}

// Gives one tensor its data.
static kvern_status place(gguf_cursor *cursor, const gguf_file *file, gguf_placed_tensor *placed,
                          size_t section)
{
    size_t section_bytes = cursor->bytes - section;
    gguf_tensor *tensor = &placed->tensor;
    return_to(cursor, file, placed);
    if (placed->offset % file->alignment) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, cursor->at,
                         "its offset %" PRIu64 " is no multiple of the alignment %zu",
                         placed->offset, file->alignment);
    }
    size_t bytes = least_bytes(tensor);
    if (placed->offset > section_bytes || bytes > section_bytes - placed->offset) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, cursor->at,
                         "its data (%zu bytes at offset %" PRIu64 ") leaves the data section of "
                         "%zu bytes; is the file complete?",
                         bytes, placed->offset, section_bytes);
    }
    if (tensor->known) {
        tensor->data = cursor->data + section + (size_t)placed->offset;
    }
    return KVERN_OK;
}

static kvern_status place_all(gguf_cursor *cursor, gguf_file *file)
{
    size_t padding = (file->alignment - cursor->at % file->alignment) % file->alignment;
    size_t left = cursor->bytes - cursor->at;
    size_t section = padding < left ? cursor->at + padding : cursor->bytes;
    for (size_t i = 0; i < file->tensor_count; i++) {
        kvern_status status = place(cursor, file, &file->tensors[i], section);
        if (status != KVERN_OK) {
            return status;
        }
    }
    return KVERN_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    uint64_t left = (*(const gguf_placed_tensor *const *)a)->offset;
    uint64_t right = (*(const gguf_placed_tensor *const *)b)->offset;
    return (left > right) - (left < right);
}

// Two tensors that share bytes mean a broken or forged file.
static kvern_status check_overlaps(gguf_cursor *cursor, const gguf_file *file)
{
    size_t count = file->tensor_count;
    const gguf_placed_tensor **order = calloc(count ? count : 1, sizeof *order);
    if (!order) {
        return gguf_fail(cursor, KVERN_ERR_MEMORY, cursor->at, "no memory to sort %zu tensors",
                         count);
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = &file->tensors[i];
    }
    qsort(order, count, sizeof *order, compare_offsets);
    kvern_status status = KVERN_OK;
    for (size_t i = 1; i < count && status == KVERN_OK; i++) {
        const gguf_placed_tensor *before = order[i - 1];
        if (order[i]->offset - before->offset < least_bytes(&before->tensor)) {
            return_to(cursor, file, order[i]);
            status = gguf_fail(cursor, KVERN_ERR_FORMAT, cursor->at,
                               "its data overlaps that of tensor '%.*s'",
                               (int)before->tensor.name.size, before->tensor.name.data);
        }
    }
    free(order);
    return status;
}

kvern_status gguf_parse_tensors(gguf_cursor *cursor, gguf_file *file)
{
    file->tensors = calloc(file->tensor_count ? file->tensor_count : 1, sizeof *file->tensors);
    if (!file->tensors) {
        return gguf_fail(cursor, KVERN_ERR_MEMORY, cursor->at, "no memory for %zu tensors",
                         file->tensor_count);
    }
    kvern_status status = take_descriptions(cursor, file);
    size_t end = cursor->at;
    if (status == KVERN_OK) {
        status = sort_names(cursor, file);
    }
    if (status == KVERN_OK) {
        cursor->at = end;
        status = place_all(cursor, file);
    }
    if (status == KVERN_OK) {
        status = check_overlaps(cursor, file);
    }
    return status;
}
