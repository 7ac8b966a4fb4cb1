// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GGUF_INTERNAL_H
#define KVERN_ENGINE_GGUF_INTERNAL_H

// What the parts of the GGUF reader share; the rest of the engine includes engine/gguf/gguf.h only.
//
//   gguf.c           opening, closing, lookup
//   gguf_cursor.c    bounds-checked reading, error sentences
//   gguf_metadata.c  the metadata section
//   gguf_tensors.c   tensor descriptions and where their data lies
//   gguf_split.c     models in several files
//   gguf_values.c    value types and the access to values
//   gguf_weights.c   the file as a source of weights

#include "engine/base/mapped_file.h"
#include "engine/gguf/gguf.h"
#include "engine/weights/name_index.h"

// The smallest number of bytes that one item can take in a file. A count is compared with the bytes
// left divided by this before anything of that count is allocated.
#define GGUF_MIN_STRING_BYTES 8  // a length of zero
#define GGUF_MIN_ENTRY_BYTES 14  // key length, a key of one byte, type, a value of one byte
#define GGUF_MIN_TENSOR_BYTES 33 // name length, a name of one byte, dims, one dim, type, offset

#define GGUF_DEFAULT_ALIGNMENT 32
#define GGUF_MIN_ALIGNMENT 8
#define GGUF_MAX_ALIGNMENT 65536
#define GGUF_MAX_KEY_BYTES 65535
#define GGUF_MAX_TENSOR_NAME_BYTES 64

struct gguf_entry {
    gguf_string key; // first: name_index points at it
    gguf_value_type type;
    gguf_value_type element;    // of an array
    size_t count;               // of an array, otherwise 0
    const unsigned char *value; // the number, the string's length, or the array's first element
    uint32_t *string_starts;    // array of strings: where each begins, in bytes after `value`
};

// A tensor with what its checks need and its users do not.
typedef struct gguf_placed_tensor {
    gguf_tensor tensor;    // first, and its name is first in it: name_index points at it
    uint64_t offset;       // in the data section
    size_t description_at; // where in the file the tensor is described, for error sentences
} gguf_placed_tensor;

struct gguf_file {
    mapped_file file;
    uint32_t version;
    size_t alignment;
    gguf_entry *entries;
    size_t entry_count;
    name_index entry_names;
    gguf_placed_tensor *tensors; // of all parts
    size_t tensor_count;
    name_index tensor_names;
    gguf_file **parts; // of a split model, those after the first, owned
    size_t part_count;
};

// Where the reader is, and what it is reading: the latter goes into error sentences.
typedef struct gguf_cursor {
    const unsigned char *data;
    size_t bytes;
    size_t at;
    const char *file_name;
    const char *item_kind; // "metadata entry" or "tensor"; NULL in the header
    size_t item_index;
    gguf_string item_name; // size 0 while it is not known
    engine_error *error;
} gguf_cursor;

// Fills the cursor's error with "file: item: <message> (at byte N)" and returns `status`.
KVERN_CHECK kvern_status gguf_fail(const gguf_cursor *cursor, kvern_status status, size_t at,
                                   const char *format, ...) __attribute__((format(printf, 4, 5)));

// The next item of a section: forgets the name of the one before.
void gguf_cursor_begin_item(gguf_cursor *cursor, const char *kind, size_t index);

// Read what comes next and move on; `what` names it in the error when the file ends before.
KVERN_CHECK kvern_status gguf_take(gguf_cursor *cursor, uint64_t bytes, const char *what,
                                   const unsigned char **start);
KVERN_CHECK kvern_status gguf_take_u32(gguf_cursor *cursor, const char *what, uint32_t *value);
KVERN_CHECK kvern_status gguf_take_u64(gguf_cursor *cursor, const char *what, uint64_t *value);
KVERN_CHECK kvern_status gguf_take_string(gguf_cursor *cursor, const char *what,
                                          gguf_string *value);

// A key or tensor name: 1 to `max_bytes` printable ASCII characters, so that it can be looked up by
// a C string and printed to a terminal as it is. It becomes the name of the cursor's item.
KVERN_CHECK kvern_status gguf_take_name(gguf_cursor *cursor, const char *what, size_t max_bytes,
                                        gguf_string *value);

// A count of items that take at least `min_bytes` each: refused when the file cannot hold so many.
KVERN_CHECK kvern_status gguf_take_count(gguf_cursor *cursor, const char *what, size_t min_bytes,
                                         size_t *count);

// Parse a section into the file. What they allocated before a failure belongs to the file all the
// same.
KVERN_CHECK kvern_status gguf_parse_metadata(gguf_cursor *cursor, gguf_file *file);
KVERN_CHECK kvern_status gguf_parse_tensors(gguf_cursor *cursor, gguf_file *file);

// Opens a file by itself, as part of a split model too.
KVERN_CHECK kvern_status gguf_open_part(const char *path, gguf_file **out, engine_error *error);

// Opens the other parts of a split model beside its first, which `path` names (NULL: memory), and
// takes their tensors. Leaves a model in one file alone.
KVERN_CHECK kvern_status gguf_join_parts(gguf_file *file, const char *path, engine_error *error);

// Bytes of a number or bool of this type in the file; 0 for strings, arrays and unknown types.
size_t gguf_scalar_bytes(uint32_t type);

#endif
