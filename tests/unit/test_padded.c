// SPDX-License-Identifier: MIT
// Padded planes: what goes out comes back with every bit, in every storage and window; what is in
// which column; what an import stores; what is refused, and changes nothing. Faults of other
// systems are named as in test_fault_rows.c. That the layout is upstream's is padded_golden.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/padded_tensors.h"
#include "tests/support/rounding.h"
#include "tests/support/storages.h"

#include <kvern/experimental/padded.h>
#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MOST_ROWS 8

static const uint64_t sequences[MOST_ROWS] = {1, 2, 3, 4, 5, 6, 7, 8};
static const int64_t ones[MOST_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};

static kvern_cache *new_cache(const bed *b, size_t rows)
{
    kvern_cache *cache;
    assert_ok(kvern_cache_create(b->composition, 0, rows, &cache));
    return cache;
}

// ---- Round trips ----

static void expect_same_values(const kvern_cache *a, const kvern_cache *b, size_t row,
                               int64_t position, int64_t count)
{
    const kvern_layer *layer = kvern_cache_layer(a);
    const size_t floats = (size_t)count * layer->kv_heads * layer->k_dim;
    float *k[2] = {new_floats(floats, 0), new_floats(floats, 1)};
    float *v[2] = {new_floats(floats, 0), new_floats(floats, 1)};
    assert_ok(kvern_cache_export(a, row, position, count, k[0], v[0]));
    assert_ok(kvern_cache_export(b, row, position, count, k[1], v[1]));
    check_same_bytes(k[0], k[1], floats * sizeof(float), "keys");
    check_same_bytes(v[0], v[1], floats * sizeof(float), "values");
    for (int i = 0; i < 2; i++) {
        free(k[i]);
        free(v[i]);
    }
}

static void expect_same_rows(const kvern_cache *a, const kvern_cache *b, const char *what)
{
    const kvern_layer *layer = kvern_cache_layer(a);
    for (size_t r = 0; r < kvern_cache_rows(a); r++) {
        const int64_t length = kvern_cache_length(a, r), most = kvern_cache_trimmable(a, r);
        assert_int_equal(kvern_cache_length(b, r), length);
        assert_int_equal(kvern_cache_trimmable(b, r), most);
        if (length)
            assert_int_equal(kvern_cache_converted(b, r), kvern_cache_converted(a, r));
        const bool full = most == length;
        const int64_t held = full ? 0 : layer_first_seen(layer, length - most - 1);
        expect_same_values(a, b, r, held, length - held);
        if (!full)
            expect_same_values(a, b, r, 0, layer->keep);
    }
    padded_tensors of_a = padded_export(a), of_b = padded_export(b);
    padded_expect_same(&of_a, &of_b, what);
    padded_destroy(&of_a);
    padded_destroy(&of_b);
}

// Appends the same tokens to both and attends them.
static void expect_same_attends(kvern_cache *a, kvern_cache *b, int64_t count, const char *what)
{
    const kvern_layer *layer = kvern_cache_layer(a);
    const size_t rows = kvern_cache_rows(a), heads = 2 * layer->kv_heads;
    const size_t floats = rows * (size_t)count * heads * layer->v_dim;
    int64_t counts[MOST_ROWS];
    for (size_t r = 0; r < rows; r++)
        counts[r] = count;
    float *wanted = new_floats(floats, 0), *got = new_floats(floats, 1);
    const kvern_phase phase = count == 1 ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW;
    feed_run(a, phase, sequences, counts, heads, wanted);
    feed_run(b, phase, sequences, counts, heads, got);
    check_same_bytes(wanted, got, floats * sizeof(float), what);
    free(wanted);
    free(got);
}

static void trim_both(kvern_cache *a, kvern_cache *b, int64_t most)
{
    for (size_t r = 0; r < kvern_cache_rows(a); r++) {
        const int64_t trim =
            kvern_cache_trimmable(a, r) < most ? kvern_cache_trimmable(a, r) : most;
        assert_ok(kvern_cache_trim(a, r, trim));
        assert_ok(kvern_cache_trim(b, r, trim));
    }
}

// A cache whose rows have these lengths goes out and comes back; both are the same, and go on the
// same, through trims, too.
static void check_round_trip(kvern_layer layer, const int64_t *lengths, size_t rows, int64_t trim)
{
    bed *b = bed_create(layer, rows);
    kvern_cache *copy = new_cache(b, rows);
    char what[200];
    strncpy(what, kvern_cache_signature(copy), sizeof what - 1);
    what[sizeof what - 1] = 0;
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, layer.kv_heads, NULL);
    feed_run(b->cache, KVERN_PHASE_DECODE, sequences, (int64_t[MOST_ROWS]){0, 0, 0, 1, 1, 1, 1, 1},
             layer.kv_heads, NULL);
    for (size_t r = 0; r < rows; r++)
        assert_ok(kvern_cache_trim(
            b->cache, r,
            trim < kvern_cache_trimmable(b->cache, r) ? trim : kvern_cache_trimmable(b->cache, r)));
    padded_tensors planes = padded_export(b->cache);
    assert_ok(kvern_cache_import_padded(copy, &planes.planes));
    expect_same_rows(b->cache, copy, what);
    for (int i = 0; i < 3; i++)
        expect_same_attends(b->cache, copy, 1, what);
    trim_both(b->cache, copy, 3);
    expect_same_attends(b->cache, copy, 70, what);
    expect_same_attends(b->cache, copy, 1, what);
    expect_same_rows(b->cache, copy, what);
    padded_destroy(&planes);
    kvern_cache_destroy(copy);
    bed_destroy(b);
}

