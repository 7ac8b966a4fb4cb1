// SPDX-License-Identifier: MIT
// What reads of latents are made of: blocks that are decoded as a whole against slots that are
// decoded one by one, in every codec; and weighted sums whose lanes are query vectors, the plain
// kernel against the sum that a codec of f32 makes of values, every vector one against the plain
// one, bit for bit.

#include "src/attend/latent_kernels.h"
#include "src/codec/codec.h"
#include "src/codec/rotation/rotation.h"
#include "tests/support/check.h"
#include "tests/support/guarded.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/storages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define MOST_DIM KVERN_MAX_STREAM_DIM
#define MOST_WIDTH 32

// ---- Blocks ----

static const kvern_codec codecs[] = {
    STORAGE_F32,
    STORAGE_BF16,
    STORAGE_F16,
    STORAGE_AFFINE(2, 32),
    STORAGE_AFFINE(3, 64),
    STORAGE_AFFINE(4, 128),
    STORAGE_AFFINE(5, 32),
    STORAGE_AFFINE(6, 64),
    STORAGE_AFFINE(8, 64),
    STORAGE_TURBO(1),
    STORAGE_TURBO(2),
    STORAGE_TURBO(3),
    STORAGE_TURBO(4),
    STORAGE_TURBO(5),
    STORAGE_TURBO(6),
    STORAGE_ROTATED(3, 32),
    STORAGE_ROTATED(4, 64),
    STORAGE_ROTATED(8, 128),
};
#define CODECS (sizeof codecs / sizeof codecs[0])

static size_t random_dim(test_random *random, const kvern_codec *codec, size_t most)
{
    const size_t own = kvern_codec_type_of(codec)->dim_unit(codec), unit = own < 8 ? 8 : own;
    return unit * (1 + test_random_below(random, most / unit));
}

static void fill_block(test_random *random, const kvern_codec *codec, size_t dim, void *block)
{
    float values[MOST_DIM];
    for (size_t slot = 0; slot < SLOTS; slot++) {
        kernel_inputs_fill(random, (mixture)test_random_below(random, MIXTURES), values, dim);
        if (test_random_below(random, 16) == 0)
            values[test_random_below(random, dim)] = kernel_inputs_special(random);
        kvern_codec_type_of(codec)->kernels_of(codec, 0)->encode(codec, KVERN_STREAM_K, block, dim,
                                                                 slot, KVERN_F32, values);
    }
}

// Of a block of f32, the vectors rotated back.
static void rotate_back(size_t dim, const float *from, float *to)
{
    float values[MOST_DIM];
    for (size_t slot = 0; slot < SLOTS; slot++) {
        for (size_t d = 0; d < dim; d++)
            values[d] = from[d * SLOTS + slot];
        kvern_rotate_back_plain(dim, values);
        for (size_t d = 0; d < dim; d++)
            to[d * SLOTS + slot] = values[d];
    }
}

// What a block of f32 has of the same values.
static void decode_slots(const kvern_codec *codec, const void *block, size_t dim, float *to)
{
    float values[MOST_DIM];
    for (size_t slot = 0; slot < SLOTS; slot++) {
        kvern_codec_type_of(codec)->decode(codec, KVERN_STREAM_K, block, dim, slot, values);
        for (size_t d = 0; d < dim; d++)
            to[d * SLOTS + slot] = values[d];
    }
}

// What a decoded block is: the values of slots, or, of rotated vectors, what they are rotated back
// from.
static void decode_whole(const kvern_codec *codec, const void *block, size_t dim, float *to)
{
    const kvern_codec_kernels *plain = kvern_codec_type_of(codec)->kernels_of(codec, 0);
    float *values = malloc(2 * dim * SLOTS * sizeof *values);
    assert_non_null(values);
    decode_slots(codec, block, dim, plain->rotate ? values : to);
    if (plain->rotate) {
        plain->decode_block(codec, block, dim, 0, dim, to);
        rotate_back(dim, to, values + dim * SLOTS);
        check_same_floats(values, values + dim * SLOTS, dim * SLOTS, "rotated back");
    }
    free(values);
}

