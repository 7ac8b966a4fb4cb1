// SPDX-License-Identifier: MIT
// Public faults of other systems in recurrent state, as scenarios; and steps, rounds and trims of
// hybrid states.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/recur_feed.h"
#include "tests/support/soundness.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t sequences[4] = {21, 22, 23, 24};

// A fresh state of one row that was given tokens of a sequence, in one append.
static kvern_state *fed_state(const hybrid_world *w, uint64_t sequence, int64_t count)
{
    kvern_state *s = hybrid_state(w, 1);
    if (count)
        hybrid_feed(s, KVERN_PHASE_WINDOW, sequence, count, NULL);
    return s;
}

// ---- L1: rolling back all of a round left recurrent state advanced ----

static void fault_l1_a_round_of_which_nothing_stays(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        hybrid_world w;
        hybrid_open(&w, NULL, false);
        kvern_state *s = fed_state(&w, 1, 9), *wanted = fed_state(&w, 1, 9), *fork = NULL;
        const size_t zero = 0;
        if (shared)
            assert_ok(kvern_state_fork(s, &zero, 1, &fork));
        const uint64_t bytes = kvern_state_bytes(s);
        assert_ok(kvern_round_begin(s, &(int64_t){4}));
        hybrid_feed(s, KVERN_PHASE_WINDOW, 2, 4, NULL);
        assert_ok(kvern_round_rollback(s, &(int64_t){0}));
        hybrid_expect_state(wanted, s, "a round of which nothing stays");
        assert_int_equal(kvern_state_bytes(s), bytes);
        hybrid_feed(s, KVERN_PHASE_DECODE, 1, 1, NULL);
        hybrid_feed(wanted, KVERN_PHASE_DECODE, 1, 1, NULL);
        hybrid_expect_row(wanted, 0, s, 0, "what follows it");
        kvern_state_destroy(fork);
        kvern_state_destroy(s);
        kvern_state_destroy(wanted);
        hybrid_close(&w);
    }
}

// An empty row is empty again.
static void fault_l1_a_round_of_an_empty_row(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, false);
    kvern_state *s = hybrid_state(&w, 1), *wanted = fed_state(&w, 1, 2);
    assert_ok(kvern_round_begin(s, &(int64_t){4}));
    hybrid_feed(s, KVERN_PHASE_WINDOW, 1, 4, NULL);
    assert_ok(kvern_round_rollback(s, &(int64_t){0}));
    assert_int_equal(kvern_state_length(s, 0), 0);
    assert_int_equal(kvern_state_bytes(s), 0);
    assert_ok(kvern_round_begin(s, &(int64_t){4}));
    hybrid_feed(s, KVERN_PHASE_WINDOW, 1, 4, NULL);
    assert_ok(kvern_round_rollback(s, &(int64_t){2}));
    hybrid_expect_state(wanted, s, "two tokens of a round that began empty");
    kvern_state_destroy(s);
    kvern_state_destroy(wanted);
    hybrid_close(&w);
}

// Every keep per row, in one step or in several, some of which are abandoned; forks share the row's
// pages or not.
static void run_round(kvern_state *s, const int64_t *counts, int kind)
{
    const int64_t parts[3][3] = {{6, 0, 4}, {2, 0, 1}, {4, 0, 3}};
    assert_ok(kvern_round_begin(s, counts));
    if (kind == 0) {
        hybrid_step(s, KVERN_PHASE_WINDOW, sequences, parts[0], NULL);
        return;
    }
    hybrid_abandoned_step(s, sequences, parts[2], 4);
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, parts[1], NULL);
    hybrid_abandoned_step(s, sequences, parts[1], 6);
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, parts[2], NULL);
}

