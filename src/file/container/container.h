// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_CONTAINER_H
#define KVERN_FILE_CONTAINER_H

// The container (docs/formats/container.md): rows of a state in a safetensors file.
//
//     save.c            rows to a file: page_numbers.c says which pages, page_content.c what is in
//                       them
//     open.c            a file's structure, and everything in it but pages
//     identity.c        whose rows they are
//     verify.c          checksums of pages; page_sum.h computes them
//     load.c            rows of a file, in a state
//     layers.c          the composition that a file's signatures say
//
// Its tensors, in the order of their data:
//
//     pages.L, pages.L.first    U8 [pages, bytes]: of layer L, in the planned codecs and in bf16
//     snapshots                 I64 [snapshots, 2]: row and position; first all rows, then
//                               checkpoints, the oldest first
//     records                   I64 [sets, snapshots, 8]: what is in each set of rows
//     ranges, flags             I64 [ranges, 2], U64: positions that see each other both ways
//     page_sums                 U64: of each page
//     tables                    U32: numbers of pages, record by record
//     tokens                    I32: row by row
//     sum                       U64 [1]: of the header and all tensors from `snapshots` on

#include "src/file/disk/atomic_file.h"
#include "src/file/safetensors/reader.h"
#include "src/state/state.h"

#include <kvern/file.h>

#define KVERN_CONTAINER_FORMAT "kvern-cache"
#define KVERN_CONTAINER_ALIGNMENT 4096

// A record, by columns of the tensor.
typedef enum kvern_record_field {
    KVERN_RECORD_LENGTH, // the row's, as the following ones (src/rows/row.h)
    KVERN_RECORD_HELD,
    KVERN_RECORD_FLOOR,
    KVERN_RECORD_BOUNDARY,
    KVERN_RECORD_CONVERTED, // 0 or 1
    KVERN_RECORD_PAGES,     // of it in `tables`
    KVERN_RECORD_RANGES,    // in `ranges`
    KVERN_RECORD_FLAGS,     // in `flags`
    KVERN_RECORD_FIELDS
} kvern_record_field;

// Whether the machine stores numbers as files do: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_container_check_machine(void);

// ---- What a row's pages are, from its layer ----

// One set of rows of a layer: the rows themselves, or the coded ones of a layer that keeps some
// positions precise.
typedef struct kvern_row_set {
    const kvern_planned_layer *layer;
    bool coded;
} kvern_row_set;

kvern_row_set kvern_row_set_of(const kvern_composition *composition, size_t set);

// Whether pages of such a row are of the layer's first form.
bool kvern_row_set_is_first(const kvern_row_set *set, bool converted);

// Positions that stay in front when a window has passed others.
int64_t kvern_row_set_keep(const kvern_row_set *set);

// Which of a row's pages there are: [0, kept) and [kept + gap, end).
typedef struct kvern_page_span {
    size_t kept, gap, end;
} kvern_page_span;

kvern_page_span kvern_row_set_span(const kvern_row_set *set, int64_t length, int64_t held);

static inline size_t kvern_page_span_count(const kvern_page_span *span)
{
    return span->end - span->gap;
}

// The row's number of page number `index` of those.
static inline size_t kvern_page_span_at(const kvern_page_span *span, size_t index)
{
    return index < span->kept ? index : index + span->gap;
}

// ---- An open file ----

// One tensor of pages.
typedef struct kvern_file_pages {
    const unsigned char *data; // NULL: there are none
    size_t count, page_bytes;
    size_t first_sum; // in page_sums
} kvern_file_pages;

typedef struct kvern_file_record {
    const int64_t *fields;     // [KVERN_RECORD_FIELDS]
    size_t table, range, flag; // where its pages, ranges and flags begin
} kvern_file_record;

struct kvern_file {
    kvern_context *context;
    char *path;
    kvern_safetensors tensors;
    size_t layers, rows, snapshot_count, sets;
    const int64_t *snapshots; // [snapshots][2]
    const uint32_t *tables;
    const int64_t *ranges; // [][2]
    const uint64_t *flags;
    const int32_t *tokens; // or NULL
    const uint64_t *sums;
    kvern_file_pages *pages;    // [layers][planned, first]
    kvern_file_record *records; // [sets][snapshots]
    uint64_t pages_in_all, page_bytes_in_all;
};

