// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_STORE_BED_H
#define KVERN_TESTS_SUPPORT_STORE_BED_H

// A store, and states whose rows are served tokens: what a row holds at a position follows from the
// token there and the position, so rows with the same beginning of tokens have the same beginning.

#include "tests/support/ledger.h"

#include <kvern/kvern.h>

typedef struct store_bed {
    ledger books; // hands out NaN
    kvern_context *context;
    kvern_composition *composition;
    kvern_store *store;
} store_bed;

// For layers of any kinds. Budgets of 0: no limits.
store_bed *store_bed_open(const kvern_layer *layers, size_t count, uint64_t store_budget,
                          uint64_t context_budget);
void store_bed_close(store_bed *b);

// Of one layer of keys and values, bf16.
store_bed *store_bed_small(uint64_t store_budget);

kvern_state *store_state(const store_bed *b, size_t rows);

// Serves a row until it has `length` positions, in windows that end where tokens change and where
// rows are converted. `out`: hybrid_outputs of these tokens, or NULL.
void store_serve(kvern_state *s, size_t row, const int32_t *tokens, int64_t length, float *out);

// Writes `count` tokens: every one is `token`.
void store_repeat(int32_t *tokens, size_t count, int32_t token);

// A state of one row that was served these tokens from nothing.
kvern_state *store_cold(const store_bed *b, const int32_t *tokens, int64_t length);

// Fails the test unless the row, served on to `length` positions, gives what a cold one gives.
void store_expect_goes_on(const store_bed *b, kvern_state *s, size_t row, const int32_t *tokens,
                          int64_t length);

// Serves a prompt of one row cold and publishes it.
void store_put(const store_bed *b, const kvern_store_key *key, const int32_t *tokens, size_t count);

// Looks a prompt up; must succeed.
kvern_store_hit store_find(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                           size_t count);

// Looks up, and lets go again: the positions that would be lent.
int64_t store_found(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                    size_t count);

// Whether there is an entry of exactly these tokens, and whether it was used last.
bool store_has(const store_bed *b, const kvern_store_key *key, const int32_t *tokens, size_t count);
bool store_used_last(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                     size_t count);

kvern_store_stats store_stats(const store_bed *b);

// Every invariant of the store (src/store/store.h).
void store_expect_sound(const store_bed *b);

#endif
