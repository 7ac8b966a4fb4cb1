// SPDX-License-Identifier: MIT
#include "engine/safetensors/safetensors_file.h"

#include "engine/base/little_endian.h"
#include "engine/safetensors/json_text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
// The format's own limit.
#define MOST_HEADER_BYTES ((uint64_t)100000000)
#define MOST_NAME_BYTES 256
// A type that no element_type stands for.
#define NO_TYPE UINT32_MAX

static const struct dtype {
    const char *name;
    size_t bytes;
    uint32_t type;
} DTYPES[] = {
    {"F32", 4, ELEMENT_F32}, {"F16", 2, ELEMENT_F16},   {"BF16", 2, ELEMENT_BF16},
    {"F64", 8, NO_TYPE},     {"I64", 8, NO_TYPE},       {"U64", 8, NO_TYPE},
    {"I32", 4, NO_TYPE},     {"U32", 4, ELEMENT_WORDS}, {"I16", 2, NO_TYPE},
    {"U16", 2, NO_TYPE},     {"I8", 1, NO_TYPE},        {"U8", 1, ELEMENT_BYTES},
    {"BOOL", 1, NO_TYPE},    {"F8_E4M3", 1, NO_TYPE},   {"F8_E5M2", 1, NO_TYPE},
};

// Where the reader is.
typedef struct header_reader {
    const char *file;
    const char *tensor; // NULL: none
    const unsigned char *data;
    uint64_t data_bytes;
    engine_error *error;
} header_reader;

static kvern_status fail(const header_reader *reader, kvern_status status, const char *what)
{
    return reader->tensor ? engine_fail(reader->error, status, "%s: tensor '%s': %s", reader->file,
                                        reader->tensor, what)
                          : engine_fail(reader->error, status, "%s: %s", reader->file, what);
}

static bool is_printable(const char *text)
{
    size_t size = strlen(text);
    for (size_t i = 0; i < size; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e) {
            return false;
        }
    }
    return size > 0 && size <= MOST_NAME_BYTES;
}

// A count of bytes or elements.
static bool read_count(const json_t *json, uint64_t *count)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0) {
        return false;
    }
    *count = (uint64_t)json_integer_value(json);
    return true;
}

// The file has the slowest dimension first.
static kvern_status read_shape(const header_reader *reader, const json_t *shape,
                               weights_tensor *tensor)
{
    size_t dims = json_array_size(shape);
    if (!json_is_array(shape)) {
        return fail(reader, KVERN_ERR_FORMAT, "it has no shape");
    }
    if (dims > WEIGHTS_MAX_DIMS) {
        return fail(reader, KVERN_ERR_UNSUPPORTED, "it has more than four dimensions");
    }
    tensor->dims = dims ? (uint32_t)dims : 1;
    tensor->elements = 1;
    for (size_t i = 0; i < WEIGHTS_MAX_DIMS; i++) {
        tensor->shape[i] = 1;
    }
    for (size_t i = 0; i < dims; i++) {
        uint64_t size = 0;
        if (!read_count(json_array_get(shape, i), &size) || size == 0) {
            return fail(reader, KVERN_ERR_FORMAT, "its shape is not a list of numbers above 0");
        }
        tensor->shape[dims - 1 - i] = size;
        if (__builtin_mul_overflow(tensor->elements, size, &tensor->elements) ||
            tensor->elements > INT64_MAX) {
            return fail(reader, KVERN_ERR_FORMAT, "the number of its elements overflows");
        }
    }
    return KVERN_OK;
}

static kvern_status read_type(const header_reader *reader, const json_t *dtype,
                              weights_tensor *tensor, size_t *element_bytes)
{
    const char *name = json_string_value(dtype);
    for (size_t i = 0; name && i < sizeof DTYPES / sizeof DTYPES[0]; i++) {
        if (strcmp(name, DTYPES[i].name) == 0) {
            *element_bytes = DTYPES[i].bytes;
            tensor->type = DTYPES[i].type;
            tensor->known = tensor->type != NO_TYPE && tensor->type < ELEMENT_WORDS;
            return KVERN_OK;
        }
    }
    return fail(reader, KVERN_ERR_FORMAT, "its dtype is not known");
}

// Sets data and bytes.
static kvern_status place(const header_reader *reader, const json_t *offsets, size_t element_bytes,
                          weights_tensor *tensor)
{
    uint64_t begin = 0, end = 0, wanted;
    if (json_array_size(offsets) != 2 || !read_count(json_array_get(offsets, 0), &begin) ||
        !read_count(json_array_get(offsets, 1), &end)) {
        return fail(reader, KVERN_ERR_FORMAT, "it has no two data_offsets");
    }
    if (begin > end || end > reader->data_bytes) {
        return fail(reader, KVERN_ERR_FORMAT, "its data are not in the file");
    }
    if (__builtin_mul_overflow(tensor->elements, element_bytes, &wanted) || wanted != end - begin) {
        return fail(reader, KVERN_ERR_FORMAT, "its shape does not match its bytes");
    }
    tensor->data = reader->data + begin;
    tensor->bytes = (size_t)wanted;
    return KVERN_OK;
}