static void decoded_blocks_are_the_stored_values(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 11);
    const kernel_variants variants = kernel_variants_here();
    const guarded blocks = guarded_at_end(MOST_DIM * SLOTS * sizeof(float));
    const guarded decoded = guarded_at_end(MOST_DIM * SLOTS * sizeof(float));
    float *wanted = malloc(MOST_DIM * SLOTS * sizeof *wanted);
    assert_non_null(wanted);
    for (size_t i = 0; i < CODECS * (check_is_long() ? 40 : 4); i++) {
        kvern_codec codec = codecs[i % CODECS];
        if (codec.group)
            codec.scales = (kvern_type)test_random_below(&random, 3);
        const size_t dim = random_dim(&random, &codec, i < CODECS ? MOST_DIM : 256);
        const kvern_codec_type *type = kvern_codec_type_of(&codec);
        void *block = guarded_last(&blocks, type->block_bytes(&codec, dim));
        float *got = guarded_last(&decoded, dim * SLOTS * sizeof *got);
        fill_block(&random, &codec, dim, block);
        decode_whole(&codec, block, dim, wanted);
        // Some of the dims, or all.
        const size_t begin = 32 * (size_t)test_random_below(&random, dim / 64 + 1);
        const size_t end =
            i % 3 == 0 ? dim
                       : begin + 32 * (size_t)test_random_below(&random, (dim - begin) / 32 + 1);
        for (size_t v = 0; v < variants.count; v++) {
            memset(got, 0xff, dim * SLOTS * sizeof *got);
            type->kernels_of(&codec, variants.features[v])
                ->decode_block(&codec, block, dim, begin, end, got);
            check_same_floats(wanted + begin * SLOTS, got, (end - begin) * SLOTS,
                              kvern_cpu_name(variants.features[v]));
        }
    }
    free(wanted);
    guarded_free((guarded *)&blocks);
    guarded_free((guarded *)&decoded);
}

// ---- Sums ----

typedef struct call {
    kvern_latent_sum sum; // its arrays are those below
    float values[MOST_DIM * SLOTS];
    float weights[SLOTS * MOST_WIDTH], factors[MOST_WIDTH];
    float before[MOST_DIM * MOST_WIDTH], wanted[MOST_DIM * MOST_WIDTH];
} call;

static void fill(test_random *random, call *c, size_t most_dim)
{
    kvern_latent_sum *s = &c->sum;
    memset(s, 0, sizeof *s);
    s->dim = 8 * (1 + test_random_below(random, most_dim / 8));
    s->width = 16 * (1 + test_random_below(random, 2));
    s->strips = 1 + test_random_below(random, s->width / 16);
    s->begin = test_random_below(random, SLOTS);
    s->end = s->begin + test_random_below(random, SLOTS - s->begin + 1);
    if (test_random_below(random, 3) == 0)
        s->begin = 0, s->end = SLOTS;
    s->vectors = s->strips == 2 ? UINT32_MAX : 0xffff;
    if (test_random_below(random, 2))
        s->vectors &= (uint32_t)test_random_next(random);
    kernel_inputs_fill(random, (mixture)test_random_below(random, MIXTURES), c->values,
                       s->dim * SLOTS);
    kernel_inputs_fill(random, (mixture)test_random_below(random, MIXTURES), c->before,
                       s->dim * s->width);
    kernel_inputs_fill(random, ORDINARY, c->weights, SLOTS * s->width);
    for (size_t i = 0; i < MOST_WIDTH; i++)
        c->factors[i] = test_random_below(random, 2) ? 1 : fabsf(test_random_signed(random));
    s->factors = test_random_below(random, 2) ? c->factors : NULL;
    c->values[test_random_below(random, s->dim * SLOTS)] = kernel_inputs_special(random);
}

// Hints, which have no effect on results: with one, both, or none.
static kvern_latent_next next_of(const char *next, size_t number)
{
    return (kvern_latent_next){number % 16 ? next : NULL, number % 3 ? next : NULL,
                               number % 5 * 70000, number % 7 * 100000};
}

