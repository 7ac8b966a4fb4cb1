// SPDX-License-Identifier: MIT
#include "src/file/safetensors/reader.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define METADATA "__metadata__"

const kvern_dtype_facts kvern_dtypes[KVERN_DTYPE_COUNT] = {
#define KVERN_DTYPE_ROW(name, bytes) {#name, bytes},
    KVERN_DTYPES(KVERN_DTYPE_ROW)
#undef KVERN_DTYPE_ROW
};

// ---- Messages ----

static kvern_status fail_file(const kvern_safetensors *file, const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "%s: %s", file->path, what);
}

static kvern_status fail_tensor(const kvern_safetensors *file, const kvern_tensor *tensor,
                                const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "%s: tensor %.80s: %s", file->path, tensor->name, what);
}

// ---- One tensor ----

static bool read_count(const json_t *json, uint64_t *count)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *count = (uint64_t)json_integer_value(json);
    return true;
}

static kvern_status read_dtype(const kvern_safetensors *file, const json_t *json,
                               kvern_tensor *tensor)
{
    const char *name = json_string_value(json);
    if (!name)
        return fail_tensor(file, tensor, "it has no dtype");
    for (size_t i = 0; i < KVERN_DTYPE_COUNT; i++) {
        if (strcmp(name, kvern_dtypes[i].name) == 0) {
            tensor->dtype = (kvern_dtype)i;
            return KVERN_OK;
        }
    }
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: tensor %.80s: the dtype %.40s is not known",
                      file->path, tensor->name, name);
}

static kvern_status read_shape(const kvern_safetensors *file, const json_t *json,
                               kvern_tensor *tensor)
{
    if (!json_is_array(json))
        return fail_tensor(file, tensor, "it has no shape");
    tensor->dims = json_array_size(json);
    if (tensor->dims > KVERN_TENSOR_DIMS)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: tensor %.80s: %zu dimensions, above %d",
                          file->path, tensor->name, tensor->dims, KVERN_TENSOR_DIMS);
    tensor->elements = 1;
    for (size_t i = 0; i < tensor->dims; i++) {
        if (!read_count(json_array_get(json, i), &tensor->shape[i]))
            return fail_tensor(file, tensor, "its shape is not a list of counts");
    }
    // A product that overflows does so whatever other factor is 0.
    uint64_t most = 1;
    for (size_t i = 0; i < tensor->dims; i++) {
        tensor->elements *= tensor->shape[i];
        if (tensor->shape[i] && !kvern_u64_mul(most, tensor->shape[i], &most))
            return fail_tensor(file, tensor, "the number of its elements overflows");
    }
    return KVERN_OK;
}

static kvern_status read_place(const kvern_safetensors *file, const json_t *json,
                               kvern_tensor *tensor)
{
    const size_t data_bytes = file->mapping->bytes - file->data_begin;
    uint64_t begin, end, bytes;
    if (json_array_size(json) != 2 || !read_count(json_array_get(json, 0), &begin) ||
        !read_count(json_array_get(json, 1), &end) || begin > end)
        return fail_tensor(file, tensor, "its data_offsets are not a begin and an end");
    if (end > data_bytes)
        return fail_tensor(file, tensor, "its data are not in the file");
    if (!kvern_u64_mul(tensor->elements, kvern_dtypes[tensor->dtype].bytes, &bytes) ||
        bytes != end - begin)
        return fail_tensor(file, tensor, "its shape does not match its bytes");
    tensor->data = file->mapping->data + file->data_begin + begin;
    tensor->bytes = (size_t)bytes;
    return KVERN_OK;
}

static kvern_status read_tensor(const kvern_safetensors *file, const char *name, json_t *json,
                                kvern_tensor *tensor)
{
    *tensor = (kvern_tensor){.name = name};
    if (!*name)
        return fail_file(file, "a tensor has no name");
    if (json_object_size(json) != 3)
        return fail_tensor(file, tensor, "it has not dtype, shape and data_offsets alone");
    kvern_status status = read_dtype(file, json_object_get(json, "dtype"), tensor);
    if (!status)
        status = read_shape(file, json_object_get(json, "shape"), tensor);
    if (!status)
        status = read_place(file, json_object_get(json, "data_offsets"), tensor);
    return status;
}

// ---- All of them ----

static int by_place(const void *a, const void *b)
{
    const kvern_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const kvern_tensor *)a)->name, ((const kvern_tensor *)b)->name);
}

// The data are one tensor behind the other, from the first byte to the last.
static kvern_status check_places(const kvern_safetensors *file)
{
    const unsigned char *end = file->mapping->data + file->data_begin;
    qsort(file->tensors, file->count, sizeof file->tensors[0], by_place);
    for (size_t i = 0; i < file->count; i++) {
        const kvern_tensor *tensor = &file->tensors[i];
        if (tensor->data != end)
            return fail_tensor(file, tensor,
                               tensor->data < end ? "its data overlap another's"
                                                  : "there is a gap in front of its data");
        end += tensor->bytes;
    }
    if (end != file->mapping->data + file->mapping->bytes)
        return fail_file(file, "there are bytes behind the last tensor");
    return KVERN_OK;
}

