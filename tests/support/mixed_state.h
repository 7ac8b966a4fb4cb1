// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_MIXED_STATE_H
#define KVERN_TESTS_SUPPORT_MIXED_STATE_H

// A state whose layers mix all storages: dense and affine, with windows, kept positions and slack,
// bf16 first, and latents; and a way to serve it tokens whose contents follow from a sequence and a
// position (see feed.h), and to compare two of them bit for bit.

#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#define MIXED_LAYERS 10
#define MIXED_ROWS 16       // rows at most
#define MIXED_LEAST_SLACK 8 // of the layers with a window
#define MIXED_LEAST_START 70
#define MIXED_QUERY_HEADS 2

typedef struct mixed_world {
    ledger books; // hands out NaN
    kvern_context *context;
    kvern_composition *composition;
} mixed_world;

// `threads` as in kvern_context_options.
void mixed_open(mixed_world *w, size_t threads);
void mixed_close(mixed_world *w);

// The layers of the composition.
void mixed_plan(kvern_layer layers[MIXED_LAYERS]);

kvern_state *mixed_state(const mixed_world *w, size_t rows);

// Floats that a step attends for that many tokens.
size_t mixed_outputs(int64_t tokens);

// A step in which row r continues with counts[r] tokens of sequences[r]; every layer appends, and
// is attended when `out` is not NULL: layer by layer, packed.
void mixed_step(kvern_state *s, kvern_phase phase, const uint64_t *sequences, const int64_t *counts,
                float *out);

// The same for a state of one row.
void mixed_feed(kvern_state *s, kvern_phase phase, uint64_t sequence, int64_t count, float *out);

// A step that is abandoned when `layers` layers have appended.
void mixed_abandoned_step(kvern_state *s, const uint64_t *sequences, const int64_t *counts,
                          size_t layers);

// Fails the test unless row `a` of one cache is what row `b` of another is: lengths, what can be
// trimmed and reused, form, and every stored value that both still must hold. For any layer.
void mixed_expect_cache_row(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                            const char *what);

// The same for a row of two states, in all layers.
void mixed_expect_row(const kvern_state *wanted, size_t a, const kvern_state *got, size_t b,
                      const char *what);

// The same for all rows, and the bytes of their pages.
void mixed_expect_state(const kvern_state *wanted, const kvern_state *got, const char *what);

#endif
