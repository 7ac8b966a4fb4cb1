// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: what a row holds and who sees it.
// Each is named for a public report; the comment says what went wrong there. test_fault_numbers.c
// has those of storage and arithmetic, test_fault_windows.c those of sliding windows,
// test_fault_transitions.c those of bf16-first rows, test_fault_storages.c repeats several on every
// storage, fault/test_memory.c has K4, S4 and S6, fault/test_window_memory.c S1, threads/ has T1,
// and samebits/ has V1 and V3. Faults of files, prefix stores, speculative rounds and recurrent
// states come with those features.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- B: masks ----

// `stored` positions and a window of `count`; the key or the value of position p is NaN. Query i
// sees it exactly when p <= stored + i.
static void check_visibility(int64_t stored, int64_t count, int64_t p, float *k, float *v,
                             float *poisoned)
{
    enum { DIM = 8 };
    const float was = *poisoned;
    float *q = new_floats((size_t)count * DIM, 0.5f), *out = new_floats((size_t)count * DIM, 0);
    bed *b = bed_create(layer_of(1, DIM, KVERN_BF16), 1);
    *poisoned = NAN;
    append_values(b->cache, stored, k, v, 1, NULL, NULL, NULL);
    append_values(b->cache, count, k + stored * DIM, v + stored * DIM, 1, NULL, q, out);
    for (int64_t i = 0; i < count; i++) {
        int nans = 0;
        for (int d = 0; d < DIM; d++)
            nans += isnan(out[i * DIM + d]);
        assert_int_equal(nans > 0, p <= stored + i);
    }
    *poisoned = was;
    free(q);
    free(out);
    bed_destroy(b);
}

// ml-explore/mlx#2835: the wrong anchor lets a query see only key 0, or keys of its future.
static void fault_B10_causal_anchor(void **state)
{
    (void)state;
    static const int64_t positions[] = {0, 1, 500, 999, 1000, 1001, 1015, 1030, 1031};
    float *k = new_floats(1032 * 8, 0.25f), *v = new_floats(1032 * 8, 1);
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        check_visibility(1000, 32, positions[i], k, v, &k[positions[i] * 8 + 3]);
        check_visibility(1000, 32, positions[i], k, v, &v[positions[i] * 8 + 5]);
    }
    for (int64_t p = 0; p < 17; p++)
        check_visibility(16, 1, p, k, v, &k[p * 8]);
    free(k);
    free(v);
}

// trymirai/lalamo#200: mask rows indexed from the start of the suffix.
static void fault_B3_relative_mask_rows(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 1);
    float out[8 * 64];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, 8, NULL);
    for (int64_t i = 0; i < 4; i++) {
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 8, out);
        expect_serial(layer, 1, 10 + i, 1, 8, out, "a decode of a window's token");
    }
    bed_destroy(b);
}

// huggingface/transformers#45940: columns that were reserved and never written were scored.
static void fault_B6_unfilled_columns_visible(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 1);
    float out[5 * 8 * 64];
    assert_ok(kvern_cache_reserve(b->cache, 0, 500, 8));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 5, 8, out);
    expect_serial(layer, 1, 0, 5, 8, out, "in reserved room");
    for (int64_t i = 5; i < 8; i++) {
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 8, out);
        expect_serial(layer, 1, i, 1, 8, out, "in reserved room");
    }
    bed_destroy(b);
}

// ---- G: rows ----

// ml-explore/mlx-lm#754: a row that was never written.
static void fault_G2_empty_row(void **state)
{
    (void)state;
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t lengths[3] = {5, 0, 2}, one[3] = {1, 1, 1};
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 3);
    float out[3][8 * 64], own[2 * 64];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 8, NULL);
    feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, 8, out[0]);
    for (size_t r = 0; r < 3; r++) {
        assert_int_equal(kvern_cache_length(b->cache, r), lengths[r] + 1);
        expect_serial(layer, sequences[r], lengths[r], 1, 8, out[r], "a row beside an empty one");
    }
    assert_ok(kvern_cache_export(b->cache, 1, 0, 1, NULL, own));
    for (size_t h = 0; h < 8; h++) // the empty row's first token sees itself: exactly its value
        check_same_bytes(own + h / 4 * 64, out[1] + h * 64, 64 * sizeof(float), "its own value");
    bed_destroy(b);
}

