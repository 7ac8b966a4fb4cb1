// SPDX-License-Identifier: MIT
#include "tests/support/family_case.h"

#include "tests/support/check.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/hf_model.h"

#include <inttypes.h>
#include <kvern/math.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIMS 4

static void *must_allocate(size_t count, size_t size)
{
    void *block = calloc(count ? count : 1, size);
    assert_non_null(block);
    return block;
}

static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!value) {
        fail_msg("a description of a model lacks \"%s\"", key);
    }
    return value;
}

family_case family_case_open(const char *path)
{
    json_error_t error;
    json_t *description = json_load_file(path, 0, &error);
    if (!description) {
        fail_msg("%s: line %d: %s", path, error.line, error.text);
    }
    json_t *tokens = member(description, "tokens");
    const json_t *config = member(description, "config");
    family_case c = {.description = description,
                     .name = json_string_value(member(description, "name")),
                     .count = json_array_size(tokens),
                     .vocabulary = (size_t)json_integer_value(member(config, "vocab_size"))};
    c.tokens = must_allocate(c.count, sizeof *c.tokens);
    for (size_t i = 0; i < c.count; i++) {
        c.tokens[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
    }
    return c;
}

void family_case_close(family_case *c)
{
    json_decref(c->description);
    free(c->tokens);
}

// ---- Weights. ----

static uint64_t splitmix64(uint64_t x)
{
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

static uint64_t fnv1a(const char *text)
{
    uint64_t hash = 0xCBF29CE484222325;
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3;
    }
    return hash;
}

// A tensor of the directory.
typedef struct checkpoint_tensor {
    size_t dims;
    uint64_t shape[MOST_DIMS]; // the slowest dimension first
    size_t count;
    float *values; // owned
} checkpoint_tensor;

static checkpoint_tensor make_tensor(const family_case *c, const char *name)
{
    const json_t *entry = member(member(c->description, "tensors"), name);
    const json_t *shape = json_array_get(entry, 0);
    const float scale = (float)(json_number_value(json_array_get(entry, 1)) / 256);
    const float offset = (float)json_number_value(json_array_get(entry, 2));
    const uint64_t seed =
        fnv1a(name) + (uint64_t)json_integer_value(member(c->description, "seed"));
    checkpoint_tensor tensor = {.dims = json_array_size(shape), .count = 1};
    assert_true(tensor.dims >= 1 && tensor.dims <= MOST_DIMS);
    for (size_t i = 0; i < tensor.dims; i++) {
        tensor.shape[i] = (uint64_t)json_integer_value(json_array_get(shape, i));
        tensor.count *= (size_t)tensor.shape[i];
    }
    tensor.values = must_allocate(tensor.count, sizeof *tensor.values);
    for (size_t i = 0; i < tensor.count; i++) {
        float code = (float)(2 * (int)(splitmix64(seed + i) >> 56) - 255);
        tensor.values[i] = offset + code * scale;
    }
    return tensor;
}

// Matrices have the type of the description, vectors are float32. free().
static void *encode(const family_case *c, const checkpoint_tensor *tensor, const char **dtype,
                    size_t *bytes)
{
    *dtype = tensor->dims > 1 ? json_string_value(member(c->description, "dtype")) : "F32";
    bool f32 = strcmp(*dtype, "F32") == 0;
    *bytes = tensor->count * (f32 ? sizeof(float) : sizeof(uint16_t));
    void *data = must_allocate(*bytes, 1);
    if (f32) {
        memcpy(data, tensor->values, *bytes);
    } else if (strcmp(*dtype, "BF16") == 0) {
        kvern_f32_to_bf16_array(0, tensor->count, tensor->values, data);
    } else {
        kvern_f32_to_f16_array(0, tensor->count, tensor->values, data);
    }
    return data;
}

// ---- A directory. ----

char *family_case_config(const family_case *c)
{
    char *text = json_dumps(member(c->description, "config"), 0);
    assert_non_null(text);
    return text;
}

void *family_case_safetensors(const family_case *c, size_t *bytes)
{
    safetensors_builder *builder = safetensors_builder_create();
    const char *name;
    json_t *unused;
    json_object_foreach(member(c->description, "tensors"), name, unused)
    {
        checkpoint_tensor tensor = make_tensor(c, name);
        const char *dtype;
        size_t size;
        void *data = encode(c, &tensor, &dtype, &size);
        safetensors_builder_add(builder, name, dtype, tensor.dims, tensor.shape, data, size);
        free(data);
        free(tensor.values);
    }
    void *file = safetensors_builder_finish(builder, bytes);
    safetensors_builder_destroy(builder);
    return file;
}

// ---- GGUF. ----

static void add_list(gguf_builder *builder, const char *key, const json_t *list)
{
    size_t count = json_array_size(list);
    double *numbers = must_allocate(count, sizeof *numbers);
    bool *flags = must_allocate(count, sizeof *flags);
    int32_t *integers = must_allocate(count, sizeof *integers);
    bool real = false;
    for (size_t i = 0; i < count; i++) {
        const json_t *element = json_array_get(list, i);
        numbers[i] = json_number_value(element);
        flags[i] = json_is_true(element);
        integers[i] = (int32_t)json_integer_value(element);
        real = real || json_is_real(element);
    }
    if (json_is_boolean(json_array_get(list, 0))) {
        gguf_builder_array(builder, key, GGUF_BOOL, flags, count);
    } else if (real) {
        gguf_builder_array(builder, key, GGUF_FLOAT64, numbers, count);
    } else {
        gguf_builder_array(builder, key, GGUF_INT32, integers, count);
    }
    free(numbers);
    free(flags);
    free(integers);
}

static void add_metadata(gguf_builder *builder, const char *architecture, const char *name,
                         const json_t *value)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", architecture, name);
    if (json_is_array(value)) {
        add_list(builder, key, value);
    } else if (json_is_boolean(value)) {
        gguf_builder_bool(builder, key, json_is_true(value));
    } else if (json_is_integer(value)) {
        gguf_builder_u32(builder, key, (uint32_t)json_integer_value(value));
    } else if (json_is_real(value)) {
        gguf_builder_f32(builder, key, (float)json_real_value(value));
    } else {
        gguf_builder_string(builder, key, json_string_value(value));
    }
}

