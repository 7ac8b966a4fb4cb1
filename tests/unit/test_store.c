// SPDX-License-Identifier: MIT
// The store of prefixes: what is kept, what is found and why not, what goes first.

#include "src/base/sized.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"
#include "tests/support/store_bed.h"

#include <stdlib.h>
#include <string.h>

// 0 to 99 of token 1, then of token 2 and so on: the prompt of `token` shares `common` tokens of 1.
static void prompt(int32_t *tokens, size_t common, size_t count, int32_t token)
{
    store_repeat(tokens, common, 1);
    store_repeat(tokens + common, count - common, token);
}

// ---- Finding and lending ----

static void an_empty_store_finds_nothing(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[10];
    prompt(tokens, 10, 10, 1);
    const kvern_store_hit hit = store_find(b, NULL, tokens, 10);
    assert_null(hit.entry);
    assert_int_equal(hit.positions, 0);
    assert_int_equal(hit.why, KVERN_STORE_NO_KEY);
    const kvern_store_stats stats = store_stats(b);
    assert_int_equal(stats.lookups.count, 1);
    assert_int_equal(stats.lookups.misses, 1);
    assert_int_equal(stats.lookups.why_missed[KVERN_STORE_NO_KEY], 1);
    assert_int_equal(stats.entries, 0);
    store_bed_close(b);
}

static void a_prefix_is_lent_and_goes_on(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t stored[100], asked[120];
    prompt(stored, 80, 100, 2);
    prompt(asked, 80, 120, 3);
    store_put(b, NULL, stored, 100);
    store_expect_sound(b);
    kvern_store_hit hit = store_find(b, NULL, asked, 120);
    assert_int_equal(hit.positions, 80);
    assert_int_equal(hit.common, 80);
    assert_int_equal(hit.why, KVERN_STORE_TOKENS);
    kvern_state *s = store_state(b, 3);
    assert_ok(kvern_store_lend(b->store, &hit, s, 2));
    assert_ok(kvern_store_lend(b->store, &hit, s, 0)); // and once more
    kvern_store_release(b->store, &hit);
    assert_int_equal(kvern_state_length(s, 2), 80);
    expect_sound_state(s);
    store_expect_goes_on(b, s, 2, asked, 120);
    store_expect_goes_on(b, s, 0, stored, 100);
    expect_sound_state(s);
    const kvern_store_stats stats = store_stats(b);
    assert_int_equal(stats.lookups.partial_hits, 1);
    assert_int_equal(stats.lookups.loans, 2);
    assert_int_equal(stats.lookups.tokens_lent, 160);
    assert_int_equal(stats.lookups.tokens_asked, 120);
    assert_int_equal(stats.publications, 1);
    kvern_state_destroy(s);
    store_bed_close(b);
}

static void the_longest_usable_prefix_wins(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[40], asked[40];
    for (size_t common = 5; common <= 30; common += 5) {
        prompt(tokens, common, 40, 1 + (int32_t)common);
        store_put(b, NULL, tokens, 40);
    }
    prompt(asked, 23, 40, 99);
    assert_int_equal(store_found(b, NULL, asked, 40), 23); // of the entry with 25
    assert_int_equal(store_found(b, NULL, asked, 20), 19);
    prompt(asked, 40, 40, 1);
    assert_int_equal(store_found(b, NULL, asked, 40), 30);
    store_expect_sound(b);
    store_bed_close(b);
}

static void negative_tokens_and_the_largest_are_tokens(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    const int32_t stored[4] = {INT32_MIN, 0, INT32_MAX, -1};
    int32_t asked[5] = {INT32_MIN, 0, INT32_MAX, -1, 7};
    // What they hold follows from small tokens here; the keys are what matters.
    kvern_state *s = store_cold(b, (int32_t[4]){1, 2, 3, 4}, 4);
    assert_ok(kvern_store_publish(b->store, NULL, stored, 4, s, 0, NULL));
    assert_int_equal(store_found(b, NULL, asked, 5), 4);
    asked[0] = INT32_MAX;
    assert_int_equal(store_found(b, NULL, asked, 5), 0);
    kvern_state_destroy(s);
    store_bed_close(b);
}

static void publishing_and_lending_share_pages(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[640];
    prompt(tokens, 640, 640, 1);
    kvern_state *s = store_cold(b, tokens, 640), *t = store_state(b, 1);
    kvern_memory before = kvern_memory_default(), after = kvern_memory_default();
    assert_ok(kvern_context_memory(b->context, &before));
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 640, s, 0, NULL));
    kvern_store_hit hit = store_find(b, NULL, tokens, 640);
    assert_ok(kvern_store_lend(b->store, &hit, t, 0));
    assert_ok(kvern_context_memory(b->context, &after));
    assert_int_equal(before.page_bytes, after.page_bytes);
    assert_int_equal(store_stats(b).page_bytes, kvern_state_bytes(s));
    kvern_store_release(b->store, &hit);
    kvern_state_destroy(s); // the entry lives on, and counts as before
    assert_int_equal(store_stats(b).page_bytes, before.page_bytes);
    kvern_state_destroy(t);
    store_expect_sound(b);
    store_bed_close(b);
}