// ml-explore/mlx-lm#798: choosing rows of a batch that has no storage yet.
static void fault_G4_choice_before_first_append(void **state)
{
    (void)state;
    static const size_t rows[2] = {0, 2};
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t counts[2] = {3, 1};
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 4);
    kvern_cache *two, *none;
    float out[4 * 4 * 64];
    assert_ok(kvern_cache_fork(b->cache, rows, 2, &two));
    assert_ok(kvern_cache_fork(two, rows, 0, &none));
    assert_int_equal(kvern_cache_rows(two), 2);
    assert_int_equal(kvern_cache_rows(none), 0);
    feed_run(two, KVERN_PHASE_WINDOW, sequences, counts, 4, out);
    expect_serial(layer, 1, 0, 3, 4, out, "row 0");
    expect_serial(layer, 2, 0, 1, 4, out + 3 * 4 * 64, "row 1");
    kvern_cache_destroy(none);
    kvern_cache_destroy(two);
    bed_destroy(b);
}

// jundot/omlx#2172: after the longest row left, appends went to the wrong column.
static void fault_G7_written_end(void **state)
{
    (void)state;
    static const size_t second[1] = {1};
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {10, 6};
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 2);
    kvern_cache *left;
    float out[4 * 64];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 4, NULL);
    assert_ok(kvern_cache_fork(b->cache, second, 1, &left));
    for (int64_t p = 6; p < 9; p++) {
        assert_int_equal(kvern_cache_length(left, 0), p);
        feed_one(left, KVERN_PHASE_DECODE, 2, 1, 4, out);
        expect_serial(layer, 2, p, 1, 4, out, "the row that is left");
    }
    kvern_cache_destroy(left);
    bed_destroy(b);
}

// Blaizzy/mlx-vlm#1110: one offset for all rows.
static void fault_G10_scalar_offset(void **state)
{
    (void)state;
    static const size_t first[1] = {0};
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {5, 9}, one[2] = {1, 1};
    bed *b = bed_create(kvern_layer_default(1, 16), 2);
    kvern_cache *left;
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
    for (int i = 0; i < 4; i++)
        feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, 1, NULL);
    assert_int_equal(kvern_cache_length(b->cache, 0), 9);
    assert_int_equal(kvern_cache_length(b->cache, 1), 13);
    assert_ok(kvern_cache_fork(b->cache, first, 1, &left));
    assert_int_equal(kvern_cache_length(left, 0), 9);
    kvern_cache_destroy(left);
    bed_destroy(b);
}

// huggingface/transformers#48509: a reset that left the old length and stale contents.
static void fault_G12_reset(void **state)
{
    (void)state;
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t six[2] = {6, 70}, three[2] = {3, 0};
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 2);
    float out[3 * 4 * 64];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, six, 4, NULL);
    assert_ok(kvern_cache_reserve(b->cache, 0, 1000, 0));
    assert_ok(kvern_cache_reset(b->cache, 0));
    assert_int_equal(kvern_cache_length(b->cache, 0), 0);
    assert_int_equal(kvern_cache_length(b->cache, 1), 70);
    assert_int_equal(kvern_cache_bytes(b->cache), kvern_composition_row_bytes(b->composition, 70));
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, three, 4, out);
    assert_int_equal(kvern_cache_length(b->cache, 0), 3);
    expect_serial(layer, 1, 0, 3, 4, out, "after a reset");
    assert_int_equal(kvern_cache_bytes(b->cache),
                     kvern_composition_row_bytes(b->composition, 70) +
                         kvern_composition_row_bytes(b->composition, 3));
    bed_destroy(b);
}

// ---- H: positions ----

// ml-explore/mlx-lm#1699: positions moved under a step, so that the query was rotated by one more
// than the key. unslothai/unsloth#3795: one position for rows of different lengths.
static void fault_H1_positions_of_a_step(void **state)
{
    (void)state;
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {2, 7}, one[2] = {1, 1};
    const kvern_layer layers[3] = {kvern_layer_default(1, 16), kvern_layer_default(2, 8),
                                   kvern_layer_default(1, 8)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, 3, &composition));
    assert_ok(kvern_state_create(composition, 2, &s));
    for (int64_t step = 0; step < 4; step++) {
        const int64_t *counts = step ? one : lengths;
        const int64_t begin[2] = {step ? 1 + step : 0, step ? 6 + step : 0};
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
        for (size_t l = 0; l < 3; l++) {
            feed f = feed_create(kvern_state_cache(s, l), sequences, counts, 2);
            assert_int_equal(kvern_step_position(s, 0), begin[0]);
            assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
            assert_int_equal(kvern_step_position(s, 0), begin[0]);
            assert_int_equal(kvern_step_position(s, 1), begin[1]);
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(s));
        assert_int_equal(kvern_state_length(s, 0), begin[0] + counts[0]);
        assert_int_equal(kvern_state_length(s, 1), begin[1] + counts[1]);
    }
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// Blaizzy/mlx-vlm#1946: a row's answer depended on the length of its neighbour.
static void fault_H3_neighbour_dependence(void **state)
{
    (void)state;
    static const int64_t neighbours[] = {0, 3, 30, 300};
    static const uint64_t sequences[2] = {1, 2};
    const kvern_layer layer = kvern_layer_default(2, 64);
    float out[(9 + 300) * 4 * 64];
    for (size_t i = 0; i < 4; i++) {
        const int64_t counts[2] = {9, neighbours[i]};
        bed *b = bed_create(layer, 2);
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, 4, out);
        expect_serial(layer, 1, 0, 9, 4, out, "beside a neighbour");
        bed_destroy(b);
    }
}

