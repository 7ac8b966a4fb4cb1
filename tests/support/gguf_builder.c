// SPDX-License-Identifier: MIT
#include "tests/support/gguf_builder.h"
#include "tests/support/byte_buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gguf_builder {
    uint32_t version;
    size_t alignment;
    uint64_t entries;
    uint64_t tensors;
    byte_buffer metadata;
    byte_buffer descriptions;
    byte_buffer data;
};

static void *check(void *memory)
{
    if (!memory) {
        perror("gguf_builder");
        abort();
    }
    return memory;
}

gguf_builder *gguf_builder_create(void)
{
    gguf_builder *builder = check(calloc(1, sizeof *builder));
    builder->version = 3;
    builder->alignment = 32;
    return builder;
}

void gguf_builder_destroy(gguf_builder *builder)
{
    byte_buffer_free(&builder->metadata);
    byte_buffer_free(&builder->descriptions);
    byte_buffer_free(&builder->data);
    free(builder);
}

void gguf_builder_version(gguf_builder *builder, uint32_t version)
{
    builder->version = version;
}

void gguf_builder_alignment(gguf_builder *builder, uint32_t alignment)
{
    builder->alignment = alignment;
    gguf_builder_u32(builder, "general.alignment", alignment);
}

static void put_string(byte_buffer *buffer, gguf_string value)
{
    byte_buffer_u64(buffer, value.size);
    byte_buffer_bytes(buffer, value.data, value.size);
}

static gguf_string from_c(const char *text)
{
    return (gguf_string){text, strlen(text)};
}

// Key and type of the next entry; the caller writes the value.
static byte_buffer *begin_entry(gguf_builder *builder, const char *key, gguf_value_type type)
{
    builder->entries++;
    put_string(&builder->metadata, from_c(key));
    byte_buffer_u32(&builder->metadata, type);
    return &builder->metadata;
}

void gguf_builder_u8(gguf_builder *builder, const char *key, uint8_t value)
{
    byte_buffer_u8(begin_entry(builder, key, GGUF_UINT8), value);
}

void gguf_builder_i8(gguf_builder *builder, const char *key, int8_t value)
{
    byte_buffer_u8(begin_entry(builder, key, GGUF_INT8), (uint8_t)value);
}

void gguf_builder_u16(gguf_builder *builder, const char *key, uint16_t value)
{
    byte_buffer_u16(begin_entry(builder, key, GGUF_UINT16), value);
}

void gguf_builder_i16(gguf_builder *builder, const char *key, int16_t value)
{
    byte_buffer_u16(begin_entry(builder, key, GGUF_INT16), (uint16_t)value);
}

void gguf_builder_u32(gguf_builder *builder, const char *key, uint32_t value)
{
    byte_buffer_u32(begin_entry(builder, key, GGUF_UINT32), value);
}

void gguf_builder_i32(gguf_builder *builder, const char *key, int32_t value)
{
    byte_buffer_u32(begin_entry(builder, key, GGUF_INT32), (uint32_t)value);
}

void gguf_builder_u64(gguf_builder *builder, const char *key, uint64_t value)
{
    byte_buffer_u64(begin_entry(builder, key, GGUF_UINT64), value);
}

void gguf_builder_i64(gguf_builder *builder, const char *key, int64_t value)
{
    byte_buffer_u64(begin_entry(builder, key, GGUF_INT64), (uint64_t)value);
}

static void put_f32(byte_buffer *buffer, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    byte_buffer_u32(buffer, bits);
}

static void put_f64(byte_buffer *buffer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    byte_buffer_u64(buffer, bits);
}

void gguf_builder_f32(gguf_builder *builder, const char *key, float value)
{
    put_f32(begin_entry(builder, key, GGUF_FLOAT32), value);
}

void gguf_builder_f64(gguf_builder *builder, const char *key, double value)
{
    put_f64(begin_entry(builder, key, GGUF_FLOAT64), value);
}

void gguf_builder_bool(gguf_builder *builder, const char *key, bool value)
{
    byte_buffer_u8(begin_entry(builder, key, GGUF_BOOL), value);
}

void gguf_builder_string(gguf_builder *builder, const char *key, const char *value)
{
    gguf_builder_bytes(builder, key, from_c(value));
}

