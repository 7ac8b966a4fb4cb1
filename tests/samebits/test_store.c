// SPDX-License-Identifier: MIT
// Cold = warm = forked: a prompt whose beginning a store lends gives the bits of one that was
// served from nothing, and of a fork of the row that was published, whatever the layers, and
// however the rest is served.

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/mixed_state.h"
#include "tests/support/storages.h"
#include "tests/support/store_bed.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH 150 // of the prompt
#define LAST 20    // tokens behind it, one token each
#define MORE 170

static uint64_t hits; // of all stores: a comparison without any shows nothing

static void prompt(int32_t *tokens)
{
    store_repeat(tokens, 100, 1);
    store_repeat(tokens + 100, MORE - 100, 2);
}

// The results of the last tokens, each by a decode, or all by one window.
static void serve_last(kvern_state *s, int64_t from, bool decodes, float *out)
{
    const size_t one = hybrid_outputs(s, 1);
    for (int64_t at = from; at < MORE; at += decodes ? 1 : MORE - from) {
        const int64_t count = decodes ? 1 : MORE - from;
        hybrid_feed(s, decodes ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW, 3, count, out);
        out += one * (size_t)count;
    }
}

// Layers are packed one behind the other in a window's results: only the sums of steps compare, so
// all ways end with the same steps.
static void expect_same_end(const float *wanted, kvern_state *s, const int32_t *tokens,
                            bool decodes, const char *what)
{
    const size_t count = hybrid_outputs(s, LAST);
    float *got = malloc(count * sizeof *got);
    assert_non_null(got);
    store_serve(s, 0, tokens, MORE - LAST, NULL);
    serve_last(s, MORE - LAST, decodes, got);
    check_same_floats(wanted, got, count, what);
    free(got);
    kvern_state_destroy(s);
}

static kvern_state *warm(const store_bed *b, const int32_t *tokens)
{
    kvern_state *s = store_state(b, 1);
    kvern_store_hit hit = store_find(b, NULL, tokens, MORE - LAST);
    if (hit.positions) {
        assert_ok(kvern_store_lend(b->store, &hit, s, 0));
        assert_int_equal(kvern_state_length(s, 0), hit.positions);
    }
    kvern_store_release(b->store, &hit);
    return s;
}

// A row that is published at some lengths, and goes on beside its forks.
static void compare_ways(const kvern_layer *layers, size_t count)
{
    int32_t tokens[MORE];
    prompt(tokens);
    store_bed *b = store_bed_open(layers, count, 0, 0);
    kvern_state *s = store_state(b, 1), *fork = NULL, *cold = store_cold(b, tokens, MORE - LAST);
    float *by_decodes = malloc(hybrid_outputs(s, LAST) * sizeof *by_decodes);
    float *by_window = malloc(hybrid_outputs(s, LAST) * sizeof *by_window);
    assert_true(by_decodes && by_window);
    kvern_state *again;
    assert_ok(kvern_state_extract(cold, 0, &again));
    serve_last(cold, MORE - LAST, true, by_decodes);
    serve_last(again, MORE - LAST, false, by_window);
    kvern_state_destroy(cold);
    kvern_state_destroy(again);
    for (int64_t length = 40; length < LENGTH; length += 33) {
        store_serve(s, 0, tokens, length, NULL);
        assert_ok(kvern_store_publish(b->store, NULL, tokens, (size_t)length, s, 0, NULL));
        assert_ok(kvern_state_extract(s, 0, &fork));
        expect_same_end(by_decodes, fork, tokens, true, "a fork of what was published");
        expect_same_end(by_decodes, warm(b, tokens), tokens, true, "a warm row, by decodes");
        expect_same_end(by_window, warm(b, tokens), tokens, false, "a warm row, by a window");
    }
    expect_same_end(by_decodes, s, tokens, true, "the row that was published");
    (void)kvern_store_give_up(b->store, UINT64_MAX);
    expect_same_end(by_decodes, warm(b, tokens), tokens, true, "a row whose entry has gone");
    const kvern_store_stats stats = store_stats(b);
    assert_true(stats.lookups.loans == stats.lookups.full_hits + stats.lookups.partial_hits);
    assert_true(stats.lookups.loans >= 8); // two of each publication
    hits += stats.lookups.loans;
    store_expect_sound(b);
    free(by_decodes);
    free(by_window);
    store_bed_close(b);
}

static void compare_layer(kvern_layer layer, const char *name)
{
    (void)name;
    compare_ways(&layer, 1);
}

static void every_storage_is_the_same_warm(void **state)
{
    (void)state;
    hits = 0;
    for_every_storage(compare_layer, 1, 64, 40);
    assert_true(hits > 0);
}

static void latents_and_recurrent_layers_are_the_same_warm(void **state)
{
    (void)state;
    hits = 0;
    compare_layer(kvern_layer_latent(32, 16, 24), "latents");
    compare_layer(kvern_layer_ssd(1, 2, 16, 8, 3), "ssd");
    compare_layer(kvern_layer_delta(1, 2, 16, 16, 4), "delta");
    compare_layer(kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 2, 2, 24, 16, 2), "delta");
    assert_true(hits > 0);
}

static void mixed_and_hybrid_states_are_the_same_warm(void **state)
{
    (void)state;
    kvern_layer mixed[MIXED_LAYERS], hybrid[HYBRID_LAYERS];
    hits = 0;
    mixed_plan(mixed);
    hybrid_plan(hybrid);
    compare_ways(mixed, MIXED_LAYERS);
    compare_ways(hybrid, HYBRID_LAYERS - 1);
    assert_true(hits > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_storage_is_the_same_warm),
        cmocka_unit_test(latents_and_recurrent_layers_are_the_same_warm),
        cmocka_unit_test(mixed_and_hybrid_states_are_the_same_warm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
