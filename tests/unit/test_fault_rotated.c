// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: storage of rotated vectors. What
// test_fault_affine.c asks of affine codes; test_fault_rows.c says more about them.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/naive_cache.h"

#include <kvern/kvern.h>
#include <kvern/math.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvern_layer stored_as(size_t kv_heads, size_t dim, kvern_codec codec)
{
    kvern_layer layer = kvern_layer_default(kv_heads, dim);
    layer.k_codec = layer.v_codec = codec;
    return layer;
}

// ---- C: storage ----

// A plan is refused when it is made, and the refusal says what does not fit.
static void refuse(kvern_layer layer, const char *reason)
{
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_null(composition);
    if (!strstr(kvern_error_detail(), reason))
        fail_msg("'%s' does not say '%s'", kvern_error_detail(), reason);
    kvern_context_release(context);
}

// Blaizzy/mlx-vlm#2061: a head dim of 96 with groups of 64 failed deep inside generation, for
// storage that begins in bf16 only at its conversion. Turbo codes have no groups, and need whole
// sixteens; what fits is converted and read.
static void fault_C1_groups_that_do_not_divide(void **state)
{
    (void)state;
    static const size_t no_groups[] = {96, 80, 72, 8, 32}, no_sixteens[] = {72, 88, 8, 104, 200};
    for (size_t i = 0; i < 5; i++) {
        kvern_layer affine = stored_as(2, no_groups[i], kvern_codec_rotated(4, 64));
        kvern_layer turbo = stored_as(2, no_sixteens[i], kvern_codec_turbo(4));
        for (int with_start = 0; with_start < 2; with_start++) {
            refuse(affine, "k_dim");
            refuse(turbo, "k_dim");
            affine.start = turbo.start = 4;
        }
        affine.k_dim = turbo.k_dim = 128;
        refuse(affine, "v_dim");
        refuse(turbo, "v_dim");
    }
    const int64_t counts[] = {3, 6, 60, 1, 4};
    for (size_t i = 0; i < 3; i++) {
        kvern_layer layer = stored_as(2, 96, kvern_codec_rotated(4, 32));
        layer.v_codec = kvern_codec_turbo(4);
        layer.start = i == 0 ? KVERN_NO_START : i == 1 ? 4 : 0;
        naive_check_appends(layer, counts, 5);
        layer.k_dim = 80;
        layer.k_codec = kvern_codec_turbo(2);
        naive_check_appends(layer, counts, 5);
    }
}

// ml-explore/mlx-examples#1075: the buffer of V grew with the width of K.
static void fault_C3_growth_with_unequal_dims(void **state)
{
    (void)state;
    const int64_t counts[] = {255, 1, 1, 63, 1, 200, 1};
    kvern_layer layer = stored_as(2, 192, kvern_codec_turbo(4));
    layer.v_dim = 80;
    naive_check_appends(layer, counts, 7);
    layer.k_codec = kvern_codec_rotated(3, 64);
    layer.v_codec = kvern_codec_turbo(1);
    naive_check_appends(layer, counts, 7);
    layer.k_dim = 64;
    layer.v_dim = 512;
    naive_check_appends(layer, counts, 7);
}

typedef struct arrays {
    uint32_t words[17 * 2 * 144 * 6 / 32];
    uint16_t scales[17 * 2 * 4], biases[17 * 2 * 4];
} arrays;

static void export_all(const kvern_cache *cache, arrays *k, arrays *v)
{
    memset(k, 0, sizeof *k);
    memset(v, 0, sizeof *v);
    const kvern_affine_arrays to_k = {.words = k->words, .scales = k->scales};
    const kvern_affine_arrays to_v = {.words = v->words, .scales = v->scales};
    assert_ok(kvern_cache_export_affine(cache, 0, 0, 17, &to_k, &to_v));
}