void gguf_builder_bytes(gguf_builder *builder, const char *key, gguf_string value)
{
    put_string(begin_entry(builder, key, GGUF_STRING), value);
}

static byte_buffer *begin_array(gguf_builder *builder, const char *key, gguf_value_type element,
                                size_t count)
{
    byte_buffer *buffer = begin_entry(builder, key, GGUF_ARRAY);
    byte_buffer_u32(buffer, element);
    byte_buffer_u64(buffer, count);
    return buffer;
}

static void put_element(byte_buffer *buffer, gguf_value_type element, const void *values, size_t i)
{
    switch (element) {
    case GGUF_UINT8:
    case GGUF_INT8:
        byte_buffer_u8(buffer, ((const uint8_t *)values)[i]);
        break;
    case GGUF_BOOL:
        byte_buffer_u8(buffer, ((const bool *)values)[i]);
        break;
    case GGUF_UINT16:
    case GGUF_INT16:
        byte_buffer_u16(buffer, ((const uint16_t *)values)[i]);
        break;
    case GGUF_UINT32:
    case GGUF_INT32:
        byte_buffer_u32(buffer, ((const uint32_t *)values)[i]);
        break;
    case GGUF_UINT64:
    case GGUF_INT64:
        byte_buffer_u64(buffer, ((const uint64_t *)values)[i]);
        break;
    case GGUF_FLOAT32:
        put_f32(buffer, ((const float *)values)[i]);
        break;
    case GGUF_FLOAT64:
        put_f64(buffer, ((const double *)values)[i]);
        break;
    default:
        fprintf(stderr, "gguf_builder_array: element type %d\n", (int)element);
        abort();
    }
}

void gguf_builder_array(gguf_builder *builder, const char *key, gguf_value_type element,
                        const void *values, size_t count)
{
    byte_buffer *buffer = begin_array(builder, key, element, count);
    for (size_t i = 0; i < count; i++) {
        put_element(buffer, element, values, i);
    }
}

void gguf_builder_strings(gguf_builder *builder, const char *key, const char *const *values,
                          size_t count)
{
    byte_buffer *buffer = begin_array(builder, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        put_string(buffer, from_c(values[i]));
    }
}

void gguf_builder_byte_strings(gguf_builder *builder, const char *key, const gguf_string *values,
                               size_t count)
{
    byte_buffer *buffer = begin_array(builder, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        put_string(buffer, values[i]);
    }
}

void gguf_builder_tensor(gguf_builder *builder, const char *name, uint32_t type, uint32_t dims,
                         const uint64_t *shape, const void *data, size_t bytes)
{
    builder->tensors++;
    byte_buffer *buffer = &builder->descriptions;
    byte_buffer_align(&builder->data, builder->alignment);
    put_string(buffer, from_c(name));
    byte_buffer_u32(buffer, dims);
    for (uint32_t i = 0; i < dims; i++) {
        byte_buffer_u64(buffer, shape[i]);
    }
    byte_buffer_u32(buffer, type);
    byte_buffer_u64(buffer, builder->data.size);
    byte_buffer_bytes(&builder->data, data, bytes);
}

static void assemble(const gguf_builder *builder, byte_buffer *file)
{
    byte_buffer_bytes(file, "GGUF", 4);
    byte_buffer_u32(file, builder->version);
    byte_buffer_u64(file, builder->tensors);
    byte_buffer_u64(file, builder->entries);
    byte_buffer_bytes(file, builder->metadata.data, builder->metadata.size);
    byte_buffer_bytes(file, builder->descriptions.data, builder->descriptions.size);
    if (builder->tensors) {
        byte_buffer_align(file, builder->alignment);
        byte_buffer_bytes(file, builder->data.data, builder->data.size);
    }
}

void *gguf_builder_finish(const gguf_builder *builder, size_t *bytes)
{
    byte_buffer file = {0};
    assemble(builder, &file);
    void *copy = check(aligned_alloc(64, (file.size + 63) / 64 * 64));
    memcpy(copy, file.data, file.size);
    *bytes = file.size;
    byte_buffer_free(&file);
    return copy;
}

void gguf_builder_save(const gguf_builder *builder, const char *path)
{
    byte_buffer file = {0};
    assemble(builder, &file);
    byte_buffer_save(&file, path);
    byte_buffer_free(&file);
}
