// SPDX-License-Identifier: MIT
// Faults that other systems have shipped when rows join a batch, leave it, change places or begin
// anew, as small scenarios on every storage, with a window and without. Each is named for a public
// report; the comment says what went wrong there. Every row is compared with its own solo run.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define DIM 64
#define HEADS 2 // query heads; one KV head
#define OUT (HEADS * DIM)

static kvern_cache *more_rows(const bed *b, size_t rows)
{
    kvern_cache *cache;
    assert_ok(kvern_cache_create(b->composition, 0, rows, &cache));
    return cache;
}

// A row that was filled in one append, and has been decoded a token at a time since.
static void check_decodes(kvern_layer layer, kvern_cache *cache, size_t row, uint64_t sequence,
                          int64_t first, int64_t behind, const float *out, const char *name)
{
    bed *b = bed_create(layer, 1);
    float wanted[OUT];
    if (first)
        feed_one(b->cache, KVERN_PHASE_WINDOW, sequence, first, HEADS, NULL);
    for (int64_t i = 0; i < behind; i++)
        feed_one(b->cache, KVERN_PHASE_DECODE, sequence, 1, HEADS, wanted);
    assert_int_equal(kvern_cache_length(cache, row), first + behind);
    assert_int_equal(kvern_cache_trimmable(cache, row), kvern_cache_trimmable(b->cache, 0));
    assert_int_equal(kvern_cache_converted(cache, row), kvern_cache_converted(b->cache, 0));
    check_same_bytes(wanted, out, sizeof wanted, name);
    bed_destroy(b);
}

// Decodes `steps` tokens in all rows and compares the last of them with solo runs.
static void decode_all(kvern_layer layer, kvern_cache *cache, const uint64_t *sequences,
                       const int64_t *first, int64_t steps, const char *name)
{
    static const int64_t one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const size_t rows = kvern_cache_rows(cache);
    float out[8 * OUT];
    for (int64_t i = 0; i < steps; i++)
        feed_run(cache, KVERN_PHASE_DECODE, sequences, one, HEADS, out);
    for (size_t r = 0; r < rows; r++)
        check_decodes(layer, cache, r, sequences[r], first[r], steps, out + r * OUT, name);
}

// ---- E: what must survive a move ----

// scouzi1966/maclocal-api#46: arrays came back, the offset did not. mlx-examples#977: the whole
// allocation came back as contents.
static void check_E1(kvern_layer layer, const char *name)
{
    static const uint64_t sequence = 5;
    static const int64_t lengths[] = {284, 2};
    for (size_t i = 0; i < 2; i++) {
        bed *b = bed_create(layer, 2);
        const uint64_t sequences[2] = {4, sequence};
        const int64_t counts[2] = {7, lengths[i]};
        kvern_cache *taken, *joined = more_rows(b, 0);
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, HEADS, NULL);
        assert_ok(kvern_cache_reserve(b->cache, 1, 600, 0));
        assert_ok(kvern_cache_extract(b->cache, 1, &taken));
        assert_int_equal(kvern_cache_length(taken, 0), lengths[i]);
        assert_ok(kvern_cache_join(joined, &taken, 1));
        assert_int_equal(kvern_cache_length(joined, 0), lengths[i]);
        decode_all(layer, joined, &sequence, &lengths[i], 6, name);
        kvern_cache_destroy(taken);
        kvern_cache_destroy(joined);
        bed_destroy(b);
    }
}

static void fault_E1_offset_and_width_of_a_taken_row(void **state)
{
    (void)state;
    for_every_storage(check_E1, 1, DIM, 8);
    for_every_latent(check_E1, DIM);
}

// ---- G: rows ----

// ml-explore/mlx-lm#983: a row was sized by its write cursor or its absolute offset. mlx-lm#754: a
// row that was never written.
static void check_G1(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t lengths[3] = {20, 0, 3};
    bed *b = bed_create(layer, 1);
    kvern_cache *others[2] = {more_rows(b, 1), more_rows(b, 1)};
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 20, HEADS, NULL);
    feed_one(others[1], KVERN_PHASE_WINDOW, 3, 3, HEADS, NULL);
    assert_ok(kvern_cache_join(b->cache, others, 2));
    assert_int_equal(kvern_cache_rows(b->cache), 3);
    assert_int_equal(kvern_cache_rows(others[0]), 0);
    decode_all(layer, b->cache, sequences, lengths, 3, name);
    kvern_cache_destroy(others[0]);
    kvern_cache_destroy(others[1]);
    bed_destroy(b);
}

