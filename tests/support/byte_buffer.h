// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_BYTE_BUFFER_H
#define KVERN_TESTS_SUPPORT_BYTE_BUFFER_H

// A growing array of bytes with little-endian writers, for building files in tests. Running out of
// memory ends the program.

#include <stddef.h>
#include <stdint.h>

// Zero-initialize to begin; byte_buffer_free when done.
typedef struct byte_buffer {
    unsigned char *data;
    size_t size;
    size_t capacity;
} byte_buffer;

void byte_buffer_free(byte_buffer *buffer);

void byte_buffer_bytes(byte_buffer *buffer, const void *data, size_t size);
void byte_buffer_u8(byte_buffer *buffer, uint8_t value);
void byte_buffer_u16(byte_buffer *buffer, uint16_t value);
void byte_buffer_u32(byte_buffer *buffer, uint32_t value);
void byte_buffer_u64(byte_buffer *buffer, uint64_t value);

// Zero bytes up to the next multiple of `alignment`.
void byte_buffer_align(byte_buffer *buffer, size_t alignment);

// Writes everything to a file, replacing it. The program ends when that fails.
void byte_buffer_save(const byte_buffer *buffer, const char *path);

#endif
