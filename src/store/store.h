// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_STORE_H
#define KVERN_STORE_STORE_H

// The inside of a store: an index of entries (src/store/trie.h), the order in which they go, and
// the bytes that they count with (src/store/claim.h).
//
// One lock guards all of it, and the counts in tables and pages. Nothing is allocated, freed or
// shared under it, so that an allocator may call the store, and so that a lookup waits for no
// memory. So whatever is taken out under the lock goes to a list (kvern_store_rest) that is freed
// after it; and what is to be put in is booked under the lock, made without it, and put in.
//
// The row of an entry does not change from its publication to its end, and a pinned entry does not
// end: it is lent without the lock.

#include "src/state/kept_row.h"
#include "src/store/claim.h"
#include "src/store/trie.h"

#include <kvern/store.h>
#include <pthread.h>

#define KVERN_STORE_RETENTIONS 3

// The signatures of all layers, which entries of one kind have in common.
typedef struct kvern_store_layout {
    uint64_t number; // in keys
    size_t references;
    kvern_composition *composition; // one that has them
    struct kvern_store_layout *next;
} kvern_store_layout;

struct kvern_store_entry {
    kvern_trie_item item; // its node is NULL when it was replaced while it was pinned
    kvern_store_layout *layout;
    kvern_store_entry *newer, *older; // of its retention, while it is not pinned
    kvern_store_entry *next;          // among those that go
    kvern_store_retention retention;
    uint64_t used; // time of its last use
    size_t pins;
    int64_t positions, floor;
    kvern_store_why why_floor; // why it does not serve less
    size_t set_count;
    kvern_row sets[]; // of rows (src/state/batch.h)
};

// Entries of one retention that can go, in the order of their last use.
typedef struct kvern_store_queue {
    kvern_store_entry *newest, *oldest;
} kvern_store_queue;

// What was taken out under the lock.
typedef struct kvern_store_rest {
    kvern_store_entry *entries; // through next
    kvern_store_layout *layouts;
    kvern_trie_rest trie;
} kvern_store_rest;

struct kvern_store {
    kvern_context *context;
    pthread_mutex_t lock;
    kvern_trie trie;
    kvern_store_queue queues[KVERN_STORE_RETENTIONS]; // by retention
    kvern_store_layout *layouts;
    uint64_t layouts_made;
    uint64_t time;       // in uses
    uint64_t own_bytes;  // of all but the trie's, and tables and pages
    uint64_t booked;     // for what is being made
    kvern_claims claims; // of entries
    kvern_store_stats stats;
};

static inline kvern_heap *kvern_store_heap(const kvern_store *store)
{
    return &store->context->heap;
}

// ---- Under the lock ----

// All bytes that the store counts.
uint64_t kvern_store_bytes(const kvern_store *store);

// The layout of these layers; NULL: there is none.
kvern_store_layout *kvern_store_find_layout(kvern_store *store,
                                            const kvern_composition *composition);
void kvern_store_leave_layout(kvern_store *store, kvern_store_layout *layout,
                              kvern_store_rest *rest);

// The entry was used now. It is not pinned any more, or not yet.
void kvern_store_queue_entry(kvern_store *store, kvern_store_entry *entry);
void kvern_store_pin(kvern_store *store, kvern_store_entry *entry);
void kvern_store_unpin(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest);

// The entry goes: it counts no more, and is found no more. A pinned one stays for who has it.
void kvern_store_drop(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest);

// The entry that is to go next, or NULL.
kvern_store_entry *kvern_store_next_to_go(const kvern_store *store);

// Evicts entries until all that is counted fits the budget. False: it cannot be, and nothing
// changed.
bool kvern_store_fit(kvern_store *store, kvern_store_rest *rest);

size_t kvern_store_entry_bytes(size_t sets);

// ---- Without the lock ----

// Frees what was taken out. Returns the bytes that went back by it.
uint64_t kvern_store_rest_free(kvern_store *store, kvern_store_rest *rest);

// The first thing about a store that does not hold, in words; NULL: all is well. For tests, while
// nobody else uses it.
const char *kvern_store_walk(kvern_store *store);

#endif