static void fault_G1_size_of_a_joining_row(void **state)
{
    (void)state;
    for_every_storage(check_G1, 1, DIM, 8);
    for_every_latent(check_G1, DIM);
}

// ml-explore/mlx-lm#798: filtering a batch without storage.
static void check_G4(kvern_layer layer, const char *name)
{
    static const size_t rows[2] = {2, 0};
    static const uint64_t sequences[2] = {8, 9};
    static const int64_t counts[2] = {3, 1};
    bed *b = bed_create(layer, 4);
    float out[4 * OUT];
    assert_ok(kvern_cache_keep(b->cache, rows, 2));
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, HEADS, out);
    expect_serial(layer, 8, 0, 3, HEADS, out, name);
    expect_serial(layer, 9, 0, 1, HEADS, out + 3 * OUT, name);
    assert_ok(kvern_cache_keep(b->cache, NULL, 0));
    assert_int_equal(kvern_cache_rows(b->cache), 0);
    assert_int_equal(kvern_cache_bytes(b->cache), 0);
    feed_run(b->cache, KVERN_PHASE_WINDOW, NULL, NULL, HEADS, NULL);
    assert_ok(kvern_cache_add_rows(b->cache, 1)); // where a row has been before
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, HEADS, out);
    expect_serial(layer, 8, 0, 3, HEADS, out, name);
    bed_destroy(b);
}

static void fault_G4_filter_before_first_append(void **state)
{
    (void)state;
    for_every_storage(check_G4, 1, DIM, 2);
    for_every_latent(check_G4, DIM);
}

// ml-explore/mlx-lm#1141: an empty side took over the other side's number of rows.
static void check_G5(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[5] = {1, 2, 3, 4, 5};
    static const int64_t filled[2] = {9, 4}, two[5] = {2, 2, 2, 2, 2};
    for (size_t first = 0; first < 2; first++) {
        bed *b = bed_create(layer, 2);
        kvern_cache *fresh = more_rows(b, 3);
        float out[5 * 2 * OUT];
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences + 3 * first, filled, HEADS, NULL);
        kvern_cache *all = first ? fresh : b->cache, *other = first ? b->cache : fresh;
        assert_ok(kvern_cache_join(all, &other, 1));
        assert_int_equal(kvern_cache_rows(all), 5);
        feed_run(all, KVERN_PHASE_WINDOW, sequences, two, HEADS, out);
        for (size_t r = 0; r < 5; r++) {
            const bool was_filled = first ? r >= 3 : r < 2;
            const int64_t before = was_filled ? filled[first ? r - 3 : r] : 0;
            assert_int_equal(kvern_cache_length(all, r), before + 2);
            expect_serial(layer, sequences[r], before, 2, HEADS, out + 2 * r * OUT, name);
        }
        kvern_cache_destroy(fresh);
        bed_destroy(b);
    }
}

static void fault_G5_empty_side(void **state)
{
    (void)state;
    for_every_storage(check_G5, 1, DIM, 3);
    for_every_latent(check_G5, DIM);
}

// jundot/omlx#2172: after the longest row had left, appends overwrote what was there.
static void check_G7(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {10, 6};
    static const size_t second = 1;
    bed *b = bed_create(layer, 2);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, HEADS, NULL);
    assert_ok(kvern_cache_keep(b->cache, &second, 1));
    assert_int_equal(kvern_cache_length(b->cache, 0), 6);
    decode_all(layer, b->cache, sequences + 1, lengths + 1, 3, name);
    bed_destroy(b);
}

static void fault_G7_written_end(void **state)
{
    (void)state;
    for_every_storage(check_G7, 1, DIM, 4);
    for_every_latent(check_G7, DIM);
}

// A padded chunk: [rows, kv_heads, length, dim], row r's tokens in the columns from start[r] on.
// Every other column is NaN.
static void append_padded(kvern_cache *cache, const uint64_t *sequences, int64_t length,
                          const int64_t *start, const int64_t *counts)
{
    const size_t rows = kvern_cache_rows(cache);
    float *k = new_floats(rows * (size_t)length * DIM, __builtin_nanf(""));
    float *v = new_floats(rows * (size_t)length * DIM, __builtin_nanf(""));
    int64_t first[8];
    for (size_t r = 0; r < rows; r++) {
        first[r] = (int64_t)r * length + start[r];
        for (int64_t i = 0; i < counts[r]; i++) {
            const int64_t position = kvern_cache_length(cache, r) + i;
            feed_values(sequences[r], position, FEED_K, DIM, k + (first[r] + i) * DIM);
            feed_values(sequences[r], position, FEED_V, DIM, v + (first[r] + i) * DIM);
        }
    }
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(cache));
    tokens.k = k;
    tokens.v = v;
    tokens.k_start = tokens.v_start = first;
    tokens.counts = counts;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    free(k);
    free(v);
}

