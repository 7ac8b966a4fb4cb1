// SPDX-License-Identifier: MIT
// Faults that other systems shipped in prefix reuse, as scenarios.

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"
#include "tests/support/store_bed.h"

#include <stdlib.h>
#include <string.h>

static const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};

static store_bed *open_one(kvern_layer layer)
{
    return store_bed_open(&layer, 1, 0, 0);
}

// Finds, lends to a new state of one row, and lets go.
static kvern_state *lent(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                         size_t count, int64_t positions)
{
    kvern_state *s = store_state(b, 1);
    kvern_store_hit hit = store_find(b, key, tokens, count);
    assert_int_equal(hit.positions, positions);
    if (positions)
        assert_ok(kvern_store_lend(b->store, &hit, s, 0));
    kvern_store_release(b->store, &hit);
    assert_int_equal(kvern_state_length(s, 0), positions);
    return s;
}

// D5: a row that was trimmed below the length of its conversion stays converted; nobody else may
// reuse it, and it is not kept.
static void fault_d5_trim_below_the_frontier(void **state)
{
    (void)state;
    const storage later = {"later", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), 8, 0, 0};
    store_bed *b = open_one(storage_layer(&later, 1, 64));
    int32_t tokens[14], other[14];
    store_repeat(tokens, 14, 1);
    store_repeat(other, 14, 1);
    store_repeat(other + 4, 10, 2);
    kvern_state *s = store_state(b, 1);
    hybrid_feed(s, KVERN_PHASE_WINDOW, 2, 10, NULL); // of token 1: one append past the start
    assert_int_equal(kvern_state_min_reusable(s, 0), 10);
    assert_ok(kvern_state_trim(s, 0, 6));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_store_publish(b->store, NULL, tokens, 4, s, 0, NULL));
    assert_non_null(strstr(kvern_error_detail(), "below 10"));
    assert_int_equal(store_stats(b).entries, 0);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    assert_ok(kvern_state_checkpoint(s, 0)); // which does not become an entry either
    store_serve(s, 0, other, 12, NULL);      // of its own it may go on, and is kept from 10 on
    assert_ok(kvern_store_publish(b->store, NULL, other, 12, s, 0, NULL));
    assert_int_equal(store_stats(b).entries, 1);
    assert_int_equal(store_found(b, NULL, other, 11), 10);
    const kvern_store_hit hit = store_find(b, NULL, other, 10);
    assert_int_equal(hit.positions, 0);
    assert_int_equal(hit.why, KVERN_STORE_FLOOR);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// I1: an exact hit leaves one token to run; kinds that cannot be cut fall back.
static void fault_i1_zero_remainder(void **state)
{
    (void)state;
    int32_t tokens[8];
    store_repeat(tokens, 8, 1);
    store_bed *b = open_one(storage_layer(&bf16, 1, 64));
    store_put(b, NULL, tokens, 8);
    kvern_state *s = lent(b, NULL, tokens, 8, 7);
    store_expect_goes_on(b, s, 0, tokens, 8);
    kvern_state_destroy(s);
    store_bed_close(b);
    b = open_one(kvern_layer_ssd(1, 2, 16, 8, 3));
    store_put(b, NULL, tokens, 8);
    assert_int_equal(store_found(b, NULL, tokens, 8), 0); // cold
    store_put(b, NULL, tokens, 5);
    s = lent(b, NULL, tokens, 8, 5); // what was kept before
    store_expect_goes_on(b, s, 0, tokens, 8);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// I3: no gap between what is lent and what is run, and no repeat.
static void fault_i3_gap_token(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_layer(&bf16, 1, 64));
    int32_t tokens[15];
    store_repeat(tokens, 10, 1);
    store_repeat(tokens + 10, 5, 2);
    store_put(b, NULL, tokens, 10);
    kvern_state *s = lent(b, NULL, tokens, 15, 10);
    const int64_t five = 5;
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &five));
    assert_int_equal(kvern_step_position(s, 0), 10);
    kvern_step_abandon(s);
    store_expect_goes_on(b, s, 0, tokens, 15);
    assert_int_equal(kvern_state_length(s, 0), 15);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// I4: what is cut off is a number of tokens, whatever steps memory grows by.
