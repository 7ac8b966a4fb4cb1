// SPDX-License-Identifier: MIT
// Affine codecs: what is stored, and every vector kernel of this machine against the plain one, bit
// for bit, with nothing read or written outside of what a call names. Encoding against MLX is
// test_affine_golden.c.

#include "src/codec/affine/affine.h"
#include "src/codec/codec.h"
#include "tests/support/check.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/rounding.h"

#include <kvern/cache.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define MOST_DIM KVERN_MAX_HEAD_DIM
#define MOST_GROUPS KVERN_AFFINE_MOST_GROUPS
#define MOST_VECTORS 67
#define SENTINEL 12345.0f

static const uint32_t all_bits[] = {2, 3, 4, 5, 6, 8};
static const uint32_t all_groups[] = {32, 64, 128};
static const kvern_type types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};

#define CODECS (6 * 3 * 3)

static kvern_codec codec_of(size_t index)
{
    kvern_codec codec = kvern_codec_affine(all_bits[index % 6], all_groups[index / 6 % 3]);
    codec.scales = types[index / 18];
    return codec;
}

// A head dim that the codec's group divides.
static size_t random_dim(test_random *random, const kvern_codec *codec)
{
    return codec->group * (1 + test_random_below(random, MOST_DIM / codec->group));
}

// ---- Values ----

// Groups of every kind: ordinary, one value, one side of zero, tiny, huge, and some with an
// infinity or a NaN.
static void fill_group(test_random *random, float *x, size_t count)
{
    const uint64_t choice = test_random_below(random, 12);
    kernel_inputs_fill(random, choice < 8 ? ORDINARY : WIDE, x, count);
    const float scale = choice == 0 ? 1e-7f : choice == 1 ? 1e37f : choice == 2 ? -1.0f : 1.0f;
    for (size_t i = 0; i < count; i++) {
        x[i] *= choice == 3 ? 0 : scale;
        if (choice == 2)
            x[i] = -fabsf(x[i]);
        if (choice == 4)
            x[i] = x[0];
    }
    if (choice == 5)
        x[test_random_below(random, count)] = kernel_inputs_special(random);
}

// ---- The block of a test, beside what should be in it ----

typedef struct affine_block {
    kvern_codec codec;
    kvern_stream stream;
    size_t dim, bytes;
    guarded at_end, at_start;
    void *data;
    // What the plain kernel stored, taken apart.
    float scale[SLOTS][MOST_GROUPS], bias[SLOTS][MOST_GROUPS];
    float code[SLOTS][MOST_DIM];
} affine_block;

static float side_of(kvern_type type, const void *sides, size_t at)
{
    return element_get(type, sides, at);
}

// Codes from the stream of MLX: element i is in the bits i * bits and up.
static void take_apart(affine_block *b, size_t slot)
{
    uint32_t words[MOST_DIM / 4], scales[MOST_GROUPS], biases[MOST_GROUPS];
    const kvern_affine_arrays to = {.words = words, .scales = scales, .biases = biases};
    kvern_codec_type_of(&b->codec)->affine->export(&b->codec, b->stream, b->data, b->dim, slot, &to,
                                                   0);
    for (size_t d = 0; d < b->dim; d++) {
        uint32_t code = 0;
        for (size_t i = 0; i < b->codec.bits; i++) {
            const size_t bit = d * b->codec.bits + i;
            code |= (words[bit / 32] >> bit % 32 & 1) << i;
        }
        b->code[slot][d] = (float)code;
    }
    for (size_t g = 0; g < b->dim / b->codec.group; g++) {
        b->scale[slot][g] = side_of(b->codec.scales, scales, g);
        b->bias[slot][g] = side_of(b->codec.scales, biases, g);
    }
}

static void store(affine_block *b, size_t slot, const float *values)
{
    kvern_codec_type_of(&b->codec)
        ->kernels_of(&b->codec, 0)
        ->encode(&b->codec, b->stream, b->data, b->dim, slot, KVERN_F32, values);
}

static void store_random(affine_block *b, test_random *random, size_t slot)
{
    float values[MOST_DIM];
    for (size_t d = 0; d < b->dim; d += b->codec.group)
        fill_group(random, values + d, b->codec.group);
    store(b, slot, values);
    take_apart(b, slot);
}

static affine_block *block_create(test_random *random, kvern_codec codec, kvern_stream stream,
                                  size_t dim)
{
    affine_block *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->codec = codec;
    b->stream = stream;
    b->dim = dim;
    b->bytes = kvern_codec_type_of(&codec)->block_bytes(&codec, dim);
    b->at_end = guarded_at_end(b->bytes);
    b->at_start = guarded_at_start(b->bytes);
    b->data = test_random_next(random) & 1 ? b->at_end.data : b->at_start.data;
    for (size_t slot = 0; slot < SLOTS; slot++)
        store_random(b, random, slot);
    return b;
}

