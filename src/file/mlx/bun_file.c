// SPDX-License-Identifier: MIT
// MLXBUNKV1, the prompt caches of mlx-bun: a magic word, two lengths, JSON, and tensors that begin
// at multiples of 16384.
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/mlx/mlx_columns.h"

#include <jansson.h>
#include <string.h>

#define MAGIC "MLXBUNKV1\n"
#define MAGIC_BYTES 10
#define HEADER_BYTES 18 // magic, length of the JSON, where data begin
#define UNIT 16384      // of data

bool kvern_mlx_is_bun(const kvern_mapping *mapping)
{
    return mapping->bytes >= MAGIC_BYTES && memcmp(mapping->data, MAGIC, MAGIC_BYTES) == 0;
}

static kvern_status bad(const kvern_mlx_file *file, const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "%s: %s", file->path, what);
}

static uint64_t load_u32(const unsigned char *from)
{
    return from[0] | (uint64_t)from[1] << 8 | (uint64_t)from[2] << 16 | (uint64_t)from[3] << 24;
}

// ---- Tensors ----

// MLX numbers its types; keys and values are of one of three.
static bool find_dtype(const json_t *json, kvern_dtype *out)
{
    switch (json_is_integer(json) ? json_integer_value(json) : -1) {
    case 9:
        *out = KVERN_DTYPE_F16;
        return true;
    case 10:
        *out = KVERN_DTYPE_F32;
        return true;
    case 12:
        *out = KVERN_DTYPE_BF16;
        return true;
    default:
        return false;
    }
}

static bool read_count(const json_t *json, uint64_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static bool read_shape(const json_t *json, kvern_tensor *tensor)
{
    if (json_array_size(json) != 4)
        return false;
    tensor->dims = 4;
    tensor->elements = 1;
    for (size_t d = 0; d < 4; d++) {
        if (!read_count(json_array_get(json, d), &tensor->shape[d]) || tensor->shape[d] == 0 ||
            !kvern_u64_mul(tensor->elements, tensor->shape[d], &tensor->elements))
            return false;
    }
    return true;
}

// A tensor that `cache` describes under the names of keys or of values.
static kvern_status read_tensor(kvern_mlx_file *file, const json_t *cache, size_t data_begin,
                                bool of_values, const kvern_tensor **out)
{
    static const char *const names[2][3] = {{"kShape", "kOffset", "kBytes"},
                                            {"vShape", "vOffset", "vBytes"}};
    const char *const *name = names[of_values];
    kvern_tensor *tensor = &file->bun_tensors[2 * (file->count - 1) + of_values];
    uint64_t begin, bytes, wanted;
    if (!find_dtype(json_object_get(cache, "dtype"), &tensor->dtype))
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: cache %zu: a dtype that is not known",
                          file->path, file->count - 1);
    if (!read_shape(json_object_get(cache, name[0]), tensor) ||
        !read_count(json_object_get(cache, name[1]), &begin) ||
        !read_count(json_object_get(cache, name[2]), &bytes) ||
        !kvern_u64_mul(tensor->elements, kvern_dtypes[tensor->dtype].bytes, &wanted) ||
        bytes != wanted || begin % UNIT)
        return bad(file, "the shape and the place of a tensor do not fit");
    const size_t data_bytes = file->mapping->bytes - data_begin;
    if (bytes > data_bytes || begin > data_bytes - bytes)
        return bad(file, "the data of a tensor are not in the file");
    tensor->name = of_values ? "values" : "keys";
    tensor->data = file->mapping->data + data_begin + begin;
    tensor->bytes = (size_t)bytes;
    *out = tensor;
    return KVERN_OK;
}

// ---- Caches ----

static kvern_status take_shape(const kvern_mlx_file *file, kvern_mlx_item *item)
{
    const uint64_t *k = item->keys.parts[0]->shape, *v = item->values.parts[0]->shape;
    if (k[0] != v[0] || k[1] != v[1] || k[2] != v[2] || k[0] > KVERN_MAX_ROWS ||
        k[1] > KVERN_MAX_KV_HEADS || k[2] > INT32_MAX || k[3] > INT32_MAX || v[3] > INT32_MAX)
        return kvern_mlx_bad(file, item, "keys and values do not fit each other");
    item->rows = (size_t)k[0];
    item->heads = (size_t)k[1];
    item->width = (int64_t)k[2];
    item->keys.dim = (size_t)k[3];
    item->values.dim = (size_t)v[3];
    return KVERN_OK;
}