static void fault_i4_allocation_step_as_length(void **state)
{
    (void)state;
    const struct {
        size_t stored, shared;
    } cases[] = {{300, 280}, {200, 180}, {65, 64}, {64, 63}, {129, 65}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        store_bed *b = open_one(storage_layer(&bf16, 1, 64));
        int32_t stored[300], asked[310];
        store_repeat(stored, 300, 1);
        store_repeat(asked, cases[c].shared, 1);
        store_repeat(asked + cases[c].shared, 310 - cases[c].shared, 2);
        store_put(b, NULL, stored, cases[c].stored);
        kvern_state *s = lent(b, NULL, asked, 310, (int64_t)cases[c].shared);
        store_expect_goes_on(b, s, 0, asked, 310);
        kvern_state_destroy(s);
        store_bed_close(b);
    }
}

// I6: tokens that were cut off do not come back.
static void fault_i6_resurrected_tokens(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_layer(&bf16, 1, 64));
    int32_t tokens[10];
    store_repeat(tokens, 6, 1);
    store_repeat(tokens + 6, 4, 2);
    store_put(b, NULL, (int32_t[10]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 10);
    kvern_state *s = lent(b, NULL, tokens, 10, 6);
    store_expect_goes_on(b, s, 0, tokens, 7);
    assert_int_equal(kvern_state_length(s, 0), 7);
    store_expect_goes_on(b, s, 0, tokens, 10);
    assert_int_equal(kvern_state_length(s, 0), 10);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// I8: a prefix is served only where its last position finds all it saw in the window.
static void fault_i8_resume_point_in_a_window(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_window(&bf16, 1, 64, 8, 0, 1)); // 12..19 held, and one more
    int32_t tokens[24], asked[24];
    store_repeat(tokens, 24, 1);
    store_put(b, NULL, tokens, 20);
    const int64_t resume[4] = {20, 19, 18, 10};
    for (size_t i = 0; i < 4; i++) {
        store_repeat(asked, (size_t)resume[i], 1);
        store_repeat(asked + resume[i], 24 - (size_t)resume[i], 2);
        const int64_t wanted = i < 2 ? resume[i] : 0;
        kvern_state *s = lent(b, NULL, asked, 24, wanted);
        if (wanted)
            store_expect_goes_on(b, s, 0, asked, 24);
        else
            assert_int_equal(store_find(b, NULL, asked, 24).why, KVERN_STORE_WINDOW);
        kvern_state_destroy(s);
    }
    store_bed_close(b);
}

// I9: no length of what is left is special.
static void fault_i9_tail_of_one(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_layer(&bf16, 1, 64));
    int32_t tokens[200];
    store_repeat(tokens, 200, 1);
    for (size_t pages = 1; pages <= 3; pages++) {
        store_put(b, NULL, tokens, 64 * pages);
        for (size_t left = 1; left <= 2; left++) {
            kvern_state *s = lent(b, NULL, tokens, 64 * pages + left, (int64_t)(64 * pages));
            kvern_state *t = lent(b, NULL, tokens, 64 * pages + left, (int64_t)(64 * pages));
            const uint64_t sequence = 2; // of token 1
            float by_window[128], by_decode[128];
            hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, 1, by_window);
            hybrid_feed(t, KVERN_PHASE_DECODE, sequence, 1, by_decode);
            check_same_floats(by_window, by_decode, hybrid_outputs(s, 1), "a tail of one");
            kvern_state_destroy(s);
            kvern_state_destroy(t);
            s = lent(b, NULL, tokens, 64 * pages + left, (int64_t)(64 * pages));
            store_expect_goes_on(b, s, 0, tokens, (int64_t)(64 * pages + left));
            kvern_state_destroy(s);
        }
    }
    store_bed_close(b);
}

// I11: with snapshots at multiples of 4, the largest one that leaves a token is found.
static void fault_i11_rules_that_compose(void **state)
{
    (void)state;
    const size_t lengths[4] = {7, 8, 9, 16};
    const int64_t wanted[4] = {4, 4, 8, 12};
    for (size_t i = 0; i < 4; i++) {
        store_bed *b = open_one(kvern_layer_ssd(1, 2, 16, 8, 3));
        int32_t tokens[16];
        store_repeat(tokens, 16, 1);
        kvern_state *s = store_state(b, 1);
        assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
        for (int64_t at = 4; at <= (int64_t)lengths[i]; at += 4) {
            store_serve(s, 0, tokens, at, NULL);
            assert_ok(kvern_state_checkpoint(s, 0));
        }
        store_serve(s, 0, tokens, (int64_t)lengths[i], NULL);
        assert_ok(kvern_store_publish(b->store, NULL, tokens, lengths[i], s, 0, NULL));
        kvern_state_destroy(s);
        s = lent(b, NULL, tokens, lengths[i], wanted[i]);
        store_expect_goes_on(b, s, 0, tokens, (int64_t)lengths[i]);
        kvern_state_destroy(s);
        store_bed_close(b);
    }
}

