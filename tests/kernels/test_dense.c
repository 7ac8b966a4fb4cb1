// SPDX-License-Identifier: MIT
// Dense codecs: what is stored, and every vector kernel of this machine against the plain one, bit
// for bit, with nothing read or written outside of what a call names.

#include "src/codec/codec.h"
#include "tests/support/check.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define MOST_DIM KVERN_MAX_HEAD_DIM
#define MOST_VECTORS 33
#define SENTINEL 12345.0f

static const kvern_type types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};
static const kvern_stream streams[] = {KVERN_STREAM_K, KVERN_STREAM_V};

// ---- Storing ----

static size_t block_bytes_of(kvern_type type, size_t dim)
{
    const kvern_codec codec = kvern_codec_dense(type);
    return kvern_codec_type_of(&codec)->block_bytes(&codec, dim);
}

static void check_stored(const kvern_codec *codec, kvern_stream stream, const void *block,
                         size_t dim, size_t slot, const float *wanted)
{
    float got[MOST_DIM];
    char what[256], name[KVERN_CODEC_NAME_BYTES];
    kvern_codec_type_of(codec)->name(codec, name);
    kvern_codec_type_of(codec)->decode(codec, stream, block, dim, slot, got);
    snprintf(what, sizeof what, "%s, stream %d, dim %zu, slot %zu", name, stream, dim, slot);
    check_same_floats(wanted, got, dim, what);
}

// Stores slots in random order, values of `type`; afterwards each slot holds its rounded values.
// Every variant makes the same block.
static void round_trip(test_random *random, kvern_type stored, kvern_stream stream, size_t dim,
                       kvern_type type)
{
    static float wanted[SLOTS][MOST_DIM];
    float source[MOST_DIM];
    const kvern_codec codec = kvern_codec_dense(stored);
    const kernel_variants variants = kernel_variants_here();
    const size_t bytes = kvern_codec_type_of(&codec)->block_bytes(&codec, dim),
                 input_bytes = dim * kvern_type_bytes(type);
    guarded blocks[MOST_KERNEL_VARIANTS], input = guarded_at_end(input_bytes);
    for (size_t v = 0; v < variants.count; v++)
        blocks[v] = v % 2 ? guarded_at_start(bytes) : guarded_at_end(bytes);
    const size_t step = 2 * test_random_below(random, SLOTS / 2) + 1; // odd: visits every slot
    for (size_t i = 0; i < SLOTS; i++) {
        const size_t slot = (i * step) % SLOTS;
        kernel_inputs_fill(random, WIDE, source, dim);
        source[test_random_below(random, dim)] = kernel_inputs_special(random);
        for (size_t d = 0; d < dim; d++) {
            element_set(type, input.data, d, source[d]);
            wanted[slot][d] = rounded(stored, element_get(type, input.data, d));
        }
        for (size_t v = 0; v < variants.count; v++)
            kvern_codec_type_of(&codec)
                ->kernels_of(&codec, variants.features[v])
                ->encode(&codec, stream, blocks[v].data, dim, slot, type, input.data);
        check_stored(&codec, stream, blocks[0].data, dim, slot, wanted[slot]);
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        check_stored(&codec, stream, blocks[0].data, dim, slot, wanted[slot]);
    for (size_t v = 0; v < variants.count; v++) {
        check_same_bytes(blocks[0].data, blocks[v].data, bytes,
                         kvern_cpu_name(variants.features[v]));
        if (v > 0)
            guarded_free(&blocks[v]);
    }
    guarded_free(&blocks[0]);
    guarded_free(&input);
}

static void stored_values_are_rounded_once_and_kept_apart(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (size_t t = 0; t < 3; t++) {
        for (size_t s = 0; s < 2; s++) {
            for (size_t dim = 8; dim <= MOST_DIM; dim += 8)
                round_trip(&random, types[t], streams[s], dim,
                           types[test_random_below(&random, 3)]);
        }
    }
}

static void every_source_type_is_understood(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (size_t t = 0; t < 3; t++) {
        for (size_t source = 0; source < 3; source++) {
            for (size_t s = 0; s < 2; s++)
                round_trip(&random, types[t], streams[s], 72, types[source]);
        }
    }
}

// A block has no byte that belongs to nobody, so that bytes per token can be exact.
static void blocks_have_no_padding(void **state)
{
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        for (size_t dim = 8; dim <= MOST_DIM; dim += 8) {
            const size_t bytes = block_bytes_of(types[t], dim);
            assert_int_equal(bytes, dim * SLOTS * kvern_type_bytes(types[t]));
            assert_int_equal(bytes % 64, 0);
        }
    }
}

