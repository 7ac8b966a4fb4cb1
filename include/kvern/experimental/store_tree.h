// SPDX-License-Identifier: MIT
#ifndef KVERN_EXPERIMENTAL_STORE_TREE_H
#define KVERN_EXPERIMENTAL_STORE_TREE_H

// Experimental: this may change or go in any release (kvern/kvern.h).
//
// What a store holds, for people who look at it: the tree of its entries' tokens.
//
//     kvern_store_node nodes[256];
//     int32_t tokens[256 * 16];
//     kvern_store_list(store, &key, composition, nodes, 256, tokens, 16, &count, &whole);

#include <kvern/store.h>

#ifdef __cplusplus
extern "C" {
#endif

// A stretch of tokens: those that entries have in common behind the parent's, or the last ones of
// an entry. Siblings differ in their first token.
typedef struct kvern_store_node {
    int64_t parent;     // index of the node whose tokens lie in front; -1: none
    int64_t begin, end; // positions of the stretch
    // Prompts whose longest prefix in the store ended in this stretch. Where a stretch is cut in
    // two, those that did not reach its end are the first one's.
    uint64_t hits;
    // Of the entry that ends with the stretch:
    int64_t floor; // the fewest positions that it serves (kvern/store.h); -1: no entry ends here
    uint64_t age;  // uses of the store since it was used last
    uint64_t pins; // hits that hold it now
} kvern_store_node;

// Lists the stretches of the entries under a key, of the layers of a composition, every one behind
// its parent, siblings in the order of their tokens. nodes: [room]; tokens: [room, excerpt], the
// first tokens of each stretch, as far as it has so many; what is not listed is left as it is.
// *count is how many are listed, *whole whether these are all. Takes no memory and is no use of the
// store. Other calls wait meanwhile, so a large room is for tests. On failure nothing changed.
// Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (a key that is too large).
KVERN_API KVERN_CHECK kvern_status kvern_store_list(kvern_store *store, const kvern_store_key *key,
                                                    const kvern_composition *composition,
                                                    kvern_store_node *nodes, size_t room,
                                                    int32_t *tokens, size_t excerpt, size_t *count,
                                                    bool *whole);

#ifdef __cplusplus
}
#endif

#endif
