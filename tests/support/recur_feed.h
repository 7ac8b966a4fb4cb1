// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_RECUR_FEED_H
#define KVERN_TESTS_SUPPORT_RECUR_FEED_H

// Tokens of recurrent layers whose contents follow from a sequence number and a position, weights
// that follow from a layer's dims, and lanes whose contents follow from all tokens that they had,
// in their order.

#include <kvern/kvern.h>

// The next tokens of every row of a cache, packed, with weights and room for the results.
typedef struct recur_feed {
    size_t rows, tokens_in_all;
    int64_t *counts;
    kvern_recur_tokens tokens;
    kvern_recur_weights weights;
    float *x, *a, *b, *y, *numbers;
    size_t y_count; // floats in y
} recur_feed;

// Row r continues with counts[r] tokens of sequence sequences[r] at its present length. In place:
// the feed points to its own weights, so it must not be copied.
void recur_feed_create(recur_feed *f, const kvern_cache *cache, const uint64_t *sequences,
                       const int64_t *counts);
void recur_feed_destroy(recur_feed *f);

// Tokens of a sequence from a position on enter a lane.
void lane_take(unsigned char *lane, size_t bytes, uint64_t sequence, int64_t position,
               int64_t count);

// Takes counts[r] tokens into every row of a cache that stands alone, whatever recurrent layer it
// is of. `y` receives the results, packed; NULL: none wanted.
void recur_run(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
               const int64_t *counts, float *y);

// The same for a cache of one row.
void recur_one(kvern_cache *cache, kvern_phase phase, uint64_t sequence, int64_t count, float *y);

// Fails the test unless row `a` of one cache holds what row `b` of another does, bit for bit.
void recur_expect_row(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                      const char *what);

// Bytes of what a row holds, and the bytes themselves, from malloc: convolution, S, or the lane.
unsigned char *recur_content(const kvern_cache *cache, size_t row, size_t *bytes);

#endif