static void run(const call *c, kvern_latent_sum_fn *kernel, float *sums, const float *values,
                const float *weights, const char *next)
{
    kvern_latent_sum s = c->sum;
    memcpy(sums, c->before, s.dim * s.width * sizeof *sums);
    s.values = values;
    s.weights = weights;
    s.sums = sums;
    s.next = next_of(next, s.dim);
    kernel(&s);
}

static void vector_sums_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 12);
    const kernel_variants variants = kernel_variants_here();
    guarded values = guarded_at_end(MOST_DIM * SLOTS * sizeof(float));
    guarded weights = guarded_at_end(SLOTS * MOST_WIDTH * sizeof(float));
    guarded sums = guarded_at_end(MOST_DIM * MOST_WIDTH * sizeof(float));
    guarded next = guarded_at_end(64);
    call *c = malloc(sizeof *c);
    assert_non_null(c);
    for (int i = 0; i < (check_is_long() ? 3000 : 150); i++) {
        fill(&random, c, i % 8 ? 96 : MOST_DIM);
        const size_t dim = c->sum.dim, width = c->sum.width;
        const float *v = memcpy(guarded_last(&values, dim * SLOTS * sizeof(float)), c->values,
                                dim * SLOTS * sizeof(float));
        const float *w = memcpy(guarded_last(&weights, SLOTS * width * sizeof(float)), c->weights,
                                SLOTS * width * sizeof(float));
        run(c, kvern_latent_plain.sum, c->wanted, v, w, NULL);
        for (size_t k = 1; k < variants.count; k++) {
            float *got = guarded_last(&sums, dim * width * sizeof(float));
            run(c, kvern_latent_kernels_of(variants.features[k])->sum, got, v, w,
                kernel_inputs_next(&next, &random));
            check_same_floats(c->wanted, got, dim * width, kvern_cpu_name(variants.features[k]));
        }
    }
    free(c);
    guarded_free(&values);
    guarded_free(&weights);
    guarded_free(&sums);
    guarded_free(&next);
}

// A latent is a value like any other: the sum over a block of values of f32 has the same bits.
static void sums_are_those_of_values(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 13);
    const kvern_codec f32 = STORAGE_F32;
    const kvern_codec_kernels *kernels = kvern_codec_type_of(&f32)->kernels_of(&f32, 0);
    call *c = malloc(sizeof *c);
    float *block = malloc(MOST_DIM * SLOTS * sizeof *block);
    assert_true(c && block);
    for (int i = 0; i < 20; i++) {
        fill(&random, c, 96);
        const size_t dim = c->sum.dim, width = c->sum.width;
        c->sum.factors = NULL;
        run(c, kvern_latent_plain.sum, c->wanted, c->values, c->weights, NULL);
        float values[MOST_DIM], acc[MOST_DIM], w[SLOTS];
        for (size_t slot = 0; slot < SLOTS; slot++) {
            for (size_t d = 0; d < dim; d++)
                values[d] = c->values[d * SLOTS + slot];
            kernels->encode(&f32, KVERN_STREAM_V, block, dim, slot, KVERN_F32, values);
        }
        for (size_t v = 0; v < width; v++) {
            for (size_t d = 0; d < dim; d++)
                acc[d] = c->before[d * width + v];
            for (size_t slot = 0; slot < SLOTS; slot++)
                w[slot] = c->weights[slot * width + v];
            if (c->sum.vectors >> v & 1)
                kernels->accumulate(&f32, block, dim, c->sum.begin, c->sum.end, 1, w, acc, NULL);
            for (size_t d = 0; d < dim; d++)
                values[d] = c->wanted[d * width + v];
            check_same_floats(acc, values, dim, "sums");
        }
    }
    free(block);
    free(c);
}

// ---- Scores ----

// Scores of some vectors by one set of kernels: queries are packed in groups of its own size.
static void score(const kvern_latent_kernels *kernels, const float *keys, size_t dim, size_t n,
                  const float *q, const char *next, float *scores)
{
    const size_t group = kernels->group, groups = (n + group - 1) / group;
    float *packed = calloc(groups * group * dim + 1, sizeof *packed);
    float *all = malloc(groups * group * SLOTS * sizeof *all);
    assert_true(packed && all);
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d < dim; d++)
            packed[(i / group * dim + d) * group + i % group] = q[i * dim + d];
    }
    const size_t cuts[] = {0, dim / 8 * 4, dim};
    for (int i = 0; i < 2; i++)
        kernels->score(&(kvern_latent_score){keys + cuts[i] * SLOTS, cuts[i], cuts[i + 1], dim,
                                             groups, packed, all, next_of(next, dim)});
    memcpy(scores, all, n * SLOTS * sizeof *scores);
    free(packed);
    free(all);
}