static kvern_status read_metadata(kvern_safetensors *file, json_t *json)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return fail_file(file, METADATA " is not an object");
    json_object_foreach(json, key, value)
    {
        if (!json_is_string(value))
            return kvern_fail(KVERN_ERR_FORMAT, "%s: metadata %.80s: it is not a string",
                              file->path, key);
    }
    file->metadata = json;
    return KVERN_OK;
}

static kvern_status read_entries(kvern_safetensors *file)
{
    const char *name;
    json_t *json;
    json_object_foreach((json_t *)file->header, name, json)
    {
        kvern_status status;
        if (strcmp(name, METADATA) == 0)
            status = read_metadata(file, json);
        else
            status = read_tensor(file, name, json, &file->tensors[file->count++]);
        if (status)
            return status;
    }
    kvern_status status = check_places(file);
    qsort(file->tensors, file->count, sizeof file->tensors[0], by_name);
    return status;
}

// ---- The header ----

static uint64_t load_length(const unsigned char *bytes)
{
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | bytes[i];
    return length;
}

static kvern_status parse_header(kvern_safetensors *file)
{
    const kvern_mapping *mapping = file->mapping;
    if (mapping->bytes < LENGTH_BYTES)
        return fail_file(file, "it is too short for a safetensors file");
    const uint64_t length = load_length(mapping->data);
    if (length > mapping->bytes - LENGTH_BYTES)
        return fail_file(file, "its header is longer than the file");
    if (length > KVERN_MOST_HEADER_BYTES)
        return fail_file(file, "its header is longer than 16 MiB");
    json_error_t error;
    file->header = json_loadb((const char *)mapping->data + LENGTH_BYTES, (size_t)length,
                              JSON_REJECT_DUPLICATES, &error);
    if (!file->header && json_error_code(&error) == json_error_out_of_memory)
        return kvern_fail(KVERN_ERR_MEMORY, "%s: no memory for its header", file->path);
    if (!file->header)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: its header, byte %d: %s", file->path,
                          error.position, error.text);
    if (!json_is_object((json_t *)file->header))
        return fail_file(file, "its header is not a JSON object");
    file->data_begin = LENGTH_BYTES + (size_t)length;
    return KVERN_OK;
}

static kvern_status read_header(kvern_safetensors *file)
{
    kvern_status status = parse_header(file);
    if (status)
        return status;
    void *block;
    const size_t count = json_object_size(file->header) + 1; // a header may be empty
    status = kvern_heap_take(&file->mapping->context->heap, count * sizeof file->tensors[0],
                             KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    file->tensors = block;
    file->capacity = count;
    return read_entries(file);
}

kvern_status kvern_safetensors_read(kvern_mapping *mapping, const char *path,
                                    kvern_safetensors *out)
{
    *out = (kvern_safetensors){.mapping = mapping, .path = path};
    kvern_mapping_retain(mapping);
    kvern_status status = read_header(out);
    if (status)
        kvern_safetensors_close(out);
    return status;
}

kvern_status kvern_safetensors_open(kvern_context *context, const char *path,
                                    kvern_safetensors *out)
{
    kvern_mapping *mapping;
    *out = (kvern_safetensors){0};
    kvern_status status = kvern_mapping_open(context, path, &mapping);
    if (status)
        return status;
    status = kvern_safetensors_read(mapping, path, out);
    kvern_mapping_release(mapping);
    return status;
}

void kvern_safetensors_close(kvern_safetensors *file)
{
    if (!file->mapping)
        return;
    json_decref(file->header);
    kvern_heap_give(&file->mapping->context->heap, file->tensors,
                    file->capacity * sizeof file->tensors[0], KVERN_HEAP_ALIGNMENT);
    kvern_mapping_release(file->mapping);
    *file = (kvern_safetensors){0};
}

// ---- Looking things up ----

const kvern_tensor *kvern_safetensors_find(const kvern_safetensors *file, const char *name)
{
    const kvern_tensor wanted = {.name = name};
    return bsearch(&wanted, file->tensors, file->count, sizeof wanted, by_name);
}

kvern_status kvern_safetensors_need(const kvern_safetensors *file, const char *name,
                                    kvern_dtype dtype, size_t dims, const kvern_tensor **out)
{
    const kvern_tensor *tensor = kvern_safetensors_find(file, name);
    if (!tensor)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: there is no tensor %.80s", file->path, name);
    if (tensor->dtype != dtype || tensor->dims != dims)
        return kvern_fail(KVERN_ERR_FORMAT,
                          "%s: tensor %.80s: %s with %zu dimensions, not %s with %zu", file->path,
                          name, kvern_dtypes[tensor->dtype].name, tensor->dims,
                          kvern_dtypes[dtype].name, dims);
    *out = tensor;
    return KVERN_OK;
}

const char *kvern_safetensors_metadata(const kvern_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->metadata, key));
}

kvern_status kvern_safetensors_each_metadata(const kvern_safetensors *file,
                                             kvern_status (*visit)(void *user, const char *key,
                                                                   const char *value),
                                             void *user)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)file->metadata, key, value)
    {
        kvern_status status = visit(user, key, json_string_value(value));
        if (status)
            return status;
    }
    return KVERN_OK;
}
