// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_SHARING_H
#define KVERN_ATTEND_SHARING_H

// Which rows of an attend share pages, so that their query vectors can meet a page together.
//
// Rows that were forked from one prefix have tables of their own as soon as they differ, with the
// same pages in front. A page is shared only by rows whose pages before it are the same too, so
// two rows are compared in a few steps however long they are, and sorting the rows by their pages
// makes neighbours of those that share the most. Nothing depends on this being complete: whether
// two rows have the same page is asked again at every block.

#include "src/attend/tile.h"

// Lists the rows that have queries, those that share pages beside each other, and says how many
// there are. `order` and `spare` have room for all rows of the view.
size_t kvern_sharing_order(const kvern_attend_job *job, uint32_t *order, uint32_t *spare);

// How many of the `count` listed rows, from the first on, go into one tile: rows that share pages,
// with all of their vectors, as far as a tile has room for them. At least 1.
size_t kvern_sharing_together(const kvern_attend_job *job, const uint32_t *order, size_t count);

#endif
