// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_BLOCK_ROW_H
#define KVERN_ROWS_BLOCK_ROW_H

// A row with a block of new positions behind its own, for the length of a read
// (kvern_cache_read_block). It retains the row's pages; its table, and the pages that the block is
// written to, lie in memory that the caller lays it out in. So nothing is taken from the heap or a
// pool for it, and the row's table stays the row's alone.

#include "src/rows/row.h"

// Bytes of a block row, a multiple of KVERN_HEAP_ALIGNMENT; `count` > 0. They do not grow from one
// block of equal length to the next while the row's table stays as large. False: they do not fit.
bool kvern_block_row_bytes(const kvern_pool *pool, const kvern_row *row, int64_t count,
                           size_t *bytes);

// Lays out a block row of `from`, whose pages are of that pool, in `memory`, which is aligned to
// KVERN_HEAP_ALIGNMENT. *out has the length of `from` and is open for `count` more positions
// (kvern_row_extend).
void kvern_block_row_make(kvern_pool *pool, const kvern_row *from, int64_t count, void *memory,
                          kvern_row *out);

// Lets go of the pages of `from`, when nobody reads the table any more; the memory is the caller's.
void kvern_block_row_end(kvern_table *table);

#endif
