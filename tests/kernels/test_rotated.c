// SPDX-License-Identifier: MIT
// Codecs of rotated vectors, affine and turbo: every vector kernel of this machine against the
// plain one, bit for bit, with nothing read or written outside of what a call names, and the plain
// ones against the words of docs/arithmetic.md.

#include "src/codec/codec.h"
#include "src/codec/rotation/rotation.h"
#include "src/codec/turbo/turbo.h"
#include "tests/support/check.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define MOST_DIM KVERN_MAX_HEAD_DIM
#define MOST_FLOATS (MOST_DIM + MOST_DIM / 32) // of a prepared query
#define MOST_VECTORS 67
#define SENTINEL 12345.0f
#define CODECS 12

static const kvern_type types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};

static kvern_codec codec_of(size_t index)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    if (index < 6)
        return kvern_codec_turbo((uint32_t)index + 1);
    kvern_codec codec = kvern_codec_rotated(bits[index - 6], groups[index % 3]);
    codec.scales = types[index / 2 % 3];
    return codec;
}

// Every head dim that there is comes first, then any.
static size_t dim_of(test_random *random, const kvern_codec *codec, size_t number)
{
    static const size_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512, 16, 48};
    const size_t unit = kvern_codec_type_of(codec)->dim_unit(codec);
    if (number < 10 && dims[number] % unit == 0)
        return dims[number];
    return unit * (1 + test_random_below(random, 320 / unit));
}

// Vectors of every kind: ordinary, with channels that stand out, one value, tiny, huge, zero, and
// some with an infinity or a NaN.
static void fill_vector(test_random *random, float *x, size_t dim)
{
    const uint64_t choice = test_random_below(random, 14);
    kernel_inputs_fill(random, choice < 10 ? ORDINARY : WIDE, x, dim);
    const float scale = choice == 0 ? 1e-7f : choice == 1 ? 1e36f : choice == 2 ? 0x1p-140f : 1.0f;
    for (size_t i = 0; i < dim; i++) {
        x[i] *= choice == 3 ? 0 : scale;
        if (choice == 4)
            x[i] = x[0];
        if (choice == 6)
            x[i] *= i % 17 == 3 ? 1000 : 1;
    }
    if (choice == 5)
        x[test_random_below(random, dim)] = kernel_inputs_special(random);
}

// ---- The block of a test ----

typedef struct block {
    kvern_codec codec;
    const kvern_codec_type *type;
    kvern_stream stream;
    size_t dim, bytes;
    guarded memory;
    char name[96];
} block;

static const kvern_codec_kernels *plain_of(const block *b)
{
    return b->type->kernels_of(&b->codec, 0);
}

static block block_create(test_random *random, kvern_codec codec, kvern_stream stream, size_t dim)
{
    block b = {.codec = codec, .type = kvern_codec_type_of(&codec), .stream = stream, .dim = dim};
    char name[KVERN_CODEC_NAME_BYTES];
    b.type->name(&codec, name);
    snprintf(b.name, sizeof b.name, "%s, stream %d, dim %zu", name, (int)stream, dim);
    b.bytes = b.type->block_bytes(&codec, dim);
    assert_int_equal(b.bytes % 64, 0);
    b.memory = test_random_next(random) & 1 ? guarded_at_end(b.bytes) : guarded_at_start(b.bytes);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        float x[MOST_DIM];
        fill_vector(random, x, dim);
        plain_of(&b)->encode(&codec, stream, b.memory.data, dim, slot, KVERN_F32, x);
    }
    return b;
}

static void say(char what[192], const block *b, uint32_t features, size_t n, size_t begin,
                size_t end)
{
    snprintf(what, 192, "%s: %s, %zu vectors, [%zu, %zu)", kvern_cpu_name(features), b->name, n,
             begin, end);
}

// ---- Storing ----