// Blaizzy/mlx-vlm#967: storing one token at a time lost most codes of a word. Head dims of 144
// share words between slots.
static void fault_C4_single_token_packing(void **state)
{
    (void)state;
    for (uint32_t bits = 1; bits <= 6; bits++) {
        const kvern_layer layer = stored_as(2, 144, kvern_codec_turbo(bits));
        bed *a = bed_create(layer, 1), *b = bed_create(layer, 1);
        arrays k[2], v[2];
        feed_one(a->cache, KVERN_PHASE_WINDOW, 1, 17, 2, NULL);
        for (int t = 0; t < 17; t++)
            feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 2, NULL);
        export_all(a->cache, &k[0], &v[0]);
        export_all(b->cache, &k[1], &v[1]);
        check_same_bytes(&k[0], &k[1], sizeof k[0], "keys");
        check_same_bytes(&v[0], &v[1], sizeof v[0], "values");
        bed_destroy(a);
        bed_destroy(b);
    }
}

// vllm-project/vllm#38479: kernels unpacked with the constants of two bits, whatever the width.
static void fault_C6_every_width_is_read_as_such(void **state)
{
    (void)state;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    const int64_t counts[] = {64, 1, 63, 5};
    for (uint32_t i = 0; i < 6; i++) {
        naive_check_appends(stored_as(2, 128, kvern_codec_turbo(1 + i % 6)), counts, 4);
        naive_check_appends(stored_as(1, 128, kvern_codec_rotated(bits[i], 32)), counts, 4);
    }
}

// ml-explore/mlx#4202: with groups of 32 the scales were advanced too far beyond 64 positions. A
// turbo vector has one scale, and a block 64 of them.
static void fault_C7_scales_of_small_groups(void **state)
{
    (void)state;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    const int64_t counts[] = {64, 1, 63, 128, 1};
    for (uint32_t i = 0; i < 6; i++) {
        naive_check_appends(stored_as(2, 128, kvern_codec_rotated(bits[i], 32)), counts, 5);
        naive_check_appends(stored_as(1, 64, kvern_codec_rotated(bits[i], 32)), counts, 5);
        naive_check_appends(stored_as(2, i % 2 ? 64 : 80, kvern_codec_turbo(1 + i % 4)), counts, 5);
    }
}

// ml-explore/mlx-swift-lm#232: a scratch array of four entries was indexed by the groups of a head.
static void fault_C9_scratch(void **state)
{
    (void)state;
    static const size_t dims[] = {64, 128, 192, 256, 512, 576};
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    const int64_t counts[] = {1, 3, 65, 1, 3};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        naive_check_appends(stored_as(1, dims[i], kvern_codec_rotated(bits[i], 32)), counts, 5);
        naive_check_appends(stored_as(1, dims[i], kvern_codec_turbo(6 - (uint32_t)i % 6)), counts,
                            5);
    }
}

// Blaizzy/mlx-vlm#1310: with one row the prompt was dropped. Keys are different directions, and the
// query wants the third: its value comes back with what 4 bits lose of it.
static void fault_C10_one_row_batch(void **state)
{
    (void)state;
    enum { DIM = 64, TOKENS = 40 };
    const kvern_codec codecs[] = {kvern_codec_turbo(4), kvern_codec_rotated(4, 64)};
    for (size_t i = 0; i < 2; i++) {
        bed *b = bed_create(stored_as(1, DIM, codecs[i]), 1);
        float *k = new_floats((TOKENS + 1) * DIM, 0), *v = new_floats((TOKENS + 1) * DIM, 0);
        float q[DIM] = {0}, out[DIM];
        double error = 0;
        for (int p = 0; p <= TOKENS; p++) {
            k[p * DIM + p] = 1;
            v[p * DIM + p] = 1;
        }
        q[3] = 400;
        append_values(b->cache, TOKENS, k, v, 1, NULL, NULL, NULL);
        append_values(b->cache, 1, k + TOKENS * DIM, v + TOKENS * DIM, 1, NULL, q, out);
        for (int d = 0; d < DIM; d++)
            error += pow((double)out[d] - (d == 3), 2);
        assert_true(error < 0.03);
        free(k);
        free(v);
        bed_destroy(b);
    }
}

