// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_REMOTE_MANIFEST_H
#define KVERN_STORE_REMOTE_MANIFEST_H

// The value of an entry (docs/formats/remote_store.md): a container without its pages, and for each
// page where it lies in the container and the hash of what it holds. What is neither is zeros.

#include "src/base/heap.h"

#include <stdbool.h>

#define KVERN_MANIFEST_MOST_BLOCK ((size_t)256 << 20)
#define KVERN_MANIFEST_MOST_BYTES ((uint64_t)1 << 40) // of a container

typedef struct kvern_manifest_block {
    uint64_t offset; // in the container
    uint64_t bytes;
    uint64_t low, high; // XXH3, 128 bits
} kvern_manifest_block;

typedef struct kvern_manifest_piece {
    uint64_t offset, bytes; // in the container; in the manifest one behind the other
} kvern_manifest_piece;

typedef struct kvern_manifest {
    kvern_heap *heap;
    uint64_t container_bytes;
    kvern_manifest_piece *pieces;
    size_t piece_count, piece_room;
    kvern_manifest_block *blocks;
    size_t block_count, block_room;
    unsigned char *literals;
    size_t literal_bytes, literal_room;
} kvern_manifest;

// An empty one, to which a container is added from its beginning on.
void kvern_manifest_begin(kvern_heap *heap, kvern_manifest *out);
void kvern_manifest_free(kvern_manifest *manifest); // all zero is allowed

// Adds the next bytes of the container: a page, others, or zeros (data NULL). Errors:
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET, KVERN_ERR_RANGE (a page above KVERN_MANIFEST_MOST_BLOCK, a
// container above KVERN_MANIFEST_MOST_BYTES).
KVERN_CHECK kvern_status kvern_manifest_add(kvern_manifest *manifest, const void *data,
                                            size_t bytes, bool page);

// Writes it as a value, which the caller gives back to the heap with `*bytes`. Errors:
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET, KVERN_ERR_OVERFLOW.
KVERN_CHECK kvern_status kvern_manifest_write(const kvern_manifest *manifest, void **value,
                                              size_t *bytes);

// Reads a value: whatever it holds, pieces and blocks lie in the container, ascend, and do not
// overlap. On failure *out is empty. Errors: KVERN_ERR_FORMAT, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_manifest_read(kvern_heap *heap, const void *value, size_t bytes,
                                             kvern_manifest *out);

// The container without its pages, whose bytes are left as they are.
void kvern_manifest_spread(const kvern_manifest *manifest, unsigned char *container);

// The hash of a page.
void kvern_manifest_hash(const void *data, size_t bytes, kvern_manifest_block *block);

uint64_t kvern_manifest_block_bytes(const kvern_manifest *manifest); // of all blocks

// Bytes of its value; false: they do not fit memory.
bool kvern_manifest_value_bytes(const kvern_manifest *manifest, size_t *bytes);

#endif
