// SPDX-License-Identifier: MIT
#include "src/file/mlx/mlx_sink.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- Metadata and tensors ----

kvern_status kvern_mlx_say(kvern_mlx_sink *sink, const char *value, const char *format, ...)
{
    char key[2 * KVERN_MLX_PATH_BYTES];
    if (!sink->describing)
        return KVERN_OK;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    return kvern_safetensors_say(&sink->writer, key, value);
}

static void name_tensor(const kvern_mlx_place *at, const char *leaf,
                        char name[2 * KVERN_MLX_PATH_BYTES])
{
    snprintf(name, 2 * KVERN_MLX_PATH_BYTES, "%s.%s", at->tensors, leaf);
}

kvern_status kvern_mlx_describe(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf,
                                kvern_dtype dtype, size_t dims, const uint64_t *shape)
{
    char name[2 * KVERN_MLX_PATH_BYTES];
    if (!sink->describing)
        return KVERN_OK;
    name_tensor(at, leaf, name);
    return kvern_safetensors_describe(&sink->writer, name, dtype, dims, shape, 1);
}

kvern_status kvern_mlx_put(kvern_mlx_sink *sink, const void *data, size_t bytes)
{
    return sink->describing ? KVERN_OK : kvern_safetensors_put(&sink->writer, data, bytes);
}

kvern_status kvern_mlx_put_zeros(kvern_mlx_sink *sink, size_t bytes)
{
    static const unsigned char zeros[4096];
    kvern_status status = KVERN_OK;
    while (bytes > 0 && !status && !sink->describing) {
        const size_t part = kvern_min_size(bytes, sizeof zeros);
        status = kvern_safetensors_put(&sink->writer, zeros, part);
        bytes -= part;
    }
    return status;
}

// ---- What is no array in Python ----

// A tensor that stands for something else: the list of scalars says what.
static kvern_status put_scalar(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf,
                               const char *kind, kvern_dtype dtype, size_t dims, uint64_t count,
                               const void *data)
{
    char name[2 * KVERN_MLX_PATH_BYTES];
    name_tensor(at, leaf, name);
    kvern_status status = kvern_mlx_describe(sink, at, leaf, dtype, dims, &count);
    const size_t number = sink->scalars + 1;
    if (!status)
        status = kvern_mlx_say(sink, name, "2.%zu.0", number);
    if (!status)
        status = kvern_mlx_say(sink, kind, "2.%zu.1", number);
    sink->scalars += sink->describing;
    if (status)
        return status;
    return kvern_mlx_put(sink, data, (dims ? (size_t)count : 1) * kvern_dtypes[dtype].bytes);
}

static kvern_status check_number(const kvern_mlx_sink *sink, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_RANGE, "%s: mlx-lm has no room for %" PRId64,
                      sink->writer.file.path, value);
}

kvern_status kvern_mlx_number(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf,
                              const char *info, int64_t value)
{
    kvern_status status = check_number(sink, value);
    if (status)
        return status;
    if (sink->layout == KVERN_MLX_INFOS) {
        char text[24];
        snprintf(text, sizeof text, "%" PRId64, value);
        return info ? kvern_mlx_say(sink, text, "%s.%s", at->infos, info) : KVERN_OK;
    }
    const int32_t number = (int32_t)value;
    return leaf ? put_scalar(sink, at, leaf, "scalar", KVERN_DTYPE_I32, 0, 0, &number) : KVERN_OK;
}

kvern_status kvern_mlx_flag(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf,
                            bool value)
{
    const unsigned char flag = value;
    return sink->layout == KVERN_MLX_STATES
               ? put_scalar(sink, at, leaf, "scalar", KVERN_DTYPE_BOOL, 0, 0, &flag)
               : KVERN_OK;
}

kvern_status kvern_mlx_string(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf,
                              const char *text)
{
    int32_t points[64];
    const size_t count = kvern_min_size(strlen(text), 64);
    for (size_t i = 0; i < count; i++)
        points[i] = (unsigned char)text[i];
    return sink->layout == KVERN_MLX_STATES
               ? put_scalar(sink, at, leaf, "string", KVERN_DTYPE_I32, 1, count, points)
               : KVERN_OK;
}

kvern_status kvern_mlx_none(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf)
{
    return sink->layout == KVERN_MLX_STATES
               ? put_scalar(sink, at, leaf, "none", KVERN_DTYPE_F32, 1, 0, NULL)
               : KVERN_OK;
}

kvern_status kvern_mlx_numbers(kvern_mlx_sink *sink, const kvern_mlx_place *at, const char *leaf,
                               size_t rows, const int64_t *values)
{
    const uint64_t shape = rows;
    kvern_status status = kvern_mlx_describe(sink, at, leaf, KVERN_DTYPE_I32, 1, &shape);
    for (size_t r = 0; r < rows && !status; r++) {
        const int32_t value = (int32_t)values[r];
        if (!(status = check_number(sink, values[r])))
            status = kvern_mlx_put(sink, &value, sizeof value);
    }
    return status;
}
