// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_ROW_BLOCK_H
#define KVERN_STATE_ROW_BLOCK_H

// The memory that the rows of a cache lie in, or those of all caches of a state: one block, so that
// rows come and go at the cost of one allocation for all layers.

#include "src/state/cache.h"

// Makes a block for `caches` caches of `rows` rows, all zero.
KVERN_CHECK kvern_status kvern_row_block_create(kvern_heap *heap, size_t caches, size_t rows,
                                                kvern_row_block *out);
void kvern_row_block_free(kvern_heap *heap, kvern_row_block *block);

// Points cache number `index` of those that share the block to its arrays.
void kvern_row_block_place(const kvern_row_block *block, size_t index, kvern_cache *cache);

// Makes room for `rows` rows in the caches that share caches[0].block. What they hold stays; on
// failure nothing changed.
KVERN_CHECK kvern_status kvern_row_block_grow(kvern_cache *caches, size_t rows);

#endif
