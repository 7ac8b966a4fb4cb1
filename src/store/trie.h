// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_TRIE_H
#define KVERN_STORE_TRIE_H

// A trie of words: a tree whose edges are runs of words, each of which differs from its siblings in
// its first one. Items lie at the ends of edges. An item serves every prefix of its words down to
// its floor; every node knows the least floor at and below it, so that the item with the longest
// prefix that it may serve is found on one way down.
//
// Children of a node are a search tree of their own, in the nodes themselves (a treap: its shape
// follows from random ranks). So an item takes two nodes and one block of words at most, which are
// made before, and taking it out takes no memory. Runs lie in blocks that nodes share: an edge that
// is cut in two has two runs of one block, and is whole again when the cut is not needed any more.
//
// Nothing here allocates or frees but the calls that say so: a trie may be changed under a lock.

#include "src/base/heap.h"
#include "src/store/key.h"

#define KVERN_NO_FLOOR SIZE_MAX

typedef struct kvern_trie_node kvern_trie_node;

typedef struct kvern_token_block {
    size_t references; // nodes whose runs lie in it
    size_t count;
    struct kvern_token_block *next; // among what is left over
    int32_t words[];
} kvern_token_block;

typedef struct kvern_trie_item {
    kvern_trie_node *node; // where it lies; NULL: nowhere
    size_t floor;          // the least number of its words that it serves
} kvern_trie_item;

struct kvern_trie_node {
    kvern_trie_node *parent, *children; // the latter by their treap's root
    kvern_trie_node *left, *right;      // in the treap of its siblings
    uint64_t rank;                      // there
    kvern_token_block *block;
    const int32_t *run; // the edge that leads to it
    size_t count;
    size_t end; // words from the root to here
    kvern_trie_item *item;
    size_t holds;        // of those who are about to put something here
    uint64_t hits;       // lookups whose longest prefix ended here,
    uint64_t inner_hits; // or on the edge that leads here
    size_t least;        // floor at and below it
    size_t least_beside; // in its part of the treap
};

// What was taken out, to be freed.
typedef struct kvern_trie_rest {
    kvern_trie_node *nodes; // through parent
    kvern_token_block *blocks;
} kvern_trie_rest;

typedef struct kvern_trie {
    kvern_trie_node root; // without an edge
    uint64_t random;
    uint64_t bytes; // of nodes and blocks
} kvern_trie;

// Where a key leaves the trie.
typedef struct kvern_trie_place {
    kvern_trie_node *node; // the last one of whose run something is in common
    size_t matched;        // words in common
    kvern_trie_node *best; // items at or below it have the longest prefix that may be served; NULL
    size_t served;         // words of it
} kvern_trie_place;

// What putting an item may need; what is not needed stays.
typedef struct kvern_trie_parts {
    kvern_trie_node *leaf, *branch;
    kvern_token_block *block;
} kvern_trie_parts;

void kvern_trie_init(kvern_trie *trie, uint64_t seed);

// Goes down as far as the key goes. `most`: words that may be served at most.
kvern_trie_place kvern_trie_find(kvern_trie *trie, const kvern_key *key, size_t most);

// The first item at or below a node, in the order of their words, whose floor is not above `most`.
// There is one.
kvern_trie_item *kvern_trie_pick(kvern_trie_node *node, size_t most);

// The first child by its first word, and the node's next sibling; NULL: there is none. The root has
// no siblings.
const kvern_trie_node *kvern_trie_first_child(const kvern_trie_node *node);
const kvern_trie_node *kvern_trie_next_sibling(const kvern_trie_node *node);

// A node stays, and with it all that leads there, until it is let go.
void kvern_trie_hold(kvern_trie_node *node);
void kvern_trie_let_go(kvern_trie *trie, kvern_trie_node *node, kvern_trie_rest *rest);

// Puts an item at the end of a key, where none lies. The parts' block has as many of the key's last
// words as are not in the trie, or more.
void kvern_trie_put(kvern_trie *trie, const kvern_key *key, kvern_trie_item *item,
                    kvern_trie_parts *parts);

// Puts an item where another one lies.
void kvern_trie_exchange(kvern_trie_item *item, kvern_trie_item *other);

// Takes an item out, with what leads nowhere then.
void kvern_trie_take_out(kvern_trie *trie, kvern_trie_item *item, kvern_trie_rest *rest);

// What parts for `words` new words take.
uint64_t kvern_trie_parts_bytes(size_t words);

// Makes parts with the key's last `words` words; all or none.
KVERN_CHECK kvern_status kvern_trie_parts_make(kvern_heap *heap, const kvern_key *key, size_t words,
                                               kvern_trie_parts *parts);
void kvern_trie_parts_free(kvern_heap *heap, kvern_trie_parts *parts);
void kvern_trie_rest_free(kvern_heap *heap, kvern_trie_rest *rest);

// The first thing about a trie that does not hold, in words; NULL: all is well. Goes through all of
// it, for tests.
const char *kvern_trie_walk(const kvern_trie *trie);

#endif
