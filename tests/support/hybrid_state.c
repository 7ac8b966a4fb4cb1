// SPDX-License-Identifier: MIT
#include "tests/support/hybrid_state.h"

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/mixed_state.h"
#include "tests/support/recur_feed.h"
#include "tests/support/storages.h"

#include <stdlib.h>
#include <string.h>

void hybrid_plan(kvern_layer layers[HYBRID_LAYERS])
{
    const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
    const storage later = {
        "4 bits from 70 on", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), 70, 0, 0};
    layers[0] = kvern_layer_delta(2, 4, 16, 24, 4);
    layers[1] = storage_layer(&bf16, 2, 32);
    layers[2] = kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 2, 2, 24, 16, 2);
    layers[3] = storage_window(&bf16, 1, 32, 24, 3, 8);
    layers[4] = kvern_layer_ssd(1, 3, 16, 8, 3);
    layers[5] = storage_layer(&later, 1, 32);
    layers[6] = kvern_layer_latent(24, 8, 8);
    layers[7] = kvern_layer_shared(layers, 3);
    layers[8] = kvern_layer_shared(layers, 5);
    layers[HYBRID_LANE] = kvern_layer_lane(40);
    layers[0].slack = layers[2].slack = layers[4].slack = HYBRID_SLACK;
}

void hybrid_open(hybrid_world *w, const kvern_context_options *options, bool lane)
{
    kvern_context_options own = options ? *options : kvern_context_options_default();
    kvern_layer layers[HYBRID_LAYERS];
    hybrid_plan(layers);
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    own.allocator = ledger_allocator(&w->books);
    w->layers = lane ? HYBRID_LAYERS : HYBRID_LAYERS - 1;
    assert_ok(kvern_context_create(&own, &w->context));
    assert_ok(kvern_composition_create(w->context, layers, w->layers, &w->composition));
}