// ---- Reasons ----

static void every_miss_has_its_reason(void **state)
{
    (void)state;
    const storage later = {
        "4 bits from 70 on", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), 70, 0, 0};
    const storage precise = {
        "4 bits behind 10", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), KVERN_NO_START, 10, 0};
    const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
    const struct {
        kvern_layer layer;
        kvern_store_why why;
    } cases[] = {
        {storage_layer(&later, 1, 64), KVERN_STORE_FLOOR},
        {storage_window(&bf16, 1, 64, 8, 0, 2), KVERN_STORE_WINDOW},
        {storage_chunked(&bf16, 1, 64, 16, 0), KVERN_STORE_WINDOW},
        {kvern_layer_ssd(1, 2, 16, 8, 3), KVERN_STORE_CHECKPOINT},
        {storage_layer(&precise, 1, 64), KVERN_STORE_PRECISE},
    };
    int32_t stored[200], asked[200];
    prompt(stored, 100, 200, 2);
    prompt(asked, 20, 200, 3);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        store_bed *b = store_bed_open(&cases[c].layer, 1, 0, 0);
        store_put(b, NULL, stored, 200);
        const kvern_store_hit hit = store_find(b, NULL, asked, 200);
        assert_int_equal(hit.positions, 0);
        assert_null(hit.entry);
        assert_int_equal(hit.common, 20);
        assert_int_equal(hit.why, cases[c].why);
        assert_int_equal(store_stats(b).lookups.why_missed[cases[c].why], 1);
        assert_true(strlen(kvern_store_why_text(hit.why)) > 10);
        store_bed_close(b);
    }
    assert_string_equal(kvern_store_why_text((kvern_store_why)77), "unknown reason");
}

static void other_reasons(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20], other[20];
    prompt(tokens, 20, 20, 1);
    prompt(other, 0, 20, 2);
    store_put(b, NULL, tokens, 20);
    assert_int_equal(store_find(b, NULL, tokens, 1).why, KVERN_STORE_SHORT_PROMPT);
    assert_int_equal(store_find(b, NULL, NULL, 0).why, KVERN_STORE_SHORT_PROMPT);
    assert_int_equal(store_find(b, NULL, other, 20).why, KVERN_STORE_TOKENS);
    const kvern_store_key key = {&(kvern_store_field){"adapter", "a", 1}, 1};
    assert_int_equal(store_find(b, &key, tokens, 20).why, KVERN_STORE_NO_KEY);
    kvern_store_hit hit = store_find(b, NULL, tokens, 20);
    assert_int_equal(hit.why, KVERN_STORE_ALL);
    assert_int_equal(hit.positions, 19);
    kvern_store_release(b->store, &hit);
    store_bed_close(b);
}

// Rows of other layers are not found, and refused with both signatures where they are lent.
static void other_signatures_are_refused(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20];
    prompt(tokens, 20, 20, 1);
    store_put(b, NULL, tokens, 20);
    const kvern_layer layers[2] = {kvern_layer_default(1, 32), kvern_layer_default(1, 16)};
    kvern_composition *wide, *two, *same;
    assert_ok(kvern_composition_create(b->context, layers, 1, &wide));
    assert_ok(kvern_composition_create(b->context, layers, 2, &two));
    assert_ok(kvern_composition_create(b->context, layers + 1, 1, &same));
    kvern_store_hit hit = kvern_store_hit_default();
    assert_ok(kvern_store_find(b->store, NULL, wide, tokens, 20, &hit));
    assert_null(hit.entry);
    assert_int_equal(hit.why, KVERN_STORE_SIGNATURE);
    assert_ok(kvern_store_find(b->store, NULL, same, tokens, 20, &hit));
    assert_int_equal(hit.positions, 19);
    kvern_state *s, *t;
    assert_ok(kvern_state_create(wide, 1, &s));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_store_lend(b->store, &hit, s, 0));
    assert_non_null(strstr(kvern_error_detail(), "layer 0"));
    assert_non_null(strstr(kvern_error_detail(), kvern_composition_signature(wide, 0)));
    assert_non_null(strstr(kvern_error_detail(), kvern_composition_signature(same, 0)));
    assert_ok(kvern_state_create(two, 1, &t));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_store_lend(b->store, &hit, t, 0));
    assert_int_equal(kvern_state_length(s, 0), 0);
    kvern_store_release(b->store, &hit);
    kvern_state_destroy(s);
    kvern_state_destroy(t);
    // Both kinds side by side under one key.
    assert_ok(kvern_state_create(wide, 1, &s));
    store_serve(s, 0, tokens, 20, NULL);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 20, s, 0, NULL));
    assert_int_equal(store_stats(b).entries, 2);
    kvern_state_destroy(s);
    kvern_composition_release(wide);
    kvern_composition_release(two);
    kvern_composition_release(same);
    store_expect_sound(b);
    store_bed_close(b);
}

// ---- What is published ----