static void fault_l1_every_keep_is_what_it_would_have_been(void **state)
{
    (void)state;
    const int64_t begin[3] = {9, 30, 1}, counts[3] = {6, 0, 4};
    for (int64_t keep = 0; keep <= 6; keep++) {
        for (int kind = 0; kind < 4; kind++) {
            hybrid_world w;
            hybrid_open(&w, NULL, false);
            kvern_state *s = hybrid_state(&w, 3), *wanted = hybrid_state(&w, 3), *fork = NULL;
            const int64_t kept[3] = {keep, 0, keep > 4 ? 4 : keep};
            hybrid_step(s, KVERN_PHASE_WINDOW, sequences, begin, NULL);
            hybrid_step(wanted, KVERN_PHASE_WINDOW, sequences, begin, NULL);
            if (kind > 1)
                assert_ok(kvern_state_fork(s, (size_t[]){0, 2}, 2, &fork));
            run_round(s, counts, kind % 2);
            expect_sound_state(s);
            assert_ok(keep == 6 ? kvern_round_commit(s) : kvern_round_rollback(s, kept));
            if (keep)
                hybrid_step(wanted, KVERN_PHASE_WINDOW, sequences, kept, NULL);
            expect_sound_state(s);
            for (size_t r = 0; r < 3; r++)
                hybrid_expect_row(wanted, r, s, r, "a row of a round");
            hybrid_step(s, KVERN_PHASE_WINDOW, sequences, begin, NULL);
            hybrid_step(wanted, KVERN_PHASE_WINDOW, sequences, begin, NULL);
            if (!fork) // which holds pages that would be the row's for its next step
                hybrid_expect_state(wanted, s, "what follows a round");
            for (size_t r = 0; r < 3; r++)
                hybrid_expect_row(wanted, r, s, r, "what follows a round");
            kvern_state_destroy(fork);
            kvern_state_destroy(s);
            kvern_state_destroy(wanted);
            hybrid_close(&w);
        }
    }
}

static void rounds_past_the_slack_are_refused(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, false);
    kvern_state *s = fed_state(&w, 1, 3);
    assert_int_equal(kvern_state_round_limit(s, 0), HYBRID_SLACK);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, &(int64_t){HYBRID_SLACK + 1}));
    assert_non_null(strstr(kvern_error_detail(), "layer 0, row 0"));
    assert_false(kvern_round_open(s));
    assert_ok(kvern_round_begin(s, &(int64_t){HYBRID_SLACK}));
    assert_ok(kvern_round_commit(s));
    kvern_state_destroy(s);
    hybrid_close(&w);
    hybrid_open(&w, NULL, true);
    s = fed_state(&w, 1, 3);
    assert_int_equal(kvern_state_round_limit(s, 0), 1); // of the lane
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, &(int64_t){2}));
    assert_ok(kvern_round_begin(s, &(int64_t){1}));
    hybrid_feed(s, KVERN_PHASE_DECODE, 2, 1, NULL);
    assert_ok(kvern_round_rollback(s, &(int64_t){0}));
    kvern_state *wanted = fed_state(&w, 1, 3);
    hybrid_expect_state(wanted, s, "a lane that was taken back");
    kvern_state_destroy(s);
    kvern_state_destroy(wanted);
    hybrid_close(&w);
}

// Destroying a state whose round is open gives everything back (the ledger tells).
static void a_state_ends_within_a_round_and_a_step(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, false);
    kvern_state *s = fed_state(&w, 1, 5);
    assert_ok(kvern_round_begin(s, &(int64_t){4}));
    hybrid_feed(s, KVERN_PHASE_WINDOW, 1, 2, NULL);
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &(int64_t){1}));
    assert_ok(hybrid_serve(s, 0, sequences, &(int64_t){1}, NULL));
    kvern_state_destroy(s);
    hybrid_close(&w);
}

// ---- L3: plain trims failed, or worked by halves ----