// Rows of a layer with a start are all before it or all behind it here.
static void every_storage_goes_and_comes_back(void **state)
{
    (void)state;
    static const int64_t lengths[][5] = {{5, 0, 64, 200, 64}, {90, 71, 128, 70, 300}};
    static const int64_t below[5] = {5, 0, 64, 30, 69};
    static const int64_t windows[][3] = {
        {40, 0, 0}, {64, 0, 5}, {100, 7, 20}, {150, 70, 0}, {8, 0, 3}};
    for (size_t s = 0; s < storage_count; s++) {
        if (storages[s].residual)
            continue; // codes of such rows are not handed out
        const bool starts = storages[s].start > 0 && storages[s].start != KVERN_NO_START;
        for (size_t i = 0; i < 2; i++) {
            const int64_t *of_rows = i == 0 && starts ? below : lengths[i];
            const size_t rows = i == 0 && starts ? 4 : 5; // the fifth would reach the start
            check_round_trip(storage_layer(&storages[s], 2, 64), of_rows, rows, i ? 2 : 0);
            for (size_t w = 0; w < COUNT(windows); w++)
                check_round_trip(storage_window(&storages[s], 1 + w % 2, 64, windows[w][0],
                                                windows[w][1], windows[w][2]),
                                 of_rows, rows, (int64_t)(i * w));
            check_round_trip(storage_chunked(&storages[s], 1, 64, 40, 5), of_rows, rows, 2);
            check_round_trip(storage_chunked(&storages[s], 2, 64, 64, 0), of_rows, rows, 0);
        }
    }
}

// Head dims that differ, and codecs that differ between keys and values.
static void uneven_layers_go_and_come_back(void **state)
{
    (void)state;
    static const int64_t lengths[3] = {3, 130, 64};
    kvern_layer layer = kvern_layer_default(3, 72);
    layer.v_dim = 40;
    layer.k_codec = kvern_codec_dense(KVERN_F16);
    layer.v_codec = kvern_codec_dense(KVERN_F32);
    bed *b = bed_create(layer, 3);
    kvern_cache *copy = new_cache(b, 3);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 3, NULL);
    padded_tensors planes = padded_create(b->cache, 130, false, false, KVERN_F16, KVERN_F32);
    assert_ok(kvern_cache_export_padded(b->cache, &planes.planes));
    assert_ok(kvern_cache_import_padded(copy, &planes.planes));
    padded_tensors again = padded_create(b->cache, 130, false, false, KVERN_F16, KVERN_F32);
    assert_ok(kvern_cache_export_padded(copy, &again.planes));
    padded_expect_same(&planes, &again, "uneven");
    padded_destroy(&planes);
    padded_destroy(&again);
    kvern_cache_destroy(copy);
    bed_destroy(b);
}

// ---- Where things are ----

// The row, head and column of every number, against a plain export; padding is zero, and a wider
// plane has more of it.
static void columns_are_right_justified(void **state)
{
    (void)state;
    enum { ROWS = 3, HEADS = 2, DIM = 16, WIDTH = 21 };
    static const int64_t lengths[ROWS] = {4, 0, 17};
    static const kvern_type types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};
    bed *b = bed_create(layer_of(HEADS, DIM, KVERN_F32), ROWS);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, HEADS, NULL);
    assert_int_equal(kvern_cache_padded_width(b->cache), 17);
    for (size_t t = 0; t < COUNT(types); t++) {
        padded_tensors planes = padded_create(b->cache, WIDTH, false, false, types[t], types[t]);
        assert_ok(kvern_cache_export_padded(b->cache, &planes.planes));
        for (size_t i = 0; i < ROWS * HEADS * WIDTH * DIM; i++) {
            const size_t d = i % DIM, column = i / DIM % WIDTH, head = i / DIM / WIDTH % HEADS;
            const size_t row = i / DIM / WIDTH / HEADS;
            const int64_t position = (int64_t)column - (WIDTH - lengths[row]);
            float k[HEADS * DIM] = {0}, v[HEADS * DIM] = {0};
            if (position >= 0)
                assert_ok(kvern_cache_export(b->cache, row, position, 1, k, v));
            const float wanted_k = rounded(types[t], k[head * DIM + d]);
            const float wanted_v = rounded(types[t], v[head * DIM + d]);
            assert_true(element_get(types[t], planes.planes.k, i) == wanted_k);
            assert_true(element_get(types[t], planes.planes.v, i) == wanted_v);
        }
        for (size_t r = 0; r < ROWS; r++) {
            assert_int_equal(planes.planes.left_padding[r], WIDTH - lengths[r]);
            assert_int_equal(planes.planes.offsets[r], lengths[r]);
        }
        padded_destroy(&planes);
    }
    bed_destroy(b);
}

// Codes of padding are zeros; those of positions are what a plain export gives.
static void codes_are_right_justified(void **state)
{
    (void)state;
    enum { ROWS = 2, DIM = 64, WIDTH = 6, WORDS = DIM * 4 / 32 };
    static const int64_t lengths[ROWS] = {5, 2};
    kvern_layer layer = kvern_layer_default(1, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 32);
    bed *b = bed_create(layer, ROWS);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
    padded_tensors planes = padded_create(b->cache, WIDTH, true, true, KVERN_F32, KVERN_F32);
    assert_ok(kvern_cache_export_padded(b->cache, &planes.planes));
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        const int64_t position = (int64_t)(i % WIDTH) - (WIDTH - lengths[i / WIDTH]);
        uint32_t words[WORDS] = {0};
        uint16_t scales[2] = {0}, biases[2] = {0};
        const kvern_affine_arrays one = {.words = words, .scales = scales, .biases = biases};
        if (position >= 0)
            assert_ok(kvern_cache_export_affine(b->cache, i / WIDTH, position, 1, NULL, &one));
        const kvern_affine_arrays *v = &planes.planes.v_codes;
        check_same_bytes(words, v->words + i * WORDS, sizeof words, "words");
        check_same_bytes(scales, (uint16_t *)v->scales + 2 * i, sizeof scales, "scales");
        check_same_bytes(biases, (uint16_t *)v->biases + 2 * i, sizeof biases, "biases");
    }
    padded_destroy(&planes);
    bed_destroy(b);
}