// Row 2 i + h of a head of `dim` rows is row h * dim / 2 + i of the directory's.
static void pair_rows(checkpoint_tensor *tensor, size_t dim)
{
    const size_t rows = (size_t)tensor->shape[0], cols = tensor->count / rows;
    float *paired = must_allocate(tensor->count, sizeof *paired);
    for (size_t r = 0; r < rows; r++) {
        size_t in_head = r % dim;
        size_t from = r - in_head + in_head % 2 * (dim / 2) + in_head / 2;
        memcpy(paired + r * cols, tensor->values + from * cols, cols * sizeof *paired);
    }
    free(tensor->values);
    tensor->values = paired;
}

static void stack(checkpoint_tensor *all, checkpoint_tensor *tensor, size_t index, size_t count)
{
    if (index == 0) {
        *all = (checkpoint_tensor){.dims = tensor->dims + 1, .count = tensor->count * count};
        assert_true(all->dims <= MOST_DIMS);
        all->shape[0] = count;
        memcpy(all->shape + 1, tensor->shape, tensor->dims * sizeof *tensor->shape);
        all->values = must_allocate(all->count, sizeof *all->values);
    }
    memcpy(all->values + index * tensor->count, tensor->values,
           tensor->count * sizeof *tensor->values);
    free(tensor->values);
}

// `from` is a tensor of the directory, or a list of tensors that GGUF has as one.
static checkpoint_tensor gather(const family_case *c, const json_t *from)
{
    if (json_is_string(from)) {
        return make_tensor(c, json_string_value(from));
    }
    checkpoint_tensor all = {0};
    for (size_t i = 0; i < json_array_size(from); i++) {
        checkpoint_tensor part = make_tensor(c, json_string_value(json_array_get(from, i)));
        stack(&all, &part, i, json_array_size(from));
    }
    return all;
}

static uint32_t gguf_type_of(const char *dtype)
{
    return strcmp(dtype, "F32") == 0   ? GGUF_TYPE_F32
           : strcmp(dtype, "F16") == 0 ? GGUF_TYPE_F16
                                       : GGUF_TYPE_BF16;
}

// The rows or the columns that a list names, in its order. Dimensions of 1 between them go.
static void pick(checkpoint_tensor *tensor, const json_t *list, bool columns)
{
    const size_t rows = (size_t)tensor->shape[0], cols = tensor->count / rows;
    const size_t picked = json_array_size(list);
    const size_t new_rows = columns ? rows : picked, new_cols = columns ? picked : cols;
    float *values = must_allocate(new_rows * new_cols, sizeof *values);
    for (size_t r = 0; r < new_rows; r++) {
        for (size_t c = 0; c < new_cols; c++) {
            size_t at = (size_t)json_integer_value(json_array_get(list, columns ? c : r));
            assert_true(at < (columns ? cols : rows));
            values[r * new_cols + c] =
                tensor->values[(columns ? r : at) * cols + (columns ? at : c)];
        }
    }
    free(tensor->values);
    tensor->values = values;
    tensor->count = new_rows * new_cols;
    tensor->shape[0] = new_rows;
    tensor->shape[1] = new_cols;
    tensor->dims = tensor->dims > 1 ? 2 : 1;
}