static kvern_status read_tensor(header_reader *reader, const char *name, const json_t *json,
                                weights_tensor *tensor)
{
    size_t element_bytes = 0;
    if (!is_printable(name)) {
        return fail(reader, KVERN_ERR_FORMAT,
                    "a tensor's name is not 1 to 256 printable ASCII characters");
    }
    reader->tensor = name;
    *tensor = (weights_tensor){.name = text_view_of(name)};
    if (!json_is_object(json)) {
        return fail(reader, KVERN_ERR_FORMAT, "it is not described by an object");
    }
    kvern_status status = read_type(reader, json_object_get(json, "dtype"), tensor, &element_bytes);
    if (status == KVERN_OK) {
        status = read_shape(reader, json_object_get(json, "shape"), tensor);
    }
    if (status == KVERN_OK) {
        status = place(reader, json_object_get(json, "data_offsets"), element_bytes, tensor);
    }
    reader->tensor = NULL;
    return status;
}

static int compare_places(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t)(*(const weights_tensor *const *)a)->data;
    uintptr_t right = (uintptr_t)(*(const weights_tensor *const *)b)->data;
    return (left > right) - (left < right);
}

// The data are one tensor behind the other, from the first byte to the last.
static kvern_status check_places(const header_reader *reader, const safetensors_file *file)
{
    const weights_tensor **order = calloc(file->count ? file->count : 1, sizeof *order);
    if (!order) {
        return fail(reader, KVERN_ERR_MEMORY, "no memory to sort its tensors");
    }
    for (size_t i = 0; i < file->count; i++) {
        order[i] = &file->tensors[i];
    }
    qsort(order, file->count, sizeof *order, compare_places);
    const unsigned char *end = reader->data;
    bool right = true;
    for (size_t i = 0; i < file->count && right; i++) {
        right = order[i]->data == end;
        end += order[i]->bytes;
    }
    free(order);
    return right && end == reader->data + reader->data_bytes
               ? KVERN_OK
               : fail(reader, KVERN_ERR_FORMAT, "its data overlap or leave a gap");
}

static kvern_status read_tensors(header_reader *reader, safetensors_file *file)
{
    const char *name;
    json_t *json;
    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors) {
        return fail(reader, KVERN_ERR_MEMORY, "no memory for its tensors");
    }
    json_object_foreach((json_t *)file->header, name, json)
    {
        if (strcmp(name, "__metadata__") == 0) { // remarks
            continue;
        }
        kvern_status status = read_tensor(reader, name, json, &file->tensors[file->count]);
        if (status != KVERN_OK) {
            return status;
        }
        file->count++;
    }
    return check_places(reader, file);
}

static kvern_status parse(safetensors_file *file, const char *name, engine_error *error)
{
    header_reader reader = {.file = name, .error = error};
    size_t bytes = file->file.bytes;
    if (bytes < LENGTH_BYTES) {
        return fail(&reader, KVERN_ERR_FORMAT, "it is too short for a safetensors file");
    }
    uint64_t length = engine_load_u64(file->file.data);
    if (length > MOST_HEADER_BYTES || length > bytes - LENGTH_BYTES) {
        return fail(&reader, KVERN_ERR_FORMAT, "its header is longer than the file or 100 MB");
    }
    json_t *header;
    kvern_status status = json_text_read((const char *)file->file.data + LENGTH_BYTES,
                                         (size_t)length, name, &header, error);
    file->header = header;
    if (status != KVERN_OK) {
        return status;
    }
    if (!json_is_object((json_t *)file->header)) {
        return fail(&reader, KVERN_ERR_FORMAT, "its header is not a JSON object");
    }
    reader.data = file->file.data + LENGTH_BYTES + length;
    reader.data_bytes = bytes - LENGTH_BYTES - length;
    return read_tensors(&reader, file);
}

static kvern_status read_mapping(mapped_file mapping, const char *name, safetensors_file *out,
                                 engine_error *error)
{
    *out = (safetensors_file){.file = mapping};
    kvern_status status = parse(out, name, error);
    if (status != KVERN_OK) {
        safetensors_file_close(out);
    }
    return status;
}

kvern_status safetensors_file_open(const char *path, safetensors_file *out, engine_error *error)
{
    mapped_file mapping;
    *out = (safetensors_file){0};
    kvern_status status = mapped_file_open(path, &mapping, error);
    return status == KVERN_OK ? read_mapping(mapping, path, out, error) : status;
}

kvern_status safetensors_file_read(const void *data, size_t bytes, const char *name,
                                   safetensors_file *out, engine_error *error)
{
    return read_mapping((mapped_file){.data = data, .bytes = bytes}, name, out, error);
}

void safetensors_file_close(safetensors_file *file)
{
    json_decref(file->header);
    free(file->tensors);
    mapped_file_close(&file->file);
    *file = (safetensors_file){0};
}