static void block_destroy(affine_block *b)
{
    guarded_free(&b->at_end);
    guarded_free(&b->at_start);
    free(b);
}

static const char *name_of(const affine_block *b)
{
    static char text[128];
    char codec[KVERN_CODEC_NAME_BYTES];
    kvern_codec_type_of(&b->codec)->name(&b->codec, codec);
    snprintf(text, sizeof text, "%s, stream %d, dim %zu", codec, b->stream, b->dim);
    return text;
}

// ---- Storing ----

// What a format says of itself: its bytes, and that the stored value is one rounding of the line.
static void check_facts(const affine_block *b)
{
    const size_t side = kvern_type_bytes(b->codec.scales);
    assert_int_equal(b->bytes, b->dim * b->codec.bits * SLOTS / 8 +
                                   SLOTS * (b->dim / b->codec.group) * 2 * side);
    assert_int_equal(b->bytes % 64, 0);
    float wanted[MOST_DIM], got[MOST_DIM];
    for (size_t slot = 0; slot < SLOTS; slot++) {
        for (size_t d = 0; d < b->dim; d++) {
            const size_t g = d / b->codec.group;
            wanted[d] = fmaf(b->scale[slot][g], b->code[slot][d], b->bias[slot][g]);
        }
        kvern_codec_type_of(&b->codec)->decode(&b->codec, b->stream, b->data, b->dim, slot, got);
        check_same_floats(wanted, got, b->dim, name_of(b));
    }
}

static void blocks_hold_lines_and_codes_without_padding(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (size_t i = 0; i < 2 * CODECS; i++) {
        const kvern_codec codec = codec_of(i / 2);
        affine_block *b =
            block_create(&random, codec, (kvern_stream)(i % 2), random_dim(&random, &codec));
        check_facts(b);
        block_destroy(b);
    }
}

// Slots are stored over others in random order, values of every type, by every variant: the block
// is always that of the plain kernel.
static void check_encoding(test_random *random, kvern_codec codec, kvern_stream stream, size_t dim)
{
    affine_block *b = block_create(random, codec, stream, dim);
    const kernel_variants variants = kernel_variants_here();
    const kvern_type type = types[test_random_below(random, 3)];
    guarded input = guarded_at_end(dim * kvern_type_bytes(type));
    guarded copies[MOST_KERNEL_VARIANTS];
    for (size_t v = 1; v < variants.count; v++) {
        copies[v] = v % 2 ? guarded_at_start(b->bytes) : guarded_at_end(b->bytes);
        memcpy(copies[v].data, b->data, b->bytes);
    }
    for (size_t i = 0; i < 100; i++) {
        const size_t slot = test_random_below(random, SLOTS);
        float values[MOST_DIM];
        for (size_t d = 0; d < dim; d += codec.group)
            fill_group(random, values + d, codec.group);
        for (size_t d = 0; d < dim; d++)
            element_set(type, input.data, d, values[d]);
        for (size_t v = 0; v < variants.count; v++)
            kvern_codec_type_of(&codec)
                ->kernels_of(&codec, variants.features[v])
                ->encode(&codec, stream, v ? (void *)copies[v].data : b->data, dim, slot, type,
                         input.data);
    }
    for (size_t v = 1; v < variants.count; v++) {
        check_same_bytes(b->data, copies[v].data, b->bytes, name_of(b));
        guarded_free(&copies[v]);
    }
    guarded_free(&input);
    block_destroy(b);
}

static void vector_encoding_equals_the_plain_one(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    for (size_t i = 0; i < 2 * CODECS; i++) {
        const kvern_codec codec = codec_of(i / 2);
        check_encoding(&random, codec, (kvern_stream)(i % 2), random_dim(&random, &codec));
    }
}

// One slot does not touch another one, whatever was there.
static void slots_are_kept_apart(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 2);
    for (size_t i = 0; i < 2 * CODECS; i++) {
        const kvern_codec codec = codec_of(i / 2);
        const size_t dim = random_dim(&random, &codec);
        affine_block *b = block_create(&random, codec, (kvern_stream)(i % 2), dim);
        affine_block *before = malloc(sizeof *before);
        assert_non_null(before);
        for (size_t j = 0; j < 20; j++) {
            const size_t slot = test_random_below(&random, SLOTS);
            store_random(b, &random, slot);
            *before = *b;
            for (size_t other = 0; other < SLOTS; other++)
                take_apart(b, other);
            check_same_floats(before->code[0], b->code[0], SLOTS * MOST_DIM, name_of(b));
            check_same_floats(before->scale[0], b->scale[0], SLOTS * MOST_GROUPS, name_of(b));
            check_same_floats(before->bias[0], b->bias[0], SLOTS * MOST_GROUPS, name_of(b));
        }
        free(before);
        block_destroy(b);
    }
}