// J1: what was made under one adapter is found under that one alone.
static void fault_j1_adapter(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20];
    store_repeat(tokens, 20, 1);
    const kvern_store_key a = {&(kvern_store_field){"adapter", "A", 1}, 1},
                          other = {&(kvern_store_field){"adapter", "B", 1}, 1},
                          empty = {&(kvern_store_field){"adapter", NULL, 0}, 1};
    store_put(b, &a, tokens, 20);
    assert_int_equal(store_found(b, &other, tokens, 20), 0);
    assert_int_equal(store_found(b, &empty, tokens, 20), 0);
    assert_int_equal(store_found(b, NULL, tokens, 20), 0);
    assert_int_equal(store_found(b, &a, tokens, 20), 19);
    store_bed_close(b);
}

// J3: fields cannot be taken for each other, nor names for values.
static void fault_j3_fields_that_run_together(void **state)
{
    (void)state;
    int32_t tokens[20];
    store_repeat(tokens, 20, 1);
    const kvern_store_field fields[][2] = {
        {{"adapter", "S", 1}},
        {{"salt", "S", 1}},
        {{"adapter", "S", 1}, {"salt", NULL, 0}},
        {{"adapter", NULL, 0}, {"salt", "S", 1}},
        {{"adapter", "ab", 2}, {"salt", "c", 1}},
        {{"adapter", "a", 1}, {"salt", "bc", 2}},
        {{"adapter", "a", 1}, {"salt", "bc\0", 3}},
        {{"adapter", "abcd", 4}, {"salt", "efgh", 4}},
        {{"adapter", "abcdsalt", 8}, {"x", "efgh", 4}},
        {{"adaptera", "b", 1}, {"salt", "c", 1}},
    };
    const size_t count = sizeof fields / sizeof fields[0];
    store_bed *b = store_bed_small(0);
    for (size_t i = 0; i < count; i++) {
        const kvern_store_key key = {fields[i], fields[i][1].name ? 2 : 1};
        assert_int_equal(store_found(b, &key, tokens, 20), 0);
        store_put(b, &key, tokens, 20);
    }
    assert_int_equal(store_stats(b).entries, count);
    store_expect_sound(b);
    store_bed_close(b);
}

// J4: the identity of an image is compared as a whole, not cut to some bits.
static void fault_j4_short_content_hash(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t one[20], two[20];
    store_repeat(one, 20, 1);
    store_repeat(two, 20, 1);
    // As pseudo-tokens, equal in their low 16 bits; and as digests that differ in the last byte.
    store_repeat(one + 4, 8, 0x10007);
    store_repeat(two + 4, 8, 0x20007);
    store_put(b, NULL, one, 20);
    assert_int_equal(store_found(b, NULL, two, 20), 4);
    unsigned char digest[32] = {7}, other[32] = {7};
    other[31] = 1;
    const kvern_store_key key = {&(kvern_store_field){"media", digest, 32}, 1},
                          wrong = {&(kvern_store_field){"media", other, 32}, 1};
    store_put(b, &key, one, 20);
    assert_int_equal(store_found(b, &wrong, one, 20), 0);
    assert_int_equal(store_found(b, &key, one, 20), 19);
    store_bed_close(b);
}

// J6: tokens are compared, whatever they add up to. Nothing is hashed, so no two lists can be made
// to look the same: lists with equal sums, equal sets and equal ends are apart.
static void fault_j6_hash_alone(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    const int32_t lists[][6] = {{1, 2, 3, 4, 5, 6}, {1, 3, 2, 4, 5, 6}, {2, 1, 3, 4, 5, 6},
                                {1, 2, 3, 4, 6, 5}, {0, 3, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1}};
    const int64_t common[6][6] = {{6, 1, 0, 4, 0, 0}, {1, 6, 0, 1, 0, 0}, {0, 0, 6, 0, 0, 0},
                                  {4, 1, 0, 6, 0, 0}, {0, 0, 0, 0, 6, 0}, {0, 0, 0, 0, 0, 6}};
    for (size_t i = 0; i < 6; i++) {
        store_put(b, NULL, lists[i], 6);
        for (size_t j = 0; j < 6; j++) {
            const int64_t may = common[i][j] < 5 ? common[i][j] : 5;
            assert_int_equal(store_found(b, NULL, lists[j], 6), may);
        }
        (void)kvern_store_give_up(b->store, UINT64_MAX);
    }
    store_bed_close(b);
}