static void what_cannot_be_published_is_refused(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20];
    prompt(tokens, 20, 20, 1);
    kvern_state *s = store_cold(b, tokens, 10), *empty = store_state(b, 1);
    kvern_store *store = b->store;
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_publish(NULL, NULL, tokens, 10, s, 0, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_publish(store, NULL, NULL, 10, s, 0, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_publish(store, NULL, tokens, 10, NULL, 0, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_store_publish(store, NULL, tokens, 10, s, 1, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_store_publish(store, NULL, tokens, 9, s, 0, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_store_publish(store, NULL, tokens, 11, s, 0, NULL));
    assert_non_null(strstr(kvern_error_detail(), "10 positions"));
    assert_status(KVERN_ERR_RANGE, kvern_store_publish(store, NULL, tokens, 0, empty, 0, NULL));
    kvern_store_publication publication = kvern_store_publication_default();
    publication.retention = (kvern_store_retention)3;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_store_publish(store, NULL, tokens, 10, s, 0, &publication));
    publication = kvern_store_publication_default();
    publication.without_checkpoints = 2;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_store_publish(store, NULL, tokens, 10, s, 0, &publication));
    publication.size = 3;
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_publish(store, NULL, tokens, 10, s, 0, &publication));
    assert_int_equal(store_stats(b).entries, 0);
    kvern_state_destroy(s);
    kvern_state_destroy(empty);
    store_bed_close(b);
}

static void what_is_open_is_busy(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20];
    const int64_t one = 1, none = 0;
    prompt(tokens, 20, 20, 1);
    kvern_state *s = store_cold(b, tokens, 10), *t = store_state(b, 1);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 10, s, 0, NULL));
    kvern_store_hit hit = store_find(b, NULL, tokens, 20);
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, &one));
    assert_status(KVERN_ERR_BUSY, kvern_store_publish(b->store, NULL, tokens, 10, s, 0, NULL));
    kvern_step_abandon(s);
    assert_ok(kvern_round_begin(s, &one));
    assert_status(KVERN_ERR_BUSY, kvern_store_publish(b->store, NULL, tokens, 10, s, 0, NULL));
    assert_ok(kvern_round_rollback(s, &none));
    assert_ok(kvern_step_begin(t, KVERN_PHASE_DECODE, &none));
    assert_status(KVERN_ERR_BUSY, kvern_store_lend(b->store, &hit, t, 0));
    kvern_step_abandon(t);
    assert_ok(kvern_store_lend(b->store, &hit, t, 0));
    assert_status(KVERN_ERR_BUSY, kvern_store_lend(b->store, &hit, t, 0)); // not empty any more
    assert_status(KVERN_ERR_RANGE, kvern_store_lend(b->store, &hit, t, 1));
    kvern_store_release(b->store, &hit);
    kvern_store_release(b->store, &hit); // nothing happens
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_lend(b->store, &hit, t, 0));
    kvern_state_destroy(s);
    kvern_state_destroy(t);
    store_bed_close(b);
}

static void a_context_has_one_store(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_store *other = b->store;
    assert_status(KVERN_ERR_BUSY, kvern_store_create(b->context, NULL, &other));
    assert_null(other);
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_create(NULL, NULL, &other));
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_create(b->context, NULL, NULL));
    kvern_store_destroy(b->store);
    kvern_store_options options = kvern_store_options_default();
    options.budget_bytes = 1;
    assert_status(KVERN_ERR_BUDGET, kvern_store_create(b->context, &options, &b->store));
    options.size = 1;
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_create(b->context, &options, &b->store));
    assert_ok(kvern_store_create(b->context, NULL, &b->store)); // there is none any more
    // Rows of another context have no place in it.
    store_bed *c = store_bed_small(0);
    int32_t tokens[10];
    prompt(tokens, 10, 10, 1);
    kvern_state *s = store_cold(c, tokens, 10);
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_publish(b->store, NULL, tokens, 10, s, 0, NULL));
    store_put(b, NULL, tokens, 10);
    kvern_store_hit hit = store_find(b, NULL, tokens, 10);
    kvern_state *t = store_state(c, 1);
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_lend(b->store, &hit, t, 0));
    kvern_store_release(b->store, &hit);
    kvern_state_destroy(s);
    kvern_state_destroy(t);
    store_bed_close(c);
    kvern_store_destroy(NULL);
    store_bed_close(b);
}

static void an_entry_of_equal_tokens_is_replaced(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[100];
    prompt(tokens, 60, 100, 2);
    store_put(b, NULL, tokens, 100);
    const uint64_t bytes = store_stats(b).bytes;
    store_put(b, NULL, tokens, 100);
    kvern_store_stats stats = store_stats(b);
    assert_int_equal(stats.entries, 1);
    assert_int_equal(stats.replaced, 1);
    assert_int_equal(stats.bytes, bytes);
    // What was found goes on being lent, whatever takes its place.
    kvern_store_hit hit = store_find(b, NULL, tokens, 100);
    store_put(b, NULL, tokens, 100);
    stats = store_stats(b);
    assert_int_equal(stats.pinned, 1);
    assert_true(stats.bytes > bytes);
    kvern_state *s = store_state(b, 1);
    assert_ok(kvern_store_lend(b->store, &hit, s, 0));
    kvern_store_release(b->store, &hit);
    store_expect_goes_on(b, s, 0, tokens, 100);
    assert_int_equal(store_stats(b).bytes, bytes);
    kvern_state_destroy(s);
    store_expect_sound(b);
    store_bed_close(b);
}