// A group with a NaN or an infinity reads as NaN, its neighbours do not.
static void groups_that_are_not_finite_read_as_nan(void **state)
{
    (void)state;
    static const float special[] = {INFINITY, -INFINITY, NAN};
    test_random random = test_random_seed(check_seed() + 3);
    for (size_t i = 0; i < 2 * CODECS; i++) {
        const kvern_codec codec = codec_of(i / 2);
        affine_block *b = block_create(&random, codec, (kvern_stream)(i % 2), 2 * codec.group);
        float values[MOST_DIM], got[MOST_DIM];
        kernel_inputs_fill(&random, ORDINARY, values, b->dim);
        values[codec.group + test_random_below(&random, codec.group)] = special[i % 3];
        store(b, 17, values);
        kvern_codec_type_of(&codec)->decode(&codec, b->stream, b->data, b->dim, 17, got);
        for (size_t d = 0; d < b->dim; d++)
            assert_int_equal(isnan(got[d]) != 0, d >= codec.group);
        block_destroy(b);
    }
}

static void other_parameters_do_not_exist(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 40; bits++) {
        const kvern_codec codec = kvern_codec_affine(bits, 64);
        const bool exists = bits >= 2 && bits <= 8 && bits != 7;
        assert_int_equal(kvern_codec_type_of(&codec) != NULL, exists);
    }
    for (uint32_t group = 0; group < 300; group++) {
        const kvern_codec codec = kvern_codec_affine(4, group);
        const bool exists = group == 32 || group == 64 || group == 128;
        assert_int_equal(kvern_codec_type_of(&codec) != NULL, exists);
    }
    kvern_codec codec = kvern_codec_affine(4, 64);
    codec.scales = (kvern_type)3;
    assert_null(kvern_codec_type_of(&codec));
}

// ---- Reading ----

// Buffers of a comparison; those of kernels end where their memory ends.
typedef struct bench {
    affine_block *block;
    size_t q_stride;
    guarded input_at_end, output_at_end, next_at_end;
    float input[MOST_VECTORS * (MOST_DIM + MOST_GROUPS)]; // queries, or weights
    float before[MOST_VECTORS * MOST_DIM];                // what the output held
    float wanted[MOST_VECTORS * MOST_DIM];
} bench;

#define INPUT_BYTES (MOST_VECTORS * (MOST_DIM + MOST_GROUPS) * sizeof(float))
#define OUTPUT_BYTES (MOST_VECTORS * MOST_DIM * sizeof(float))

static bench *bench_create(void)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->input_at_end = guarded_at_end(INPUT_BYTES);
    b->output_at_end = guarded_at_end(OUTPUT_BYTES);
    b->next_at_end = guarded_at_end(64);
    return b;
}

static void bench_destroy(bench *b)
{
    guarded_free(&b->input_at_end);
    guarded_free(&b->output_at_end);
    guarded_free(&b->next_at_end);
    free(b);
}

static void fill_queries(bench *b, test_random *random, mixture kind)
{
    const affine_block *block = b->block;
    const kvern_codec_type *type = kvern_codec_type_of(&block->codec);
    b->q_stride = type->query_floats(&block->codec, block->dim);
    assert_int_equal(b->q_stride, block->dim + block->dim / block->codec.group);
    kernel_inputs_fill(random, kind, b->input, MOST_VECTORS * b->q_stride);
    for (size_t i = 0; i < MOST_VECTORS; i++)
        type->kernels_of(&block->codec, 0)
            ->prepare(&block->codec, block->dim, b->input + i * b->q_stride);
}

static void expect_same(const bench *b, const float *got, size_t count, size_t n, size_t begin,
                        size_t end, uint32_t features)
{
    char what[256];
    snprintf(what, sizeof what, "%s: %s, %zu vectors, [%zu, %zu)", kvern_cpu_name(features),
             name_of(b->block), n, begin, end);
    check_same_floats(b->wanted, got, count, what);
}