// Pointers that are NULL are not written, and nothing else is missed.
static void parts_may_be_left_out(void **state)
{
    (void)state;
    bed *b = bed_create(storage_layer(&storages[3], 1, 64), 2);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){7, 3}, 1, NULL);
    padded_tensors all = padded_export(b->cache), some = padded_export(b->cache);
    kvern_padded_planes only = kvern_padded_planes_default();
    int64_t left[2] = {-1, -1};
    only.width = 7;
    assert_ok(kvern_cache_export_padded(b->cache, &only));
    only.left_padding = left;
    only.k_codes = some.planes.k_codes;
    memset(some.planes.k_codes.words, 0xff, some.k_bytes);
    assert_ok(kvern_cache_export_padded(b->cache, &only));
    assert_int_equal(left[0], 0);
    assert_int_equal(left[1], 4);
    padded_expect_same(&all, &some, "keys alone");
    padded_destroy(&all);
    padded_destroy(&some);
    bed_destroy(b);
}

// ---- What an import stores ----

// Numbers are stored as by one append of all of them: rounded once, or, where a start is reached,
// to bf16 and then converted.
static void check_numbers(kvern_layer layer, const int64_t *lengths)
{
    // The numbers themselves come from a layer that stores every bit of them.
    bed *b = bed_create(layer, 4), *from = bed_create(layer_of(2, 64, KVERN_F32), 4);
    kvern_cache *imported = new_cache(b, 4);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 2, NULL);
    feed_run(from->cache, KVERN_PHASE_WINDOW, sequences, lengths, 2, NULL);
    padded_tensors planes = padded_export(from->cache);
    assert_ok(kvern_cache_import_padded(imported, &planes.planes));
    const char *what = kvern_cache_signature(imported);
    for (size_t r = 0; r < 4; r++) {
        const int64_t length = lengths[r], most = kvern_cache_trimmable(b->cache, r);
        const int64_t first = most == length ? 0 : layer_first_seen(&layer, length - most - 1);
        assert_int_equal(kvern_cache_trimmable(imported, r), most);
        assert_int_equal(kvern_cache_min_reusable(imported, r),
                         kvern_cache_min_reusable(b->cache, r));
        assert_int_equal(kvern_cache_converted(imported, r), kvern_cache_converted(b->cache, r));
        expect_same_values(b->cache, imported, r, first, length - first);
        expect_same_values(b->cache, imported, r, 0, length < layer.keep ? length : layer.keep);
    }
    expect_same_attends(b->cache, imported, 1, what);
    expect_same_attends(b->cache, imported, 9, what);
    padded_destroy(&planes);
    kvern_cache_destroy(imported);
    bed_destroy(from);
    bed_destroy(b);
}

static void numbers_are_stored_as_by_an_append(void **state)
{
    (void)state;
    static const int64_t lengths[4] = {400, 3, 0, 69};
    for (size_t s = 0; s < storage_count; s++) {
        check_numbers(storage_layer(&storages[s], 2, 64), lengths);
        check_numbers(storage_window(&storages[s], 2, 64, 50, 4, 6), lengths);
        check_numbers(storage_window(&storages[s], 2, 64, 50, 0, 0), lengths);
        check_numbers(storage_chunked(&storages[s], 2, 64, 50, 6), lengths);
        check_numbers(storage_chunked(&storages[s], 2, 64, 64, 0), lengths);
    }
    // What rounding to bf16 first leaves of a number shows in a stream that stores more of it.
    kvern_layer fine = storage_layer(&storages[10], 2, 64);
    fine.k_codec.scales = KVERN_F32;
    fine.v_codec.scales = KVERN_F16;
    check_numbers(fine, lengths);
    fine.k_codec = kvern_codec_dense(KVERN_F16);
    check_numbers(fine, lengths);
}

// Codes make a converted row, below the start too; a boundary that was planned waits for numbers.
static void forms_of_rows_with_a_start(void **state)
{
    (void)state;
    const kvern_layer layer = storage_layer(&storages[10], 1, 64); // 4 bits from 70 on
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 100, 1, NULL);
    assert_ok(kvern_cache_trim(b->cache, 0, 60));
    padded_tensors codes = padded_export(b->cache);
    kvern_cache *copy = new_cache(b, 1);
    assert_ok(kvern_cache_reserve(copy, 0, 200, 1)); // in bf16
    assert_ok(kvern_cache_import_padded(copy, &codes.planes));
    assert_int_equal(kvern_cache_converted(copy, 0), true);
    assert_int_equal(kvern_cache_min_reusable(copy, 0), 40);
    expect_same_attends(b->cache, copy, 1, "converted below its start");
    padded_destroy(&codes);
    kvern_cache_destroy(copy);
    copy = new_cache(b, 1);
    padded_tensors numbers = padded_create(copy, 90, false, false, KVERN_F32, KVERN_F32);
    memset(numbers.planes.k, 0, numbers.k_bytes);
    memset(numbers.planes.v, 0, numbers.v_bytes);
    numbers.planes.left_padding[0] = 0;
    numbers.planes.offsets[0] = 90;
    assert_ok(kvern_cache_plan_boundary(copy, 0, 91));
    assert_ok(kvern_cache_import_padded(copy, &numbers.planes));
    assert_int_equal(kvern_cache_converted(copy, 0), false);
    padded_destroy(&numbers);
    kvern_cache_destroy(copy);
    bed_destroy(b);
}