// As a codec of f32 scores keys, in every instruction set.
static void scores_are_those_of_keys(void **state)
{
    (void)state;
    enum { MOST_KEYS = KVERN_MAX_LATENT_DIM + KVERN_MAX_ROPE_DIM };
    test_random random = test_random_seed(check_seed() + 14);
    const kernel_variants variants = kernel_variants_here();
    const kvern_codec f32 = STORAGE_F32;
    guarded keys = guarded_at_end(MOST_KEYS * SLOTS * sizeof(float));
    guarded next = guarded_at_end(64);
    float *q = malloc(MOST_WIDTH * MOST_KEYS * sizeof *q);
    float wanted[MOST_WIDTH * SLOTS], got[MOST_WIDTH * SLOTS];
    assert_non_null(q);
    for (int i = 0; i < (check_is_long() ? 500 : 40); i++) {
        const size_t dim = 8 * (1 + test_random_below(&random, i % 8 ? 12 : MOST_KEYS / 8));
        const size_t n = 1 + test_random_below(&random, MOST_WIDTH);
        float *block = guarded_last(&keys, dim * SLOTS * sizeof *block);
        kernel_inputs_fill(&random, (mixture)test_random_below(&random, MIXTURES), block,
                           dim * SLOTS);
        kernel_inputs_fill(&random, ORDINARY, q, n * dim);
        block[test_random_below(&random, dim * SLOTS)] = kernel_inputs_special(&random);
        kvern_codec_type_of(&f32)->kernels_of(&f32, 0)->score(&f32, block, dim, 0, 4, n, q, dim,
                                                              wanted, NULL);
        for (size_t v = 0; v < variants.count; v++) {
            score(kvern_latent_kernels_of(variants.features[v]), block, dim, n, q,
                  kernel_inputs_next(&next, &random), got);
            check_same_floats(wanted, got, n * SLOTS, kvern_cpu_name(variants.features[v]));
        }
    }
    free(q);
    guarded_free(&keys);
    guarded_free(&next);
}

// ---- Turning ----

static void turned_is_turned(void **state)
{
    (void)state;
    enum { MOST = 70 };
    test_random random = test_random_seed(check_seed() + 15);
    const kernel_variants variants = kernel_variants_here();
    guarded from = guarded_at_end(MOST * MOST * sizeof(float));
    float got[MOST * MOST], wanted[MOST * MOST];
    for (int i = 0; i < 300; i++) {
        const size_t rows = 1 + test_random_below(&random, MOST);
        const size_t columns = 1 + test_random_below(&random, MOST);
        const size_t stride = rows + test_random_below(&random, MOST - rows + 1);
        float *x = guarded_last(&from, rows * columns * sizeof *x);
        kernel_inputs_fill(&random, WIDE, x, rows * columns);
        for (size_t v = 0; v < variants.count; v++) {
            float *to = v ? got : wanted;
            memset(to, 0xff, sizeof got); // what lies between is left alone
            kvern_latent_kernels_of(variants.features[v])
                ->turn(rows, columns, x, columns, to, stride);
            check_same_bytes(wanted, to, sizeof got, kvern_cpu_name(variants.features[v]));
        }
        for (size_t r = 0; r < rows; r++)
            check_same_bytes(&x[r * columns], &wanted[r], sizeof *x, "the first column");
    }
    guarded_free(&from);
}

int main(void)
{
    kernel_variants_print("latent");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_blocks_are_the_stored_values),
        cmocka_unit_test(scores_are_those_of_keys),
        cmocka_unit_test(turned_is_turned),
        cmocka_unit_test(sums_are_those_of_values),
        cmocka_unit_test(vector_sums_equal_plain_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