// What GGUF has in place of a tensor's values, and in which order.
static void convert_tensor(checkpoint_tensor *tensor, const json_t *entry)
{
    const size_t pairs = (size_t)json_integer_value(json_object_get(entry, "pairs"));
    const float plus = (float)json_number_value(json_object_get(entry, "plus"));
    const bool minus_exp = json_is_true(json_object_get(entry, "minus_exp"));
    const json_t *rows = json_object_get(entry, "rows"),
                 *columns = json_object_get(entry, "columns");
    if (pairs) {
        pair_rows(tensor, pairs);
    }
    if (rows) {
        pick(tensor, rows, false);
    }
    if (columns) {
        pick(tensor, columns, true);
    }
    for (size_t i = 0; i < tensor->count; i++) {
        float value = tensor->values[i];
        tensor->values[i] = minus_exp   ? -(float)exp((double)value)
                            : plus != 0 ? value + plus
                                        : value;
    }
}

static void add_gguf_tensor(const family_case *c, gguf_builder *builder, const json_t *entry)
{
    checkpoint_tensor tensor = gather(c, member(entry, "from"));
    convert_tensor(&tensor, entry);
    uint64_t shape[MOST_DIMS];
    for (size_t i = 0; i < tensor.dims; i++) {
        shape[i] = tensor.shape[tensor.dims - 1 - i];
    }
    const char *dtype;
    size_t size;
    void *data = encode(c, &tensor, &dtype, &size);
    gguf_builder_tensor(builder, json_string_value(member(entry, "name")), gguf_type_of(dtype),
                        (uint32_t)tensor.dims, shape, data, size);
    free(data);
    free(tensor.values);
}

// A vector of float32 that the directory has not.
static void add_extra(gguf_builder *builder, const char *name, const json_t *numbers)
{
    uint64_t count = json_array_size(numbers);
    float *values = must_allocate((size_t)count, sizeof *values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)json_number_value(json_array_get(numbers, i));
    }
    gguf_builder_tensor(builder, name, GGUF_TYPE_F32, 1, &count, values,
                        (size_t)count * sizeof *values);
    free(values);
}

void *family_case_gguf(const family_case *c, size_t *bytes)
{
    const json_t *made = json_object_get(c->description, "gguf");
    if (!made) {
        return NULL;
    }
    const char *architecture = json_string_value(member(made, "architecture")), *key;
    json_t *value;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "general.architecture", architecture);
    json_object_foreach(member(made, "metadata"), key, value)
    {
        add_metadata(builder, architecture, key, value);
    }
    size_t i;
    json_array_foreach(member(made, "tensors"), i, value)
    {
        add_gguf_tensor(c, builder, value);
    }
    json_object_foreach(member(made, "extra"), key, value)
    {
        add_extra(builder, key, value);
    }
    void *file = gguf_builder_finish(builder, bytes);
    gguf_builder_destroy(builder);
    return file;
}

bool family_case_is_rounded(const family_case *c)
{
    const json_t *made = member(c->description, "gguf");
    bool rounded = json_object_size(member(made, "extra")) > 0;
    size_t i;
    json_t *entry;
    json_array_foreach(member(made, "tensors"), i, entry)
    {
        rounded = rounded || json_object_get(entry, "minus_exp");
    }
    return rounded;
}

// ---- Logits. ----

void family_case_expect(const family_case *c, const float *logits)
{
    const json_t *positions = member(c->description, "positions");
    const json_t *rows = member(c->description, "logits");
    const double tolerance = json_number_value(member(c->description, "tolerance"));
    double largest = 0, off = 0;
    size_t where = 0;
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        size_t position = (size_t)json_integer_value(json_array_get(positions, i));
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(json_array_size(row), c->vocabulary);
        assert_true(position < c->count);
        for (size_t v = 0; v < c->vocabulary; v++) {
            double exact = json_number_value(json_array_get(row, v));
            double difference = fabs(exact - (double)logits[position * c->vocabulary + v]);
            largest = fabs(exact) > largest ? fabs(exact) : largest;
            if (!(difference <= off)) {
                off = difference;
                where = position;
            }
        }
    }
    print_message("%s: off by %.1e of the largest logit, %.1e allowed\n", c->name, off / largest,
                  tolerance);
    if (!(off <= tolerance * largest)) {
        fail_msg("%s: a logit of position %zu is off by %g; the largest is %g", c->name, where, off,
                 largest);
    }
}