static void fault_l3_trims_are_refused_by_name_and_reset_works(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_delta(2, 4, 16, 24, 4), 1);
    size_t bytes;
    recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 9, NULL);
    unsigned char *before = recur_content(b->cache, 0, &bytes);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, 1));
    assert_non_null(strstr(kvern_error_detail(), "not trimmable"));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, 8));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(b->cache, 0, 10));
    unsigned char *after = recur_content(b->cache, 0, &bytes);
    check_same_bytes(before, after, bytes, "after refused trims");
    assert_int_equal(kvern_cache_length(b->cache, 0), 9);
    assert_ok(kvern_cache_trim(b->cache, 0, 0));
    assert_ok(kvern_cache_trim(b->cache, 0, 9)); // all of it
    assert_int_equal(kvern_cache_length(b->cache, 0), 0);
    assert_int_equal(kvern_cache_bytes(b->cache), 0);
    recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 9, NULL);
    unsigned char *again = recur_content(b->cache, 0, &bytes);
    check_same_bytes(before, again, bytes, "a row that was emptied");
    assert_ok(kvern_cache_reset(b->cache, 0));
    assert_int_equal(kvern_cache_length(b->cache, 0), 0);
    free(before);
    free(after);
    free(again);
    bed_destroy(b);
}

static void fault_l3_a_composite_is_not_trimmable(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = fed_state(&w, 1, 20), *wanted = fed_state(&w, 1, 20);
    assert_int_equal(kvern_state_trimmable(s, 0), 0);
    assert_int_equal(kvern_state_min_reusable(s, 0), 20);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_trim(s, 0, 1));
    assert_non_null(strstr(kvern_error_detail(), "layer 0, row 0"));
    hybrid_expect_state(wanted, s, "after a refused trim: no layer is shorter");
    assert_ok(kvern_state_trim(s, 0, 20));
    assert_int_equal(kvern_state_length(s, 0), 0);
    hybrid_feed(s, KVERN_PHASE_WINDOW, 1, 20, NULL);
    for (size_t l = 0; l < w.layers; l++) // what has been converted stays so, and begins so
        if (!strstr(kvern_composition_signature(w.composition, l), ":start"))
            hybrid_expect_cache_row(kvern_state_cache(wanted, l), 0, kvern_state_cache(s, l), 0,
                                    "a row that was emptied");
    assert_ok(kvern_state_reset(s, 0));
    hybrid_feed(s, KVERN_PHASE_WINDOW, 1, 20, NULL);
    hybrid_expect_state(wanted, s, "a row that was reset");
    kvern_state_destroy(s);
    kvern_state_destroy(wanted);
    hybrid_close(&w);
}

// ---- L4: a copied row read its state from the wrong place ----

static void fault_l4_every_row_goes_on_from_its_own_state(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = hybrid_state(&w, 3), *third, *clone;
    const int64_t begin[3] = {5, 7, 9};
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, begin, NULL);
    assert_ok(kvern_state_extract(s, 2, &third));
    assert_ok(kvern_state_keep(s, (size_t[]){1, 2}, 2)); // row 0 goes
    assert_ok(kvern_state_extract(s, 0, &clone));        // of row 1
    expect_sound_state(s);
    hybrid_step(s, KVERN_PHASE_WINDOW, (uint64_t[]){31, 32}, (int64_t[]){3, 2}, NULL);
    hybrid_feed(third, KVERN_PHASE_WINDOW, 33, 4, NULL);
    hybrid_feed(clone, KVERN_PHASE_WINDOW, 34, 1, NULL);
    const struct {
        const kvern_state *s;
        size_t row;
        uint64_t first, then;
        int64_t count, more;
    } rows[] = {{s, 0, 22, 31, 7, 3},
                {s, 1, 23, 32, 9, 2},
                {third, 0, 23, 33, 9, 4},
                {clone, 0, 22, 34, 7, 1}};
    for (size_t i = 0; i < 4; i++) {
        kvern_state *wanted = fed_state(&w, rows[i].first, rows[i].count);
        hybrid_feed(wanted, KVERN_PHASE_WINDOW, rows[i].then, rows[i].more, NULL);
        hybrid_expect_row(wanted, 0, rows[i].s, rows[i].row, "a row that was copied or moved");
        kvern_state_destroy(wanted);
    }
    kvern_state_destroy(s);
    kvern_state_destroy(third);
    kvern_state_destroy(clone);
    hybrid_close(&w);
}

