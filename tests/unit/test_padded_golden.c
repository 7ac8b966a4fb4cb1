// SPDX-License-Identifier: MIT
// Padded planes against the tensors of mlx-lm's batches: what rows are exported to, and what comes
// of rows that are imported from such tensors (tests/golden/padded, or another file of its kind
// that is named as the argument).

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/golden_file.h"
#include "tests/support/padded_tensors.h"

#include <kvern/experimental/padded.h>
#include <kvern/kvern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_HEADS = 2, DIM = 32, MOST_ROWS = 8, HEADS = 4 };

static const char *path = KVERN_TESTS_DIR "/golden/padded/padded.bin";

// mlx quantizes float32 with scales in float32.
static kvern_layer layer_of_scenario(uint32_t bits, uint32_t group, int64_t window)
{
    kvern_layer layer = kvern_layer_default(KV_HEADS, DIM);
    layer.k_codec = bits ? kvern_codec_affine(bits, group) : kvern_codec_dense(KVERN_F32);
    if (bits)
        layer.k_codec.scales = KVERN_F32;
    layer.v_codec = layer.k_codec;
    layer.kind = window ? KVERN_LAYER_WINDOW : KVERN_LAYER_FULL;
    layer.window = window;
    return layer;
}

static void append(kvern_cache *cache, uint64_t seed, kvern_phase phase, const int64_t *counts,
                   float *out)
{
    uint64_t sequences[MOST_ROWS];
    for (size_t r = 0; r < MOST_ROWS; r++)
        sequences[r] = seed + r;
    feed_run(cache, phase, sequences, counts, HEADS, out);
}

static const int64_t ones[MOST_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};

// The appends of each row, one row after the other, and decodes of all.
static void serve(FILE *file, uint64_t seed, kvern_cache *cache, int32_t decodes)
{
    for (size_t r = 0; r < kvern_cache_rows(cache); r++) {
        for (int32_t left = golden_file_number(file); left > 0; left--) {
            int64_t counts[MOST_ROWS] = {0};
            counts[r] = golden_file_number(file);
            append(cache, seed, KVERN_PHASE_WINDOW, counts, NULL);
        }
    }
    for (int32_t i = 0; i < decodes; i++)
        append(cache, seed, KVERN_PHASE_DECODE, ones, NULL);
}

static void take_codes(FILE *file, kvern_affine_arrays *codes, size_t vectors,
                       const kvern_codec *codec)
{
    golden_file_take(file, codes->words, vectors * DIM * codec->bits / 8);
    golden_file_take(file, codes->scales, vectors * (DIM / codec->group) * sizeof(float));
    golden_file_take(file, codes->biases, vectors * (DIM / codec->group) * sizeof(float));
}

static padded_tensors take_planes(FILE *file, const kvern_cache *cache, bool codes)
{
    const int64_t width = golden_file_number(file);
    padded_tensors t = padded_create(cache, width, codes, codes, KVERN_F32, KVERN_F32);
    for (size_t r = 0; r < t.rows; r++)
        t.planes.left_padding[r] = golden_file_number(file);
    for (size_t r = 0; r < t.rows; r++)
        t.planes.offsets[r] = golden_file_number(file);
    const size_t vectors = t.rows * KV_HEADS * (size_t)width;
    if (codes) {
        take_codes(file, &t.planes.k_codes, vectors, &kvern_cache_layer(cache)->k_codec);
        take_codes(file, &t.planes.v_codes, vectors, &kvern_cache_layer(cache)->v_codec);
    } else {
        golden_file_take(file, t.planes.k, t.k_bytes);
        golden_file_take(file, t.planes.v, t.v_bytes);
    }
    return t;
}

// Decodes and windows behind the import have the bits of those of the rows that were served here.
static void expect_same_answers(uint64_t seed, kvern_cache *served, kvern_cache *imported)
{
    static float wanted[MOST_ROWS * 3 * HEADS * DIM], got[MOST_ROWS * 3 * HEADS * DIM];
    static const int64_t threes[MOST_ROWS] = {3, 3, 3, 3, 3, 3, 3, 3};
    const size_t bytes = kvern_cache_rows(served) * HEADS * DIM * sizeof(float);
    append(served, seed, KVERN_PHASE_DECODE, ones, wanted);
    append(imported, seed, KVERN_PHASE_DECODE, ones, got);
    check_same_bytes(wanted, got, bytes, "a decode behind an import");
    append(served, seed, KVERN_PHASE_WINDOW, threes, wanted);
    append(imported, seed, KVERN_PHASE_WINDOW, threes, got);
    check_same_bytes(wanted, got, 3 * bytes, "a window behind an import");
}

static void check_scenario(FILE *file, uint64_t seed)
{
    const uint32_t bits = (uint32_t)golden_file_number(file),
                   group = (uint32_t)golden_file_number(file);
    const int64_t window = golden_file_number(file);
    const int32_t decodes = golden_file_number(file), rows = golden_file_number(file);
    assert_in_range(rows, 1, MOST_ROWS);
    const kvern_layer layer = layer_of_scenario(bits, group, window);
    bed *served = bed_create(layer, (size_t)rows), *imported = bed_create(layer, (size_t)rows);
    serve(file, seed, served->cache, decodes);
    padded_tensors wanted = take_planes(file, served->cache, bits != 0);
    padded_tensors got = padded_export(served->cache);
    padded_expect_same(&wanted, &got, "planes of mlx-lm");
    assert_ok(kvern_cache_import_padded(imported->cache, &wanted.planes));
    expect_same_answers(seed, served->cache, imported->cache);
    padded_destroy(&wanted);
    padded_destroy(&got);
    bed_destroy(served);
    bed_destroy(imported);
}

static void planes_are_those_of_mlx_lm(void **state)
{
    (void)state;
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    const uint64_t seed = (uint64_t)golden_file_number(file);
    const int32_t scenarios = golden_file_number(file);
    assert_true(scenarios > 0);
    for (int32_t s = 0; s < scenarios; s++)
        check_scenario(file, seed);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planes_are_those_of_mlx_lm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