// A longer entry serves all that its beginnings do, if it can be cut back so far.
static void beginnings_go_where_the_longer_one_serves_them(void **state)
{
    (void)state;
    int32_t tokens[120];
    prompt(tokens, 120, 120, 1);
    const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
    const storage later = {
        "4 bits from 70 on", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), 70, 0, 0};
    const struct {
        kvern_layer layer;
        size_t entries[3]; // after 40, 80, 120 tokens
    } cases[] = {
        {storage_layer(&bf16, 1, 64), {1, 1, 1}},
        {storage_window(&bf16, 1, 64, 8, 0, 2), {1, 2, 3}},
        {kvern_layer_ssd(1, 2, 16, 8, 3), {1, 2, 3}},
        {storage_layer(&later, 1, 64), {1, 2, 2}}, // 80 and 120 serve down to 70
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        store_bed *b = store_bed_open(&cases[c].layer, 1, 0, 0);
        for (size_t i = 0; i < 3; i++) {
            store_put(b, NULL, tokens, 40 * (i + 1));
            assert_int_equal(store_stats(b).entries, cases[c].entries[i]);
        }
        assert_int_equal(store_stats(b).served_by_longer, 3 - cases[c].entries[2]);
        assert_int_equal(store_found(b, NULL, tokens, 41), 40);
        assert_int_equal(store_found(b, NULL, tokens, 81), 80);
        store_expect_sound(b);
        store_bed_close(b);
    }
}

// Recurrent rows are served where they were kept, and the caller serves the rest again.
static void checkpoints_become_entries(void **state)
{
    (void)state;
    kvern_layer layers[HYBRID_LAYERS];
    hybrid_plan(layers);
    store_bed *b = store_bed_open(layers, HYBRID_LAYERS - 1, 0, 0);
    int32_t tokens[100];
    prompt(tokens, 60, 100, 2);
    kvern_state *s = store_state(b, 1), *t = store_state(b, 1);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    for (int64_t length = 20; length <= 100; length += 20) {
        store_serve(s, 0, tokens, length, NULL);
        assert_ok(kvern_state_checkpoint(s, 0));
    }
    kvern_store_publication alone = kvern_store_publication_default();
    alone.without_checkpoints = 1;
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 100, s, 0, &alone));
    assert_int_equal(store_stats(b).entries, 1);
    assert_int_equal(store_found(b, NULL, tokens, 100), 0);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 100, s, 0, NULL));
    assert_int_equal(store_stats(b).entries, 5);
    assert_int_equal(store_stats(b).checkpoints_left_out, 0);
    store_expect_sound(b);
    kvern_state_destroy(s);
    kvern_store_hit hit = store_find(b, NULL, tokens, 75);
    assert_int_equal(hit.positions, 60);
    assert_int_equal(hit.common, 75);
    assert_int_equal(hit.why, KVERN_STORE_CHECKPOINT);
    assert_ok(kvern_store_lend(b->store, &hit, t, 0));
    kvern_store_release(b->store, &hit);
    expect_sound_state(t);
    store_expect_goes_on(b, t, 0, tokens, 100);
    kvern_state_destroy(t);
    assert_int_equal(store_found(b, NULL, tokens, 100), 80);
    store_bed_close(b);
}

// ---- The budget ----

// Bytes of a store with these prompts of 64 tokens.
static uint64_t bytes_of(size_t prompts)
{
    store_bed *b = store_bed_small(0);
    int32_t tokens[64];
    for (size_t i = 0; i < prompts; i++) {
        prompt(tokens, 0, 64, (int32_t)i + 10);
        store_put(b, NULL, tokens, 64);
    }
    const uint64_t bytes = store_stats(b).bytes;
    store_bed_close(b);
    return bytes;
}

static void publish_as(store_bed *b, int32_t token, kvern_store_retention retention)
{
    int32_t tokens[64];
    kvern_store_publication publication = kvern_store_publication_default();
    publication.retention = retention;
    prompt(tokens, 0, 64, token);
    kvern_state *s = store_cold(b, tokens, 64);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 64, s, 0, &publication));
    kvern_state_destroy(s);
    store_expect_sound(b);
}

// Whether it is there; looking does not count as use, unless something is found.
static bool has(store_bed *b, int32_t token)
{
    int32_t tokens[64];
    prompt(tokens, 0, 64, token);
    return store_found(b, NULL, tokens, 64) == 63;
}