// ---- L6: copies gave other results from the second call on ----

static void fault_l6_copies_go_on_like_the_original(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = fed_state(&w, 1, 7), *clone, *moved = hybrid_state(&w, 2), *extracted;
    assert_ok(kvern_state_fork(s, (size_t[]){0}, 1, &clone));
    assert_ok(kvern_state_extract(s, 0, &extracted));
    assert_ok(kvern_state_join(moved, &extracted, 1));
    for (int i = 0; i < 3; i++) {
        hybrid_feed(s, KVERN_PHASE_WINDOW, 1, 3, NULL);
        hybrid_feed(clone, KVERN_PHASE_WINDOW, 1, 3, NULL);
        hybrid_step(moved, KVERN_PHASE_WINDOW, (uint64_t[]){8, 9, 1}, (int64_t[]){1, 0, 3}, NULL);
        hybrid_expect_row(s, 0, clone, 0, "a clone");
        hybrid_expect_row(s, 0, moved, 2, "a row that was moved");
    }
    kvern_state_destroy(s);
    kvern_state_destroy(clone);
    kvern_state_destroy(moved);
    kvern_state_destroy(extracted);
    hybrid_close(&w);
}

// ---- L7: layers of one state met those of another in another order ----

static void fault_l7_rows_meet_by_signature(void **state)
{
    (void)state;
    kvern_layer layers[HYBRID_LAYERS], other[HYBRID_LAYERS];
    hybrid_world w;
    kvern_composition *permuted;
    kvern_state *from;
    hybrid_open(&w, NULL, true);
    hybrid_plan(layers);
    for (size_t l = 0; l < HYBRID_LAYERS; l++)
        other[l] = layers[l ^ (l < 6)]; // recurrent layers and those of keys and values by turns
    other[7].donor ^= 1;
    other[8].donor ^= 1;
    assert_ok(kvern_composition_create(w.context, other, HYBRID_LAYERS, &permuted));
    assert_ok(kvern_state_create(permuted, 1, &from));
    kvern_state *to = fed_state(&w, 1, 3), *wanted = fed_state(&w, 1, 3);
    hybrid_feed(from, KVERN_PHASE_WINDOW, 2, 4, NULL);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_join(to, &from, 1));
    assert_non_null(strstr(kvern_error_detail(), "layer 0: rows of full"));
    assert_int_equal(kvern_state_rows(to), 1);
    assert_int_equal(kvern_state_rows(from), 1);
    hybrid_expect_state(wanted, to, "after a refused join");
    // By its signature every row finds its layer.
    for (size_t l = 0; l < HYBRID_LAYERS; l++) {
        kvern_cache *cache;
        if (layers[l].kind == KVERN_LAYER_SHARED)
            continue;
        assert_ok(kvern_cache_create(w.composition, l ^ (l < 6), 1, &cache));
        assert_string_equal(kvern_cache_signature(cache), kvern_composition_signature(permuted, l));
        assert_ok(kvern_cache_adopt(cache, 0, kvern_state_cache(from, l), 0));
        hybrid_expect_cache_row(kvern_state_cache(from, l), 0, cache, 0, "an adopted row");
        if (l < 6) {
            kvern_cache *wrong;
            assert_ok(kvern_cache_create(w.composition, l, 1, &wrong));
            assert_status(KVERN_ERR_UNSUPPORTED,
                          kvern_cache_adopt(wrong, 0, kvern_state_cache(from, l), 0));
            assert_int_equal(kvern_cache_length(wrong, 0), 0);
            kvern_cache_destroy(wrong);
        }
        kvern_cache_destroy(cache);
    }
    kvern_state_destroy(to);
    kvern_state_destroy(wanted);
    kvern_state_destroy(from);
    kvern_composition_release(permuted);
    hybrid_close(&w);
}