// Slots are stored over others in random order, values of every type, by every variant: the block
// is always that of the plain kernel, and other slots keep what they held.
static void check_encoding(test_random *random, kvern_codec codec, kvern_stream stream, size_t dim)
{
    block b = block_create(random, codec, stream, dim);
    const kernel_variants variants = kernel_variants_here();
    const kvern_type type = types[test_random_below(random, 3)];
    guarded input = guarded_at_end(dim * kvern_type_bytes(type));
    guarded copies[MOST_KERNEL_VARIANTS];
    for (size_t v = 1; v < variants.count; v++) {
        copies[v] = v % 2 ? guarded_at_start(b.bytes) : guarded_at_end(b.bytes);
        memcpy(copies[v].data, b.memory.data, b.bytes);
    }
    for (size_t i = 0; i < 60; i++) {
        const size_t slot = test_random_below(random, SLOTS), other = (slot + 1 + i) % SLOTS;
        float values[MOST_DIM], before[MOST_DIM], after[MOST_DIM];
        fill_vector(random, values, dim);
        for (size_t d = 0; d < dim; d++)
            element_set(type, input.data, d, values[d]);
        b.type->decode(&codec, stream, b.memory.data, dim, other, before);
        for (size_t v = 0; v < variants.count; v++)
            b.type->kernels_of(&codec, variants.features[v])
                ->encode(&codec, stream, v ? copies[v].data : b.memory.data, dim, slot, type,
                         input.data);
        b.type->decode(&codec, stream, b.memory.data, dim, other, after);
        if (other != slot)
            check_same_floats(before, after, dim, b.name);
    }
    for (size_t v = 1; v < variants.count; v++) {
        check_same_bytes(b.memory.data, copies[v].data, b.bytes, b.name);
        guarded_free(&copies[v]);
    }
    guarded_free(&input);
    guarded_free(&b.memory);
}

static void vector_encoding_equals_the_plain_one(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (size_t i = 0; i < 12 * 2 * CODECS; i++) {
        const kvern_codec codec = codec_of(i % CODECS);
        check_encoding(&random, codec, (kvern_stream)(i / CODECS % 2),
                       dim_of(&random, &codec, i / CODECS / 2));
    }
}

// Four vectors at once, every second time of a kind that has no place among ordinary ones: the
// block is that of four calls of the plain kernel.
static void check_four(test_random *random, kvern_codec codec, kvern_stream stream, size_t dim,
                       uint32_t features)
{
    block b = block_create(random, codec, stream, dim);
    const kvern_codec_kernels *kernels = b.type->kernels_of(&codec, features);
    guarded copy = guarded_at_end(b.bytes), inputs[4];
    memcpy(copy.data, b.memory.data, b.bytes);
    for (size_t round = 0; round < 12 && kernels->encode_four; round++) {
        const size_t slot = test_random_below(random, SLOTS - 3), odd = round % 8;
        const kvern_type type = types[test_random_below(random, 3)];
        const void *values[4];
        for (size_t i = 0; i < 4; i++) {
            float x[MOST_DIM];
            inputs[i] = guarded_at_end(dim * kvern_type_bytes(type));
            values[i] = inputs[i].data;
            kernel_inputs_fill(random, ORDINARY, x, dim);
            if (i == odd)
                fill_vector(random, x, dim);
            for (size_t d = 0; d < dim; d++)
                element_set(type, inputs[i].data, d, x[d]);
            plain_of(&b)->encode(&codec, stream, b.memory.data, dim, slot + i, type, values[i]);
        }
        kernels->encode_four(&codec, stream, copy.data, dim, slot, type, values);
        check_same_bytes(b.memory.data, copy.data, b.bytes, b.name);
        for (size_t i = 0; i < 4; i++)
            guarded_free(&inputs[i]);
    }
    guarded_free(&copy);
    guarded_free(&b.memory);
}

static void four_vectors_are_stored_as_each_alone(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    const kernel_variants variants = kernel_variants_here();
    for (size_t i = 0; i < 12 * 2 * CODECS; i++) {
        const kvern_codec codec = codec_of(i % CODECS);
        for (size_t v = 0; v < variants.count; v++)
            check_four(&random, codec, (kvern_stream)(i / CODECS % 2),
                       dim_of(&random, &codec, i / CODECS / 2), variants.features[v]);
    }
}

// ---- Reading ----

typedef struct bench {
    block block;
    guarded input, output, next;
    float queries[MOST_VECTORS * MOST_FLOATS], weights[MOST_VECTORS * SLOTS];
    float before[MOST_VECTORS * MOST_DIM], wanted[MOST_VECTORS * MOST_DIM];
} bench;

static bench *bench_create(void)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->input = guarded_at_end(sizeof b->queries);
    b->output = guarded_at_end(sizeof b->wanted);
    b->next = guarded_at_end(64);
    return b;
}

static void bench_destroy(bench *b)
{
    guarded_free(&b->input);
    guarded_free(&b->output);
    guarded_free(&b->next);
    free(b);
}

