// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_HYBRID_STATE_H
#define KVERN_TESTS_SUPPORT_HYBRID_STATE_H

// A state whose layers are of all kinds: keys and values of all positions and of windows, one that
// begins in bf16, latents, recurrent states of every rule, layers that share those of a window and
// of the start, and, where wanted, a lane. Tokens follow from a sequence and a position (feed.h,
// recur_feed.h).

#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#define HYBRID_LAYERS 10 // with a lane, which is the last one and takes rounds of one token alone
#define HYBRID_LANE 9
#define HYBRID_SLACK 6 // tokens of a round without it
#define HYBRID_HEADS 2

typedef struct hybrid_world {
    ledger books; // hands out NaN
    kvern_context *context;
    kvern_composition *composition;
    size_t layers;
} hybrid_world;

// The layers of the composition.
void hybrid_plan(kvern_layer layers[HYBRID_LAYERS]);

// The allocator of the options is the ledger's; NULL: default options.
void hybrid_open(hybrid_world *w, const kvern_context_options *options, bool lane);
void hybrid_close(hybrid_world *w);

kvern_state *hybrid_state(const hybrid_world *w, size_t rows);

// Floats that a step gives for that many tokens.
size_t hybrid_outputs(const kvern_state *s, int64_t tokens);

// The layer's part of an open step: row r continues with counts[r] tokens of sequences[r]. `out`:
// where results go, which is moved behind them; NULL: none wanted. A call may be refused memory
// (the status is the first that is not KVERN_OK); the layer may be served again then.
KVERN_CHECK kvern_status hybrid_serve(kvern_state *s, size_t layer, const uint64_t *sequences,
                                      const int64_t *counts, float **out);

// The layer to serve as number `index` of a step that begins with layer `first`: shared layers come
// last, for they want their donors.
size_t hybrid_order(const kvern_state *s, size_t first, size_t index);

// A whole step; every call must succeed.
void hybrid_step(kvern_state *s, kvern_phase phase, const uint64_t *sequences,
                 const int64_t *counts, float *out);

// The same for a state of one row.
void hybrid_feed(kvern_state *s, kvern_phase phase, uint64_t sequence, int64_t count, float *out);

// A step that is abandoned when its first `layers` layers have been served.
void hybrid_abandoned_step(kvern_state *s, const uint64_t *sequences, const int64_t *counts,
                           size_t layers);

// Fails the test unless row `a` of one cache is what row `b` of another is, of any layer.
void hybrid_expect_cache_row(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                             const char *what);

// The same for a row of two states, in all layers, and for all rows with the bytes of their pages.
void hybrid_expect_row(const kvern_state *wanted, size_t a, const kvern_state *got, size_t b,
                       const char *what);
void hybrid_expect_state(const kvern_state *wanted, const kvern_state *got, const char *what);

#endif