// ---- Padding entered states: right padding of a cold batch, rows of no tokens ----

// Rows of 3, 0 and 5 tokens in a tensor of 8 columns, with padding on both sides that is NaN.
static void padding_never_enters_a_state(void **state)
{
    (void)state;
    const kvern_layer layers[3] = {
        kvern_layer_delta(2, 4, 16, 24, 4),
        kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 2, 2, 24, 16, 2),
        kvern_layer_ssd(1, 3, 16, 8, 3)};
    const int64_t counts[3] = {3, 0, 5}, left[3] = {0, 4, 2};
    for (size_t i = 0; i < 3; i++) {
        for (int warm = 0; warm < 2; warm++) {
            bed *b = bed_create(layers[i], 3), *wanted = bed_create(layers[i], 3);
            recur_feed f;
            int64_t start[3];
            if (warm) {
                recur_run(b->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){2, 1, 2}, NULL);
                recur_run(wanted->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){2, 1, 2}, NULL);
            }
            recur_feed_create(&f, b->cache, sequences, counts);
            const size_t x = (size_t)f.tokens.x_token_stride, a = (size_t)f.tokens.a_token_stride,
                         bb = (size_t)f.tokens.b_token_stride, y = (size_t)f.tokens.y_token_stride;
            float *px = new_floats(24 * x, NAN), *pa = new_floats(24 * a, NAN),
                  *pb = new_floats(24 * bb, NAN), *py = new_floats(24 * y, 77);
            for (size_t r = 0, token = 0; r < 3; r++) {
                start[r] = (int64_t)r * 8 + left[r];
                for (int64_t t = 0; t < counts[r]; t++, token++) {
                    const size_t at = (size_t)(start[r] + t);
                    memcpy(px + at * x, f.x + token * x, x * sizeof *px);
                    memcpy(pa + at * a, f.a + token * a, a * sizeof *pa);
                    memcpy(pb + at * bb, f.b + token * bb, (f.tokens.b ? bb : 0) * sizeof *pb);
                }
            }
            kvern_recur_tokens padded = f.tokens;
            padded.x = px;
            padded.a = pa;
            padded.b = f.tokens.b ? pb : NULL;
            padded.y = py;
            padded.start = start;
            assert_ok(kvern_cache_recur(b->cache, KVERN_PHASE_WINDOW, &padded));
            assert_ok(kvern_cache_recur(wanted->cache, KVERN_PHASE_WINDOW, &f.tokens));
            for (size_t r = 0; r < 3; r++)
                recur_expect_row(wanted->cache, r, b->cache, r, "a row of a padded batch");
            for (size_t r = 0, token = 0; r < 3; r++) {
                for (int64_t t = 0; t < 8; t++) {
                    const float *got = py + ((int64_t)r * 8 + t) * (int64_t)y;
                    const bool real = t >= left[r] && t < left[r] + counts[r];
                    if (real)
                        check_same_floats(f.y + token++ * y, got, y, "a result");
                    for (size_t e = 0; e < y && !real; e++)
                        assert_true(got[e] == 77);
                }
            }
            free(px);
            free(pa);
            free(pb);
            free(py);
            recur_feed_destroy(&f);
            bed_destroy(b);
            bed_destroy(wanted);
        }
    }
}

// ---- Steps ----

