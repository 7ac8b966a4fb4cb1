// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_FEED_H
#define KVERN_TESTS_SUPPORT_FEED_H

// Tokens and queries whose contents follow from a sequence number and a position, so that two
// caches that were served differently hold the same tokens, and a wrong position is seen.

#include <kvern/kvern.h>

// The streams of a token.
typedef enum feed_stream { FEED_K = 0, FEED_V = 1, FEED_Q = 2 } feed_stream;

// The `count` values of a stream of one token: multiples of 2^-23, keys and values in [-1, 1),
// queries in [-4, 4).
void feed_values(uint64_t sequence, int64_t position, feed_stream stream, size_t count, float *out);

// The next tokens of every row of a cache, packed f32, with their queries and room for the results.
// Latents are the keys of a feed, whose first latent_dim numbers they are, with the rotated key
// behind them; index keys are values.
typedef struct feed {
    size_t rows;
    int64_t *counts;
    kvern_tokens tokens;
    kvern_latent_tokens latents;
    kvern_queries queries;
    float *k, *v, *q, *out;
    size_t out_count; // floats in out
} feed;

// Row r continues with counts[r] tokens of sequence sequences[r] at its present length.
feed feed_create(const kvern_cache *cache, const uint64_t *sequences, const int64_t *counts,
                 size_t query_heads);
void feed_destroy(feed *f);

// The append of a phase.
KVERN_CHECK kvern_status feed_append(kvern_cache *cache, kvern_phase phase, const feed *f,
                                     kvern_read **read);

// The append to a layer of the open step.
KVERN_CHECK kvern_status feed_step_append(kvern_state *state, size_t layer, const feed *f,
                                          kvern_read **read);

// The stored values of one position of any layer, as kvern_cache_export gives them: k_dim numbers
// of every head, then v_dim of every head. Of latents: latent and rotated key, then the index key
// and zeros.
KVERN_CHECK kvern_status feed_export(const kvern_cache *cache, size_t row, int64_t position,
                                     float *values);

// Appends counts[r] tokens per row and attends them all; every call must succeed. `out` receives
// the results, packed; NULL: nothing is attended.
void feed_run(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
              const int64_t *counts, size_t query_heads, float *out);

// The same for a cache of one row.
void feed_one(kvern_cache *cache, kvern_phase phase, uint64_t sequence, int64_t count,
              size_t query_heads, float *out);

#endif