// huggingface/transformers#48161: padding counted as positions.
static void fault_H6_right_padding(void **state)
{
    (void)state;
    enum { DIM = 16, LENGTH = 8 };
    static const int64_t counts[2] = {3, 8}, start[2] = {0, LENGTH};
    bed *b = bed_create(layer_of(1, DIM, KVERN_F32), 2);
    float *k = new_floats(2 * LENGTH * DIM, NAN), *stored = new_floats(LENGTH * DIM, 0);
    for (int i = 0; i < 3 * DIM; i++)
        k[i] = 3;
    for (int i = LENGTH * DIM; i < 2 * LENGTH * DIM; i++)
        k[i] = 8;
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(b->cache));
    tokens.k = tokens.v = k;
    tokens.k_start = tokens.v_start = start;
    tokens.counts = counts;
    assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(kvern_cache_length(b->cache, r), counts[r]);
        assert_ok(kvern_cache_export(b->cache, r, 0, counts[r], stored, NULL));
        for (int64_t i = 0; i < counts[r] * DIM; i++)
            assert_true(stored[i] == (float)counts[r]);
    }
    free(k);
    free(stored);
    bed_destroy(b);
}

// ---- I: reuse of a prefix ----

// nicedreamzapp/claude-code-local#46: trims that never went past an allocation step.
static void fault_I4_trim_past_an_allocation_step(void **state)
{
    (void)state;
    static const size_t row = 0;
    static const int64_t stored[] = {300, 200, 65, 64}, shared[] = {280, 180, 64, 1};
    const kvern_layer layer = kvern_layer_default(2, 64);
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(layer, 1);
        kvern_cache *fork;
        float out[10 * 4 * 64];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, stored[i], 4, NULL);
        assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
        assert_ok(kvern_cache_trim(fork, 0, stored[i] - shared[i]));
        assert_int_equal(kvern_cache_length(fork, 0), shared[i]);
        feed_one(fork, KVERN_PHASE_WINDOW, 1, 10, 4, out);
        expect_serial(layer, 1, shared[i], 10, 4, out, "behind a shared prefix");
        assert_int_equal(kvern_cache_length(b->cache, 0), stored[i]);
        kvern_cache_destroy(fork);
        bed_destroy(b);
    }
}

// ml-explore/mlx-lm#1502: an append brought trimmed tokens back.
static void fault_I6_resurrected_tokens(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 1), *fresh = bed_create(layer, 1);
    float out[4 * 64], wanted[3 * 4 * 64], got[3 * 4 * 64];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, 4, NULL);
    assert_ok(kvern_cache_trim(b->cache, 0, 4));
    assert_int_equal(kvern_cache_length(b->cache, 0), 6);
    feed_one(b->cache, KVERN_PHASE_DECODE, 2, 1, 4, out);
    assert_int_equal(kvern_cache_length(b->cache, 0), 7);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 3, 3, 4, got);
    assert_int_equal(kvern_cache_length(b->cache, 0), 10);
    feed_one(fresh->cache, KVERN_PHASE_WINDOW, 1, 6, 4, NULL);
    feed_one(fresh->cache, KVERN_PHASE_WINDOW, 2, 1, 4, NULL);
    feed_one(fresh->cache, KVERN_PHASE_WINDOW, 3, 3, 4, wanted);
    check_same_bytes(wanted, got, sizeof wanted, "after a trim");
    bed_destroy(b);
    bed_destroy(fresh);
}

// sgl-project/sglang#29633: a tail of one token behind whole blocks.
static void fault_I9_tail_of_one(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_default(2, 64);
    for (int64_t blocks = 1; blocks <= 4; blocks++) {
        float out[4 * 64];
        for (int phase = 0; phase < 3; phase++) {
            bed *b = bed_create(layer, 1);
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 64 * blocks, 4, NULL);
            feed_one(b->cache, (kvern_phase)phase, 1, 1, 4, out);
            expect_serial(layer, 1, 64 * blocks, 1, 4, out, "a tail of one");
            bed_destroy(b);
        }
    }
}

// ---- P: empty rows ----