// Rows that were used before and emptied are empty rows; a row that stays converted is filled so.
static void emptied_rows_are_filled(void **state)
{
    (void)state;
    for (size_t s = 0; s < storage_count; s++) {
        if (storages[s].residual)
            continue; // codes of such rows are not handed out
        const kvern_layer layer = storage_window(&storages[s], 1, 64, 60, 3, 4);
        bed *b = bed_create(layer, 2);
        kvern_cache *used = new_cache(b, 2);
        feed_run(used, KVERN_PHASE_WINDOW, sequences, (int64_t[]){400, 90}, 1, NULL);
        feed_run(used, KVERN_PHASE_DECODE, sequences, ones, 1, NULL);
        kvern_read *read; // holds the rows' tables
        assert_ok(kvern_cache_read_donor(used, ones, &read));
        assert_ok(kvern_cache_trim(used, 0, 401));
        assert_ok(kvern_cache_reset(used, 1));
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){200, 150}, 1, NULL);
        padded_tensors planes = padded_export(b->cache);
        assert_ok(kvern_cache_import_padded(used, &planes.planes));
        expect_same_rows(b->cache, used, storages[s].name);
        expect_same_attends(b->cache, used, 1, storages[s].name);
        kvern_read_release(read);
        expect_same_attends(b->cache, used, 1, storages[s].name);
        padded_destroy(&planes);
        kvern_cache_destroy(used);
        bed_destroy(b);
    }
}

// ---- Faults of other systems ----

// ml-explore/mlx-lm#983: a row was sized by its ring's cursor or its offset.
static void fault_G1_width_of_a_wrapped_row(void **state)
{
    (void)state;
    const kvern_layer layer = storage_window(&storages[0], 2, 64, 8, 0, 0);
    bed *b = bed_create(layer, 2);
    kvern_cache *merged = new_cache(b, 2);
    float out[2 * 2 * 64];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){20, 3}, 2, NULL);
    padded_tensors planes = padded_export(b->cache);
    assert_int_equal(planes.planes.width, 8);
    assert_int_equal(planes.planes.left_padding[0], 0);
    assert_int_equal(planes.planes.left_padding[1], 5);
    assert_int_equal(planes.planes.offsets[0], 20);
    assert_int_equal(planes.planes.offsets[1], 3);
    assert_ok(kvern_cache_import_padded(merged, &planes.planes));
    feed_run(merged, KVERN_PHASE_DECODE, sequences, ones, 2, out);
    expect_serial(layer, 1, 20, 1, 2, out, "the wrapped row");
    expect_serial(layer, 2, 3, 1, 2, out + 2 * 64, "the short row");
    padded_destroy(&planes);
    kvern_cache_destroy(merged);
    bed_destroy(b);
}

// ml-explore/mlx-lm#754: a row that was never written crashed.
static void fault_G2_empty_rows(void **state)
{
    (void)state;
    const kvern_layer layer = storage_layer(&storages[0], 1, 64);
    bed *b = bed_create(layer, 3);
    kvern_cache *merged = new_cache(b, 3);
    float out[3 * 64];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){5, 0, 2}, 1, NULL);
    padded_tensors planes = padded_export(b->cache);
    static const int64_t left[3] = {0, 5, 3}, offsets[3] = {5, 0, 2};
    check_same_bytes(left, planes.planes.left_padding, sizeof left, "left padding");
    check_same_bytes(offsets, planes.planes.offsets, sizeof offsets, "offsets");
    assert_ok(kvern_cache_import_padded(merged, &planes.planes));
    feed_run(merged, KVERN_PHASE_DECODE, sequences, ones, 1, out);
    expect_serial(layer, 1, 5, 1, 1, out, "row 0");
    expect_serial(layer, 2, 0, 1, 1, out + 64, "the empty row sees only itself");
    expect_serial(layer, 3, 2, 1, 1, out + 128, "row 2");
    padded_destroy(&planes);
    kvern_cache_destroy(merged);
    bed_destroy(b);
    // Rows that are all empty, and no rows at all.
    for (size_t rows = 0; rows < 3; rows += 2) {
        b = bed_create(layer, rows);
        planes = padded_export(b->cache);
        assert_int_equal(planes.planes.width, 0);
        assert_ok(kvern_cache_import_padded(b->cache, &planes.planes));
        padded_destroy(&planes);
        bed_destroy(b);
    }
}

// ml-explore/mlx-lm#439: padding entered the window and pushed real positions out.
static void fault_G14_padding_in_a_window(void **state)
{
    (void)state;
    const kvern_layer layer = storage_window(&storages[0], 1, 64, 4, 0, 0);
    bed *b = bed_create(layer, 2), *from = bed_create(layer_of(1, 64, KVERN_BF16), 2);
    float out[2 * 64];
    feed_run(from->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){6, 2}, 1, NULL);
    padded_tensors planes = padded_export(from->cache);
    assert_int_equal(planes.planes.left_padding[1], 4);
    assert_ok(kvern_cache_import_padded(b->cache, &planes.planes));
    for (int64_t i = 0; i < 5; i++) {
        feed_run(b->cache, KVERN_PHASE_DECODE, sequences, ones, 1, out);
        expect_serial(layer, 1, 6 + i, 1, 1, out, "the long row");
        expect_serial(layer, 2, 2 + i, 1, 1, out + 64, "the padded row");
    }
    padded_destroy(&planes);
    bed_destroy(from);
    bed_destroy(b);
}

