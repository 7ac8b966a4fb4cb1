// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_LEDGER_H
#define KVERN_TESTS_SUPPORT_LEDGER_H

// An allocator for tests that keeps books. Every block is known by address, size and alignment;
// giving one back with anything else, twice, or with bytes written behind its end fails the test.
// It can refuse an allocation, and it hands out blocks full of 0xff: NaN in every float format.

#include "tests/support/random.h"

#include <kvern/context.h>

#include <pthread.h>
#include <stdbool.h>

typedef struct ledger_block ledger_block;

typedef struct ledger {
    pthread_mutex_t lock;
    ledger_block **buckets; // by address
    uint64_t held_bytes;
    uint64_t most_bytes; // held at once since the beginning
    uint64_t blocks_held;
    uint64_t allocations; // granted
    int64_t refuse_in;    // this many are granted before one is refused; negative: none is
    bool refuse_rest;     // and so are all that follow that one
    uint64_t one_in;      // so often one is refused, whichever it is; 0: never
    test_random random;   // for that
    bool refused;         // something was refused since one of these was set
} ledger;

void ledger_init(ledger *books);

// Fails the test when something is still held.
void ledger_finish(ledger *books);

// For kvern_context_options.
kvern_allocator ledger_allocator(ledger *books);

// Refuses the allocation after the next `granted` ones, and only that one.
void ledger_refuse(ledger *books, int64_t granted);

// Refuses all allocations after the next `granted` ones.
void ledger_refuse_rest(ledger *books, int64_t granted);

// Refuses every allocation with a probability of 1 / one_in.
void ledger_refuse_often(ledger *books, uint64_t seed, uint64_t one_in);

// Nothing is refused any more. Says whether something was.
bool ledger_relent(ledger *books);

#endif
