// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: storage of rotated vectors. What
// test_fault_affine.c asks of affine codes; test_fault_rows.c says more about them.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/naive_cache.h"

#include <kvern/kvern.h>

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
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    const kvern_layer odd = stored_as(1, 88, kvern_codec_turbo(4));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_composition_create(context, &odd, 1, &composition));
    kvern_context_release(context);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_C3_growth_with_unequal_dims),
        cmocka_unit_test(fault_C4_single_token_packing),
        cmocka_unit_test(fault_C6_every_width_is_read_as_such),
        cmocka_unit_test(fault_C9_scratch),
        cmocka_unit_test(fault_C10_one_row_batch),
        cmocka_unit_test(fault_C12_head_dims_that_are_no_power_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