// Room for four, and for what a publication books beyond what stays of it.
static store_bed *bed_of_four(void)
{
    return store_bed_small(bytes_of(4) + 1000);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    store_bed *b = bed_of_four();
    for (int32_t t = 10; t < 14; t++)
        publish_as(b, t, KVERN_STORE_NORMAL);
    assert_int_equal(store_stats(b).evictions, 0);
    assert_true(has(b, 10)); // a use
    publish_as(b, 14, KVERN_STORE_NORMAL);
    assert_int_equal(store_stats(b).evictions, 1);
    assert_int_equal(store_stats(b).entries, 4);
    assert_false(has(b, 11));
    assert_true(has(b, 10));
    assert_true(has(b, 12));
    assert_true(store_stats(b).bytes <= store_stats(b).budget_bytes);
    store_bed_close(b);
}

// What goes takes tokens and nodes of the index along; with these counted no other has to go.
static void no_more_go_than_must(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(bytes_of(4) + 300);
    for (int32_t t = 10; t < 14; t++)
        publish_as(b, t, KVERN_STORE_NORMAL);
    assert_true(has(b, 10)); // whose block begins with the key of all
    publish_as(b, 14, KVERN_STORE_NORMAL);
    assert_int_equal(store_stats(b).entries, 4);
    assert_int_equal(store_stats(b).evictions, 1);
    assert_false(has(b, 11));
    store_bed_close(b);
}

static void a_pinned_beginning_stays(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[100];
    prompt(tokens, 100, 100, 1);
    store_put(b, NULL, tokens, 50);
    kvern_store_hit hit = store_find(b, NULL, tokens, 51);
    assert_int_equal(hit.positions, 50);
    store_put(b, NULL, tokens, 100);
    assert_int_equal(store_stats(b).entries, 2);
    assert_true(store_has(b, NULL, tokens, 50));
    kvern_store_release(b->store, &hit);
    store_put(b, NULL, tokens, 100); // the next one takes it away
    assert_int_equal(store_stats(b).entries, 1);
    assert_int_equal(store_stats(b).served_by_longer, 1);
    store_expect_sound(b);
    store_bed_close(b);
}

static void retention_slows_time_down(void **state)
{
    (void)state;
    store_bed *b = bed_of_four();
    publish_as(b, 10, KVERN_STORE_LONG);
    publish_as(b, 11, KVERN_STORE_NORMAL);
    publish_as(b, 12, KVERN_STORE_SHORT);
    publish_as(b, 13, KVERN_STORE_SHORT);
    for (int32_t t = 14; t < 17;
         t++) { // 12, 13, and 14 before 11, which is unused four times as long
        publish_as(b, t, KVERN_STORE_SHORT);
        assert_int_equal(store_stats(b).entries, 4);
    }
    assert_int_equal(store_stats(b).evictions, 3);
    publish_as(b, 17, KVERN_STORE_SHORT); // and 11
    assert_true(has(b, 15));
    for (int32_t t = 20; t < 60; t++) // and a LONG one goes at last
        publish_as(b, t, KVERN_STORE_SHORT);
    assert_false(has(b, 10));
    assert_false(has(b, 11));
    store_bed_close(b);
    b = bed_of_four(); // while other LONG ones take their turns after a SHORT one
    publish_as(b, 10, KVERN_STORE_LONG);
    for (int32_t t = 20; t < 28; t++)
        publish_as(b, t, KVERN_STORE_SHORT);
    assert_true(has(b, 10));
    store_bed_close(b);
}

static void pinned_entries_stay(void **state)
{
    (void)state;
    store_bed *b = bed_of_four();
    int32_t tokens[64];
    kvern_store_hit hits[4];
    for (int32_t t = 10; t < 14; t++) {
        publish_as(b, t, KVERN_STORE_NORMAL);
        prompt(tokens, 0, 64, t);
        hits[t - 10] = store_find(b, NULL, tokens, 64);
    }
    assert_int_equal(store_stats(b).pinned, 4);
    prompt(tokens, 0, 64, 20);
    kvern_state *s = store_cold(b, tokens, 64);
    assert_status(KVERN_ERR_BUDGET, kvern_store_publish(b->store, NULL, tokens, 64, s, 0, NULL));
    assert_int_equal(kvern_store_give_up(b->store, UINT64_MAX), 0);
    assert_int_equal(store_stats(b).entries, 4);
    assert_int_equal(store_stats(b).refused, 1);
    kvern_store_release(b->store, &hits[2]);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 64, s, 0, NULL));
    assert_false(has(b, 12));
    kvern_state_destroy(s);
    for (int i = 0; i < 4; i++)
        kvern_store_release(b->store, &hits[i]);
    assert_int_equal(store_stats(b).pinned, 0);
    store_expect_sound(b);
    store_bed_close(b);
}

