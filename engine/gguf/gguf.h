// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GGUF_H
#define KVERN_ENGINE_GGUF_H

// GGUF model files: a memory-mapped reader.
//
// Every count, length, offset, alignment and size of the file is checked against the file before it
// is used, so that after gguf_open succeeded no accessor can read outside the mapping. Strings and
// tensor data are borrowed from the mapping and live until gguf_close. A gguf_file is immutable
// after gguf_open and may be read by several threads. The file must not be shortened while it is
// open: its pages would vanish.
//
// docs/formats/gguf.md says what is accepted and what is refused.

#include "engine/base/error.h"
#include "engine/weights/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_file gguf_file;

// Numbers are those of the GGUF format.
typedef enum gguf_value_type {
    GGUF_UINT8 = 0,
    GGUF_INT8 = 1,
    GGUF_UINT16 = 2,
    GGUF_INT16 = 3,
    GGUF_UINT32 = 4,
    GGUF_INT32 = 5,
    GGUF_FLOAT32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_UINT64 = 10,
    GGUF_INT64 = 11,
    GGUF_FLOAT64 = 12
} gguf_value_type;

// A borrowed string: not terminated, `size` bytes, may hold any byte.
typedef text_view gguf_string;

// One metadata entry, borrowed from the file.
typedef struct gguf_entry gguf_entry;

// Tensor element types: the engine's numbers are those of the GGUF format. Only these are readable;
// a file with another type opens (inspect can name it) but the tensor's `known` is false.
enum gguf_type {
    GGUF_TYPE_F32 = ELEMENT_F32,
    GGUF_TYPE_F16 = ELEMENT_F16,
    GGUF_TYPE_Q4_0 = ELEMENT_Q4_0,
    GGUF_TYPE_Q4_1 = ELEMENT_Q4_1,
    GGUF_TYPE_Q5_0 = ELEMENT_Q5_0,
    GGUF_TYPE_Q5_1 = ELEMENT_Q5_1,
    GGUF_TYPE_Q8_0 = ELEMENT_Q8_0,
    GGUF_TYPE_Q2_K = ELEMENT_Q2_K,
    GGUF_TYPE_Q3_K = ELEMENT_Q3_K,
    GGUF_TYPE_Q4_K = ELEMENT_Q4_K,
    GGUF_TYPE_Q5_K = ELEMENT_Q5_K,
    GGUF_TYPE_Q6_K = ELEMENT_Q6_K,
    GGUF_TYPE_BF16 = ELEMENT_BF16,
    GGUF_TYPE_MXFP4 = ELEMENT_MXFP4,
};

#define GGUF_MAX_DIMS WEIGHTS_MAX_DIMS

// A tensor; `data` is borrowed from the mapping and aligned as the file says (general.alignment),
// or to a page if that is less.
typedef weights_tensor gguf_tensor;

// Opens and validates a file. A model that is split over several files (split.count) is opened by
// its first one, which must be named "...-00001-of-0000N.gguf", with the others beside it; its
// metadata are those of the first, its tensors those of all. On success *out owns the mapping
// (gguf_close). On failure *out is NULL and *error names the file and the first fault.
KVERN_CHECK kvern_status gguf_open(const char *path, gguf_file **out, engine_error *error);

// The same over memory that the caller keeps alive and unchanged until gguf_close (tests, fuzzing).
// A part of a split model is refused.
// Tensor data is as aligned as the memory is.
KVERN_CHECK kvern_status gguf_open_memory(const void *data, size_t bytes, gguf_file **out,
                                          engine_error *error);

// Releases the mapping. NULL is allowed.
void gguf_close(gguf_file *file);

uint32_t gguf_version(const gguf_file *file);
size_t gguf_file_bytes(const gguf_file *file); // of all parts
size_t gguf_file_parts(const gguf_file *file); // 1, or the files of a split model

// Tells the operating system that these bytes of a tensor's data are not needed any more (they were
// repacked); reading them again stays valid. Does nothing for gguf_open_memory.
void gguf_drop_pages(const gguf_file *file, const void *data, size_t bytes);

// The file as a source of weights, which the file outlives.
weights gguf_weights(const gguf_file *file);

// Metadata. Keys are unique (a file with a repeated key is refused) and printable ASCII. gguf_find
// returns NULL when the key is absent, gguf_entry_at when the index is out of range.
size_t gguf_entry_count(const gguf_file *file);
const gguf_entry *gguf_entry_at(const gguf_file *file, size_t index);
const gguf_entry *gguf_find(const gguf_file *file, const char *key);
gguf_string gguf_entry_key(const gguf_entry *entry);
const char *gguf_value_type_name(uint32_t type); // "uint32"; NULL for any other number

// The value of an entry, whatever it was stored as; absent for NULL. An integer above INT64_MAX is
// a real number.
config_value gguf_entry_value(const gguf_entry *entry);

// Scalar access with conversion. These return false and leave *value alone when the entry is NULL,
// is of another kind (a bool or a float is no integer), or does not fit: a negative number for
// gguf_get_u64, a finite float64 above FLT_MAX for gguf_get_f32. gguf_get_f32 also accepts integers
// and rounds to nearest.
bool gguf_get_u64(const gguf_entry *entry, uint64_t *value);
bool gguf_get_f32(const gguf_entry *entry, float *value);
bool gguf_get_bool(const gguf_entry *entry, bool *value);
bool gguf_get_string(const gguf_entry *entry, gguf_string *value);

// Arrays (of scalars or strings; nested arrays are refused by gguf_open). For anything else, NULL
// included, the count is 0 and the type GGUF_UINT8. Element access takes constant time and converts
// as scalar access does; it returns false for an index out of range.
size_t gguf_array_count(const gguf_entry *entry);
gguf_value_type gguf_array_type(const gguf_entry *entry);
bool gguf_array_string(const gguf_entry *entry, size_t index, gguf_string *value);
bool gguf_array_i64(const gguf_entry *entry, size_t index, int64_t *value);
bool gguf_array_f32(const gguf_entry *entry, size_t index, float *value);
bool gguf_array_bool(const gguf_entry *entry, size_t index, bool *value);

// Tensors, in the file's order. Names are unique and printable ASCII. gguf_find_tensor returns NULL
// when the name is absent, gguf_tensor_at when the index is out of range.
size_t gguf_tensor_count(const gguf_file *file);
const gguf_tensor *gguf_tensor_at(const gguf_file *file, size_t index);
const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name);

#endif
