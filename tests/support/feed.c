// SPDX-License-Identifier: MIT
#include "tests/support/feed.h"

#include "tests/support/check.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>

void feed_values(uint64_t sequence, int64_t position, feed_stream stream, size_t count, float *out)
{
    test_random random = test_random_seed(sequence * UINT64_C(0x9e3779b97f4a7c15) +
                                          (uint64_t)position * 4 + (uint64_t)stream);
    random.state = test_random_next(&random); // neighbours share nothing
    for (size_t i = 0; i < count; i++)
        out[i] = test_random_signed(&random) * (stream == FEED_Q ? 4.0f : 1.0f);
}

static float *new_floats(size_t count)
{
    float *floats = malloc((count + 1) * sizeof *floats);
    assert_non_null(floats);
    return floats;
}

static void fill(feed *f, const kvern_cache *cache, const uint64_t *sequences, size_t query_heads)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    size_t token = 0;
    for (size_t r = 0; r < f->rows; r++) {
        const int64_t length = kvern_cache_length(cache, r);
        for (int64_t i = 0; i < f->counts[r]; i++, token++) {
            const size_t k = layer->kv_heads * layer->k_dim, v = layer->kv_heads * layer->v_dim;
            const size_t q = query_heads * layer->k_dim;
            feed_values(sequences[r], length + i, FEED_K, k, f->k + token * k);
            feed_values(sequences[r], length + i, FEED_V, v, f->v + token * v);
            feed_values(sequences[r], length + i, FEED_Q, q, f->q + token * q);
        }
    }
}

static void view_latents(feed *f, const kvern_layer *layer)
{
    f->latents = kvern_latent_tokens_default(layer);
    f->latents.latent = f->k;
    f->latents.rope = layer->rope_dim ? f->k + layer->latent_dim : NULL;
    f->latents.index = layer->index_dim ? f->v : NULL;
    f->latents.latent_token_stride = f->latents.rope_token_stride = (int64_t)layer->k_dim;
    f->latents.index_token_stride = (int64_t)layer->v_dim;
    f->latents.counts = f->counts;
    assert_true(layer->index_dim <= layer->v_dim);
}

feed feed_create(const kvern_cache *cache, const uint64_t *sequences, const int64_t *counts,
                 size_t query_heads)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    feed f = {.rows = kvern_cache_rows(cache)};
    size_t tokens = 0;
    f.counts = malloc((f.rows + 1) * sizeof *f.counts);
    assert_non_null(f.counts);
    for (size_t r = 0; r < f.rows; r++) {
        f.counts[r] = counts[r];
        tokens += (size_t)counts[r];
    }
    f.out_count = tokens * query_heads * layer->v_dim;
    f.k = new_floats(tokens * layer->kv_heads * layer->k_dim);
    f.v = new_floats(tokens * layer->kv_heads * layer->v_dim);
    f.q = new_floats(tokens * query_heads * layer->k_dim);
    f.out = new_floats(f.out_count);
    fill(&f, cache, sequences, query_heads);
    f.tokens = kvern_tokens_default(layer);
    f.tokens.k = f.k;
    f.tokens.v = f.v;
    f.tokens.counts = f.counts;
    view_latents(&f, layer);
    f.queries = kvern_queries_default(layer, query_heads);
    f.queries.q = f.q;
    f.queries.out = f.out;
    return f;
}

void feed_destroy(feed *f)
{
    free(f->counts);
    free(f->k);
    free(f->v);
    free(f->q);
    free(f->out);
    memset(f, 0, sizeof *f);
}

kvern_status feed_append(kvern_cache *cache, kvern_phase phase, const feed *f, kvern_read **read)
{
    return kvern_cache_layer(cache)->kind == KVERN_LAYER_LATENT
               ? kvern_cache_append_latent(cache, phase, &f->latents, read)
               : kvern_cache_append(cache, phase, &f->tokens, read);
}

kvern_status feed_step_append(kvern_state *state, size_t layer, const feed *f, kvern_read **read)
{
    return kvern_cache_layer(kvern_state_cache(state, layer))->kind == KVERN_LAYER_LATENT
               ? kvern_step_append_latent(state, layer, &f->latents, read)
               : kvern_step_append(state, layer, &f->tokens, read);
}

kvern_status feed_export(const kvern_cache *cache, size_t row, int64_t position, float *values)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    float *v = values + layer->kv_heads * layer->k_dim;
    if (layer->kind != KVERN_LAYER_LATENT)
        return kvern_cache_export(cache, row, position, 1, values, v);
    memset(v, 0, layer->v_dim * sizeof *v);
    return kvern_cache_export_latent(cache, row, position, 1, values,
                                     layer->rope_dim ? values + layer->latent_dim : NULL,
                                     layer->index_dim ? v : NULL);
}

void feed_run(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
              const int64_t *counts, size_t query_heads, float *out)
{
    feed f = feed_create(cache, sequences, counts, query_heads);
    kvern_read *read = NULL;
    assert_ok(feed_append(cache, phase, &f, out ? &read : NULL));
    if (out) {
        f.queries.out = out;
        assert_ok(kvern_read_attend(read, &f.queries));
    }
    kvern_read_release(read);
    feed_destroy(&f);
}

void feed_one(kvern_cache *cache, kvern_phase phase, uint64_t sequence, int64_t count,
              size_t query_heads, float *out)
{
    assert_int_equal(kvern_cache_rows(cache), 1);
    feed_run(cache, phase, &sequence, &count, query_heads, out);
}