// One that does not fit at all evicts nothing; with some that could go but do not suffice, neither.
static void what_does_not_fit_evicts_nothing(void **state)
{
    (void)state;
    store_bed *b = bed_of_four();
    int32_t tokens[64 * 5];
    for (int32_t t = 10; t < 14; t++)
        publish_as(b, t, KVERN_STORE_NORMAL);
    const uint64_t bytes = store_stats(b).bytes;
    prompt(tokens, 0, 64 * 5, 20);
    kvern_state *s = store_cold(b, tokens, 64 * 5);
    assert_status(KVERN_ERR_BUDGET,
                  kvern_store_publish(b->store, NULL, tokens, 64 * 5, s, 0, NULL));
    kvern_state_destroy(s);
    prompt(tokens, 0, 64, 10);
    kvern_store_hit hit = store_find(b, NULL, tokens, 64);
    prompt(tokens, 0, 64 * 3 + 1, 21);
    s = store_cold(b, tokens, 64 * 3 + 1);
    assert_status(KVERN_ERR_BUDGET,
                  kvern_store_publish(b->store, NULL, tokens, 64 * 3 + 1, s, 0, NULL));
    kvern_state_destroy(s);
    store_expect_sound(b);
    assert_int_equal(store_stats(b).entries, 4);
    assert_int_equal(store_stats(b).evictions, 0);
    assert_int_equal(store_stats(b).bytes, bytes);
    kvern_store_release(b->store, &hit);
    for (int32_t t = 11; t < 15; t++) // in the order that they had
        publish_as(b, t + 100, KVERN_STORE_NORMAL), assert_false(has(b, t == 14 ? 10 : t));
    store_bed_close(b);
}

static void shared_pages_count_once(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[640];
    prompt(tokens, 640, 640, 1);
    store_put(b, NULL, tokens, 640);
    const uint64_t pages = store_stats(b).page_bytes;
    // Ten branches of it, each with a page of its own.
    for (int32_t t = 0; t < 10; t++) {
        int32_t branch[656];
        memcpy(branch, tokens, sizeof tokens);
        store_repeat(branch + 640, 16, 10 + t);
        kvern_state *s = store_state(b, 1);
        kvern_store_hit hit = store_find(b, NULL, branch, 656);
        assert_int_equal(hit.positions, 640);
        assert_ok(kvern_store_lend(b->store, &hit, s, 0));
        kvern_store_release(b->store, &hit);
        store_serve(s, 0, branch, 656, NULL);
        assert_ok(kvern_store_publish(b->store, NULL, branch, 656, s, 0, NULL));
        kvern_state_destroy(s);
        store_expect_sound(b);
    }
    const kvern_store_stats stats = store_stats(b);
    assert_int_equal(stats.entries, 10); // the first one's beginning is served by them
    assert_int_equal(stats.page_bytes, pages / 10 * 20);
    // Nobody else has them: they are all that the context has.
    kvern_memory memory = kvern_memory_default();
    assert_ok(kvern_context_memory(b->context, &memory));
    assert_int_equal(memory.page_bytes, stats.page_bytes);
    store_bed_close(b);
}

// Bytes that rows still share are no help to who is short of memory.
static void giving_up_counts_what_goes_back(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[128];
    kvern_memory before = kvern_memory_default(), after = kvern_memory_default();
    prompt(tokens, 0, 128, 9);
    kvern_state *s = store_cold(b, tokens, 128);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 128, s, 0, NULL)); // the oldest
    for (int32_t t = 10; t < 14; t++)
        publish_as(b, t, KVERN_STORE_NORMAL);
    assert_ok(kvern_context_memory(b->context, &before));
    const uint64_t page = (store_stats(b).page_bytes - kvern_state_bytes(s)) / 4;
    assert_int_equal(kvern_store_give_up(b->store, 0), 0);
    const uint64_t given = kvern_store_give_up(b->store, page + 1);
    assert_ok(kvern_context_memory(b->context, &after));
    assert_true(given >= page + 1);
    assert_true(before.page_bytes - after.page_bytes >= page);
    assert_true(before.page_bytes - after.page_bytes <= given);
    assert_true(store_stats(b).entries >= 2);
    assert_false(has(b, 9));
    assert_true(has(b, 13));
    int32_t more[129];
    prompt(more, 0, 129, 9);
    store_expect_goes_on(b, s, 0, more, 129); // its row is what it was
    kvern_state_destroy(s);
    assert_true(kvern_store_give_up(b->store, UINT64_MAX) > 0);
    assert_int_equal(store_stats(b).entries, 0);
    assert_ok(kvern_context_memory(b->context, &after));
    assert_int_equal(after.page_bytes, 0);
    store_bed_close(b);
}

