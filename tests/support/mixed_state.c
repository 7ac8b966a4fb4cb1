// SPDX-License-Identifier: MIT
#include "tests/support/mixed_state.h"

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <stdlib.h>
#include <string.h>

static const storage kinds[] = {
    {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0},
    {"4 bits", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), KVERN_NO_START, 0, 0},
    {"8 bits", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(8, 32), KVERN_NO_START, 0, 0},
    {"4 bits from 70 on", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), MIXED_LEAST_START, 0, 0},
    {"8 bits from 90 on", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(8, 32), 90, 0, 0},
    {"f32 and f16", STORAGE_F32, STORAGE_F16, KVERN_NO_START, 0, 0},
    {"4 bits behind 20", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), KVERN_NO_START, 20, 1},
    {"8 bits behind 30", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(8, 32), 90, 30, 70},
};

void mixed_plan(kvern_layer layers[MIXED_LAYERS])
{
    layers[0] = storage_layer(&kinds[0], 2, 32);
    layers[1] = storage_layer(&kinds[1], 1, 32);
    layers[2] = storage_window(&kinds[0], 1, 32, 24, 3, MIXED_LEAST_SLACK);
    layers[3] = storage_window(&kinds[2], 1, 32, 33, 0, 20);
    layers[4] = storage_layer(&kinds[3], 1, 32);
    layers[5] = storage_window(&kinds[7], 2, 32, 130, 66, 16);
    layers[6] = storage_layer(&kinds[5], 1, 16);
    layers[6].v_dim = 24;
    layers[7] = kvern_layer_latent(24, 8, 0);
    layers[8] = kvern_layer_latent(32, 16, 24);
    layers[8].latent_codec = kvern_codec_rotated(8, 32);
    layers[8].rope_codec = kvern_codec_turbo(4);
    layers[8].rotated_latents = 1;
    layers[8].index_codec = kvern_codec_dense(KVERN_F16);
    layers[9] = storage_layer(&kinds[6], 1, 32);
}

void mixed_open(mixed_world *w, size_t threads)
{
    kvern_layer layers[MIXED_LAYERS];
    mixed_plan(layers);
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books);
    options.threads = threads;
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, layers, MIXED_LAYERS, &w->composition));
}

void mixed_close(mixed_world *w)
{
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

kvern_state *mixed_state(const mixed_world *w, size_t rows)
{
    kvern_state *s;
    assert_ok(kvern_state_create(w->composition, rows, &s));
    return s;
}

size_t mixed_outputs(int64_t tokens)
{
    kvern_layer layers[MIXED_LAYERS];
    size_t dims = 0;
    mixed_plan(layers);
    for (size_t l = 0; l < MIXED_LAYERS; l++)
        dims += layers[l].v_dim;
    return (size_t)tokens * MIXED_QUERY_HEADS * dims;
}

static void append_layer(kvern_state *s, size_t layer, const uint64_t *sequences,
                         const int64_t *counts, float **out)
{
    kvern_read *read = NULL;
    feed f = feed_create(kvern_state_cache(s, layer), sequences, counts, MIXED_QUERY_HEADS);
    assert_ok(feed_step_append(s, layer, &f, out ? &read : NULL));
    if (out) {
        f.queries.out = *out;
        assert_ok(kvern_read_attend(read, &f.queries));
        *out += f.out_count;
    }
    kvern_read_release(read);
    feed_destroy(&f);
}

void mixed_step(kvern_state *s, kvern_phase phase, const uint64_t *sequences, const int64_t *counts,
                float *out)
{
    assert_ok(kvern_step_begin(s, phase, counts));
    for (size_t l = 0; l < MIXED_LAYERS; l++)
        append_layer(s, l, sequences, counts, out ? &out : NULL);
    assert_ok(kvern_step_end(s));
}

void mixed_feed(kvern_state *s, kvern_phase phase, uint64_t sequence, int64_t count, float *out)
{
    assert_int_equal(kvern_state_rows(s), 1);
    mixed_step(s, phase, &sequence, &count, out);
}

void mixed_abandoned_step(kvern_state *s, const uint64_t *sequences, const int64_t *counts,
                          size_t layers)
{
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < layers; l++)
        append_layer(s, l, sequences, counts, NULL);
    kvern_step_abandon(s);
}

// ---- Comparing ----

// One position; or, where it is not held any more, a mark.
static void export_position(const kvern_cache *cache, size_t row, int64_t position, float *values)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t k = layer->kv_heads * layer->k_dim, v = layer->kv_heads * layer->v_dim;
    memset(values, 0, (k + v) * sizeof *values);
    const kvern_status status = feed_export(cache, row, position, values);
    if (status == KVERN_ERR_RANGE)
        values[0] = 1e30f;
    else
        assert_ok(status);
}

static void expect_stored(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                          const char *what)
{
    const kvern_layer *layer = kvern_cache_layer(wanted);
    const size_t count = layer->kv_heads * (layer->k_dim + layer->v_dim);
    float *values = malloc(2 * count * sizeof *values);
    assert_non_null(values);
    for (int64_t p = 0; p < kvern_cache_length(wanted, a); p++) {
        export_position(wanted, a, p, values);
        export_position(got, b, p, values + count);
        check_same_floats(values, values + count, count, what);
    }
    free(values);
}

void mixed_expect_cache_row(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                            const char *what)
{
    assert_int_equal(kvern_cache_length(wanted, a), kvern_cache_length(got, b));
    assert_int_equal(kvern_cache_trimmable(wanted, a), kvern_cache_trimmable(got, b));
    assert_int_equal(kvern_cache_min_reusable(wanted, a), kvern_cache_min_reusable(got, b));
    assert_int_equal(kvern_cache_max_append(wanted, a), kvern_cache_max_append(got, b));
    assert_int_equal(kvern_cache_converted(wanted, a), kvern_cache_converted(got, b));
    if (kvern_cache_layer(wanted)->kind != KVERN_LAYER_SHARED) // which stores nothing
        expect_stored(wanted, a, got, b, what);
}

void mixed_expect_row(const kvern_state *wanted, size_t a, const kvern_state *got, size_t b,
                      const char *what)
{
    assert_int_equal(kvern_state_length(wanted, a), kvern_state_length(got, b));
    for (size_t l = 0; l < MIXED_LAYERS; l++)
        mixed_expect_cache_row(kvern_state_cache(wanted, l), a, kvern_state_cache(got, l), b, what);
}

void mixed_expect_state(const kvern_state *wanted, const kvern_state *got, const char *what)
{
    assert_int_equal(kvern_state_rows(wanted), kvern_state_rows(got));
    for (size_t r = 0; r < kvern_state_rows(wanted); r++)
        mixed_expect_row(wanted, r, got, r, what);
    for (size_t l = 0; l < MIXED_LAYERS; l++)
        assert_int_equal(kvern_cache_bytes(kvern_state_cache(wanted, l)),
                         kvern_cache_bytes(kvern_state_cache(got, l)));
}