// J7: layers of another number, shape, window or codec under the same name are not found.
static void fault_j7_another_layout(void **state)
{
    (void)state;
    int32_t tokens[20];
    store_repeat(tokens, 20, 1);
    const storage four = {"4", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), KVERN_NO_START, 0, 0};
    const kvern_layer base = storage_layer(&bf16, 2, 64);
    const kvern_layer others[] = {
        storage_layer(&bf16, 1, 64), storage_layer(&bf16, 2, 32), storage_layer(&four, 2, 64),
        storage_window(&bf16, 2, 64, 8, 0, 1), kvern_layer_latent(64, 32, 0)};
    store_bed *b = store_bed_open((kvern_layer[2]){base, base}, 2, 0, 0);
    const kvern_store_key key = {&(kvern_store_field){"model", "m", 1}, 1};
    store_put(b, &key, tokens, 20);
    for (size_t i = 0; i < 1 + sizeof others / sizeof others[0]; i++) {
        const kvern_layer layers[3] = {base, i ? others[i - 1] : base, base};
        kvern_composition *composition;
        assert_ok(kvern_composition_create(b->context, layers, i ? 2 : 3, &composition));
        kvern_store_hit hit = kvern_store_hit_default();
        assert_ok(kvern_store_find(b->store, &key, composition, tokens, 20, &hit));
        assert_null(hit.entry);
        assert_int_equal(hit.why, KVERN_STORE_SIGNATURE);
        hit = store_find(b, &key, tokens, 20);
        kvern_state *s;
        assert_ok(kvern_state_create(composition, 1, &s));
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_store_lend(b->store, &hit, s, 0));
        assert_int_equal(kvern_state_length(s, 0), 0);
        expect_sound_state(s);
        kvern_store_release(b->store, &hit);
        kvern_state_destroy(s);
        kvern_composition_release(composition);
    }
    store_bed_close(b);
}

// J9: entries with much in common do not touch each other; what is not stored consumes nothing.
static void fault_j9_entry_overwritten(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_layer(&bf16, 1, 64));
    int32_t a[2500], other[2500];
    store_repeat(a, 2500, 1);
    store_repeat(other, 2500, 1);
    store_repeat(a + 2000, 500, 2);
    store_repeat(other + 2000, 500, 3);
    store_put(b, NULL, a, 2500);
    store_put(b, NULL, other, 2500);
    const uint64_t bytes = store_stats(b).bytes;
    kvern_state *s = lent(b, NULL, a, 2500, 2499), *t = lent(b, NULL, other, 2500, 2499);
    // Both go on, and a publication under a wrong count is refused.
    assert_status(KVERN_ERR_RANGE, kvern_store_publish(b->store, NULL, a, 2500, s, 0, NULL));
    store_expect_goes_on(b, s, 0, a, 2500);
    store_expect_goes_on(b, t, 0, other, 2500);
    assert_int_equal(store_stats(b).bytes, bytes);
    assert_int_equal(store_stats(b).entries, 2);
    kvern_state_destroy(s);
    kvern_state_destroy(t);
    s = lent(b, NULL, a, 2500, 2499);
    store_expect_goes_on(b, s, 0, a, 2500);
    kvern_state_destroy(s);
    store_expect_sound(b);
    store_bed_close(b);
}

// S1: nothing piles up while a row that shares pages with an entry goes on.
static void fault_s1_residue_per_step(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_window(&bf16, 1, 64, 100, 0, 8));
    int32_t tokens[400];
    store_repeat(tokens, 400, 1);
    store_put(b, NULL, tokens, 300);
    kvern_state *s = lent(b, NULL, tokens, 400, 300);
    uint64_t held = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 640; i++)
            hybrid_feed(s, KVERN_PHASE_DECODE, 2, 1, NULL);
        assert_true(round < 2 || b->books.held_bytes == held);
        held = b->books.held_bytes;
    }
    kvern_state_destroy(s);
    store_bed_close(b);
}

// S3: what is found is shared, so that memory does not double; without any more of it the store is
// what it was.
static void fault_s3_clone_cost(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_layer(&bf16, 2, 128));
    int32_t tokens[6000];
    store_repeat(tokens, 6000, 1);
    store_put(b, NULL, tokens, 5000);
    const uint64_t held = b->books.held_bytes, pages = store_stats(b).page_bytes;
    assert_true(pages > 4 << 20);
    kvern_state *s = store_state(b, 1);
    kvern_store_hit hit = store_find(b, NULL, tokens, 6000);
    assert_ok(kvern_store_lend(b->store, &hit, s, 0));
    kvern_store_release(b->store, &hit);
    const int64_t one = 1;
    ledger_refuse_rest(&b->books, 0);
    assert_status(KVERN_ERR_MEMORY, kvern_step_begin(s, KVERN_PHASE_DECODE, &one));
    ledger_relent(&b->books);
    store_expect_sound(b);
    hybrid_feed(s, KVERN_PHASE_DECODE, 2, 1, NULL);
    assert_true(b->books.most_bytes < held + pages / 4);
    kvern_state_destroy(s);
    s = lent(b, NULL, tokens, 6000, 5000); // as it was before
    store_expect_goes_on(b, s, 0, tokens, 5001);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// S4: branches of a prefix that come and go leave nothing behind.
