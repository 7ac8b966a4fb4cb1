// SPDX-License-Identifier: MIT
#include "engine/base/text_buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIN_CAPACITY 64

kvern_status text_buffer_reserve(text_buffer *buffer, size_t extra)
{
    if (extra <= buffer->capacity - buffer->size)
        return KVERN_OK;
    if (extra > SIZE_MAX / 2 - buffer->size)
        return KVERN_ERR_OVERFLOW;
    size_t capacity = buffer->size + extra;
    if (capacity < MIN_CAPACITY)
        capacity = MIN_CAPACITY;
    if (capacity < buffer->capacity * 2)
        capacity = buffer->capacity * 2;
    char *data = realloc(buffer->data, capacity);
    if (!data)
        return KVERN_ERR_MEMORY;
    buffer->data = data;
    buffer->capacity = capacity;
    return KVERN_OK;
}

kvern_status text_buffer_append(text_buffer *buffer, const char *data, size_t size)
{
    if (size == 0)
        return KVERN_OK;
    const kvern_status status = text_buffer_reserve(buffer, size);
    if (status != KVERN_OK)
        return status;
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    return KVERN_OK;
}

void text_buffer_clear(text_buffer *buffer)
{
    buffer->size = 0;
}

void text_buffer_free(text_buffer *buffer)
{
    free(buffer->data);
    *buffer = (text_buffer)TEXT_BUFFER_INIT;
}