// Blaizzy/mlx-vlm#1889: filtering in the middle of a padded prefill left the lengths of the rows
// that had gone. A row is extracted there as well, and both go on.
static void check_G8(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t right[2] = {0, 0}, chunk[2] = {4, 6}, left = 1, rest = 5, sum = 11;
    static const size_t second = 1;
    bed *b = bed_create(layer, 2);
    kvern_cache *taken;
    append_padded(b->cache, sequences, 6, right, chunk);
    assert_ok(kvern_cache_extract(b->cache, 1, &taken));
    assert_ok(kvern_cache_keep(b->cache, &second, 1));
    assert_int_equal(kvern_cache_length(b->cache, 0), 6);
    append_padded(b->cache, sequences + 1, 6, &left, &rest);
    append_padded(taken, sequences + 1, 7, &left, &rest);
    if (layer.start != 0) { // with a start at 0 the first chunk alone is converted
        decode_all(layer, b->cache, sequences + 1, &sum, 2, name);
        decode_all(layer, taken, sequences + 1, &sum, 2, name);
    }
    assert_int_equal(kvern_cache_length(taken, 0), kvern_cache_length(b->cache, 0));
    float a[OUT], c[OUT];
    feed_one(b->cache, KVERN_PHASE_DECODE, 2, 1, HEADS, a);
    feed_one(taken, KVERN_PHASE_DECODE, 2, 1, HEADS, c);
    check_same_bytes(a, c, sizeof a, name);
    kvern_cache_destroy(taken);
    bed_destroy(b);
}

static void fault_G8_filter_within_a_padded_prefill(void **state)
{
    (void)state;
    for_every_storage(check_G8, 1, DIM, 5);
}

// Blaizzy/mlx-vlm#1110: one offset for all rows, kept when a second row joined.
static void check_G10(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {5, 9};
    static const size_t first = 0;
    bed *b = bed_create(layer, 1);
    kvern_cache *other = more_rows(b, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 5, HEADS, NULL);
    feed_one(other, KVERN_PHASE_WINDOW, 2, 9, HEADS, NULL);
    assert_ok(kvern_cache_join(b->cache, &other, 1));
    decode_all(layer, b->cache, sequences, lengths, 4, name);
    assert_int_equal(kvern_cache_length(b->cache, 0), 9);
    assert_int_equal(kvern_cache_length(b->cache, 1), 13);
    assert_ok(kvern_cache_keep(b->cache, &first, 1));
    assert_int_equal(kvern_cache_length(b->cache, 0), 9);
    kvern_cache_destroy(other);
    bed_destroy(b);
}

static void fault_G10_scalar_offset(void **state)
{
    (void)state;
    for_every_storage(check_G10, 1, DIM, 6);
    for_every_latent(check_G10, DIM);
}

// huggingface/transformers#48509: after a reset, the next batch met what the last one had left, and
// could not have another number of rows.
static void check_G12(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[4] = {1, 2, 3, 4};
    static const int64_t full[4] = {80, 70, 6, 90}, three[2] = {3, 3};
    static const size_t two[2] = {3, 1};
    bed *b = bed_create(layer, 4);
    float out[2 * 3 * OUT];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, full, HEADS, NULL);
    for (size_t r = 0; r < 4; r++)
        assert_ok(kvern_cache_reset(b->cache, r));
    assert_ok(kvern_cache_keep(b->cache, two, 2));
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences + 2, three, HEADS, out);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(kvern_cache_length(b->cache, r), 3);
        assert_int_equal(kvern_cache_converted(b->cache, r), layer.start <= 0);
        expect_serial(layer, sequences[2 + r], 0, 3, HEADS, out + r * 3 * OUT, name);
    }
    bed_destroy(b);
}

static void fault_G12_reset_and_another_batch(void **state)
{
    (void)state;
    for_every_storage(check_G12, 1, DIM, 5);
    for_every_latent(check_G12, DIM);
}