// huggingface/transformers#48161: rows that were padded on the right counted their padding.
static void fault_H6_right_padding_counts_no_position(void **state)
{
    (void)state;
    enum { DIM = 64, LENGTH = 8 };
    static const int64_t counts[2] = {3, 8}, starts[2] = {0, LENGTH}, left[2] = {5, 0};
    const kvern_layer layer = layer_of(1, DIM, KVERN_F32);
    bed *b = bed_create(layer, 2);
    float k[2 * LENGTH * DIM], out[2 * DIM];
    for (size_t i = 0; i < 2 * LENGTH * DIM; i++)
        k[i] = NAN; // where no token is
    for (size_t r = 0; r < 2; r++) {
        for (int64_t i = 0; i < counts[r]; i++)
            feed_values(sequences[r], i, FEED_K, DIM, k + ((size_t)starts[r] + (size_t)i) * DIM);
    }
    kvern_tokens tokens = kvern_tokens_default(&layer);
    tokens.k = tokens.v = k;
    tokens.counts = counts;
    tokens.k_start = tokens.v_start = starts;
    assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    padded_tensors planes = padded_export(b->cache);
    check_same_bytes(left, planes.planes.left_padding, sizeof left, "left padding");
    check_same_bytes(counts, planes.planes.offsets, sizeof counts, "offsets");
    kvern_cache *merged = new_cache(b, 2);
    assert_ok(kvern_cache_import_padded(merged, &planes.planes));
    assert_int_equal(kvern_cache_length(merged, 0), 3);
    assert_int_equal(kvern_cache_length(merged, 1), 8);
    feed_run(merged, KVERN_PHASE_DECODE, sequences, ones, 1, out);
    for (int d = 0; d < 2 * DIM; d++)
        assert_true(isfinite(out[d]));
    padded_destroy(&planes);
    kvern_cache_destroy(merged);
    bed_destroy(b);
}

// ml-explore/mlx-swift-lm#155: padding and the kinds of layers did not survive a round trip.
static void fault_E4_padding_and_layers_survive(void **state)
{
    (void)state;
    kvern_layer layers[3] = {storage_layer(&storages[0], 1, 64),
                             storage_window(&storages[6], 2, 64, 10, 2, 1),
                             storage_layer(&storages[3], 1, 128)};
    static const int64_t counts[2] = {3, 40}, left[3][2] = {{37, 0}, {8, 0}, {37, 0}};
    ledger books;
    ledger_init(&books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&books);
    options.executor = executor_backwards(1);
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *from, *to;
    padded_tensors tensors[3];
    kvern_padded_planes planes[3];
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, layers, 3, &composition));
    assert_ok(kvern_state_create(composition, 2, &from));
    assert_ok(kvern_state_create(composition, 2, &to));
    assert_ok(kvern_step_begin(from, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < 3; l++) {
        feed f = feed_create(kvern_state_cache(from, l), sequences, counts, layers[l].kv_heads);
        assert_ok(kvern_step_append(from, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
    kvern_padded_planes none = kvern_padded_planes_default();
    none.width = 100;
    assert_status(KVERN_ERR_BUSY, kvern_cache_export_padded(kvern_state_cache(from, 0), &none));
    assert_ok(kvern_step_end(from));
    for (size_t l = 0; l < 3; l++) {
        tensors[l] = padded_export(kvern_state_cache(from, l));
        planes[l] = tensors[l].planes;
        check_same_bytes(left[l], planes[l].left_padding, sizeof left[l], "left padding");
    }
    // A cache of a state is filled with the others or not at all.
    assert_status(KVERN_ERR_BUSY,
                  kvern_cache_import_padded((kvern_cache *)kvern_state_cache(to, 0), &planes[0]));
    assert_ok(kvern_round_begin(to, ones));
    assert_status(KVERN_ERR_BUSY, kvern_state_import_padded(to, planes));
    assert_status(KVERN_ERR_BUSY, kvern_cache_export_padded(kvern_state_cache(to, 0), &none));
    assert_ok(kvern_round_commit(to));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_import_padded(NULL, planes));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_import_padded(to, NULL));
    for (int64_t refuse = 0;; refuse++) { // an arena that is refused may be had smaller
        const uint64_t held = books.held_bytes;
        ledger_refuse(&books, refuse);
        const kvern_status status = kvern_state_import_padded(to, planes);
        const bool refused = ledger_relent(&books);
        if (status) {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            assert_int_equal(books.held_bytes, held);
            assert_int_equal(kvern_state_length(to, 1), 0);
        }
        if (!refused) {
            assert_true(refuse > 3);
            break;
        }
        kvern_state_destroy(to);
        assert_ok(kvern_state_create(composition, 2, &to));
    }
    assert_status(KVERN_ERR_BUSY, kvern_state_import_padded(to, planes)); // no longer empty
    for (size_t r = 0; r < 2; r++)
        assert_int_equal(kvern_state_length(to, r), counts[r]);
    for (size_t l = 0; l < 3; l++) {
        expect_same_rows(kvern_state_cache(from, l), kvern_state_cache(to, l), "layer");
        padded_destroy(&tensors[l]);
    }
    kvern_state_destroy(from);
    kvern_state_destroy(to);
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// osaurus-ai/vmlx-swift#426: parts of one state came from two sources and were never compared.
static void fault_E10_layers_disagree(void **state)
{
    (void)state;
    kvern_layer layers[2] = {layer_of(1, 8, KVERN_F32), layer_of(1, 8, KVERN_F32)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *to;
    float numbers[12 * 8] = {0};
    int64_t left[2] = {0, 1}, offsets[2] = {12, 11};
    kvern_padded_planes planes[2];
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, 2, &composition));
    assert_ok(kvern_state_create(composition, 1, &to));
    for (size_t l = 0; l < 2; l++) {
        planes[l] = kvern_padded_planes_default();
        planes[l].width = 12;
        planes[l].k = planes[l].v = numbers;
        planes[l].k_type = planes[l].v_type = KVERN_F32;
        planes[l].left_padding = &left[l];
        planes[l].offsets = &offsets[l];
    }
    assert_status(KVERN_ERR_RANGE, kvern_state_import_padded(to, planes));
    assert_non_null(strstr(kvern_error_detail(), "offset 11 in layer 1, 12 in layer 0"));
    assert_int_equal(kvern_state_bytes(to), 0);
    planes[1].left_padding = &left[0];
    planes[1].offsets = &offsets[0];
    assert_ok(kvern_state_import_padded(to, planes));
    assert_int_equal(kvern_state_length(to, 0), 12);
    kvern_state_destroy(to);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// ml-explore/mlx-examples#977: the room of a row was saved, and its width taken as the length.
static void fault_E7_room_is_no_content(void **state)
{
    (void)state;
    const kvern_layer layer = storage_layer(&storages[0], 1, 64);
    bed *b = bed_create(layer, 1);
    kvern_cache *copy = new_cache(b, 1);
    float out[6 * 64];
    assert_ok(kvern_cache_reserve(b->cache, 0, 256, 1));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 2, 1, NULL);
    padded_tensors planes = padded_export(b->cache);
    assert_int_equal(planes.planes.width, 2);
    assert_ok(kvern_cache_import_padded(copy, &planes.planes));
    assert_int_equal(kvern_cache_length(copy, 0), 2);
    feed_one(copy, KVERN_PHASE_WINDOW, 1, 6, 1, out);
    assert_int_equal(kvern_cache_length(copy, 0), 8);
    expect_serial(layer, 1, 2, 6, 1, out, "behind the import");
    padded_destroy(&planes);
    kvern_cache_destroy(copy);
    bed_destroy(b);
}

// TheTom/llama-cpp-turboquant#30: a width was taken that storage had padded.
static void fault_E9_odd_head_dims(void **state)
{
    (void)state;
    kvern_layer layer = layer_of(1, 576, KVERN_BF16);
    layer.v_dim = 8;
    check_round_trip(layer_of(1, 576, KVERN_BF16), (int64_t[]){9, 65}, 2, 0);
    bed *b = bed_create(layer, 1);
    kvern_cache *copy = new_cache(b, 1);
    float out[2][2 * 8];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 70, 1, NULL);
    padded_tensors planes = padded_create(b->cache, 70, false, false, KVERN_BF16, KVERN_BF16);
    assert_ok(kvern_cache_export_padded(b->cache, &planes.planes));
    assert_ok(kvern_cache_import_padded(copy, &planes.planes));
    feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 2, out[0]);
    feed_one(copy, KVERN_PHASE_DECODE, 1, 1, 2, out[1]);
    check_same_bytes(out[0], out[1], sizeof out[0], "576 and 8");
    padded_destroy(&planes);
    kvern_cache_destroy(copy);
    bed_destroy(b);
}