static void unknown_types_have_no_codec(void **state)
{
    (void)state;
    const kvern_codec above = {.kind = (kvern_codec_kind)6}, below = {.kind = (kvern_codec_kind)-1};
    assert_null(kvern_codec_type_of(&above));
    assert_null(kvern_codec_type_of(&below));
}

// ---- Kernels ----

#define BLOCK_BYTES (MOST_DIM * SLOTS * sizeof(float))
#define INPUT_BYTES (MOST_VECTORS * MOST_DIM * sizeof(float))
#define OUTPUT_BYTES INPUT_BYTES

// Everything that one comparison works with. The buffers end where their memory ends; the block
// may also begin where its memory begins.
typedef struct bench {
    kvern_codec codec;
    kvern_stream stream;
    size_t dim;
    kvern_codec_kernels plain;
    kernel_variants variants;
    guarded block_at_end, block_at_start, input_at_end, output_at_end, next_at_end;
    void *block;
    float block_values[SLOTS][MOST_DIM];
    float input[MOST_VECTORS * MOST_DIM];  // queries, or weights
    float wanted[MOST_VECTORS * MOST_DIM]; // of the plain kernel
    float before[MOST_VECTORS * MOST_DIM]; // what the output held
} bench;

static bench *bench_create(void)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->variants = kernel_variants_here();
    b->block_at_end = guarded_at_end(BLOCK_BYTES);
    b->block_at_start = guarded_at_start(BLOCK_BYTES);
    b->input_at_end = guarded_at_end(INPUT_BYTES);
    b->output_at_end = guarded_at_end(OUTPUT_BYTES);
    b->next_at_end = guarded_at_end(64);
    return b;
}

static void bench_destroy(bench *b)
{
    guarded_free(&b->block_at_end);
    guarded_free(&b->block_at_start);
    guarded_free(&b->input_at_end);
    guarded_free(&b->output_at_end);
    guarded_free(&b->next_at_end);
    free(b);
}

static void encode_slot(bench *b, size_t slot)
{
    b->plain.encode(&b->codec, b->stream, b->block, b->dim, slot, KVERN_F32, b->block_values[slot]);
}

// Chooses a shape and fills a block that lies at the end or at the beginning of its memory.
static void bench_fill(bench *b, test_random *random, kvern_type type, kvern_stream stream,
                       size_t dim, mixture kind)
{
    b->codec = kvern_codec_dense(type);
    b->stream = stream;
    b->dim = dim;
    b->plain = *kvern_codec_type_of(&b->codec)->kernels_of(&b->codec, 0);
    const size_t bytes = block_bytes_of(type, dim);
    b->block = test_random_next(random) & 1 ? guarded_last(&b->block_at_end, bytes)
                                            : b->block_at_start.data;
    for (size_t slot = 0; slot < SLOTS; slot++) {
        kernel_inputs_fill(random, kind, b->block_values[slot], dim);
        encode_slot(b, slot);
    }
}

static void expect_same(const bench *b, const float *got, size_t count, size_t n, size_t begin,
                        size_t end, uint32_t features)
{
    char what[256], name[KVERN_CODEC_NAME_BYTES];
    kvern_codec_type_of(&b->codec)->name(&b->codec, name);
    snprintf(what, sizeof what, "%s: %s, stream %d, dim %zu, %zu vectors, [%zu, %zu)",
             kvern_cpu_name(features), name, b->stream, b->dim, n, begin, end);
    check_same_floats(b->wanted, got, count, what);
}

// Scores of the first n queries over some tiles, every variant against plain; all other scores
// keep what they held.
static void compare_scores(bench *b, test_random *random, size_t n, size_t tile_begin,
                           size_t tile_end)
{
    const size_t count = n * SLOTS;
    float *q = guarded_last(&b->input_at_end, n * b->dim * sizeof(float));
    float *scores = guarded_last(&b->output_at_end, count * sizeof(float));
    memcpy(q, b->input, n * b->dim * sizeof(float));
    for (size_t i = 0; i < count; i++)
        b->wanted[i] = SENTINEL;
    b->plain.score(&b->codec, b->block, b->dim, tile_begin, tile_end, n, q, b->dim, b->wanted,
                   NULL);
    for (size_t i = 0; i < count; i++) {
        const size_t slot = i % SLOTS;
        if (slot < tile_begin * 16 || slot >= tile_end * 16)
            assert_true(b->wanted[i] == SENTINEL);
    }
    for (size_t v = 1; v < b->variants.count; v++) {
        for (size_t i = 0; i < count; i++)
            scores[i] = SENTINEL;
        kvern_codec_type_of(&b->codec)
            ->kernels_of(&b->codec, b->variants.features[v])
            ->score(&b->codec, b->block, b->dim, tile_begin, tile_end, n, q, b->dim, scores,
                    kernel_inputs_next(&b->next_at_end, random));
        expect_same(b, scores, count, n, tile_begin, tile_end, b->variants.features[v]);
    }
}