// Every variant against plain: scores of n queries over some tiles; all others keep what they held.
static void compare_scores(bench *b, test_random *random, size_t n, size_t begin, size_t end)
{
    const affine_block *block = b->block;
    const kernel_variants variants = kernel_variants_here();
    const size_t count = n * SLOTS, floats = n * b->q_stride;
    float *q = guarded_last(&b->input_at_end, floats * sizeof(float));
    float *scores = guarded_last(&b->output_at_end, count * sizeof(float));
    memcpy(q, b->input, floats * sizeof *q);
    for (size_t v = 0; v < variants.count; v++) {
        for (size_t i = 0; i < count; i++)
            scores[i] = SENTINEL;
        kvern_codec_type_of(&block->codec)
            ->kernels_of(&block->codec, variants.features[v])
            ->score(&block->codec, block->data, block->dim, begin, end, n, q, b->q_stride, scores,
                    kernel_inputs_next(&b->next_at_end, random));
        if (v == 0)
            memcpy(b->wanted, scores, count * sizeof *scores);
        expect_same(b, scores, count, n, begin, end, variants.features[v]);
    }
    for (size_t i = 0; i < count; i++) {
        if (i % SLOTS < begin * 16 || i % SLOTS >= end * 16)
            assert_true(b->wanted[i] == SENTINEL);
    }
}

// Weighted sums of n vectors over the slots [begin, end). Weights of other slots are NaN.
static void compare_sums(bench *b, test_random *random, size_t n, size_t begin, size_t end)
{
    const affine_block *block = b->block;
    const kernel_variants variants = kernel_variants_here();
    const size_t count = n * block->dim;
    float *w = guarded_last(&b->input_at_end, n * SLOTS * sizeof(float));
    float *acc = guarded_last(&b->output_at_end, count * sizeof(float));
    for (size_t i = 0; i < n * SLOTS; i++)
        w[i] = i % SLOTS < begin || i % SLOTS >= end ? NAN : b->input[i];
    for (size_t v = 0; v < variants.count; v++) {
        memcpy(acc, b->before, count * sizeof *acc);
        kvern_codec_type_of(&block->codec)
            ->kernels_of(&block->codec, variants.features[v])
            ->accumulate(&block->codec, block->data, block->dim, begin, end, n, w, acc,
                         kernel_inputs_next(&b->next_at_end, random));
        if (v == 0)
            memcpy(b->wanted, acc, count * sizeof *acc);
        expect_same(b, acc, count, n, begin, end, variants.features[v]);
    }
}

// Numbers of vectors: all of them in the long form, otherwise about every sixth.
static size_t next_count(test_random *random, size_t n)
{
    return n + 1 + (check_is_long() ? 0 : test_random_below(random, 11));
}

static void compare_all_scores(bench *b, test_random *random)
{
    for (size_t n = 1; n <= MOST_VECTORS; n = next_count(random, n)) {
        const size_t begin = test_random_below(random, 5);
        compare_scores(b, random, n, begin, begin + test_random_below(random, 5 - begin));
    }
    for (size_t begin = 0; begin <= 4; begin++) {
        for (size_t end = begin; end <= 4; end++)
            compare_scores(b, random, 1 + test_random_below(random, 9), begin, end);
    }
}

static void vector_scores_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 4);
    bench *b = bench_create();
    for (size_t i = 0; i < CODECS; i++) {
        const kvern_codec codec = codec_of(i);
        b->block = block_create(&random, codec, KVERN_STREAM_K, random_dim(&random, &codec));
        fill_queries(b, &random, (mixture)test_random_below(&random, MIXTURES));
        compare_all_scores(b, &random);
        block_destroy(b->block);
    }
    bench_destroy(b);
}

static void compare_all_sums(bench *b, test_random *random)
{
    for (size_t n = 1; n <= MOST_VECTORS; n = next_count(random, n)) {
        const size_t begin = test_random_below(random, SLOTS + 1);
        compare_sums(b, random, n, begin, begin + test_random_below(random, SLOTS + 1 - begin));
    }
    compare_sums(b, random, 1 + test_random_below(random, 9), 0, SLOTS);
}

static void vector_sums_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 5);
    bench *b = bench_create();
    for (size_t i = 0; i < CODECS; i++) {
        const kvern_codec codec = codec_of(i);
        b->block = block_create(&random, codec, KVERN_STREAM_V, random_dim(&random, &codec));
        const mixture kind = (mixture)test_random_below(&random, MIXTURES);
        kernel_inputs_fill(&random, kind, b->input, MOST_VECTORS * SLOTS);
        kernel_inputs_fill(&random, kind, b->before, MOST_VECTORS * b->block->dim);
        compare_all_sums(b, &random);
        block_destroy(b->block);
    }
    bench_destroy(b);
}