// jjang-ai/vmlx#17: numbers came back in another type.
static void fault_E6_special_numbers(void **state)
{
    (void)state;
    enum { DIM = 8 };
    static const float numbers[2 * DIM] = {3e38f,  1e-30f, 1.0078125f, -0.0f, INFINITY, -INFINITY,
                                           1e-40f, -3e38f, 0,          1,     -1,       0.33333334f,
                                           65504,  -65505, 1e-7f,      NAN};
    bed *b = bed_create(layer_of(1, DIM, KVERN_BF16), 1);
    kvern_cache *copy = new_cache(b, 1);
    append_values(b->cache, 2, numbers, numbers, 1, NULL, NULL, NULL);
    padded_tensors planes = padded_create(b->cache, 2, false, false, KVERN_BF16, KVERN_BF16);
    padded_tensors again = padded_create(b->cache, 2, false, false, KVERN_BF16, KVERN_BF16);
    assert_ok(kvern_cache_export_padded(b->cache, &planes.planes));
    assert_ok(kvern_cache_import_padded(copy, &planes.planes));
    assert_ok(kvern_cache_export_padded(copy, &again.planes));
    padded_expect_same(&planes, &again, "special numbers");
    assert_int_equal(((uint16_t *)planes.planes.k)[3], 0x8000); // -0
    padded_destroy(&planes);
    padded_destroy(&again);
    kvern_cache_destroy(copy);
    bed_destroy(b);
}

// ---- Refusals ----

// Planes for two rows of 5 and 3 columns of a layer with keys in bf16, values in 4 bits.
typedef struct refusals {
    bed *b;
    padded_tensors good;
} refusals;

static refusals refusals_create(kvern_layer layer)
{
    refusals t = {.b = bed_create(layer, 2)};
    kvern_cache *full = new_cache(t.b, 2);
    feed_run(full, KVERN_PHASE_WINDOW, sequences, (int64_t[]){5, 3}, 1, NULL);
    t.good = padded_export(full);
    kvern_cache_destroy(full);
    return t;
}

static void refusals_destroy(refusals *t)
{
    padded_destroy(&t->good);
    bed_destroy(t->b);
}

static void expect_refused(refusals *t, kvern_status wanted, const kvern_padded_planes *planes)
{
    const uint64_t held = t->b->books.held_bytes;
    assert_status(wanted, kvern_cache_import_padded(t->b->cache, planes));
    assert_int_equal(t->b->books.held_bytes, held);
    assert_int_equal(kvern_cache_length(t->b->cache, 0), 0);
    assert_int_equal(kvern_cache_length(t->b->cache, 1), 0);
}

