// SPDX-License-Identifier: MIT
#include "engine/model/model_tensors.h"

#include "engine/gguf/dequantize.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *model_layer_tensor(model_tensor_name buffer, size_t layer, const char *name)
{
    snprintf(buffer, sizeof(model_tensor_name), "blk.%zu.%s", layer, name);
    return buffer;
}

static kvern_status plan_arena(model_tensors *tensors, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(tensors->file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(tensors->file, i);
        size_t packed;
        if (tensor->dims != 2) {
            continue;
        }
        kvern_status status = linear_packed_bytes(tensor, &packed, tensors->error);
        if (status != KVERN_OK) {
            return status;
        }
        if (__builtin_add_overflow(*bytes, packed, bytes)) {
            return engine_fail(tensors->error, KVERN_ERR_OVERFLOW,
                               "the weights do not fit the address space");
        }
    }
    return KVERN_OK;
}

kvern_status model_tensors_begin(model_tensors *tensors)
{
    size_t count = gguf_tensor_count(tensors->file);
    kvern_status status = plan_arena(tensors, &tensors->arena_bytes);
    if (status != KVERN_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        tensors->total_bytes += gguf_tensor_at(tensors->file, i)->bytes;
    }
    tensors->taken = calloc(count > 0 ? count : 1, sizeof *tensors->taken);
    if (!tensors->taken) {
        return engine_fail(tensors->error, KVERN_ERR_MEMORY, "no memory to list %zu tensors",
                           count);
    }
    status = linear_arena_create(tensors->arena_bytes, &tensors->arena, tensors->error);
    if (status != KVERN_OK) {
        free(tensors->taken);
    }
    return status;
}

void model_tensors_end(model_tensors *tensors)
{
    free(tensors->taken);
    tensors->taken = NULL;
}

static void describe_shape(const gguf_tensor *tensor, char *text, size_t bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < tensor->dims && at < bytes; i++) {
        at +=
            (size_t)snprintf(text + at, bytes - at, "%s%" PRIu64, i ? " x " : "", tensor->shape[i]);
    }
}

static kvern_status take(model_tensors *tensors, const char *name, uint32_t dims, size_t rows,
                         size_t cols, const gguf_tensor **out)
{
    const gguf_tensor *tensor = gguf_find_tensor(tensors->file, name);
    if (!tensor) {
        return engine_fail(tensors->error, KVERN_ERR_FORMAT, "the model file lacks the tensor %s",
                           name);
    }
    if (tensor->dims != dims || tensor->shape[0] != cols ||
        (dims == 2 && tensor->shape[1] != rows)) {
        char shape[96];
        describe_shape(tensor, shape, sizeof shape);
        return engine_fail(tensors->error, KVERN_ERR_FORMAT,
                           dims == 2 ? "the tensor %s is %s, but the model needs %zu x %zu"
                                     : "the tensor %s is %s, but the model needs %zu",
                           name, shape, cols, rows);
    }
    if (!tensor->known) {
        const char *type = gguf_type_name(tensor->type);
        return engine_fail(tensors->error, KVERN_ERR_UNSUPPORTED,
                           "the tensor %s has the element type %s (%u), which is not supported",
                           name, type ? type : "unknown", tensor->type);
    }
    tensors->taken[tensors->taken_count++] = tensor;
    *out = tensor;
    return KVERN_OK;
}

static void report(model_tensors *tensors, const gguf_tensor *tensor)
{
    tensors->done_bytes += tensor->bytes;
    if (tensors->progress) {
        tensors->progress(tensors->user, tensors->done_bytes, tensors->total_bytes);
    }
}

kvern_status model_tensors_vector(model_tensors *tensors, const char *name, size_t n, float **out)
{
    const gguf_tensor *tensor;
    kvern_status status = take(tensors, name, 1, 1, n, &tensor);
    if (status != KVERN_OK) {
        return status;
    }
    float *values = malloc(n * sizeof *values);
    if (!values) {
        return engine_fail(tensors->error, KVERN_ERR_MEMORY, "no memory for the tensor %s", name);
    }
    status = engine_dequantize(tensor->type, tensor->data, n, values);
    if (status != KVERN_OK) {
        free(values);
        return engine_fail(tensors->error, status, "the tensor %s cannot be decoded", name);
    }
    *out = values;
    report(tensors, tensor);
    return KVERN_OK;
}

kvern_status model_tensors_layer_vectors(model_tensors *tensors, size_t layer,
                                         const model_layer_vector *vectors, size_t count)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < count && status == KVERN_OK; i++) {
        model_tensor_name name;
        status = model_tensors_vector(tensors, model_layer_tensor(name, layer, vectors[i].name),
                                      vectors[i].n, vectors[i].out);
    }
    return status;
}

kvern_status model_tensors_matrix(model_tensors *tensors, const char *name, size_t rows,
                                  size_t cols, linear *out)
{
    const gguf_tensor *tensor;
    kvern_status status = take(tensors, name, 2, rows, cols, &tensor);
    if (status != KVERN_OK) {
        return status;
    }
    status = linear_create(tensors->arena, tensors->file, tensor, LINEAR_INT16, tensors->features,
                           tensors->executor, out, tensors->error);
    if (status != KVERN_OK) {
        return status;
    }
    tensors->formats |= LINEAR_FORMAT_BIT(out->format);
    report(tensors, tensor);
    return KVERN_OK;
}

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t) * (const gguf_tensor *const *)a;
    uintptr_t right = (uintptr_t) * (const gguf_tensor *const *)b;
    return (left > right) - (left < right);
}

kvern_status model_tensors_all_taken(model_tensors *tensors)
{
    size_t count = tensors->taken_count;
    qsort(tensors->taken, count, sizeof *tensors->taken, compare_pointers);
    for (size_t i = 0; i < gguf_tensor_count(tensors->file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(tensors->file, i);
        if (!bsearch(&tensor, tensors->taken, count, sizeof *tensors->taken, compare_pointers)) {
            return engine_fail(tensors->error, KVERN_ERR_UNSUPPORTED,
                               "the model has a tensor %.*s, which this engine does not know",
                               (int)tensor->name.size, tensor->name.data);
        }
    }
    return KVERN_OK;
}
