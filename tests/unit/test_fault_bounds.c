// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: what does not exist here, so that it
// cannot go wrong in the same way, and what holds in its place. test_fault_rows.c says more about
// them.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"
#include "tests/support/visibility_check.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// ---- C: quantized storage ----

static double norm_of(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

// vllm-project/vllm#41413, #41414: a rotation for powers of two was built for a head dim of 80, and
// changed norms. Nothing is rotated here: a head dim that groups do not divide is refused, and
// any other one keeps the norms of keys, up to the codes' own error.
static void fault_C12_head_dims_beside_powers_of_two(void **state)
{
    (void)state;
    static const size_t refused[] = {80, 112}, taken[] = {96, 160, 224, 576};
    for (size_t i = 0; i < COUNT(refused); i++) {
        kvern_layer layer = kvern_layer_default(1, refused[i]);
        layer.k_codec = kvern_codec_affine(8, 32);
        bed *b = bed_create(kvern_layer_default(1, 64), 1);
        kvern_composition *composition;
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_composition_create(b->context, &layer, 1, &composition));
        assert_null(composition);
        bed_destroy(b);
    }
    for (size_t i = 0; i < COUNT(taken); i++) {
        kvern_layer layer = kvern_layer_default(1, taken[i]);
        layer.k_codec = layer.v_codec = kvern_codec_affine(8, 32);
        bed *b = bed_create(layer, 1);
        float given[576], stored[576];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 70, 1, NULL);
        for (int64_t p = 0; p < 70; p++) {
            feed_values(1, p, FEED_K, taken[i], given);
            assert_ok(kvern_cache_export(b->cache, 0, p, 1, stored, NULL));
            const double ratio = norm_of(stored, taken[i]) / norm_of(given, taken[i]);
            assert_true(ratio > 0.99 && ratio < 1.01);
        }
        bed_destroy(b);
    }
}

// ---- R: sizes beyond 32 bits ----

// ml-explore/mlx#2894: a mask of more than 2^31 entries was indexed wrong. No mask is built: 65536
// queries before 131072 positions see their window, and the memory for it does not know about them.
static void fault_R3_more_pairs_than_a_mask_holds(void **state)
{
    (void)state;
    enum { TOKENS = 1 << 16 };
    const kvern_layer layer = storage_window(&storages[1], 1, 8, 8, 0, 0);
    bed *b = bed_create(layer, 1);
    float *out = new_floats((size_t)TOKENS * 8, NAN);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, TOKENS, 1, NULL);
    const uint64_t before = b->books.most_bytes;
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, TOKENS, 1, out);
    // Pages of the chunk are there before the window passes them.
    assert_true(b->books.most_bytes < before + (uint64_t)TOKENS * 64 + (4 << 20));
    bed *again = bed_create(layer, 1);
    const int64_t last = 2 * TOKENS - 3;
    float decoded[8];
    feed_one(again->cache, KVERN_PHASE_WINDOW, 1, last, 1, NULL);
    for (int64_t p = last; p < 2 * TOKENS; p++) {
        feed_one(again->cache, KVERN_PHASE_DECODE, 1, 1, 1, decoded);
        check_same_bytes(decoded, out + (p - TOKENS) * 8, sizeof decoded, "a late query");
    }
    free(out);
    bed_destroy(again);
    bed_destroy(b);
}

// ---- U: positions that move ----
// U1 (ggml-org/llama.cpp#3825, two shifts in a row of which one was lost): stored positions never
// move, and no call shifts them. What drops positions in front is a window.

enum { ROWS = 3, MOST_LENGTH = 150 };

// Keeps, trims, joins and decodes at random; `sequences` says whose tokens each row holds.
static void move_rows(bed *b, uint64_t sequences[ROWS], test_random *random)
{
    const size_t row = test_random_below(random, ROWS);
    size_t order[ROWS] = {0, 1, 2};
    kvern_cache *taken;
    switch (test_random_below(random, 4)) {
    case 0: { // a filter, in another order
        const uint64_t moved = sequences[row];
        order[0] = row;
        order[row] = 0;
        sequences[row] = sequences[0];
        sequences[0] = moved;
        assert_ok(kvern_cache_keep(b->cache, order, ROWS));
        break;
    }
    case 1: { // a row leaves and comes back as the last one
        const uint64_t moved = sequences[row];
        assert_ok(kvern_cache_extract(b->cache, row, &taken));
        for (size_t r = row; r + 1 < ROWS; r++) {
            order[r] = r + 1;
            sequences[r] = sequences[r + 1];
        }
        sequences[ROWS - 1] = moved;
        assert_ok(kvern_cache_keep(b->cache, order, ROWS - 1));
        assert_ok(kvern_cache_join(b->cache, &taken, 1));
        kvern_cache_destroy(taken);
        break;
    }
    case 2: { // a trim, as far as the window lets it
        const int64_t most = kvern_cache_trimmable(b->cache, row);
        const int64_t trim = (int64_t)test_random_below(random, (uint64_t)most + 1);
        assert_ok(kvern_cache_trim(b->cache, row, trim));
        break;
    }
    default:
        if (kvern_cache_length(b->cache, row) > MOST_LENGTH)
            assert_ok(kvern_cache_reset(b->cache, row));
        break;
    }
}