static void wrong_planes_are_refused(void **state)
{
    (void)state;
    refusals t = refusals_create(storage_layer(&storages[8], 1, 64));
    const kvern_padded_planes good = t.good.planes;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_import_padded(NULL, &good));
    expect_refused(&t, KVERN_ERR_ARGUMENT, NULL);
    kvern_padded_planes bad = good;
    bad.size = sizeof bad - 1;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.left_padding = NULL;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.offsets = NULL;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.k = NULL; // in no form
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.v = bad.k; // in both
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.k_type = (kvern_type)77;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.v_codes.words = NULL;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.v_codes.scales = NULL;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.v_codes.biases = NULL;
    expect_refused(&t, KVERN_ERR_ARGUMENT, &bad);
    bad = good;
    bad.k = NULL;
    bad.k_codes = good.v_codes;
    expect_refused(&t, KVERN_ERR_UNSUPPORTED, &bad);
    bad = good;
    bad.width = -1;
    expect_refused(&t, KVERN_ERR_RANGE, &bad);
    bad.width = INT64_MAX;
    expect_refused(&t, KVERN_ERR_RANGE, &bad);
    assert_ok(kvern_cache_import_padded(t.b->cache, &good));
    assert_status(KVERN_ERR_BUSY, kvern_cache_import_padded(t.b->cache, &good));
    assert_int_equal(kvern_cache_length(t.b->cache, 0), 5);
    refusals_destroy(&t);
}

static void expect_columns_refused(refusals *t, size_t row, int64_t left, int64_t offset)
{
    int64_t lefts[2], offsets[2];
    memcpy(lefts, t->good.planes.left_padding, sizeof lefts);
    memcpy(offsets, t->good.planes.offsets, sizeof offsets);
    lefts[row] = left;
    offsets[row] = offset;
    kvern_padded_planes bad = t->good.planes;
    bad.left_padding = lefts;
    bad.offsets = offsets;
    expect_refused(t, KVERN_ERR_RANGE, &bad);
}

static void wrong_columns_are_refused(void **state)
{
    (void)state;
    refusals t = refusals_create(storage_layer(&storages[0], 1, 64));
    expect_columns_refused(&t, 0, -1, 6);
    expect_columns_refused(&t, 0, INT64_MIN, 5);
    expect_columns_refused(&t, 1, 6, 0);
    expect_columns_refused(&t, 1, INT64_MAX, 0);
    expect_columns_refused(&t, 1, 2, 2); // an offset below the columns
    expect_columns_refused(&t, 1, 2, -3);
    expect_columns_refused(&t, 1, 2, 4); // above them, where nothing is dropped
    expect_columns_refused(&t, 1, 5, 1);
    refusals_destroy(&t);
    // A window of 4 with one kept position: 4 columns are enough for any offset, 3 are not.
    t = refusals_create(storage_window(&storages[0], 1, 64, 4, 1, 1));
    expect_columns_refused(&t, 1, 2, 4);
    expect_columns_refused(&t, 1, 5, 4);
    expect_columns_refused(&t, 0, 0, 4); // below the columns
    expect_columns_refused(&t, 0, 0, -1);
    expect_columns_refused(&t, 0, 0, (INT64_C(1) << 40) + 1);
    expect_columns_refused(&t, 0, 0, INT64_MAX);
    expect_columns_refused(&t, 0, 0, INT64_MIN);
    t.good.planes.left_padding[1] = 1;
    t.good.planes.offsets[0] = INT64_C(1) << 39;
    t.good.planes.offsets[1] = 1000;
    assert_ok(kvern_cache_import_padded(t.b->cache, &t.good.planes));
    assert_int_equal(kvern_cache_length(t.b->cache, 0), INT64_C(1) << 39);
    assert_int_equal(kvern_cache_trimmable(t.b->cache, 0), 1);
    assert_int_equal(kvern_cache_trimmable(t.b->cache, 1), 0);
    refusals_destroy(&t);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    bed *b = bed_create(layer_of(200, 576, KVERN_BF16), 1000);
    float number = 0;
    int64_t *left = calloc(1000, sizeof *left);
    assert_non_null(left);
    kvern_padded_planes planes = kvern_padded_planes_default();
    planes.k = planes.v = &number;
    planes.left_padding = planes.offsets = left;
    planes.width = INT64_C(1) << 40;
    assert_status(KVERN_ERR_OVERFLOW, kvern_cache_import_padded(b->cache, &planes));
    assert_status(KVERN_ERR_OVERFLOW, kvern_cache_export_padded(b->cache, &planes));
    free(left);
    bed_destroy(b);
}

static void expect_export_refused(const kvern_cache *cache, kvern_status wanted,
                                  const kvern_padded_planes *planes)
{
    assert_status(wanted, kvern_cache_export_padded(cache, planes));
}

static void wrong_exports_are_refused(void **state)
{
    (void)state;
    bed *b = bed_create(storage_layer(&storages[10], 1, 64), 2); // 4 bits from 70 on
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, (int64_t[]){80, 5}, 1, NULL);
    padded_tensors t = padded_create(b->cache, 80, true, false, KVERN_F32, KVERN_F32);
    const padded_tensors untouched = padded_create(b->cache, 80, true, false, KVERN_F32, KVERN_F32);
    expect_export_refused(NULL, KVERN_ERR_ARGUMENT, &t.planes);
    expect_export_refused(b->cache, KVERN_ERR_ARGUMENT, NULL);
    expect_export_refused(b->cache, KVERN_ERR_UNSUPPORTED, &t.planes); // row 1 has no codes yet
    assert_non_null(strstr(kvern_error_detail(), "row 1"));
    kvern_padded_planes bad = t.planes;
    bad.k_codes.biases = NULL;
    expect_export_refused(b->cache, KVERN_ERR_ARGUMENT, &bad);
    bad = t.planes;
    bad.k_codes = (kvern_affine_arrays){.words = NULL};
    bad.width = 79;
    expect_export_refused(b->cache, KVERN_ERR_RANGE, &bad);
    bad.width = -1;
    expect_export_refused(b->cache, KVERN_ERR_RANGE, &bad);
    bad.width = 80;
    bad.v_type = (kvern_type)-1;
    expect_export_refused(b->cache, KVERN_ERR_ARGUMENT, &bad);
    bad.size = 0;
    expect_export_refused(b->cache, KVERN_ERR_ARGUMENT, &bad);
    padded_expect_same(&untouched, &t, "nothing is written");
    // The two rows as numbers, in their two forms.
    bad = t.planes;
    bad.k_codes = (kvern_affine_arrays){.words = NULL};
    assert_ok(kvern_cache_export_padded(b->cache, &bad));
    padded_destroy(&t);
    padded_destroy((padded_tensors *)&untouched);
    bed_destroy(b);
}