// vllm-project/vllm#41413, #41414: a rotation of a power of two for a head dim of 80, of the wrong
// size and length. All head dims, and one that does not exist.
static void fault_C12_head_dims_that_are_no_power_of_two(void **state)
{
    (void)state;
    static const size_t dims[] = {16, 48, 80, 96, 112, 160, 176, 240, 320};
    const int64_t counts[] = {70, 1, 3};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        naive_check_appends(stored_as(2, dims[i], kvern_codec_turbo(1 + (uint32_t)i % 6)), counts,
                            3);
    refuse(stored_as(1, 88, kvern_codec_turbo(4)), "k_dim");
}

// ---- D: the conversion ----

enum { MOST_TOKENS = 140 };

// Tokens [first, first + count) of one row, in bf16.
static void append_halves(kvern_cache *cache, int64_t first, int64_t count)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t numbers = layer->kv_heads * layer->k_dim;
    float *wide = new_floats(numbers, 0);
    uint16_t *halves = malloc((size_t)count * numbers * sizeof *halves);
    assert_non_null(halves);
    for (int64_t t = 0; t < count; t++) {
        feed_values(7, first + t, FEED_K, numbers, wide);
        kvern_f32_to_bf16_array(0, numbers, wide, halves + (size_t)t * numbers);
    }
    kvern_tokens tokens = kvern_tokens_default(layer);
    tokens.k = tokens.v = halves;
    tokens.k_type = tokens.v_type = KVERN_BF16;
    tokens.counts = &count;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    free(halves);
    free(wide);
}

// huggingface/transformers#35760 and ml-explore/mlx-swift-examples#334 are about when a row is
// converted; this is what it holds then: what it would hold if it had been stored so at once, for
// bf16 loses nothing of numbers that were bf16.
static void check_conversion(kvern_layer layer, int64_t until)
{
    const size_t numbers = (size_t)MOST_TOKENS * layer.kv_heads * layer.k_dim;
    float *out[2][2];
    for (int i = 0; i < 2; i++) {
        layer.start = i ? until : KVERN_NO_START;
        bed *b = bed_create(layer, 1);
        append_halves(b->cache, 0, until - 1);
        assert_int_equal(kvern_cache_converted(b->cache, 0), !i);
        append_halves(b->cache, until - 1, 2);
        assert_int_equal(kvern_cache_converted(b->cache, 0), 1);
        append_halves(b->cache, until + 1, 3);
        for (int s = 0; s < 2; s++)
            out[i][s] = new_floats(numbers, 0);
        assert_ok(kvern_cache_export(b->cache, 0, 0, until + 4, out[i][0], out[i][1]));
        bed_destroy(b);
    }
    for (int s = 0; s < 2; s++) {
        check_same_bytes(out[0][s], out[1][s], numbers * sizeof(float), s ? "values" : "keys");
        free(out[0][s]);
        free(out[1][s]);
    }
}

static void fault_D4_converted_rows_hold_what_was_stored(void **state)
{
    (void)state;
    static const int64_t starts[] = {2, 63, 64, 65, 67, 131};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        kvern_layer layer = stored_as(2, i % 2 ? 64 : 192, kvern_codec_rotated(4, 64));
        check_conversion(layer, starts[i]);
        layer.v_codec = kvern_codec_turbo(1 + (uint32_t)i % 4);
        check_conversion(layer, starts[i]);
        layer.k_codec = kvern_codec_turbo(4);
        layer.v_codec = kvern_codec_rotated(3, 32);
        check_conversion(layer, starts[i]);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_C1_groups_that_do_not_divide),
        cmocka_unit_test(fault_C3_growth_with_unequal_dims),
        cmocka_unit_test(fault_C4_single_token_packing),
        cmocka_unit_test(fault_C6_every_width_is_read_as_such),
        cmocka_unit_test(fault_C7_scales_of_small_groups),
        cmocka_unit_test(fault_C9_scratch),
        cmocka_unit_test(fault_C10_one_row_batch),
        cmocka_unit_test(fault_C12_head_dims_that_are_no_power_of_two),
        cmocka_unit_test(fault_D4_converted_rows_hold_what_was_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
