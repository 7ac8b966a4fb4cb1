// SPDX-License-Identifier: MIT
// Exports: values and affine codes of a row's positions, which tell the same story, and what is
// refused. That the codes are those of MLX is kernels/affine_golden.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/rounding.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADS 3
#define TOKENS 150

typedef struct stream {
    kvern_codec codec;
    size_t dim;
    float *values;             // [TOKENS][HEADS][dim], exported in f32
    kvern_affine_arrays codes; // the same positions
} stream;

static stream stream_create(const kvern_codec *codec, size_t dim)
{
    stream s = {.codec = *codec, .dim = dim};
    s.values = new_floats(TOKENS * HEADS * dim, NAN);
    s.codes = (kvern_affine_arrays){.words = calloc(TOKENS * HEADS * dim, 4),
                                    .scales = calloc(TOKENS * HEADS * dim, 4),
                                    .biases = calloc(TOKENS * HEADS * dim, 4)};
    assert_true(s.codes.words && s.codes.scales && s.codes.biases);
    return s;
}

static void stream_destroy(stream *s)
{
    free(s->values);
    free(s->codes.words);
    free(s->codes.scales);
    free(s->codes.biases);
}

// The code of element d of a head's stream of bits.
static float code_of(const stream *s, const uint32_t *words, size_t d)
{
    uint32_t code = 0;
    for (size_t i = 0; i < s->codec.bits; i++) {
        const size_t bit = d * s->codec.bits + i;
        code |= (words[bit / 32] >> bit % 32 & 1) << i;
    }
    return (float)code;
}

static void check_story(const stream *s, size_t count)
{
    const size_t groups = s->dim / s->codec.group;
    float *wanted = new_floats(count * HEADS * s->dim, 0);
    for (size_t i = 0; i < count * HEADS * s->dim; i++) {
        const size_t head = i / s->dim, d = i % s->dim, g = head * groups + d / s->codec.group;
        const uint32_t *words = s->codes.words + head * s->dim * s->codec.bits / 32;
        wanted[i] = fmaf(element_get(s->codec.scales, s->codes.scales, g), code_of(s, words, d),
                         element_get(s->codec.scales, s->codes.biases, g));
    }
    check_same_floats(wanted, s->values, count * HEADS * s->dim, "values and codes");
    free(wanted);
}

static void values_follow_from_codes(void **state)
{
    (void)state;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    for (size_t i = 0; i < 6; i++) {
        kvern_layer layer = kvern_layer_default(HEADS, 192);
        layer.v_dim = 128;
        layer.k_codec = kvern_codec_affine(bits[i], i % 2 ? 64 : 32);
        layer.v_codec = kvern_codec_affine(bits[5 - i], i % 2 ? 128 : 64);
        layer.k_codec.scales = (kvern_type)(i % 3);
        layer.v_codec.scales = (kvern_type)(i / 2);
        bed *b = bed_create(layer, 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, TOKENS, HEADS, NULL);
        stream k = stream_create(&layer.k_codec, 192), v = stream_create(&layer.v_codec, 128);
        for (int64_t first = 0; first < TOKENS; first += 61) {
            const int64_t count = TOKENS - first;
            assert_ok(kvern_cache_export(b->cache, 0, first, count, k.values, v.values));
            assert_ok(kvern_cache_export_affine(b->cache, 0, first, count, &k.codes, NULL));
            assert_ok(kvern_cache_export_affine(b->cache, 0, first, count, NULL, &v.codes));
            check_story(&k, (size_t)count);
            check_story(&v, (size_t)count);
        }
        stream_destroy(&k);
        stream_destroy(&v);
        bed_destroy(b);
    }
}

static void ranges_and_arrays_are_checked(void **state)
{
    (void)state;
    kvern_layer layer = kvern_layer_default(HEADS, 64);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 64);
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, HEADS, NULL);
    stream s = stream_create(&layer.k_codec, 64);
    const kvern_affine_arrays *to = &s.codes;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_affine(NULL, 0, 0, 1, to, to));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export_affine(b->cache, 1, 0, 1, to, to));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export_affine(b->cache, 0, -1, 1, to, to));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export_affine(b->cache, 0, 0, -1, to, to));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export_affine(b->cache, 0, 5, 6, to, to));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export_affine(b->cache, 0, INT64_MAX, 1, to, to));
    kvern_affine_arrays missing = s.codes;
    missing.words = NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_affine(b->cache, 0, 0, 1, &missing, to));
    missing = s.codes;
    missing.scales = NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_affine(b->cache, 0, 0, 1, to, &missing));
    missing = s.codes;
    missing.biases = NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_affine(b->cache, 0, 0, 1, &missing, NULL));
    assert_ok(kvern_cache_export_affine(b->cache, 0, 10, 0, to, to));
    assert_ok(kvern_cache_export_affine(b->cache, 0, 0, 10, NULL, NULL));
    for (size_t i = 0; i < TOKENS * HEADS * 64; i++)
        assert_int_equal(s.codes.words[i], 0);
    stream_destroy(&s);
    bed_destroy(b);
}

// Whatever is stored otherwise, or still otherwise, has no codes.
static void other_storage_has_no_codes(void **state)
{
    (void)state;
    kvern_layer layer = kvern_layer_default(HEADS, 64);
    layer.v_codec = kvern_codec_affine(4, 64);
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, HEADS, NULL);
    stream s = stream_create(&layer.v_codec, 64);
    const kvern_affine_arrays *to = &s.codes;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_export_affine(b->cache, 0, 0, 1, to, NULL));
    assert_non_null(strstr(kvern_error_detail(), "k is stored in bf16"));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_export_affine(b->cache, 0, 0, 1, to, to));
    assert_ok(kvern_cache_export_affine(b->cache, 0, 0, 1, NULL, to));
    bed_destroy(b);
    layer.k_codec = kvern_codec_affine(4, 64);
    layer.start = 12;
    b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, HEADS, NULL);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_export_affine(b->cache, 0, 0, 1, to, to));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 2, HEADS, NULL);
    assert_ok(kvern_cache_export_affine(b->cache, 0, 0, 12, to, to));
    stream_destroy(&s);
    bed_destroy(b);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_follow_from_codes),
        cmocka_unit_test(ranges_and_arrays_are_checked),
        cmocka_unit_test(other_storage_has_no_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
