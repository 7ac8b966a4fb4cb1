// SPDX-License-Identifier: MIT
#include "tests/support/latent_feed.h"

#include "tests/support/check.h"
#include "tests/support/feed.h"

#include <stdlib.h>

void latent_feed_values(uint64_t sequence, int64_t position, latent_lane lane, size_t count,
                        float *out)
{
    feed_values(3 * sequence + (uint64_t)lane, position, FEED_K, count, out);
}

// The lanes of some tokens, packed.
typedef struct lanes_of_tokens {
    size_t dim[3], tokens;
    float *values[3];
} lanes_of_tokens;

static lanes_of_tokens lanes_create(const kvern_layer *layer, size_t tokens)
{
    lanes_of_tokens lanes = {{layer->latent_dim, layer->rope_dim, layer->index_dim}, 0, {0}};
    for (int i = 0; i < 3; i++) {
        if (!lanes.dim[i])
            continue;
        lanes.values[i] = malloc((tokens * lanes.dim[i] + 1) * sizeof(float));
        assert_non_null(lanes.values[i]);
    }
    return lanes;
}

static void lanes_add(lanes_of_tokens *lanes, uint64_t sequence, int64_t position)
{
    for (int i = 0; i < 3; i++)
        if (lanes->dim[i])
            latent_feed_values(sequence, position, (latent_lane)i, lanes->dim[i],
                               lanes->values[i] + lanes->tokens * lanes->dim[i]);
    lanes->tokens++;
}

static void append(kvern_cache *cache, kvern_phase phase, lanes_of_tokens *lanes,
                   const int64_t *counts, kvern_read **read)
{
    kvern_latent_tokens tokens = kvern_latent_tokens_default(kvern_cache_layer(cache));
    tokens.latent = lanes->values[LATENT_LANE];
    tokens.rope = lanes->values[ROPE_LANE];
    tokens.index = lanes->values[INDEX_LANE];
    tokens.counts = counts;
    assert_ok(kvern_cache_append_latent(cache, phase, &tokens, read));
    for (int i = 0; i < 3; i++)
        free(lanes->values[i]);
}

void latent_feed_listed(kvern_cache *cache, uint64_t sequence, const int64_t *positions,
                        int64_t count, kvern_read **read)
{
    lanes_of_tokens lanes = lanes_create(kvern_cache_layer(cache), (size_t)count);
    for (int64_t i = 0; i < count; i++)
        lanes_add(&lanes, sequence, positions[i]);
    append(cache, KVERN_PHASE_WINDOW, &lanes, &count, read);
}

void latent_feed_rows(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
                      const int64_t *counts, kvern_read **read)
{
    const size_t rows = kvern_cache_rows(cache);
    size_t tokens = 0;
    for (size_t r = 0; r < rows; r++)
        tokens += (size_t)counts[r];
    lanes_of_tokens lanes = lanes_create(kvern_cache_layer(cache), tokens);
    for (size_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < counts[r]; i++)
            lanes_add(&lanes, sequences[r], kvern_cache_length(cache, r) + i);
    append(cache, phase, &lanes, counts, read);
}
