// SPDX-License-Identifier: MIT
// Rows against mlx-lm's caches and mlx's attention in float32, append by append: the results of the
// golden file, or of another one of its kind that is named as the argument (tests/golden/cache).

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/golden_file.h"
#include "tests/support/naive_cache.h"
#include "tests/support/storages.h"
#include "tests/support/stored.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_HEADS = 2, QUERY_HEADS = 4, DIM = 64, FLOATS = QUERY_HEADS * DIM };

static const char *path = KVERN_TESTS_DIR "/golden/cache/cache.bin";

// mlx quantizes float32 with scales in float32, and bf16 with scales in bf16.
static kvern_layer take_layer(FILE *file)
{
    kvern_layer layer = kvern_layer_default(KV_HEADS, DIM);
    const uint32_t bits = (uint32_t)golden_file_number(file),
                   group = (uint32_t)golden_file_number(file);
    layer.start = golden_file_number(file);
    layer.window = golden_file_number(file);
    layer.keep = golden_file_number(file);
    layer.kind = layer.window ? KVERN_LAYER_WINDOW : KVERN_LAYER_FULL;
    layer.k_codec = bits ? kvern_codec_affine(bits, group) : kvern_codec_dense(KVERN_F32);
    if (bits && layer.start == KVERN_NO_START)
        layer.k_codec.scales = KVERN_F32;
    layer.v_codec = layer.k_codec;
    return layer;
}

// How far two results may be apart that both come from float32 arithmetic in some order, with
// unit roundoff u. A score is off by at most e = (DIM + 4) u times the sum of its terms' sizes; so
// a weight exp(s - m) is off by a factor of 1 +- (2 e + 2 u), and the sums over n positions by (n +
// 4) u. That is relative to the mean of |v| under the weights, in numerator and denominator.
static double tolerance(const naive_row *row, const kvern_layer *layer, int64_t position,
                        size_t head, const float *q)
{
    const double u = 0x1p-24, scale = 1 / sqrt((double)DIM);
    const kvern_codec k_codec = naive_row_codec(row, layer, 0);
    const kvern_codec v_codec = naive_row_codec(row, layer, 1);
    double worst = 0, largest = 0;
    int64_t seen = 0;
    for (int64_t p = 0; p <= position; p++) {
        double k_sizes[DIM], v_sizes[DIM], size = 0;
        if (!layer_sees(layer, position, p))
            continue;
        const size_t at = ((size_t)p * KV_HEADS + head) * DIM;
        stored_sizes(&k_codec, row->k + at, DIM, k_sizes);
        stored_sizes(&v_codec, row->v + at, DIM, v_sizes);
        for (int d = 0; d < DIM; d++) {
            size += fabs((double)q[d]) * scale * k_sizes[d];
            largest = fmax(largest, v_sizes[d]);
        }
        worst = fmax(worst, size);
        seen++;
    }
    const double each = (2 * (DIM + 4) * worst + 2 + (double)seen + 4) * u;
    return 2 * 2 * each * largest; // both sides, numerator and denominator
}

static void check_query(const naive_row *row, const kvern_layer *layer, int64_t position,
                        const float *q, const float *wanted, const float *got)
{
    for (size_t h = 0; h < QUERY_HEADS; h++) {
        const double most =
            tolerance(row, layer, position, h / (QUERY_HEADS / KV_HEADS), q + h * DIM);
        for (size_t d = 0; d < DIM; d++) {
            const double difference = fabs((double)wanted[h * DIM + d] - (double)got[h * DIM + d]);
            if (!(difference <= most))
                fail_msg("%s: query %lld, head %zu, dim %zu: %g instead of %g, more than %g apart",
                         layer->window ? "window" : "quantized", (long long)position, h, d,
                         (double)got[h * DIM + d], (double)wanted[h * DIM + d], most);
        }
    }
}

static void check_append(FILE *file, uint64_t seed, bed *b, naive_row *row, int64_t count)
{
    const kvern_layer *layer = kvern_cache_layer(b->cache);
    const int64_t first = row->length;
    kvern_read *read;
    feed f = feed_create(b->cache, &seed, &count, QUERY_HEADS);
    for (int64_t i = 0; i < count; i++)
        naive_row_append(row, layer, f.k + i * KV_HEADS * DIM, f.v + i * KV_HEADS * DIM, NULL);
    assert_ok(
        feed_append(b->cache, count == 1 ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW, &f, &read));
    assert_ok(kvern_read_attend(read, &f.queries));
    for (int64_t i = 0; i<count; i += count> 1 ? count - 1 : 1) {
        float wanted[FLOATS];
        golden_file_take(file, wanted, sizeof wanted);
        check_query(row, layer, first + i, f.q + i * FLOATS, wanted, f.out + i * FLOATS);
    }
    naive_row_settle(row, layer, count);
    kvern_read_release(read);
    feed_destroy(&f);
}

static void rows_answer_like_those_of_mlx_lm(void **state)
{
    (void)state;
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    const uint64_t seed = (uint64_t)golden_file_number(file);
    const int32_t scenarios = golden_file_number(file);
    assert_true(scenarios > 0);
    for (int32_t s = 0; s < scenarios; s++) {
        bed *b = bed_create(take_layer(file), 1);
        naive_row row = {0};
        int64_t counts[64];
        const int32_t appends = golden_file_number(file);
        assert_in_range(appends, 1, 64);
        for (int32_t a = 0; a < appends; a++)
            counts[a] = golden_file_number(file);
        for (int32_t a = 0; a < appends; a++)
            check_append(file, seed, b, &row, counts[a]);
        assert_int_equal(kvern_cache_converted(b->cache, 0), true);
        naive_row_free(&row);
        bed_destroy(b);
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_answer_like_those_of_mlx_lm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