// ml-explore/mlx#2608: a row without a visible key gave NaN, and spoiled its batch.
static void fault_P1_empty_row_in_a_batch(void **state)
{
    (void)state;
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t counts[3] = {0, 9, 0};
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 3);
    float out[9 * 4 * 64];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, 4, out);
    expect_serial(layer, 2, 0, 9, 4, out, "beside empty rows");
    assert_int_equal(kvern_cache_length(b->cache, 0), 0);
    bed_destroy(b);
}

// ---- S: memory ----

// ml-explore/mlx-lm#1395: taking over a stored row copied all of it.
static void fault_S3_fork_cost(void **state)
{
    (void)state;
    static const size_t row = 0;
    const kvern_layer layer = kvern_layer_default(2, 64);
    bed *b = bed_create(layer, 1);
    float out[4 * 64];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 5000, 4, NULL);
    const uint64_t held = b->books.held_bytes;
    kvern_cache *fork;
    assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
    assert_true(b->books.held_bytes - held < 1000);
    assert_int_equal(kvern_cache_bytes(fork), kvern_cache_bytes(b->cache));
    kvern_memory before = {.size = sizeof before}, after = before;
    assert_ok(kvern_context_memory(b->context, &before));
    feed_one(fork, KVERN_PHASE_DECODE, 2, 1, 4, out);
    assert_ok(kvern_context_memory(b->context, &after));
    assert_int_equal(after.page_bytes - before.page_bytes, 64 * 2 * 2 * 64 * 2); // one page
    kvern_cache_destroy(fork);
    bed_destroy(b);
}

// ---- T: lifetimes ----

// raullenchai/Rapid-MLX#196: a copy that shared its data lost it with the original.
static void fault_T5_lifetime(void **state)
{
    (void)state;
    static const size_t row = 1;
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t counts[2] = {20, 70};
    const kvern_layer layer = kvern_layer_default(2, 64);
    for (int order = 0; order < 2; order++) {
        bed *b = bed_create(layer, 2);
        kvern_cache *fork, *last = b->cache;
        float out[5 * 4 * 64];
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, 4, NULL);
        assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
        if (order == 0) { // the batch goes first
            kvern_cache_destroy(b->cache);
            last = b->cache = fork;
            feed_one(last, KVERN_PHASE_WINDOW, 2, 5, 4, out);
        } else {
            kvern_cache_destroy(fork);
            const int64_t more[2] = {0, 5};
            feed_run(last, KVERN_PHASE_WINDOW, sequences, more, 4, out);
        }
        expect_serial(layer, 2, 70, 5, 4, out, "what is left");
        bed_destroy(b);
    }
}

// ---- V: repeatability ----

// ollama/ollama#16861: a warm repeat gave another answer than the cold run.
static void fault_V5_cold_and_warm(void **state)
{
    (void)state;
    static const size_t row = 0;
    static const int64_t lengths[] = {2, 64, 65, 129, 300};
    const kvern_layer layer = kvern_layer_default(3, 64);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const int64_t n = lengths[i];
        bed *b = bed_create(layer, 1);
        kvern_cache *warm;
        float *cold = new_floats((size_t)n * 9 * 64, NAN), out[9 * 64];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, n, 9, cold);
        assert_ok(kvern_cache_fork(b->cache, &row, 1, &warm));
        assert_ok(kvern_cache_trim(warm, 0, 1));
        feed_one(warm, KVERN_PHASE_DECODE, 1, 1, 9, out);
        check_same_bytes(cold + (n - 1) * 9 * 64, out, sizeof out, "the warm answer");
        free(cold);
        kvern_cache_destroy(warm);
        bed_destroy(b);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_B10_causal_anchor),
        cmocka_unit_test(fault_B3_relative_mask_rows),
        cmocka_unit_test(fault_B6_unfilled_columns_visible),
        cmocka_unit_test(fault_G2_empty_row),
        cmocka_unit_test(fault_G4_choice_before_first_append),
        cmocka_unit_test(fault_G7_written_end),
        cmocka_unit_test(fault_G10_scalar_offset),
        cmocka_unit_test(fault_G12_reset),
        cmocka_unit_test(fault_H1_positions_of_a_step),
        cmocka_unit_test(fault_H3_neighbour_dependence),
        cmocka_unit_test(fault_H6_right_padding),
        cmocka_unit_test(fault_I4_trim_past_an_allocation_step),
        cmocka_unit_test(fault_I6_resurrected_tokens),
        cmocka_unit_test(fault_I9_tail_of_one),
        cmocka_unit_test(fault_P1_empty_row_in_a_batch),
        cmocka_unit_test(fault_S3_fork_cost),
        cmocka_unit_test(fault_T5_lifetime),
        cmocka_unit_test(fault_V5_cold_and_warm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
