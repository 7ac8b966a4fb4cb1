// SPDX-License-Identifier: MIT
#include "tests/support/byte_buffer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void grow(byte_buffer *buffer, size_t size)
{
    size_t wanted = buffer->size + size;
    if (wanted <= buffer->capacity) {
        return;
    }
    buffer->capacity = wanted * 2;
    buffer->data = realloc(buffer->data, buffer->capacity);
    if (!buffer->data) {
        perror("byte_buffer");
        abort();
    }
}

void byte_buffer_free(byte_buffer *buffer)
{
    free(buffer->data);
    *buffer = (byte_buffer){0};
}

void byte_buffer_bytes(byte_buffer *buffer, const void *data, size_t size)
{
    if (size == 0) {
        return;
    }
    grow(buffer, size);
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

static void put(byte_buffer *buffer, uint64_t value, size_t size)
{
    grow(buffer, size);
    for (size_t i = 0; i < size; i++) {
        buffer->data[buffer->size++] = (unsigned char)(value >> (8 * i));
    }
}

void byte_buffer_u8(byte_buffer *buffer, uint8_t value)
{
    put(buffer, value, 1);
}

void byte_buffer_u16(byte_buffer *buffer, uint16_t value)
{
    put(buffer, value, 2);
}

void byte_buffer_u32(byte_buffer *buffer, uint32_t value)
{
    put(buffer, value, 4);
}

void byte_buffer_u64(byte_buffer *buffer, uint64_t value)
{
    put(buffer, value, 8);
}

void byte_buffer_align(byte_buffer *buffer, size_t alignment)
{
    while (buffer->size % alignment) {
        byte_buffer_u8(buffer, 0);
    }
}

void byte_buffer_save(const byte_buffer *buffer, const char *path)
{
    FILE *file = fopen(path, "wb");
    bool written =
        file && (buffer->size == 0 || fwrite(buffer->data, 1, buffer->size, file) == buffer->size);
    if (!written || fclose(file) != 0) {
        perror(path);
        abort();
    }
}