// Numbers of vectors: all of them in the long form, otherwise every fourth, another set each time.
static size_t first_count(test_random *random)
{
    return check_is_long() ? 1 : 1 + test_random_below(random, 4);
}

static size_t next_count(size_t n)
{
    return check_is_long() ? n + 1 : n + 4;
}

// Many numbers of vectors with one range of tiles each, and every range with a few numbers.
static void compare_all_scores(bench *b, test_random *random)
{
    for (size_t n = first_count(random); n <= MOST_VECTORS; n = next_count(n)) {
        const size_t begin = test_random_below(random, 5);
        compare_scores(b, random, n, begin, begin + test_random_below(random, 5 - begin));
    }
    for (size_t begin = 0; begin <= 4; begin++) {
        for (size_t end = begin; end <= 4; end++)
            compare_scores(b, random, 1 + test_random_below(random, 5), begin, end);
    }
}

static void vector_scores_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    bench *b = bench_create();
    for (size_t t = 0; t < 3; t++) {
        for (size_t dim = 8; dim <= MOST_DIM; dim += 8) {
            const mixture kind = (mixture)test_random_below(&random, MIXTURES);
            bench_fill(b, &random, types[t], KVERN_STREAM_K, dim, kind);
            kernel_inputs_fill(&random, kind, b->input, MOST_VECTORS * dim);
            compare_all_scores(b, &random);
        }
    }
    bench_destroy(b);
}

// Weighted sums of the first n vectors over the slots [begin, end). Weights and values of other
// slots are NaN: they must not matter.
static void compare_sums(bench *b, test_random *random, size_t n, size_t begin, size_t end)
{
    const size_t count = n * b->dim;
    float *w = guarded_last(&b->input_at_end, n * SLOTS * sizeof(float));
    float *acc = guarded_last(&b->output_at_end, count * sizeof(float));
    memcpy(w, b->input, n * SLOTS * sizeof(float));
    memcpy(b->wanted, b->before, count * sizeof(float));
    b->plain.accumulate(&b->codec, b->block, b->dim, begin, end, n, w, b->wanted, NULL);
    for (size_t i = 0; i < n * SLOTS; i++) {
        if (i % SLOTS < begin || i % SLOTS >= end)
            w[i] = NAN;
    }
    for (size_t v = 1; v < b->variants.count; v++) {
        memcpy(acc, b->before, count * sizeof(float));
        kvern_codec_type_of(&b->codec)
            ->kernels_of(&b->codec, b->variants.features[v])
            ->accumulate(&b->codec, b->block, b->dim, begin, end, n, w, acc,
                         kernel_inputs_next(&b->next_at_end, random));
        expect_same(b, acc, count, n, begin, end, b->variants.features[v]);
    }
}

// With the values outside of [begin, end) poisoned, and mended afterwards.
static void compare_sums_among_poison(bench *b, test_random *random, size_t n, size_t begin,
                                      size_t end)
{
    static float saved[SLOTS][MOST_DIM];
    memcpy(saved, b->block_values, sizeof saved);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (slot >= begin && slot < end)
            continue;
        for (size_t d = 0; d < b->dim; d++)
            b->block_values[slot][d] = slot % 2 ? NAN : INFINITY;
        encode_slot(b, slot);
    }
    compare_sums(b, random, n, begin, end);
    memcpy(b->block_values, saved, sizeof saved);
    for (size_t slot = 0; slot < SLOTS; slot++)
        encode_slot(b, slot);
}

static void compare_all_sums(bench *b, test_random *random)
{
    for (size_t n = first_count(random); n <= MOST_VECTORS; n = next_count(n)) {
        const size_t begin = test_random_below(random, SLOTS + 1);
        compare_sums(b, random, n, begin, begin + test_random_below(random, SLOTS + 1 - begin));
    }
    for (int i = 0; i < 2; i++) {
        const size_t begin = test_random_below(random, SLOTS + 1);
        compare_sums_among_poison(b, random, 1 + test_random_below(random, MOST_VECTORS), begin,
                                  begin + test_random_below(random, SLOTS + 1 - begin));
    }
}

static void fill_for_sums(bench *b, test_random *random, kvern_type type, size_t dim, mixture kind)
{
    bench_fill(b, random, type, KVERN_STREAM_V, dim, kind);
    kernel_inputs_fill(random, kind, b->input, MOST_VECTORS * SLOTS);
    kernel_inputs_fill(random, kind, b->before, MOST_VECTORS * dim);
}

