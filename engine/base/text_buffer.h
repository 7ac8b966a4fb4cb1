// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TEXT_BUFFER_H
#define KVERN_ENGINE_TEXT_BUFFER_H

// A growable byte string: what the streaming stages of the output path and the chat renderer write
// to. Bytes may be anything, NUL included; no terminator is kept. Start with TEXT_BUFFER_INIT (all
// zero).

#include <kvern/status.h>

#include <stddef.h>

typedef struct text_buffer {
    char *data; // owned, NULL while the capacity is 0
    size_t size;
    size_t capacity;
} text_buffer;

// clang-format off
#define TEXT_BUFFER_INIT {NULL, 0, 0}
// clang-format on

// Makes room for `extra` more bytes, so that the next appends of that many bytes cannot fail.
// Growth is geometric: a buffer that is cleared and refilled stops allocating. On failure
// (KVERN_ERR_MEMORY, KVERN_ERR_OVERFLOW) the buffer is unchanged.
KVERN_CHECK kvern_status text_buffer_reserve(text_buffer *buffer, size_t extra);

// Appends a copy of `size` bytes. On failure the buffer is unchanged.
KVERN_CHECK kvern_status text_buffer_append(text_buffer *buffer, const char *data, size_t size);

// Forgets the contents and keeps the room.
void text_buffer_clear(text_buffer *buffer);

// Releases the memory and makes the buffer empty again.
void text_buffer_free(text_buffer *buffer);

#endif