// The same as kvern_file_open over memory that the caller keeps, aligned to 4096 bytes, until file
// and rows have gone.
KVERN_CHECK kvern_status kvern_file_open_memory(kvern_context *context, const void *data,
                                                size_t bytes, kvern_file **out);

// The same as kvern_file_save by other calls of the system; NULL: its own.
KVERN_CHECK kvern_status kvern_file_save_by(const kvern_disk_calls *calls, const kvern_state *state,
                                            const kvern_file_content *content, const char *path);

// The same with a remark, which bears on nothing: metadata "note." and `name`.
KVERN_CHECK kvern_status kvern_file_save_noted(const kvern_disk_calls *calls,
                                               const kvern_state *state,
                                               const kvern_file_content *content, const char *name,
                                               const char *note, const char *path);

// Where the bytes of a container go that is not to be a file, in order. `data` NULL: zeros. A page
// comes in one call, which `page` tells; the rest in any number.
typedef struct kvern_container_sink {
    void *user;
    kvern_status (*put)(void *user, const void *data, size_t bytes, bool page);
} kvern_container_sink;

// The same to a sink, whose errors are the call's.
KVERN_CHECK kvern_status kvern_file_save_to(const kvern_container_sink *sink,
                                            const kvern_state *state,
                                            const kvern_file_content *content, const char *name,
                                            const char *note);

// A remark of a file; NULL: there is none of that name.
const char *kvern_file_note(const kvern_file *file, const char *name);

static inline const int64_t *kvern_file_snapshot(const kvern_file *file, size_t snapshot)
{
    return file->snapshots + 2 * snapshot;
}

static inline const kvern_file_record *kvern_file_record_of(const kvern_file *file, size_t set,
                                                            size_t snapshot)
{
    return &file->records[set * file->snapshot_count + snapshot];
}

// Compares pages with their checksums; `layer` and `first` name them.
KVERN_CHECK kvern_status kvern_file_check_page(const kvern_file *file, size_t layer, bool first,
                                               size_t page);

#define KVERN_NOTE "note."

// ---- Identity: metadata "identity.model", ..., "identity.user.NAME" ----

#define KVERN_IDENTITY "identity."

// Reads what the caller says. Errors: KVERN_ERR_ARGUMENT.
KVERN_CHECK kvern_status kvern_identity_read(const kvern_file_identity *given,
                                             kvern_file_identity *known);

// Calls `visit` for every statement with its key in the metadata.
KVERN_CHECK kvern_status kvern_identity_each(const kvern_file_identity *identity,
                                             kvern_status (*visit)(void *user, const char *key,
                                                                   const char *value),
                                             void *user);

// Whether a file says the same: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status kvern_identity_check(const kvern_file *file,
                                              const kvern_file_identity *wanted);

// ---- Saving ----

// Which pages are written, and under which number.
typedef struct kvern_numbered_page {
    kvern_page *page;
    uint64_t slots; // that hold a position of some row
} kvern_numbered_page;

typedef struct kvern_page_numbers {
    kvern_heap *heap;
    kvern_numbered_page *list; // in the order in which pages were added
    size_t count, capacity;
    uint32_t *slots; // a hash table of numbers in `list`, plus 1; 0: free
    size_t slot_count;
} kvern_page_numbers;

// Room for `most` pages.
KVERN_CHECK kvern_status kvern_page_numbers_create(kvern_heap *heap, size_t most,
                                                   kvern_page_numbers *out);
void kvern_page_numbers_free(kvern_page_numbers *numbers); // all zero is allowed

// Its number in the list; a page that is not there is added. The slots are those of all calls.
size_t kvern_page_numbers_add(kvern_page_numbers *numbers, kvern_page *page, uint64_t slots);
size_t kvern_page_numbers_find(const kvern_page_numbers *numbers, const kvern_page *page);

// The content of a page whose given slots hold positions, with zeros elsewhere: the page itself,
// or `scratch`, which has room for one.
const void *kvern_page_content(const kvern_planned_layer *layer, const kvern_geometry *geometry,
                               const kvern_page *page, uint64_t slots, void *scratch);

#endif