static void vector_sums_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    bench *b = bench_create();
    for (size_t t = 0; t < 3; t++) {
        for (size_t dim = 8; dim <= MOST_DIM; dim += 8) {
            fill_for_sums(b, &random, types[t], dim, (mixture)test_random_below(&random, MIXTURES));
            compare_all_sums(b, &random);
        }
    }
    bench_destroy(b);
}

// All ranges, for one dim of each kind: one strip, part of a strip, full panels, a short last one.
static void every_range_of_slots_gives_equal_sums(void **state)
{
    (void)state;
    static const size_t dims[] = {8, 24, 64, 72, 136};
    test_random random = test_random_seed(check_seed() + 2);
    bench *b = bench_create();
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
            fill_for_sums(b, &random, types[t], dims[i], ORDINARY);
            for (size_t begin = 0; begin <= SLOTS; begin++) {
                for (size_t end = begin; end <= SLOTS; end++)
                    compare_sums(b, &random, 1 + test_random_below(&random, 4), begin, end);
            }
        }
    }
    bench_destroy(b);
}

// Infinities and NaNs that take part: in one slot and in one vector, so that the other outputs stay
// numbers and show whether lanes mix.
static void infinities_and_nans_stay_in_their_lanes(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 3);
    bench *b = bench_create();
    for (size_t round = 0; round < 200; round++) {
        const size_t dim = 8 * (1 + test_random_below(&random, MOST_DIM / 8));
        const size_t slot = test_random_below(&random, SLOTS), n = MOST_VECTORS;
        const kvern_type type = types[round % 3];
        bench_fill(b, &random, type, KVERN_STREAM_K, dim, ORDINARY);
        b->block_values[slot][test_random_below(&random, dim)] = kernel_inputs_special(&random);
        encode_slot(b, slot);
        kernel_inputs_fill(&random, ORDINARY, b->input, n * dim);
        b->input[test_random_below(&random, n * dim)] = kernel_inputs_special(&random);
        compare_scores(b, &random, n, 0, 4);
        fill_for_sums(b, &random, type, dim, ORDINARY);
        b->block_values[slot][test_random_below(&random, dim)] = kernel_inputs_special(&random);
        encode_slot(b, slot);
        b->input[test_random_below(&random, n * SLOTS)] = kernel_inputs_special(&random);
        compare_sums(b, &random, n, 0, SLOTS);
    }
    bench_destroy(b);
}

// ---- The definition ----

// docs/arithmetic.md, steps 2 and 4, from the decoded values.
static void plain_kernels_follow_the_stated_order(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 4);
    bench *b = bench_create();
    for (size_t round = 0; round < 60; round++) {
        const size_t dim = 8 * (1 + test_random_below(&random, MOST_DIM / 8)), n = 3;
        const kvern_type type = types[round % 3];
        bench_fill(b, &random, type, KVERN_STREAM_K, dim, WIDE);
        kernel_inputs_fill(&random, WIDE, b->input, n * dim);
        for (size_t i = 0; i < n * SLOTS; i++) {
            float s = 0;
            for (size_t d = 0; d < dim; d++)
                s = fmaf(b->input[i / SLOTS * dim + d],
                         rounded(type, b->block_values[i % SLOTS][d]), s);
            b->wanted[i] = s;
        }
        b->plain.score(&b->codec, b->block, dim, 0, 4, n, b->input, dim, b->before, NULL);
        check_same_floats(b->wanted, b->before, n * SLOTS, "scores");
        fill_for_sums(b, &random, type, dim, WIDE);
        for (size_t i = 0; i < n * dim; i++) {
            b->wanted[i] = b->before[i];
            for (size_t p = 5; p < 60; p++)
                b->wanted[i] = fmaf(b->input[i / dim * SLOTS + p],
                                    rounded(type, b->block_values[p][i % dim]), b->wanted[i]);
        }
        b->plain.accumulate(&b->codec, b->block, dim, 5, 60, n, b->input, b->before, NULL);
        check_same_floats(b->wanted, b->before, n * dim, "sums");
    }
    bench_destroy(b);
}

int main(void)
{
    kernel_variants_print("dense");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_values_are_rounded_once_and_kept_apart),
        cmocka_unit_test(every_source_type_is_understood),
        cmocka_unit_test(blocks_have_no_padding),
        cmocka_unit_test(unknown_types_have_no_codec),
        cmocka_unit_test(plain_kernels_follow_the_stated_order),
        cmocka_unit_test(vector_scores_equal_plain_ones),
        cmocka_unit_test(vector_sums_equal_plain_ones),
        cmocka_unit_test(every_range_of_slots_gives_equal_sums),
        cmocka_unit_test(infinities_and_nans_stay_in_their_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
