// SPDX-License-Identifier: MIT
// Cold = fetched: a prompt whose beginning comes from a store that another process could have
// written gives the bits of one that was served from nothing, whatever the layers, however the rest
// is served, also past windows and starts.
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/mixed_state.h"
#include "tests/support/remote_bed.h"
#include "tests/support/storages.h"

#include <kvern/checkpoint.h>
#include <stdlib.h>

#define PROMPT 150
#define LAST 20 // tokens behind it
#define MORE (PROMPT + LAST)

static uint64_t hits, fetched; // of all stores: a comparison without any shows nothing

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_start(NULL);
    hits = fetched = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remote_kill();
    folder_remove();
    return 0;
}

static void prompt(int32_t *tokens)
{
    store_repeat(tokens, 100, 1);
    store_repeat(tokens + 100, MORE - 100, 2);
}

// What the tokens behind the prompt give, by decodes or by a window.
static void serve_last(kvern_state *s, bool decodes, float *out)
{
    const size_t one = hybrid_outputs(s, 1);
    for (int64_t at = PROMPT; at < MORE; at += decodes ? 1 : LAST) {
        const int64_t count = decodes ? 1 : LAST;
        hybrid_feed(s, decodes ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW, 3, count, out);
        out += one * (size_t)count;
    }
}

static float *results(kvern_state *s, const int32_t *tokens, bool decodes)
{
    float *out = malloc(hybrid_outputs(s, LAST) * sizeof *out);
    assert_non_null(out);
    store_serve(s, 0, tokens, PROMPT, NULL);
    serve_last(s, decodes, out);
    return out;
}

// A row that was published at `length`, with a checkpoint before.
static void write_row(const store_bed *b, const int32_t *tokens, int64_t length)
{
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_state *s = store_state(b, 1);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    for (int64_t at = 30; at < length; at += 60) {
        store_serve(s, 0, tokens, at, NULL);
        assert_ok(kvern_state_checkpoint(s, 0));
    }
    store_serve(s, 0, tokens, length, NULL);
    assert_ok(kvern_remote_store_publish(r, NULL, tokens, (size_t)length, s, 0, NULL));
    kvern_state_destroy(s);
    kvern_remote_store_close(r); // writes it
}

// Rows of a store that has just been opened, in a context of its own, some of which need a
// checkpoint.
static void compare_fetched(const kvern_layer *layers, size_t count, const int32_t *tokens,
                            bool decodes, const float *wanted)
{
    store_bed *b = store_bed_open(layers, count, 0, 0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_state *s;
    if (remote_lend(b, r, NULL, tokens, PROMPT, &s))
        fetched++;
    float *got = results(s, tokens, decodes);
    check_same_floats(wanted, got, hybrid_outputs(s, LAST), "a row from a shared store");
    free(got);
    kvern_state_destroy(s);
    const kvern_remote_store_stats stats = remote_stats(r);
    assert_int_equal(stats.lookups.loans, stats.lookups.full_hits + stats.lookups.partial_hits);
    assert_int_equal(0, stats.damaged + stats.gone + stats.outages);
    hits += stats.lookups.loans;
    kvern_remote_store_close(r);
    store_bed_close(b);
    freeReplyObject(remote_ask("FLUSHALL"));
}

static void compare_ways(const kvern_layer *layers, size_t count)
{
    static const int64_t lengths[] = {41, 128, PROMPT - 1, PROMPT + 3};
    int32_t tokens[MORE];
    prompt(tokens);
    for (int decodes = 0; decodes < 2; decodes++) {
        store_bed *b = store_bed_open(layers, count, 0, 0);
        kvern_state *cold = store_state(b, 1);
        float *wanted = results(cold, tokens, decodes);
        kvern_state_destroy(cold);
        const uint64_t before = fetched;
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            write_row(b, tokens, lengths[i]);
            compare_fetched(layers, count, tokens, decodes, wanted);
        }
        assert_true(fetched >= before + 3);
        free(wanted);
        store_bed_close(b);
    }
}

static void compare_layer(kvern_layer layer, const char *name)
{
    (void)name;
    compare_ways(&layer, 1);
}

static void every_storage_is_the_same_fetched(void **state)
{
    (void)state;
    for_every_storage(compare_layer, 1, 64, 40);
    assert_true(hits > 0);
}

static void latents_and_recurrent_layers_are_the_same_fetched(void **state)
{
    (void)state;
    compare_layer(kvern_layer_latent(32, 16, 24), "latents");
    compare_layer(kvern_layer_ssd(1, 2, 16, 8, 3), "ssd");
    compare_layer(kvern_layer_delta(1, 2, 16, 16, 4), "delta");
    compare_layer(kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 2, 2, 24, 16, 2), "delta");
    assert_true(hits > 0);
}

static void mixed_and_hybrid_states_are_the_same_fetched(void **state)
{
    (void)state;
    kvern_layer mixed[MIXED_LAYERS], hybrid[HYBRID_LAYERS];
    mixed_plan(mixed);
    hybrid_plan(hybrid);
    compare_ways(mixed, MIXED_LAYERS);
    compare_ways(hybrid, HYBRID_LAYERS - 1);
    assert_true(hits > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_storage_is_the_same_fetched),
        TEST(latents_and_recurrent_layers_are_the_same_fetched),
        TEST(mixed_and_hybrid_states_are_the_same_fetched),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