void hybrid_close(hybrid_world *w)
{
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

kvern_state *hybrid_state(const hybrid_world *w, size_t rows)
{
    kvern_state *s;
    assert_ok(kvern_state_create(w->composition, rows, &s));
    return s;
}

static size_t layer_count(const kvern_state *s)
{
    return kvern_composition_layers(kvern_state_composition(s));
}

// Floats that a layer gives per token.
static size_t outputs_of(const kvern_layer *layer)
{
    const bool recurrent = layer->kind == KVERN_LAYER_RECURRENT;
    return (recurrent ? layer->value_heads : HYBRID_HEADS) * layer->v_dim;
}

size_t hybrid_outputs(const kvern_state *s, int64_t tokens)
{
    size_t floats = 0;
    for (size_t l = 0; l < layer_count(s); l++)
        floats += outputs_of(kvern_composition_layer(kvern_state_composition(s), l));
    return (size_t)tokens * floats;
}

// ---- Steps ----

static kvern_status serve_attention(kvern_state *s, size_t layer, const uint64_t *sequences,
                                    const int64_t *counts, float **out)
{
    kvern_read *read = NULL;
    feed f = feed_create(kvern_state_cache(s, layer), sequences, counts, HYBRID_HEADS);
    kvern_status status = feed_step_append(s, layer, &f, out ? &read : NULL);
    if (!status && out) {
        f.queries.out = *out;
        if (kvern_read_attend(read, &f.queries)) // for its memory, of which there is more now
            assert_ok(kvern_read_attend(read, &f.queries));
        *out += f.out_count;
    }
    kvern_read_release(read);
    feed_destroy(&f);
    return status;
}

static kvern_status serve_recurrent(kvern_state *s, size_t layer, const uint64_t *sequences,
                                    const int64_t *counts, float **out)
{
    recur_feed f;
    recur_feed_create(&f, kvern_state_cache(s, layer), sequences, counts);
    f.tokens.y = out ? *out : NULL;
    kvern_status status = kvern_step_recur(s, layer, &f.tokens);
    if (!status && out)
        *out += f.y_count;
    recur_feed_destroy(&f);
    return status;
}

static kvern_status serve_lanes(kvern_state *s, size_t layer, const uint64_t *sequences,
                                const int64_t *counts)
{
    void *lanes[64];
    assert_true(kvern_state_rows(s) <= 64);
    kvern_status status = kvern_step_lanes(s, layer, lanes);
    for (size_t r = 0; r < kvern_state_rows(s) && !status; r++) {
        if (counts[r])
            lane_take(lanes[r], kvern_cache_layer(kvern_state_cache(s, layer))->lane_bytes,
                      sequences[r], kvern_state_length(s, r), counts[r]);
    }
    return status;
}

static float *shared_queries(const kvern_state *s, size_t layer, const uint64_t *sequences,
                             const int64_t *counts, size_t *tokens)
{
    const kvern_layer *plan = kvern_composition_layer(kvern_state_composition(s), layer);
    const size_t floats = HYBRID_HEADS * plan->k_dim;
    *tokens = 0;
    for (size_t r = 0; r < kvern_state_rows(s); r++)
        *tokens += (size_t)counts[r];
    float *q = malloc((*tokens * floats + 1) * sizeof *q), *at = q;
    assert_non_null(q);
    for (size_t r = 0; r < kvern_state_rows(s); r++) {
        for (int64_t i = 0; i < counts[r]; i++, at += floats)
            feed_values(sequences[r] + 1000 * layer, kvern_step_position(s, r) + i, FEED_Q, floats,
                        at);
    }
    return q;
}

// Queries of its own to what its donor has appended.
static kvern_status serve_shared(kvern_state *s, size_t layer, const uint64_t *sequences,
                                 const int64_t *counts, float **out)
{
    const kvern_layer *plan = kvern_composition_layer(kvern_state_composition(s), layer);
    kvern_read *read = NULL;
    size_t tokens;
    kvern_status status = kvern_step_read_donor(s, layer, &read);
    if (status || !out) {
        kvern_read_release(read);
        return status;
    }
    kvern_queries queries = kvern_queries_default(plan, HYBRID_HEADS);
    float *q = shared_queries(s, layer, sequences, counts, &tokens);
    queries.q = q;
    queries.out = *out;
    if (kvern_read_attend(read, &queries)) // as above
        assert_ok(kvern_read_attend(read, &queries));
    *out += tokens * HYBRID_HEADS * plan->v_dim;
    kvern_read_release(read);
    free(q);
    return KVERN_OK;
}

size_t hybrid_order(const kvern_state *s, size_t first, size_t index)
{
    const kvern_composition *composition = kvern_state_composition(s);
    const size_t layers = layer_count(s);
    for (int shared = 0; shared < 2; shared++) {
        for (size_t l = 0; l < layers; l++) {
            const size_t layer = (first + l) % layers;
            const bool is = kvern_composition_can(composition, layer, KVERN_CAN_SHARE);
            if (is == (shared == 1) && index-- == 0)
                return layer;
        }
    }
    fail_msg("a step of %zu layers has no other", layers);
    return 0;
}

kvern_status hybrid_serve(kvern_state *s, size_t layer, const uint64_t *sequences,
                          const int64_t *counts, float **out)
{
    const kvern_layer *plan = kvern_composition_layer(kvern_state_composition(s), layer);
    if (plan->kind == KVERN_LAYER_SHARED)
        return serve_shared(s, layer, sequences, counts, out);
    if (plan->kind != KVERN_LAYER_RECURRENT)
        return serve_attention(s, layer, sequences, counts, out);
    if (plan->recurrence == KVERN_RECURRENCE_LANE)
        return serve_lanes(s, layer, sequences, counts);
    return serve_recurrent(s, layer, sequences, counts, out);
}

void hybrid_step(kvern_state *s, kvern_phase phase, const uint64_t *sequences,
                 const int64_t *counts, float *out)
{
    assert_ok(kvern_step_begin(s, phase, counts));
    for (size_t l = 0; l < layer_count(s); l++)
        assert_ok(hybrid_serve(s, l, sequences, counts, out ? &out : NULL));
    assert_ok(kvern_step_end(s));
}

void hybrid_feed(kvern_state *s, kvern_phase phase, uint64_t sequence, int64_t count, float *out)
{
    assert_int_equal(kvern_state_rows(s), 1);
    hybrid_step(s, phase, &sequence, &count, out);
}

void hybrid_abandoned_step(kvern_state *s, const uint64_t *sequences, const int64_t *counts,
                           size_t layers)
{
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < layers; l++)
        assert_ok(hybrid_serve(s, l, sequences, counts, NULL));
    kvern_step_abandon(s);
}

// ---- Comparing ----

void hybrid_expect_cache_row(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                             const char *what)
{
    if (kvern_cache_layer(wanted)->kind != KVERN_LAYER_RECURRENT) {
        mixed_expect_cache_row(wanted, a, got, b, what);
        return;
    }
    assert_int_equal(kvern_cache_trimmable(wanted, a), kvern_cache_trimmable(got, b));
    assert_int_equal(kvern_cache_min_reusable(wanted, a), kvern_cache_min_reusable(got, b));
    assert_int_equal(kvern_cache_max_append(wanted, a), kvern_cache_max_append(got, b));
    recur_expect_row(wanted, a, got, b, what);
}

void hybrid_expect_row(const kvern_state *wanted, size_t a, const kvern_state *got, size_t b,
                       const char *what)
{
    assert_int_equal(kvern_state_length(wanted, a), kvern_state_length(got, b));
    for (size_t l = 0; l < layer_count(wanted); l++)
        hybrid_expect_cache_row(kvern_state_cache(wanted, l), a, kvern_state_cache(got, l), b,
                                what);
}

void hybrid_expect_state(const kvern_state *wanted, const kvern_state *got, const char *what)
{
    assert_int_equal(kvern_state_rows(wanted), kvern_state_rows(got));
    for (size_t r = 0; r < kvern_state_rows(wanted); r++)
        hybrid_expect_row(wanted, r, got, r, what);
    for (size_t l = 0; l < layer_count(wanted); l++)
        assert_int_equal(kvern_cache_bytes(kvern_state_cache(wanted, l)),
                         kvern_cache_bytes(kvern_state_cache(got, l)));
}