// A sequence whose keys say which position they are of, one by one or at once; what is kept of
// them.
static void expect_unmoved(kvern_cache *cache, const float *k, int64_t length, int64_t window,
                           int64_t keep)
{
    enum { DIM = 8 };
    for (int64_t p = 0; p < length; p++) {
        float key[DIM], value[DIM];
        if (p >= keep && p < length - (window - keep))
            continue;
        assert_ok(kvern_cache_export(cache, 0, p, 1, key, value));
        check_same_floats(k + p * DIM, key, DIM, "a key");
    }
}

// ggml-org/llama.cpp#3825: of two shifts in a row only the last one was applied to keys. Keys are
// stored as they were given, and a position is its own for ever: what a window drops, in one go or
// in many, and what is dropped at the end, moves none of those that stay.
static void fault_U1_nothing_is_shifted(void **state)
{
    (void)state;
    enum { DIM = 8, LENGTH = 300 };
    kvern_layer layer = storage_window(&storages[0], 1, DIM, 24, 3, 5);
    layer.k_codec = layer.v_codec = kvern_codec_dense(KVERN_F32);
    float *k = new_floats((size_t)LENGTH * DIM, 0), *one = new_floats((size_t)LENGTH * DIM, 0);
    for (int i = 0; i < LENGTH * DIM; i++)
        k[i] = (float)(i + 1);
    bed *once = bed_create(layer, 1), *often = bed_create(layer, 1);
    append_values(once->cache, LENGTH, k, k, 1, NULL, k, one);
    for (int64_t at = 0, count = 1; at < LENGTH; at += count) {
        float *out = new_floats((size_t)LENGTH * DIM, 0);
        count = at + at % 7 + 1 < LENGTH ? at % 7 + 1 : LENGTH - at;
        append_values(often->cache, count, k + at * DIM, k + at * DIM, 1, NULL, k + at * DIM, out);
        check_same_floats(one + at * DIM, out, (size_t)count * DIM, "a query");
        expect_unmoved(often->cache, k, at + count, 24, 3);
        if (at % 3 == 0 && at + count < LENGTH) { // the newest once more
            assert_ok(kvern_cache_trim(often->cache, 0, 1));
            append_values(often->cache, 1, k + (at + count - 1) * DIM, k + (at + count - 1) * DIM,
                          1, NULL, k, out);
        }
        free(out);
    }
    expect_unmoved(once->cache, k, LENGTH, 24, 3);
    bed_destroy(once);
    bed_destroy(often);
    free(k);
    free(one);
}

// ggml-org/llama.cpp#14081, #14189, #12253: compaction together with shifts gave garbage. Rows that
// are filtered, trimmed and pass their windows in any order are what fresh rows are.
static void fault_U3_moves_in_any_order(void **state)
{
    (void)state;
    static const size_t which[] = {0, 6};
    for (size_t s = 0; s < COUNT(which); s++) {
        const kvern_layer layer = storage_window(&storages[which[s]], 1, 64, 24, 3, 5);
        test_random random = test_random_seed(check_seed() + s);
        bed *b = bed_create(layer, ROWS);
        uint64_t sequences[ROWS] = {1, 2, 3};
        for (int round = 0; round < 120; round++) {
            int64_t counts[ROWS], before[ROWS];
            float out[ROWS * 8 * 64];
            move_rows(b, sequences, &random);
            for (size_t r = 0; r < ROWS; r++) {
                counts[r] = (int64_t)test_random_below(&random, 9);
                before[r] = kvern_cache_length(b->cache, r);
            }
            feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, 1, out);
            const float *at = out;
            for (size_t r = 0; r < ROWS; at += counts[r++] * 64) {
                if (counts[r] > 0)
                    expect_serial(layer, sequences[r], before[r], counts[r], 1, at, "a moved row");
            }
        }
        bed_destroy(b);
    }
}

// AshkanYarmoradi/go-llama.cpp#174: more kept positions than there are read out of bounds, and a
// shift gave nothing back. A row that is shorter than what its layer keeps sees all of it, at and
// past that length, too; what the window has passed is given back.
static void fault_U4_more_kept_than_stored(void **state)
{
    (void)state;
    static const int64_t keeps[] = {64, 20, 0};
    for (size_t k = 0; k < COUNT(keeps); k++) {
        const kvern_layer layer = storage_window(&storages[1], 1, 8, keeps[k] + 8, keeps[k], 0);
        const visibility_step steps[] = {{KVERN_PHASE_WINDOW, 20, 0},
                                         {KVERN_PHASE_DECODE, 1, 0},
                                         {KVERN_PHASE_WINDOW, 43, 0}, // to 64
                                         {KVERN_PHASE_DECODE, 10, 0},
                                         {KVERN_PHASE_WINDOW, 70, 0}};
        visibility_check(&layer, steps, COUNT(steps));
        bed *b = bed_create(layer, 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 5000, 1, NULL);
        const uint64_t page = 64 * 2 * 8 * sizeof(float);
        assert_true(kvern_cache_bytes(b->cache) <= 4 * page);
        bed_destroy(b);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_C12_head_dims_beside_powers_of_two),
        cmocka_unit_test(fault_R3_more_pairs_than_a_mask_holds),
        cmocka_unit_test(fault_U1_nothing_is_shifted),
        cmocka_unit_test(fault_U3_moves_in_any_order),
        cmocka_unit_test(fault_U4_more_kept_than_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
