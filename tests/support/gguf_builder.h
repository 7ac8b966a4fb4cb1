// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_GGUF_BUILDER_H
#define KVERN_TESTS_SUPPORT_GGUF_BUILDER_H

// Builds GGUF files in memory for tests:
//
//   gguf_builder *builder = gguf_builder_create();
//   gguf_builder_string(builder, "general.architecture", "llama");
//   gguf_builder_tensor(builder, "token_embd.weight", GGUF_TYPE_F32, 2, (uint64_t[]){64, 8}, data,
//   bytes); size_t bytes; void *file = gguf_builder_finish(builder, &bytes);     // or
//   gguf_builder_save(builder, path)
//   ... gguf_open_memory(file, bytes, ...) ...
//   free(file);
//
// Metadata and tensors are written in the order in which they were added, tensor data one after the
// other at the file's alignment. Nothing is checked: a key added twice or a shape that does not fit
// its data makes a file that a reader must refuse. Running out of memory ends the program.

#include "engine/gguf/gguf.h"

typedef struct gguf_builder gguf_builder;

// Version 3, alignment 32.
gguf_builder *gguf_builder_create(void);
void gguf_builder_destroy(gguf_builder *builder);

void gguf_builder_version(gguf_builder *builder, uint32_t version);

// Adds general.alignment and places the data by it.
void gguf_builder_alignment(gguf_builder *builder, uint32_t alignment);

// Metadata. Everything is copied.
void gguf_builder_u8(gguf_builder *builder, const char *key, uint8_t value);
void gguf_builder_i8(gguf_builder *builder, const char *key, int8_t value);
void gguf_builder_u16(gguf_builder *builder, const char *key, uint16_t value);
void gguf_builder_i16(gguf_builder *builder, const char *key, int16_t value);
void gguf_builder_u32(gguf_builder *builder, const char *key, uint32_t value);
void gguf_builder_i32(gguf_builder *builder, const char *key, int32_t value);
void gguf_builder_u64(gguf_builder *builder, const char *key, uint64_t value);
void gguf_builder_i64(gguf_builder *builder, const char *key, int64_t value);
void gguf_builder_f32(gguf_builder *builder, const char *key, float value);
void gguf_builder_f64(gguf_builder *builder, const char *key, double value);
void gguf_builder_bool(gguf_builder *builder, const char *key, bool value);
void gguf_builder_string(gguf_builder *builder, const char *key, const char *value);
void gguf_builder_bytes(gguf_builder *builder, const char *key,
                        gguf_string value); // a string with any bytes

// Arrays. `values` has the C type of `element` (uint8_t, ..., bool, double); strings have their own
// two.
void gguf_builder_array(gguf_builder *builder, const char *key, gguf_value_type element,
                        const void *values, size_t count);
void gguf_builder_strings(gguf_builder *builder, const char *key, const char *const *values,
                          size_t count);
void gguf_builder_byte_strings(gguf_builder *builder, const char *key, const gguf_string *values,
                               size_t count);

// A tensor of any type; `data` is already encoded, and copied.
void gguf_builder_tensor(gguf_builder *builder, const char *name, uint32_t type, uint32_t dims,
                         const uint64_t *shape, const void *data, size_t bytes);

// The whole file, to be released with free(); aligned for any tensor alignment up to 64. The
// builder stays as it was and may add more.
void *gguf_builder_finish(const gguf_builder *builder, size_t *bytes);
void gguf_builder_save(const gguf_builder *builder, const char *path);

#endif