// ---- Memory ----

// Every allocation of an import is refused once; a row that has reserved its room needs none.
static void allocations_may_fail(void **state)
{
    (void)state;
    static const int64_t lengths[3] = {100, 0, 300};
    for (size_t s = 0; s < storage_count; s++) {
        if (storages[s].residual)
            continue; // codes of such rows are not handed out
        const kvern_layer layer = storage_window(&storages[s], 1, 64, 90, 3, 0);
        bed *b = bed_create(layer, 3);
        kvern_cache *copy = new_cache(b, 3);
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
        padded_tensors planes = padded_export(b->cache);
        for (int64_t refuse = 0;; refuse++) { // an arena that is refused may be had smaller
            const uint64_t held = b->books.held_bytes;
            ledger_refuse(&b->books, refuse);
            const kvern_status status = kvern_cache_import_padded(copy, &planes.planes);
            const bool refused = ledger_relent(&b->books);
            if (status) {
                assert_int_equal(status, KVERN_ERR_MEMORY);
                assert_int_equal(b->books.held_bytes, held);
                assert_int_equal(kvern_cache_bytes(copy), 0);
            } else {
                expect_same_rows(b->cache, copy, storages[s].name);
            }
            if (!refused) {
                assert_true(refuse > 1);
                break;
            }
            kvern_cache_destroy(copy);
            copy = new_cache(b, 3);
        }
        expect_same_attends(b->cache, copy, 1, storages[s].name);
        padded_destroy(&planes);
        kvern_cache_destroy(copy);
        bed_destroy(b);
    }
}

static void reserved_room_is_used(void **state)
{
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        const kvern_layer layer =
            w ? storage_window(&storages[6], 1, 64, 90, 3, 0) : storage_layer(&storages[6], 1, 64);
        bed *b = bed_create(layer, 1);
        kvern_cache *copy = new_cache(b, 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 300, 1, NULL);
        padded_tensors planes = padded_export(b->cache);
        assert_ok(kvern_cache_reserve(copy, 0, 500, 2));
        feed f = feed_create(b->cache, sequences, ones, 2);
        const uint64_t allocations = b->books.allocations, bytes = kvern_cache_bytes(copy);
        assert_ok(kvern_cache_import_padded(copy, &planes.planes));
        for (int i = 0; i < 200; i++) {
            kvern_read *read;
            assert_ok(kvern_cache_append(copy, KVERN_PHASE_DECODE, &f.tokens, &read));
            assert_ok(kvern_read_attend(read, &f.queries));
            kvern_read_release(read);
        }
        assert_int_equal(b->books.allocations, allocations);
        assert_int_equal(kvern_cache_bytes(copy), bytes);
        feed_destroy(&f);
        padded_destroy(&planes);
        kvern_cache_destroy(copy);
        bed_destroy(b);
    }
}

// A wrapped row takes the pages of what it holds, wherever it stands.
static void a_distant_row_takes_few_pages(void **state)
{
    (void)state;
    const kvern_layer layer = storage_window(&storages[0], 1, 64, 200, 70, 0);
    bed *b = bed_create(layer, 1);
    padded_tensors planes = padded_create(b->cache, 200, false, false, KVERN_F32, KVERN_F32);
    memset(planes.planes.k, 0, planes.k_bytes);
    memset(planes.planes.v, 0, planes.v_bytes);
    planes.planes.left_padding[0] = 0;
    planes.planes.offsets[0] = 1000000;
    assert_ok(kvern_cache_import_padded(b->cache, &planes.planes));
    const uint64_t page = 64 * kvern_composition_bytes_per_token(b->composition);
    assert_true(kvern_cache_bytes(b->cache) <= 5 * page); // 2 of 70 positions, 3 of 130
    float out[64];
    feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, out);
    assert_int_equal(kvern_cache_length(b->cache, 0), 1000001);
    padded_destroy(&planes);
    bed_destroy(b);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_storage_goes_and_comes_back),
        cmocka_unit_test(uneven_layers_go_and_come_back),
        cmocka_unit_test(columns_are_right_justified),
        cmocka_unit_test(codes_are_right_justified),
        cmocka_unit_test(parts_may_be_left_out),
        cmocka_unit_test(numbers_are_stored_as_by_an_append),
        cmocka_unit_test(forms_of_rows_with_a_start),
        cmocka_unit_test(emptied_rows_are_filled),
        cmocka_unit_test(fault_G1_width_of_a_wrapped_row),
        cmocka_unit_test(fault_G2_empty_rows),
        cmocka_unit_test(fault_G14_padding_in_a_window),
        cmocka_unit_test(fault_H6_right_padding_counts_no_position),
        cmocka_unit_test(fault_E4_padding_and_layers_survive),
        cmocka_unit_test(fault_E6_special_numbers),
        cmocka_unit_test(fault_E7_room_is_no_content),
        cmocka_unit_test(fault_E9_odd_head_dims),
        cmocka_unit_test(fault_E10_layers_disagree),
        cmocka_unit_test(wrong_planes_are_refused),
        cmocka_unit_test(wrong_columns_are_refused),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(wrong_exports_are_refused),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(reserved_room_is_used),
        cmocka_unit_test(a_distant_row_takes_few_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
