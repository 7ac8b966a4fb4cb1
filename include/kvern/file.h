// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_H
#define KVERN_FILE_H

// Rows of a state in a file, and back: for every kind of layer and every storage, with what can be
// trimmed, reused and gone back to. A row that was loaded continues as if it had never been saved,
// bit for bit.
//
//     kvern_file_content content = kvern_file_content_default();
//     content.tokens = tokens;                             tokens[i]: those of row i
//     content.identity = &identity;                        whose rows they are
//     kvern_file_save(state, &content, "prompt.kv");
//
//     kvern_file_open(context, "prompt.kv", &file);
//     kvern_state_create(composition, 0, &state);          without rows: a load adds those it has
//     kvern_file_load(file, NULL, state);                  new rows behind those that there are
//     kvern_file_close(file);                              the rows stay
//
// A file is a safetensors file (docs/formats/container.md), so that any tool can look inside. Its
// pages are mapped: a load takes no longer than making their tables, reads nothing, and shares the
// memory with all processes that have loaded the file. A row that writes to such a page copies it
// first. Mapped pages are the system's memory: they count in kvern_state_bytes, but in no budget
// and not in kvern_context_memory.
//
// A file appears under its name when it is whole and on the disk; what was there before stays until
// then, also when the process is killed or the disk is full. It can be read and written by its
// owner alone. Files are replaced, never changed, so rows that lie in the old one keep it. Whoever
// cuts a mapped file short ends the processes that read it (SIGBUS).
//
// These functions are there when the library was built with KVERN_FILES (docs/building.md). They
// need a little-endian machine, and refuse any other (KVERN_ERR_UNSUPPORTED).
//
// Thread rule: an open file never changes and may be used by several threads at once; saving reads
// its state, and loading changes it. jansson, which reads and writes headers, takes its memory from
// the C library: up to some times the header's 16 MiB at most, and usually some tens of KiB.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of the format that is written, and the newest that is read.
#define KVERN_FILE_VERSION 1

// ---- Whose rows they are ----

// A fact of the caller's: what else must be the same for rows to be used again.
typedef struct kvern_file_key {
    const char *name;  // UTF-8, 1 to 256 bytes, no two alike
    const char *value; // UTF-8, up to 65536 bytes
} kvern_file_key;

// What the rows were made with, in the caller's words. The library compares them, and knows nothing
// more of them. NULL is no statement; it differs from every string. All is borrowed for the call.
typedef struct kvern_file_identity {
    size_t size;                // sizeof(kvern_file_identity); set by the default
    const char *model;          // a fingerprint of the weights
    const char *rope;           // parameters of the rotary embedding: keys are stored rotated
    const char *adapter;        // what was added to the weights
    const char *media;          // images and sounds among the tokens: a fingerprint of all of them
    const kvern_file_key *keys; // anything else
    size_t key_count;           // at most 64
} kvern_file_identity;

// Writes the defaults, no statement, to `size` bytes, sizeof(kvern_file_identity) of the caller.
KVERN_API void kvern_file_identity_init(kvern_file_identity *identity, size_t size);

// The same as a value.
static inline kvern_file_identity kvern_file_identity_default(void)
{
    kvern_file_identity identity;
    kvern_file_identity_init(&identity, sizeof identity);
    return identity;
}

// ---- Saving ----

// What of a state is saved. All is borrowed for the call.
typedef struct kvern_file_content {
    size_t size;        // sizeof(kvern_file_content); set by the default
    const size_t *rows; // row i of the file is row rows[i]; NULL: all rows
    size_t row_count;   // entries of `rows`; not looked at when that is NULL
    // tokens[i] has as many tokens as row i of the file has positions; NULL: none are saved.
    const int32_t *const *tokens;
    const kvern_file_identity *identity; // NULL: no statement
    // 1: without the checkpoints of the rows (kvern/checkpoint.h), which are saved otherwise.
    uint32_t without_checkpoints;
    uint32_t reserved; // 0
} kvern_file_content;

// Writes the defaults to `size` bytes, sizeof(kvern_file_content) of the caller: all rows with
// their checkpoints, no tokens.
KVERN_API void kvern_file_content_init(kvern_file_content *content, size_t size);

// The same as a value.
static inline kvern_file_content kvern_file_content_default(void)
{
    kvern_file_content content;
    kvern_file_content_init(&content, sizeof content);
    return content;
}

// Writes rows to the file `path`, in place of what was there. Pages that rows or checkpoints share
// are written once; room, reserved or not, is not. The same rows, saved by the same library, give
// the same bytes. `content` NULL: the defaults. A symbolic link at `path` is replaced, not
// followed. Takes memory for the page numbers and a buffer of 1 MiB. On failure the state and what
// was at `path` are unchanged, unless the detail says that only the directory could not be synced:
// then the new file is there. Errors: KVERN_ERR_ARGUMENT (NULL, strings that are too long or not
// UTF-8, a key that is there twice, a size or a reserved word), KVERN_ERR_RANGE (a row; a header
// above 16 MiB), KVERN_ERR_BUSY (a step or a round is open), KVERN_ERR_IO, KVERN_ERR_UNSUPPORTED
// (the machine), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_file_save(const kvern_state *state,
                                                   const kvern_file_content *content,
                                                   const char *path);

// ---- Looking inside ----

typedef struct kvern_file kvern_file;

// Opens a file, and checks everything but the content of pages: its structure, sizes, the facts of
// every row, and the checksum of all that. Files are trusted no further: whatever a file holds, no
// call reads outside of it. On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_IO,
// KVERN_ERR_FORMAT (it is no such file, it is damaged, or it contradicts itself: the detail says
// where), KVERN_ERR_UNSUPPORTED (another version, which is named, or something that this library
// does not know; the machine), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_file_open(kvern_context *context, const char *path,
                                                   kvern_file **out);