static void finding_takes_no_memory(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[100];
    prompt(tokens, 60, 100, 2);
    store_put(b, NULL, tokens, 100);
    kvern_state *s = store_state(b, 1);
    ledger_refuse_rest(&b->books, 0);
    kvern_store_hit hit = store_find(b, NULL, tokens, 100);
    assert_int_equal(hit.positions, 99);
    kvern_store_release(b->store, &hit);
    hit = store_find(b, NULL, tokens, 100);
    assert_false(b->books.refused); // nobody even asked
    assert_ok(kvern_store_lend(b->store, &hit, s, 0));
    ledger_relent(&b->books);
    kvern_store_release(b->store, &hit);
    store_expect_goes_on(b, s, 0, tokens, 100);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// A row that has room reserved keeps it when it is lent to.
static void reserved_rows_can_be_lent_to(void **state)
{
    (void)state;
    kvern_layer layers[HYBRID_LAYERS];
    hybrid_plan(layers);
    store_bed *b = store_bed_open(layers, HYBRID_LAYERS - 1, 0, 0);
    int32_t tokens[140];
    prompt(tokens, 60, 140, 2);
    store_put(b, NULL, tokens, 100); // behind the start of a layer
    store_put(b, NULL, tokens, 50);  // before it
    for (size_t length = 51; length <= 101; length += 50) {
        kvern_state *s = store_state(b, 1);
        assert_ok(kvern_state_reserve(s, 0, 140, HYBRID_HEADS));
        kvern_store_hit hit = store_find(b, NULL, tokens, length);
        assert_int_equal(hit.positions, length - 1);
        assert_ok(kvern_store_lend(b->store, &hit, s, 0));
        kvern_store_release(b->store, &hit);
        expect_sound_state(s);
        store_expect_goes_on(b, s, 0, tokens, 140);
        expect_sound_state(s);
        kvern_state_destroy(s);
    }
    store_bed_close(b);
}

// Nothing of it is coded yet, but it has reached its start: what leaves the precise positions next
// is coded. (An entry that forgot that was found by the random programs.)
static void a_start_that_was_reached_stays_reached(void **state)
{
    (void)state;
    const storage precise = {
        "8 bits behind 30", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(8, 32), 90, 30, 70};
    const kvern_layer layer = storage_layer(&precise, 2, 32);
    store_bed *b = store_bed_open(&layer, 1, 0, 0);
    int32_t tokens[230];
    prompt(tokens, 230, 230, 1);
    store_put(b, NULL, tokens, 219); // position 221 is the first one that reads codes
    kvern_store_hit hit = store_find(b, NULL, tokens, 220);
    kvern_state *s = store_state(b, 1);
    assert_ok(kvern_store_lend(b->store, &hit, s, 0));
    kvern_store_release(b->store, &hit);
    assert_true(kvern_cache_converted(kvern_state_cache(s, 0), 0));
    store_expect_goes_on(b, s, 0, tokens, 230);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// An append of tokens that all see each other, as those of an image do.
static void serve_image(kvern_state *s, int32_t token, int64_t count)
{
    const kvern_range all = {0, count};
    const size_t one = 1;
    const uint64_t sequence = (uint64_t)token + 1;
    assert_ok(kvern_step_begin(s, KVERN_PHASE_RANGES, &count));
    feed f = feed_create(kvern_state_cache(s, 0), &sequence, &count, HYBRID_HEADS);
    f.tokens.ranges = &all;
    f.tokens.range_counts = &one;
    assert_ok(feed_step_append(s, 0, &f, NULL));
    assert_ok(kvern_step_end(s));
    feed_destroy(&f);
}

// Tokens that see each other are reused all or not at all; what lies in front of them where it was
// published by itself.
static void an_image_is_not_cut_in_two(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[90], asked[90];
    prompt(tokens, 40, 60, 2); // 40 of text, an image of 20, more text
    store_repeat(tokens + 60, 30, 3);
    kvern_state *s = store_cold(b, tokens, 40), *t = store_state(b, 1);
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 40, s, 0, NULL));
    serve_image(s, 2, 20);
    store_serve(s, 0, tokens, 80, NULL);
    const uint64_t before = store_stats(b).bytes - store_stats(b).page_bytes;
    assert_ok(kvern_store_publish(b->store, NULL, tokens, 80, s, 0, NULL));
    assert_true(store_stats(b).bytes - store_stats(b).page_bytes > before + sizeof(kvern_range));
    store_expect_sound(b);
    memcpy(asked, tokens, sizeof asked);
    store_repeat(asked + 50, 40, 7);
    kvern_store_hit hit = store_find(b, NULL, asked, 90);
    assert_int_equal(hit.positions, 40);
    assert_int_equal(hit.common, 50);
    assert_int_equal(hit.why, KVERN_STORE_BOTH_WAYS);
    kvern_store_release(b->store, &hit);
    assert_int_equal(store_found(b, NULL, tokens, 61), 60);
    memcpy(asked, tokens, sizeof asked);
    store_repeat(asked + 70, 20, 7);
    hit = store_find(b, NULL, asked, 90);
    assert_int_equal(hit.positions, 70);
    assert_ok(kvern_store_lend(b->store, &hit, t, 0));
    kvern_store_release(b->store, &hit);
    expect_sound_state(t);
    assert_ok(kvern_state_trim(s, 0, 10));
    float wanted[2 * 2 * 16], got[2 * 2 * 16];
    hybrid_feed(s, KVERN_PHASE_WINDOW, 8, 2, wanted);
    hybrid_feed(t, KVERN_PHASE_WINDOW, 8, 2, got);
    check_same_floats(wanted, got, 2 * 2 * 16, "a row with an image");
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_trim(t, 0, 20)); // it remembers the image
    kvern_state_destroy(s);
    kvern_state_destroy(t);
    store_bed_close(b);
}

