// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_WHY_H
#define KVERN_STORE_WHY_H

// Reasons (kvern_store_why): of stores in memory and on disk.

#include "src/state/kept_row.h"
#include "src/store/trie.h"

// Why a row serves nothing below its floor, which is `floor` and comes from `layer`
// (kvern_row_source_floor).
kvern_store_why kvern_store_why_floor(const kvern_row_source *source,
                                      const kvern_planned_layer *layer, int64_t floor);

// Why nothing longer serves a prompt, which leaves the trie at `place`: where the tokens end that
// it has in common with entries. `layout`: that of its layers is known. `most`: words that may be
// served at most. `why_of` says why an item serves nothing below its floor.
kvern_store_why kvern_store_why_no_more(const kvern_key *key, bool layout,
                                        const kvern_trie_place *place, size_t most,
                                        kvern_store_why (*why_of)(const kvern_trie_item *item));

#endif
