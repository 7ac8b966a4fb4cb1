// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_LATENT_FEED_H
#define KVERN_TESTS_SUPPORT_LATENT_FEED_H

// Latents whose contents follow from a sequence number and a position (see feed.h).

#include <kvern/kvern.h>

typedef enum latent_lane { LATENT_LANE, ROPE_LANE, INDEX_LANE } latent_lane;

// The `count` values of a lane of one token, in [-1, 1).
void latent_feed_values(uint64_t sequence, int64_t position, latent_lane lane, size_t count,
                        float *out);

// Tokens of a sequence at the listed positions, for a cache of one row.
void latent_feed_listed(kvern_cache *cache, uint64_t sequence, const int64_t *positions,
                        int64_t count, kvern_read **read);

// Row r continues with counts[r] tokens of sequence sequences[r] at its present length.
void latent_feed_rows(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
                      const int64_t *counts, kvern_read **read);

#endif
