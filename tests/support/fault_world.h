// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_FAULT_WORLD_H
#define KVERN_TESTS_SUPPORT_FAULT_WORLD_H

// Something for every operation of the library to work on, a way to see all of it, and the list of
// the operations: for tests that make each of them fail.

#include "tests/support/feed.h"
#include "tests/support/ledger.h"

#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

// Caches and a state of three rows, some of whose pages are shared with forks and a read. Layers
// are dense and affine, have windows and starts. Everything is made through the ledger.
typedef struct fault_world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache, *cache_fork;
    kvern_cache *later, *later_fork; // of a layer with a window and a start
    kvern_state *state, *state_fork;
    kvern_cache *other; // to join the cache, made before that; or NULL
    kvern_state *other_state;
    kvern_read *other_read; // made before the operation; or NULL
    kvern_read *read;       // of the cache's last append, held over everything
    feed last;              // the feed of that append
    kvern_cache *made;      // by the operation
    kvern_state *made_state;
    kvern_composition *made_composition;
    kvern_context *made_context;
    kvern_read *made_read;
    float *out; // what the operation attended
    size_t out_count;
} fault_world;

// With a byte budget (0: none).
fault_world *fault_world_create(uint64_t budget_bytes);

// Gives everything back and fails the test when the ledger still holds something.
void fault_world_destroy(fault_world *w);

// Bytes that describe what can be seen; what looks the same has equal bytes.
typedef struct fault_sight {
    unsigned char *bytes;
    size_t count, capacity;
} fault_sight;

// Everything: lengths, contents, memory counters. Also checks that held_bytes is the ledger's.
fault_sight fault_look(const fault_world *w);

// What an operation did: contents of all objects, and what was attended.
fault_sight fault_look_at_result(const fault_world *w);

// Fails the test unless both are equal.
void fault_expect_equal(const fault_sight *wanted, const fault_sight *got, const char *what);

// Fails the test when an operation has made something.
void fault_expect_nothing_made(const fault_world *w);

typedef kvern_status fault_action(fault_world *w);

typedef struct fault_operation {
    const char *name;
    fault_action *before; // is done first and does not fail; or NULL
    fault_action *act;
} fault_operation;

extern const fault_operation fault_operations[];
extern const size_t fault_operation_count;

#endif