// Rows that were loaded from it stay. NULL is allowed.
KVERN_API void kvern_file_close(kvern_file *file);

// What a file is. An older library leaves 0 in what it does not know.
typedef struct kvern_file_facts {
    size_t size;         // sizeof(kvern_file_facts); set by the default
    uint64_t version;    // of the format
    uint64_t file_bytes; // all of it
    uint64_t page_bytes; // of it, pages
    uint64_t pages;
    size_t layers;
    size_t rows;
    size_t checkpoints; // of all rows
    size_t keys;        // of its identity: kvern_file_identity_at
} kvern_file_facts;

// Makes *facts ready to be filled: its size, which is `size`, sizeof(kvern_file_facts) of the
// caller, and zeros.
KVERN_API void kvern_file_facts_init(kvern_file_facts *facts, size_t size);

// The same as a value.
static inline kvern_file_facts kvern_file_facts_default(void)
{
    kvern_file_facts facts;
    kvern_file_facts_init(&facts, sizeof facts);
    return facts;
}

// Fills *facts, whose size must be set. On failure it is unchanged. Errors: KVERN_ERR_ARGUMENT.
KVERN_API KVERN_CHECK kvern_status kvern_file_get_facts(const kvern_file *file,
                                                        kvern_file_facts *facts);

// Positions of a row; -1 for a row out of range.
KVERN_API int64_t kvern_file_length(const kvern_file *file, size_t row);

// The tokens of a row, one for each position, in the file's memory: they are there until it is
// closed. NULL when none were saved, the row is empty, or it is out of range.
KVERN_API const int32_t *kvern_file_tokens(const kvern_file *file, size_t row);

// Writes the positions of a row's checkpoints, the largest first, as far as `capacity` goes, and
// returns how many there are; 0 for a row out of range.
KVERN_API size_t kvern_file_checkpoints(const kvern_file *file, size_t row, int64_t *positions,
                                        size_t capacity);

// The signature of a layer (kvern_composition_signature): rows can be loaded where all layers have
// the same. NULL for a layer out of range. The string is there until the file is closed.
KVERN_API const char *kvern_file_signature(const kvern_file *file, size_t layer);

// The composition that the signatures say, in the file's context, for programs without a model: its
// states load all rows of the file (kvern_state_create with 0 rows, then kvern_file_load). What no
// signature says is as kvern/composition.h makes layers: the slack of recurrent ones. On success
// *out holds one reference; on failure it is NULL. Errors: KVERN_ERR_ARGUMENT,
// KVERN_ERR_UNSUPPORTED (a layer that this library does not know: the detail names it and its
// signature), those of kvern_composition_create.
KVERN_API KVERN_CHECK kvern_status kvern_file_composition(const kvern_file *file,
                                                          kvern_composition **out);

// A statement of the identity: `name` is "model", "rope", "adapter", "media", or "user." and the
// name of a key. NULL: it was not made. The string is there until the file is closed.
KVERN_API const char *kvern_file_identity_of(const kvern_file *file, const char *name);

// Statement number `index` of the identity, and its name as above; NULL when there are not as many.
KVERN_API const char *kvern_file_identity_at(const kvern_file *file, size_t index,
                                             const char **name);

// Reads all pages, on the context's threads, and compares their checksums. Errors: KVERN_ERR_FORMAT
// (the detail names the first page that is not what was saved), KVERN_ERR_ARGUMENT.
KVERN_API KVERN_CHECK kvern_status kvern_file_verify(const kvern_file *file);

// ---- Loading ----

// How rows are loaded. All is borrowed for the call.
typedef struct kvern_file_load_options {
    size_t size;        // sizeof(kvern_file_load_options); set by the default
    const size_t *rows; // of the file, in this order; NULL: all rows
    size_t row_count;   // entries of `rows`; not looked at when that is NULL
    // What the rows must have been made with: every statement must be the same in the file, and be
    // missing where it is missing. NULL: it is not compared.
    const kvern_file_identity *identity;
    // 1: pages are copied to memory of the context's, under its budget, and verified on the way.
    // 0: they are mapped.
    uint32_t copy;
    uint32_t verify;       // 1: pages that are mapped are verified first, all pages of the file
    uint32_t reserved;     // 0
    uint32_t reserved_too; // 0
} kvern_file_load_options;

// Writes the defaults to `size` bytes, sizeof(kvern_file_load_options) of the caller: all rows,
// mapped, not verified, no identity.
KVERN_API void kvern_file_load_options_init(kvern_file_load_options *options, size_t size);

// The same as a value.
static inline kvern_file_load_options kvern_file_load_options_default(void)
{
    kvern_file_load_options options;
    kvern_file_load_options_init(&options, sizeof options);
    return options;
}

// Adds the rows to a state, behind those that it has, as kvern_state_join would: with their
// checkpoints, as far as the state's budget for these goes. Its layers must be those of the file:
// each has the signature that the file says. A state of 0 rows (kvern_state_create) then has those
// of the file alone. `options` NULL: the defaults. A page that is damaged
// and was not verified gives wrong numbers, never a wrong access. On failure the state is
// unchanged. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (a row; too many rows), KVERN_ERR_BUSY (a
// step or a round is open), KVERN_ERR_UNSUPPORTED (another number of layers; a layer's signature:
// the detail names the layer and both; a statement of the identity: the detail names it; the state
// is of another context than the file), KVERN_ERR_FORMAT (a page whose checksum is wrong; rows that
// contradict what their layers are), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_file_load(const kvern_file *file,
                                                   const kvern_file_load_options *options,
                                                   kvern_state *state);

#ifdef __cplusplus
}
#endif

#endif