static kvern_status read_class(const kvern_mlx_file *file, const json_t *cache,
                               kvern_mlx_item *item)
{
    const char *kind = json_string_value(json_object_get(cache, "kind"));
    uint64_t offset, idx = 0, max_size = 0;
    if (!kind || !read_count(json_object_get(cache, "offset"), &offset) || offset > INT64_MAX)
        return kvern_mlx_bad(file, item, "it has no kind or no offset");
    item->offset = (int64_t)offset;
    if (strcmp(kind, "kv") == 0)
        return KVERN_OK;
    if (strcmp(kind, "rotating") != 0)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "%s: cache %zu is of a kind that is not known: "
                          "%.80s",
                          file->path, item->entry, kind);
    item->class = KVERN_MLX_ROTATING;
    if (!read_count(json_object_get(cache, "idx"), &idx) ||
        !read_count(json_object_get(cache, "maxSize"), &max_size) || idx > INT32_MAX ||
        max_size > (uint64_t)KVERN_MAX_WINDOW)
        return kvern_mlx_bad(file, item, "it has no idx or no maxSize");
    item->idx = (int64_t)idx;
    item->max_size = (int64_t)max_size;
    return KVERN_OK;
}

static kvern_status read_cache(kvern_mlx_file *file, const json_t *cache, size_t data_begin)
{
    kvern_mlx_item *item;
    kvern_status status = kvern_mlx_add_item(file, &item);
    if (status)
        return status;
    item->class = KVERN_MLX_KV;
    item->entry = file->count - 1;
    if (!(status = read_class(file, cache, item)) &&
        !(status = read_tensor(file, cache, data_begin, false, &item->keys.parts[0])) &&
        !(status = read_tensor(file, cache, data_begin, true, &item->values.parts[0])) &&
        !(status = take_shape(file, item)))
        status = kvern_mlx_check_columns(file, item);
    return status;
}

static kvern_status read_caches(kvern_mlx_file *file, const json_t *header, size_t data_begin)
{
    const json_t *caches = json_object_get(header, "caches");
    const size_t count = json_array_size(caches);
    if (count == 0 || count > KVERN_MAX_LAYERS)
        return bad(file, "it has no caches, or too many");
    void *block;
    kvern_status status =
        kvern_heap_take_zeroed(&file->context->heap, 2 * count * sizeof *file->bun_tensors, &block);
    if (status)
        return status;
    file->bun_tensors = block;
    file->bun_count = 2 * count;
    for (size_t i = 0; i < count && !status; i++)
        status = read_cache(file, json_array_get(caches, i), data_begin);
    return status;
}

// ---- The header ----

static kvern_status read_tokens(kvern_mlx_file *file, const json_t *header)
{
    const json_t *tokens = json_object_get(header, "tokens");
    const size_t count = json_array_size(tokens);
    if (!json_is_array(tokens))
        return bad(file, "it has no list of tokens");
    if (count == 0)
        return KVERN_OK;
    void *block;
    kvern_status status = kvern_heap_take(&file->context->heap, count * sizeof *file->tokens,
                                          KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    file->tokens = block;
    file->token_count = count;
    for (size_t i = 0; i < count; i++) {
        uint64_t token;
        if (!read_count(json_array_get(tokens, i), &token) || token > INT32_MAX)
            return bad(file, "a token is no number");
        file->tokens[i] = (int32_t)token;
    }
    return KVERN_OK;
}

kvern_status kvern_mlx_parse_bun(kvern_mlx_file *file)
{
    const unsigned char *data = file->mapping->data;
    const size_t bytes = file->mapping->bytes;
    if (bytes < HEADER_BYTES)
        return bad(file, "its header is cut short");
    const uint64_t length = load_u32(data + MAGIC_BYTES), begin = load_u32(data + MAGIC_BYTES + 4);
    if (length > KVERN_MOST_HEADER_BYTES || begin > bytes || begin % UNIT ||
        HEADER_BYTES + length > begin)
        return bad(file, "its header does not fit");
    json_error_t error;
    json_t *header = json_loadb((const char *)data + HEADER_BYTES, (size_t)length,
                                JSON_REJECT_DUPLICATES, &error);
    if (!header)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: its header is no JSON: %.80s", file->path,
                          error.text);
    kvern_status status = read_tokens(file, header);
    if (!status)
        status = read_caches(file, header, (size_t)begin);
    json_decref(header);
    return status;
}
