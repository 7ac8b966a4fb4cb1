// SPDX-License-Identifier: MIT
#include "tests/support/gguf_walk.h"
#include "engine/weights/dequantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECODED_BLOCKS 8
#define MAX_BLOCK_ELEMENTS 256

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

// FNV-1a.
static uint64_t mix(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static uint64_t mix_u64(uint64_t sum, uint64_t value)
{
    return mix(sum, &value, sizeof value);
}

static char *to_c_string(gguf_string string)
{
    char *copy = malloc(string.size + 1);
    PROMISE(copy);
    memcpy(copy, string.data, string.size);
    copy[string.size] = '\0';
    PROMISE(strlen(copy) == string.size);
    return copy;
}

static uint64_t walk_scalar(uint64_t sum, const gguf_entry *entry)
{
    uint64_t u64 = 0;
    float f32 = 0;
    bool flag = false;
    gguf_string string = {NULL, 0};
    config_value value = gguf_entry_value(entry);
    bool is_u64 = gguf_get_u64(entry, &u64);
    bool is_i64 = value.kind == CONFIG_INTEGER;
    bool is_f32 = gguf_get_f32(entry, &f32);
    bool is_bool = gguf_get_bool(entry, &flag);
    bool is_string = gguf_get_string(entry, &string);
    PROMISE(is_bool + is_string + (is_u64 || is_i64 || is_f32) <= 1);
    PROMISE(!is_string || string.data);
    sum = mix_u64(sum, u64);
    PROMISE(value.kind != CONFIG_ABSENT && value.kind != CONFIG_OTHER);
    PROMISE((value.kind == CONFIG_TEXT) == is_string && (value.kind == CONFIG_FLAG) == is_bool);
    sum = mix_u64(sum, (uint64_t)value.integer);
    sum = mix(sum, &f32, sizeof f32);
    sum = mix_u64(sum, flag);
    return mix(sum, string.data, string.size);
}

static uint64_t walk_array(uint64_t sum, const gguf_entry *entry)
{
    size_t count = gguf_array_count(entry);
    for (size_t i = 0; i <= count; i++) {
        int64_t i64 = 0;
        float f32 = 0;
        bool flag = false;
        gguf_string string = {NULL, 0};
        bool is_i64 = gguf_array_i64(entry, i, &i64);
        bool is_f32 = gguf_array_f32(entry, i, &f32);
        bool is_bool = gguf_array_bool(entry, i, &flag);
        bool is_string = gguf_array_string(entry, i, &string);
        PROMISE(i < count || !(is_i64 || is_f32 || is_bool || is_string));
        config_value value = gguf_entry_value(entry);
        PROMISE(count == 0 || value.kind == CONFIG_LIST);
        PROMISE((config_element(&value, i).kind == CONFIG_ABSENT) == (i >= count));
        sum = mix_u64(sum, (uint64_t)i64);
        sum = mix(sum, &f32, sizeof f32);
        sum = mix_u64(sum, flag);
        sum = mix(sum, string.data, string.size);
    }
    return sum;
}

static uint64_t walk_entry(uint64_t sum, const gguf_file *file, const gguf_entry *entry)
{
    PROMISE(gguf_value_type_name(gguf_array_type(entry)));
    PROMISE(gguf_entry_value(entry).kind == CONFIG_LIST || gguf_array_count(entry) == 0);
    char *key = to_c_string(gguf_entry_key(entry));
    PROMISE(gguf_find(file, key) == entry);
    sum = mix(sum, key, strlen(key));
    free(key);
    return walk_array(walk_scalar(sum, entry), entry);
}

static uint64_t walk_blocks(uint64_t sum, const gguf_tensor *tensor, size_t first, size_t count)
{
    size_t block_elements, block_bytes;
    float values[DECODED_BLOCKS * MAX_BLOCK_ELEMENTS];
    PROMISE(element_type_block(tensor->type, &block_elements, &block_bytes));
    const unsigned char *start = (const unsigned char *)tensor->data + first * block_bytes;
    PROMISE(engine_dequantize(tensor->type, start, count * block_elements, values) == KVERN_OK);
    return mix(sum, values, count * block_elements * sizeof *values);
}

static uint64_t walk_data(uint64_t sum, const gguf_file *file, const gguf_tensor *tensor)
{
    size_t block_elements, block_bytes;
    PROMISE(element_type_block(tensor->type, &block_elements, &block_bytes));
    size_t blocks = tensor->elements / block_elements;
    PROMISE(tensor->data && tensor->bytes == blocks * block_bytes);
    PROMISE(tensor->bytes <= gguf_file_bytes(file));
    PROMISE(tensor->shape[0] % block_elements == 0);
    size_t count = blocks < DECODED_BLOCKS ? blocks : DECODED_BLOCKS;
    sum = walk_blocks(sum, tensor, 0, count);
    sum = walk_blocks(sum, tensor, blocks - count, count);
    gguf_drop_pages(file, tensor->data, tensor->bytes);
    return sum;
}

static uint64_t walk_tensor(uint64_t sum, const gguf_file *file, const gguf_tensor *tensor)
{
    char *name = to_c_string(tensor->name);
    PROMISE(gguf_find_tensor(file, name) == tensor);
    sum = mix(sum, name, strlen(name));
    free(name);
    PROMISE(tensor->dims >= 1 && tensor->dims <= GGUF_MAX_DIMS);
    uint64_t elements = 1;
    for (size_t i = 0; i < GGUF_MAX_DIMS; i++) {
        PROMISE(tensor->shape[i] > 0 && (i < tensor->dims || tensor->shape[i] == 1));
        elements *= tensor->shape[i];
    }
    PROMISE(elements == tensor->elements && elements <= INT64_MAX);
    PROMISE(!tensor->known || element_type_name(tensor->type));
    PROMISE(tensor->known || (!tensor->data && tensor->bytes == 0));
    return tensor->known ? walk_data(sum, file, tensor) : sum;
}

uint64_t gguf_walk(const gguf_file *file)
{
    uint64_t sum = mix_u64(0, gguf_version(file));
    for (size_t i = 0; i < gguf_entry_count(file); i++) {
        sum = walk_entry(sum, file, gguf_entry_at(file, i));
    }
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        sum = walk_tensor(sum, file, gguf_tensor_at(file, i));
    }
    PROMISE(!gguf_entry_at(file, gguf_entry_count(file)));
    PROMISE(!gguf_tensor_at(file, gguf_tensor_count(file)));
    return sum;
}