static void an_abandoned_step_has_never_been(void **state)
{
    (void)state;
    const int64_t begin[3] = {9, 0, 30}, counts[3] = {2, 3, 0};
    for (size_t layers = 0; layers <= HYBRID_LAYERS; layers++) {
        for (int shared = 0; shared < 2; shared++) {
            hybrid_world w;
            hybrid_open(&w, NULL, true);
            kvern_state *s = hybrid_state(&w, 3), *wanted = hybrid_state(&w, 3), *fork = NULL;
            hybrid_step(s, KVERN_PHASE_WINDOW, sequences, begin, NULL);
            hybrid_step(wanted, KVERN_PHASE_WINDOW, sequences, begin, NULL);
            if (shared)
                assert_ok(kvern_state_fork(s, (size_t[]){0, 2}, 2, &fork));
            hybrid_abandoned_step(s, sequences, counts, layers);
            expect_sound_state(s);
            for (size_t r = 0; r < 3; r++)
                hybrid_expect_row(wanted, r, s, r, "a step that was abandoned");
            hybrid_step(s, KVERN_PHASE_WINDOW, sequences, counts, NULL);
            hybrid_step(wanted, KVERN_PHASE_WINDOW, sequences, counts, NULL);
            kvern_state_destroy(fork);
            for (size_t r = 0; r < 3; r++)
                hybrid_expect_row(wanted, r, s, r, "the step that follows");
            kvern_state_destroy(s);
            kvern_state_destroy(wanted);
            hybrid_close(&w);
        }
    }
}

static void a_layer_appends_once_in_a_step(void **state)
{
    (void)state;
    hybrid_world w;
    hybrid_open(&w, NULL, true);
    kvern_state *s = fed_state(&w, 1, 3);
    void *lane = NULL;
    recur_feed f;
    recur_feed_create(&f, kvern_state_cache(s, 0), sequences, &(int64_t){2});
    assert_status(KVERN_ERR_BUSY, kvern_step_recur(s, 0, &f.tokens));
    assert_status(KVERN_ERR_BUSY, kvern_step_lanes(s, HYBRID_LANE, &lane));
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &(int64_t){2}));
    assert_status(KVERN_ERR_RANGE, kvern_step_recur(s, HYBRID_LAYERS, &f.tokens));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_recur(s, HYBRID_LANE, &f.tokens));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_lanes(s, 0, &lane));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_lanes(s, HYBRID_LANE, NULL));
    f.counts[0] = 1;
    assert_status(KVERN_ERR_RANGE, kvern_step_recur(s, 0, &f.tokens));
    f.counts[0] = 2;
    assert_ok(kvern_step_recur(s, 0, &f.tokens));
    assert_status(KVERN_ERR_BUSY, kvern_step_recur(s, 0, &f.tokens));
    assert_ok(kvern_step_lanes(s, HYBRID_LANE, &lane));
    assert_status(KVERN_ERR_BUSY, kvern_step_lanes(s, HYBRID_LANE, &lane));
    assert_status(KVERN_ERR_BUSY, kvern_step_end(s));
    kvern_cache *cache = (kvern_cache *)kvern_state_cache(s, 0);
    assert_status(KVERN_ERR_BUSY, kvern_cache_recur(cache, KVERN_PHASE_WINDOW, &f.tokens));
    kvern_step_abandon(s);
    recur_feed_destroy(&f);
    kvern_state_destroy(s);
    hybrid_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_l1_a_round_of_which_nothing_stays),
        cmocka_unit_test(fault_l1_a_round_of_an_empty_row),
        cmocka_unit_test(fault_l1_every_keep_is_what_it_would_have_been),
        cmocka_unit_test(rounds_past_the_slack_are_refused),
        cmocka_unit_test(a_state_ends_within_a_round_and_a_step),
        cmocka_unit_test(fault_l3_trims_are_refused_by_name_and_reset_works),
        cmocka_unit_test(fault_l3_a_composite_is_not_trimmable),
        cmocka_unit_test(fault_l4_every_row_goes_on_from_its_own_state),
        cmocka_unit_test(fault_l6_copies_go_on_like_the_original),
        cmocka_unit_test(fault_l7_rows_meet_by_signature),
        cmocka_unit_test(padding_never_enters_a_state),
        cmocka_unit_test(an_abandoned_step_has_never_been),
        cmocka_unit_test(a_layer_appends_once_in_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