static void fault_s4_retained_branches(void **state)
{
    (void)state;
    store_bed *b = open_one(storage_layer(&bf16, 1, 64));
    int32_t tokens[5010];
    store_repeat(tokens, 5000, 1);
    store_put(b, NULL, tokens, 5000);
    uint64_t held = 0;
    for (int32_t cycle = 0; cycle < 1000; cycle++) {
        store_repeat(tokens + 5000, 10, 2 + cycle % 3);
        kvern_state *s = lent(b, NULL, tokens, 5010, 5000);
        store_serve(s, 0, tokens, 5010, NULL);
        kvern_state_destroy(s);
        assert_true(cycle < 3 || b->books.held_bytes == held);
        held = b->books.held_bytes;
    }
    // The same with branches that are kept and given up again: also the index is what it was.
    const uint64_t bytes = store_stats(b).bytes;
    for (int32_t cycle = 0; cycle < 100; cycle++) {
        kvern_store_hit root = store_find(b, NULL, tokens, 5001);
        assert_int_equal(root.positions, 5000);
        store_repeat(tokens + 4000 + cycle, 1000 - (size_t)cycle, 2 + cycle);
        kvern_state *s = lent(b, NULL, tokens, 5000, 4000 + cycle);
        store_serve(s, 0, tokens, 5000, NULL);
        assert_ok(kvern_store_publish(b->store, NULL, tokens, 5000, s, 0, NULL));
        kvern_state_destroy(s);
        assert_int_equal(store_stats(b).entries, 2);
        assert_true(kvern_store_give_up(b->store, 1) > 0); // not the one that is pinned
        assert_int_equal(store_stats(b).entries, 1);
        assert_int_equal(store_stats(b).bytes, bytes);
        kvern_store_release(b->store, &root);
        store_repeat(tokens, 5000, 1);
    }
    store_expect_sound(b);
    store_bed_close(b);
}

// T5: rows, entries and the store end in any order.
static void fault_t5_lifetime(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        store_bed *b = open_one(storage_layer(&bf16, 1, 64));
        int32_t tokens[100];
        store_repeat(tokens, 100, 1);
        kvern_state *s = store_cold(b, tokens, 80);
        assert_ok(kvern_store_publish(b->store, NULL, tokens, 80, s, 0, NULL));
        kvern_state *t = lent(b, NULL, tokens, 100, 80);
        if (order) {
            kvern_state_destroy(s);
            s = NULL;
        }
        (void)kvern_store_give_up(b->store, UINT64_MAX);
        kvern_store_destroy(b->store);
        b->store = NULL;
        store_expect_goes_on(b, t, 0, tokens, 90);
        if (s)
            store_expect_goes_on(b, s, 0, tokens, 90);
        kvern_state_destroy(s);
        store_expect_goes_on(b, t, 0, tokens, 100);
        kvern_state_destroy(t);
        store_bed_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_d5_trim_below_the_frontier),
        cmocka_unit_test(fault_i1_zero_remainder),
        cmocka_unit_test(fault_i3_gap_token),
        cmocka_unit_test(fault_i4_allocation_step_as_length),
        cmocka_unit_test(fault_i6_resurrected_tokens),
        cmocka_unit_test(fault_i8_resume_point_in_a_window),
        cmocka_unit_test(fault_i9_tail_of_one),
        cmocka_unit_test(fault_i11_rules_that_compose),
        cmocka_unit_test(fault_j1_adapter),
        cmocka_unit_test(fault_j3_fields_that_run_together),
        cmocka_unit_test(fault_j4_short_content_hash),
        cmocka_unit_test(fault_j6_hash_alone),
        cmocka_unit_test(fault_j7_another_layout),
        cmocka_unit_test(fault_j9_entry_overwritten),
        cmocka_unit_test(fault_s1_residue_per_step),
        cmocka_unit_test(fault_s3_clone_cost),
        cmocka_unit_test(fault_s4_retained_branches),
        cmocka_unit_test(fault_t5_lifetime),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
