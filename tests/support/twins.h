// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_TWINS_H
#define KVERN_TESTS_SUPPORT_TWINS_H

// Random programs of calls on states and caches, any call at any time, in a world where memory runs
// out. Beside it stands a twin that has all the memory it wants. A call that is refused memory has
// changed nothing: every row still holds what the twin's row holds, and the context the bytes that
// it held before. Any other answer is the twin's answer. Whatever happens, the bytes held are those
// of the allocator's books. What is not so fails the test; on another thread than cmocka's, it ends
// the program.

#include "tests/support/ledger.h"

#include <kvern/kvern.h>

// One of the worlds: a context, and a composition of mixed_state.h.
typedef struct twin_side {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
} twin_side;

// The allocator of the options is the ledger's.
void twin_side_open(twin_side *s, const kvern_context_options *options);

// Fails the test when something has not been given back.
void twin_side_close(twin_side *s);

typedef struct twins twins;

// Both sides are borrowed. `poor` has a budget. `alone`: nobody else uses it; then its allocator
// refuses now and then, and its bytes are looked at.
twins *twins_create(uint64_t seed, twin_side *poor, twin_side *rich, bool alone);
void twins_destroy(twins *w);

// Does `count` things.
void twins_run(twins *w, int count);

// Calls that were made, and those of them that were refused memory.
uint64_t twins_calls(const twins *w);
uint64_t twins_refused(const twins *w);

// Rows for several twins to begin with. Their pages are shared then.
kvern_state *twins_base(const twin_side *side);
void twins_begin(twins *w, const kvern_state *base);

#endif