// Queries of all vectors, completed by every variant alike.
static size_t fill_queries(bench *b, test_random *random, mixture kind)
{
    const block *block = &b->block;
    const kernel_variants variants = kernel_variants_here();
    const size_t stride = block->type->query_floats(&block->codec, block->dim);
    kernel_inputs_fill(random, kind, b->queries, MOST_VECTORS * stride);
    for (size_t i = 0; i < MOST_VECTORS; i++) {
        float copy[MOST_FLOATS], *q = b->queries + i * stride;
        for (size_t v = 1; v < variants.count && i < 4; v++) {
            memcpy(copy, q, stride * sizeof *q);
            memcpy(b->wanted, q, stride * sizeof *q);
            plain_of(block)->prepare(&block->codec, block->dim, b->wanted);
            block->type->kernels_of(&block->codec, variants.features[v])
                ->prepare(&block->codec, block->dim, copy);
            check_same_floats(b->wanted, copy, stride, "a prepared query");
        }
        plain_of(block)->prepare(&block->codec, block->dim, q);
    }
    return stride;
}

static void compare_scores(bench *b, test_random *random, size_t stride, size_t n, size_t begin,
                           size_t end)
{
    const block *block = &b->block;
    const kernel_variants variants = kernel_variants_here();
    float *q = guarded_last(&b->input, n * stride * sizeof(float));
    float *scores = guarded_last(&b->output, n * SLOTS * sizeof(float));
    memcpy(q, b->queries, n * stride * sizeof *q);
    for (size_t v = 0; v < variants.count; v++) {
        char what[192];
        for (size_t i = 0; i < n * SLOTS; i++)
            scores[i] = SENTINEL;
        block->type->kernels_of(&block->codec, variants.features[v])
            ->score(&block->codec, block->memory.data, block->dim, begin, end, n, q, stride, scores,
                    kernel_inputs_next(&b->next, random));
        if (v == 0)
            memcpy(b->wanted, scores, n * SLOTS * sizeof *scores);
        say(what, block, variants.features[v], n, begin, end);
        check_same_floats(b->wanted, scores, n * SLOTS, what);
    }
    for (size_t i = 0; i < n * SLOTS; i++) {
        if (i % SLOTS < begin * 16 || i % SLOTS >= end * 16)
            assert_true(b->wanted[i] == SENTINEL);
    }
}

// Weights outside of [begin, end) are NaN.
static void compare_sums(bench *b, test_random *random, size_t n, size_t begin, size_t end)
{
    const block *block = &b->block;
    const kernel_variants variants = kernel_variants_here();
    const size_t count = n * block->dim;
    float *w = guarded_last(&b->input, n * SLOTS * sizeof(float));
    float *acc = guarded_last(&b->output, count * sizeof(float));
    for (size_t i = 0; i < n * SLOTS; i++)
        w[i] = i % SLOTS < begin || i % SLOTS >= end ? NAN : b->weights[i];
    for (size_t v = 0; v < variants.count; v++) {
        const kvern_codec_kernels *kernels =
            block->type->kernels_of(&block->codec, variants.features[v]);
        char what[192];
        memcpy(acc, b->before, count * sizeof *acc);
        kernels->accumulate(&block->codec, block->memory.data, block->dim, begin, end, n, w, acc,
                            kernel_inputs_next(&b->next, random));
        kernels->finish(&block->codec, block->dim, acc);
        if (v == 0)
            memcpy(b->wanted, acc, count * sizeof *acc);
        say(what, block, variants.features[v], n, begin, end);
        check_same_floats(b->wanted, acc, count, what);
    }
}

static const size_t vectors[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32, 33, 67};

static void vector_scores_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    bench *b = bench_create();
    for (size_t i = 0; i < 12 * CODECS; i++) {
        const kvern_codec codec = codec_of(i % CODECS);
        b->block =
            block_create(&random, codec, KVERN_STREAM_K, dim_of(&random, &codec, i / CODECS));
        const size_t stride = fill_queries(b, &random, (mixture)(i % 3 == 2));
        for (size_t j = 0; j < sizeof vectors / sizeof vectors[0]; j++)
            compare_scores(b, &random, stride, vectors[j], 0, 4);
        for (size_t begin = 0; begin < 4; begin++)
            for (size_t end = begin; end <= 4; end++)
                compare_scores(b, &random, stride, 1 + test_random_below(&random, MOST_VECTORS),
                               begin, end);
        guarded_free(&b->block.memory);
    }
    bench_destroy(b);
}