// ml-explore/mlx-lm#439: padding entered the window and pushed real positions out of it.
// unslothai/unsloth#3795: one position for a left-padded batch. huggingface/transformers#48161:
// right padding counted as positions.
static void check_G14(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {6, 2}, left[2] = {0, 4}, right[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        bed *b = bed_create(layer, 2);
        append_padded(b->cache, sequences, 6, i ? right : left, lengths);
        decode_all(layer, b->cache, sequences, lengths, 5, name);
        bed_destroy(b);
    }
}

static void fault_G14_padding_in_a_window(void **state)
{
    (void)state;
    for_every_storage(check_G14, 1, DIM, 4);
}

// ---- H: positions ----

static kvern_state *small_state(bed *b, size_t rows)
{
    kvern_state *s;
    assert_ok(kvern_state_create(b->composition, rows, &s));
    return s;
}

static void step(kvern_state *s, kvern_phase phase, const uint64_t *sequences,
                 const int64_t *counts, float *out)
{
    kvern_read *read = NULL;
    feed f = feed_create(kvern_state_cache(s, 0), sequences, counts, HEADS);
    assert_ok(kvern_step_begin(s, phase, counts));
    assert_ok(feed_step_append(s, 0, &f, &read));
    if (out) {
        f.queries.out = out;
        assert_ok(kvern_read_attend(read, &f.queries));
    }
    kvern_read_release(read);
    assert_ok(kvern_step_end(s));
    feed_destroy(&f);
}

// unslothai/unsloth#3795, and a batch whose rows came from two: positions are each row's own, and
// stay so when rows change places.
static void fault_H4_positions_of_joined_rows(void **state)
{
    (void)state;
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t lengths[2] = {2, 7}, four = 4, one[3] = {1, 1, 1};
    static const size_t order[3] = {2, 0, 1};
    bed *b = bed_create(kvern_layer_default(1, DIM), 0);
    kvern_state *s = small_state(b, 2), *other = small_state(b, 1);
    step(s, KVERN_PHASE_WINDOW, sequences, lengths, NULL);
    step(other, KVERN_PHASE_WINDOW, sequences + 2, &four, NULL);
    assert_ok(kvern_state_join(s, &other, 1));
    assert_ok(kvern_state_keep(s, order, 3));
    for (int64_t i = 0; i < 3; i++) {
        assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, one));
        assert_int_equal(kvern_step_position(s, 0), 4 + i);
        assert_int_equal(kvern_step_position(s, 1), 2 + i);
        assert_int_equal(kvern_step_position(s, 2), 7 + i);
        kvern_step_abandon(s);
        step(s, KVERN_PHASE_DECODE, sequences, one, NULL);
    }
    kvern_state_destroy(other);
    kvern_state_destroy(s);
    bed_destroy(b);
}

// oarriaga/paz#415: positions as bf16 numbers, which repeat above 256.
static void fault_H8_exact_positions(void **state)
{
    (void)state;
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t first[2] = {250, 3}, one[2] = {1, 1};
    const kvern_layer layer = kvern_layer_default(1, DIM);
    bed *b = bed_create(layer, 0);
    kvern_state *s = small_state(b, 2);
    float out[2 * OUT];
    step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    for (int64_t p = 250; p < 300; p++) {
        assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, one));
        assert_int_equal(kvern_step_position(s, 0), p);
        assert_int_equal(kvern_step_position(s, 1), p - 247);
        kvern_step_abandon(s);
        step(s, KVERN_PHASE_DECODE, sequences, one, out);
        if (p >= 254 && p <= 260)
            expect_serial(layer, 1, p, 1, HEADS, out, "around 256");
    }
    kvern_state_destroy(s);
    bed_destroy(b);
}

// ---- T: ownership ----