// All ranges of slots, for every number of bits.
static void every_range_of_slots_gives_equal_sums(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 6);
    bench *b = bench_create();
    for (size_t i = 0; i < 6; i++) {
        b->block = block_create(&random, kvern_codec_affine(all_bits[i], 32), KVERN_STREAM_V, 96);
        kernel_inputs_fill(&random, ORDINARY, b->input, MOST_VECTORS * SLOTS);
        kernel_inputs_fill(&random, ORDINARY, b->before, MOST_VECTORS * 96);
        for (size_t begin = 0; begin <= SLOTS; begin++) {
            for (size_t end = begin; end <= SLOTS; end++)
                compare_sums(b, &random, 1 + test_random_below(&random, 4), begin, end);
        }
        block_destroy(b->block);
    }
    bench_destroy(b);
}

// ---- The definition ----

static float stated_tree(float sums[16])
{
    for (size_t step = 8; step; step /= 2) {
        for (size_t i = 0; i < step; i++)
            sums[i] += sums[i + step];
    }
    return sums[0];
}

// docs/arithmetic.md, "Affine codes", from what the slots hold.
static float stated_score(const affine_block *block, const float *q, size_t slot)
{
    float s = 0;
    for (size_t g = 0; g < block->dim / block->codec.group; g++) {
        const float *group = q + g * block->codec.group;
        float t = 0, sums[16];
        for (size_t i = 0; i < 16; i++)
            sums[i] = group[i];
        for (size_t d = 0; d < block->codec.group; d++) {
            t = fmaf(group[d], block->code[slot][g * block->codec.group + d], t);
            if (d >= 16)
                sums[d % 16] += group[d];
        }
        s = fmaf(block->scale[slot][g], t, s);
        s = fmaf(block->bias[slot][g], stated_tree(sums), s);
    }
    return s;
}

static float stated_sum(const affine_block *block, const float *w, size_t d, float sum)
{
    const size_t g = d / block->codec.group;
    float biases[16] = {0};
    for (size_t p = 5; p < 60; p++)
        biases[p % 16] = fmaf(w[p], block->bias[p][g], biases[p % 16]);
    for (size_t p = 5; p < 60; p++)
        sum = fmaf(w[p] * block->scale[p][g], block->code[p][d], sum);
    return sum + stated_tree(biases);
}

static void plain_kernels_follow_the_stated_order(void **state)
{
    (void)state;
    enum { N = 3 };
    test_random random = test_random_seed(check_seed() + 7);
    bench *b = bench_create();
    for (size_t i = 0; i < CODECS; i++) {
        const kvern_codec codec = codec_of(i);
        const size_t dim = random_dim(&random, &codec);
        const kvern_codec_kernels plain = *kvern_codec_type_of(&codec)->kernels_of(&codec, 0);
        b->block = block_create(&random, codec, KVERN_STREAM_K, dim);
        fill_queries(b, &random, WIDE);
        for (size_t j = 0; j < N * SLOTS; j++)
            b->wanted[j] = stated_score(b->block, b->input + j / SLOTS * b->q_stride, j % SLOTS);
        plain.score(&codec, b->block->data, dim, 0, 4, N, b->input, b->q_stride, b->before, NULL);
        check_same_floats(b->wanted, b->before, N * SLOTS, "scores");
        block_destroy(b->block);
        b->block = block_create(&random, codec, KVERN_STREAM_V, dim);
        kernel_inputs_fill(&random, WIDE, b->before, N * dim);
        for (size_t j = 0; j < N * dim; j++)
            b->wanted[j] = stated_sum(b->block, b->input + j / dim * SLOTS, j % dim, b->before[j]);
        plain.accumulate(&codec, b->block->data, dim, 5, 60, N, b->input, b->before, NULL);
        check_same_floats(b->wanted, b->before, N * dim, "sums");
        block_destroy(b->block);
    }
    bench_destroy(b);
}

int main(void)
{
    kernel_variants_print("affine");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_hold_lines_and_codes_without_padding),
        cmocka_unit_test(vector_encoding_equals_the_plain_one),
        cmocka_unit_test(slots_are_kept_apart),
        cmocka_unit_test(groups_that_are_not_finite_read_as_nan),
        cmocka_unit_test(other_parameters_do_not_exist),
        cmocka_unit_test(plain_kernels_follow_the_stated_order),
        cmocka_unit_test(vector_scores_equal_plain_ones),
        cmocka_unit_test(vector_sums_equal_plain_ones),
        cmocka_unit_test(every_range_of_slots_gives_equal_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