// ---- Keys ----

static void keys_are_checked(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[10];
    static char large[KVERN_STORE_MOST_KEY_BYTES];
    prompt(tokens, 10, 10, 1);
    kvern_store_hit hit = kvern_store_hit_default();
    kvern_store_field fields[KVERN_STORE_MOST_FIELDS + 1] = {{"b", "1", 1}, {"a", "2", 1}};
    const kvern_store_key two = {fields, 2},
                          turned = {(kvern_store_field[2]){fields[1], fields[0]}, 2};
    store_put(b, &two, tokens, 10);
    assert_int_equal(store_found(b, &turned, tokens, 10), 9); // any order
    fields[1].name = "b";
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_find(b->store, &two, b->composition, tokens, 10, &hit));
    fields[1].name = NULL;
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_find(b->store, &two, b->composition, tokens, 10, &hit));
    fields[1] = (kvern_store_field){"a", NULL, 1};
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_find(b->store, &two, b->composition, tokens, 10, &hit));
    fields[1] = (kvern_store_field){"a", large, sizeof large - 35};
    assert_ok(kvern_store_find(b->store, &two, b->composition, tokens, 10, &hit));
    fields[1] = (kvern_store_field){"a", large, sizeof large - 34};
    assert_status(KVERN_ERR_RANGE,
                  kvern_store_find(b->store, &two, b->composition, tokens, 10, &hit));
    fields[1].bytes = SIZE_MAX;
    assert_status(KVERN_ERR_RANGE,
                  kvern_store_find(b->store, &two, b->composition, tokens, 10, &hit));
    const kvern_store_key many = {fields, KVERN_STORE_MOST_FIELDS + 1}, none = {NULL, 1};
    assert_status(KVERN_ERR_RANGE,
                  kvern_store_find(b->store, &many, b->composition, tokens, 10, &hit));
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_find(b->store, &none, b->composition, tokens, 10, &hit));
    assert_status(KVERN_ERR_ARGUMENT, kvern_store_find(b->store, NULL, NULL, tokens, 10, &hit));
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_find(b->store, NULL, b->composition, NULL, 10, &hit));
    hit.size = 1;
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_store_find(b->store, NULL, b->composition, tokens, 10, &hit));
    assert_null(hit.entry);
    store_bed_close(b);
}

// The largest key that is permitted fills the words that there are for it.
static void the_largest_key_fits(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    static char values[KVERN_STORE_MOST_KEY_BYTES];
    char names[KVERN_STORE_MOST_FIELDS][2];
    kvern_store_field fields[KVERN_STORE_MOST_FIELDS];
    int32_t tokens[10];
    prompt(tokens, 10, 10, 1);
    for (size_t f = 0; f < KVERN_STORE_MOST_FIELDS; f++) {
        names[f][0] = (char)('a' + f);
        names[f][1] = 0;
        fields[f] = (kvern_store_field){names[f], values, 0};
        fields[f].bytes = KVERN_STORE_MOST_KEY_BYTES / KVERN_STORE_MOST_FIELDS - 17;
    }
    const kvern_store_key key = {fields, KVERN_STORE_MOST_FIELDS};
    store_put(b, &key, tokens, 10);
    assert_int_equal(store_found(b, &key, tokens, 10), 9);
    fields[15].bytes--;
    assert_int_equal(store_found(b, &key, tokens, 10), 0);
    store_bed_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_store_finds_nothing),
        cmocka_unit_test(a_prefix_is_lent_and_goes_on),
        cmocka_unit_test(the_longest_usable_prefix_wins),
        cmocka_unit_test(negative_tokens_and_the_largest_are_tokens),
        cmocka_unit_test(publishing_and_lending_share_pages),
        cmocka_unit_test(every_miss_has_its_reason),
        cmocka_unit_test(other_reasons),
        cmocka_unit_test(other_signatures_are_refused),
        cmocka_unit_test(what_cannot_be_published_is_refused),
        cmocka_unit_test(what_is_open_is_busy),
        cmocka_unit_test(a_context_has_one_store),
        cmocka_unit_test(an_entry_of_equal_tokens_is_replaced),
        cmocka_unit_test(beginnings_go_where_the_longer_one_serves_them),
        cmocka_unit_test(checkpoints_become_entries),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(no_more_go_than_must),
        cmocka_unit_test(a_pinned_beginning_stays),
        cmocka_unit_test(retention_slows_time_down),
        cmocka_unit_test(pinned_entries_stay),
        cmocka_unit_test(what_does_not_fit_evicts_nothing),
        cmocka_unit_test(shared_pages_count_once),
        cmocka_unit_test(giving_up_counts_what_goes_back),
        cmocka_unit_test(finding_takes_no_memory),
        cmocka_unit_test(reserved_rows_can_be_lent_to),
        cmocka_unit_test(a_start_that_was_reached_stays_reached),
        cmocka_unit_test(an_image_is_not_cut_in_two),
        cmocka_unit_test(keys_are_checked),
        cmocka_unit_test(the_largest_key_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