// raullenchai/Rapid-MLX#196: a copied block shared a pointer whose owner had gone. Rows that moved
// or were taken out outlive the batch they came from, its composition included.
static void check_T5(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t lengths[2] = {90, 70};
    for (int order = 0; order < 3; order++) {
        bed *b = bed_create(layer, 2);
        kvern_composition *composition;
        kvern_cache *taken = NULL, *joined;
        assert_ok(kvern_composition_create(b->context, &layer, 1, &composition));
        assert_ok(kvern_cache_create(composition, 0, order == 2, &joined));
        kvern_composition_release(composition);
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, HEADS, NULL);
        if (order == 2) {
            assert_ok(kvern_cache_adopt(joined, 0, b->cache, 1));
        } else {
            assert_ok(kvern_cache_extract(b->cache, 1, &taken));
            assert_ok(kvern_cache_join(joined, &taken, 1));
        }
        kvern_cache_destroy(taken);
        if (order == 1) {
            decode_all(layer, joined, sequences + 1, lengths + 1, 2, name);
            kvern_cache_destroy(joined);
            decode_all(layer, b->cache, sequences, lengths, 2, name);
            bed_destroy(b);
            continue;
        }
        kvern_cache_destroy(b->cache);
        kvern_composition_release(b->composition);
        assert_ok(kvern_composition_create(b->context, &layer, 1, &b->composition));
        assert_ok(kvern_cache_create(b->composition, 0, 1, &b->cache));
        decode_all(layer, joined, sequences + 1, lengths + 1, 70, name); // pages of both
        kvern_cache_destroy(joined);
        bed_destroy(b);
    }
}

static void fault_T5_owners_that_go_first(void **state)
{
    (void)state;
    for_every_storage(check_T5, 1, DIM, 40);
}

// ---- V: the same bits ----

// ROCm/aiter#4378: the bits of a row changed with the rows beside it. vllm-project/vllm#51187: at
// about 44 rows. Here rows join one by one beside the first, which is decoded all the while.
static void check_V3(kvern_layer layer, const char *name)
{
    static const int64_t first = 300;
    bed *b = bed_create(layer, 1), *alone = bed_create(layer, 1);
    uint64_t sequences[64];
    int64_t one[64];
    static float out[64 * OUT], wanted[OUT];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, first, HEADS, NULL);
    feed_one(alone->cache, KVERN_PHASE_WINDOW, 1, first, HEADS, NULL);
    for (size_t r = 0; r < 64; r++) {
        sequences[r] = 1 + r;
        one[r] = 1;
    }
    for (size_t rows = 1; rows <= 64; rows++) {
        feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, HEADS, out);
        feed_one(alone->cache, KVERN_PHASE_DECODE, 1, 1, HEADS, wanted);
        check_same_bytes(wanted, out, sizeof wanted, name);
        kvern_cache *next = more_rows(b, rows < 64);
        if (rows % 3 == 0)
            feed_one(next, KVERN_PHASE_WINDOW, sequences[rows % 64], 40, HEADS, NULL);
        assert_ok(kvern_cache_join(b->cache, &next, 1));
        kvern_cache_destroy(next);
    }
    bed_destroy(alone);
    bed_destroy(b);
}

static void fault_V3_rows_that_join_beside(void **state)
{
    (void)state;
    for_every_storage(check_V3, 1, DIM, 100);
}

// ollama/ollama#16861: a warm repeat answered otherwise than the cold run. A row that was taken
// out, and went back by its last token, decodes it again.
static void check_V5(kvern_layer layer, const char *name)
{
    bed *b = bed_create(layer, 1);
    kvern_cache *warm;
    float cold[OUT], again[OUT];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 99, HEADS, NULL);
    feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, HEADS, cold);
    assert_ok(kvern_cache_extract(b->cache, 0, &warm));
    assert_ok(kvern_cache_trim(warm, 0, 1));
    feed_one(warm, KVERN_PHASE_DECODE, 1, 1, HEADS, again);
    check_same_bytes(cold, again, sizeof cold, name);
    kvern_cache_destroy(warm);
    bed_destroy(b);
}

static void fault_V5_warm_repeat_of_a_taken_row(void **state)
{
    (void)state;
    for_every_storage(check_V5, 1, DIM, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_E1_offset_and_width_of_a_taken_row),
        cmocka_unit_test(fault_G1_size_of_a_joining_row),
        cmocka_unit_test(fault_G4_filter_before_first_append),
        cmocka_unit_test(fault_G5_empty_side),
        cmocka_unit_test(fault_G7_written_end),
        cmocka_unit_test(fault_G8_filter_within_a_padded_prefill),
        cmocka_unit_test(fault_G10_scalar_offset),
        cmocka_unit_test(fault_G12_reset_and_another_batch),
        cmocka_unit_test(fault_G14_padding_in_a_window),
        cmocka_unit_test(fault_H4_positions_of_joined_rows),
        cmocka_unit_test(fault_H8_exact_positions),
        cmocka_unit_test(fault_T5_owners_that_go_first),
        cmocka_unit_test(fault_V3_rows_that_join_beside),
        cmocka_unit_test(fault_V5_warm_repeat_of_a_taken_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
