// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_CLAIM_H
#define KVERN_STORE_CLAIM_H

// What rows count with in the context's store: their tables, pages and lists of ranges, each once,
// however many entries have it. Tables and lists count the rows of entries that have them, and
// pages the tables; so a row whose table is there already costs one look. A table that an entry
// shares does not change: whoever goes on with the row makes one of its own. Under the lock of the
// store.

#include "src/rows/row.h"

typedef struct kvern_claims {
    uint64_t bytes;      // of all of them
    uint64_t page_bytes; // of them pages
} kvern_claims;

void kvern_claim_row(kvern_claims *claims, const kvern_row *row);
void kvern_unclaim_row(kvern_claims *claims, const kvern_row *row);

// What the row would count with if nothing else were there.
uint64_t kvern_claim_most(const kvern_row *row);

#endif