static void vector_sums_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 2);
    bench *b = bench_create();
    for (size_t i = 0; i < 12 * CODECS; i++) {
        const kvern_codec codec = codec_of(i % CODECS);
        const mixture kind = (mixture)(i % 3 == 2);
        b->block =
            block_create(&random, codec, KVERN_STREAM_V, dim_of(&random, &codec, i / CODECS));
        kernel_inputs_fill(&random, kind, b->weights, MOST_VECTORS * SLOTS);
        kernel_inputs_fill(&random, kind, b->before, MOST_VECTORS * b->block.dim);
        for (size_t j = 0; j < sizeof vectors / sizeof vectors[0]; j++)
            compare_sums(b, &random, vectors[j], 0, SLOTS);
        for (size_t j = 0; j < 40; j++) {
            const size_t begin = test_random_below(&random, SLOTS + 1);
            const size_t end = begin + test_random_below(&random, SLOTS + 1 - begin);
            compare_sums(b, &random, 1 + test_random_below(&random, MOST_VECTORS), begin, end);
        }
        guarded_free(&b->block.memory);
    }
    bench_destroy(b);
}

// ---- The definition ----

// docs/arithmetic.md, "Turbo codes", for what is stored and how it is read.
static void plain_turbo_kernels_follow_the_stated_order(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 3);
    for (size_t i = 0; i < 60; i++) {
        const kvern_codec codec = kvern_codec_turbo(1 + (uint32_t)(i % 6));
        const size_t dim = dim_of(&random, &codec, i / 6);
        block k = block_create(&random, codec, KVERN_STREAM_K, dim);
        block v = block_create(&random, codec, KVERN_STREAM_V, dim);
        float q[MOST_DIM], w[SLOTS], scores[SLOTS], wanted[SLOTS], acc[MOST_DIM] = {0};
        float sums[MOST_DIM] = {0};
        kernel_inputs_fill(&random, ORDINARY, q, dim);
        kernel_inputs_fill(&random, ORDINARY, w, SLOTS);
        for (size_t p = 0; p < SLOTS; p++) {
            float s = 0;
            for (size_t d = 0; d < dim; d++)
                s = fmaf(
                    q[d],
                    kvern_turbo_levels[codec.bits][kvern_codes_find(
                        codec.bits, KVERN_STREAM_K, kvern_turbo_words(k.memory.data), dim, p, d)],
                    s);
            wanted[p] = element_get(KVERN_F16, k.memory.data, p) * s;
        }
        for (size_t p = 7; p < 50; p++)
            for (size_t d = 0; d < dim; d++)
                sums[d] = fmaf(
                    w[p] * element_get(KVERN_F16, v.memory.data, p),
                    kvern_turbo_levels[codec.bits][kvern_codes_find(
                        codec.bits, KVERN_STREAM_V, kvern_turbo_words(v.memory.data), dim, p, d)],
                    sums[d]);
        plain_of(&k)->score(&codec, k.memory.data, dim, 0, 4, 1, q, dim, scores, NULL);
        check_same_floats(wanted, scores, SLOTS, "scores");
        plain_of(&v)->accumulate(&codec, v.memory.data, dim, 7, 50, 1, w, acc, NULL);
        check_same_floats(sums, acc, dim, "sums");
        guarded_free(&k.memory);
        guarded_free(&v.memory);
    }
}

// What is copied is what was stored, wherever it goes.
static void gathered_slots_are_the_stored_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 4);
    for (size_t i = 0; i < 8 * CODECS; i++) {
        const kvern_codec codec = codec_of(i % CODECS);
        const kvern_stream stream = (kvern_stream)(i / CODECS % 2);
        block from = block_create(&random, codec, stream, dim_of(&random, &codec, i / CODECS));
        block to = block_create(&random, codec, stream, from.dim);
        uint8_t slots[SLOTS];
        size_t count = 0;
        for (size_t s = 0; s < SLOTS; s++)
            if (test_random_next(&random) & 1)
                slots[count++] = (uint8_t)s;
        const size_t at = test_random_below(&random, SLOTS - count + 1);
        from.type->gather(&codec, stream, from.dim, from.memory.data, slots, count, to.memory.data,
                          at);
        for (size_t s = 0; s < count; s++) {
            float wanted[MOST_DIM], got[MOST_DIM];
            from.type->decode(&codec, stream, from.memory.data, from.dim, slots[s], wanted);
            to.type->decode(&codec, stream, to.memory.data, to.dim, at + s, got);
            check_same_floats(wanted, got, from.dim, from.name);
        }
        guarded_free(&from.memory);
        guarded_free(&to.memory);
    }
}

int main(void)
{
    kernel_variants_print("rotated");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_encoding_equals_the_plain_one),
        cmocka_unit_test(four_vectors_are_stored_as_each_alone),
        cmocka_unit_test(vector_scores_equal_plain_ones),
        cmocka_unit_test(vector_sums_equal_plain_ones),
        cmocka_unit_test(plain_turbo_kernels_follow_the_stated_order),
        cmocka_unit_test(gathered_slots_are_the_stored_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
