// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: affine storage. test_fault_rows.c
// says more about them.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/naive_cache.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t all_bits[] = {2, 3, 4, 5, 6, 8};

static kvern_layer affine_layer(size_t kv_heads, size_t dim, uint32_t bits, uint32_t group)
{
    kvern_layer layer = kvern_layer_default(kv_heads, dim);
    layer.k_codec = layer.v_codec = kvern_codec_affine(bits, group);
    return layer;
}

// ---- C: storage ----

// A plan is refused when it is made, and the refusal says what does not fit.
static void refuse(kvern_context *context, kvern_layer layer, const char *reason)
{
    kvern_composition *composition;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_null(composition);
    if (!strstr(kvern_error_detail(), reason))
        fail_msg("'%s' does not say '%s'", kvern_error_detail(), reason);
}

// Blaizzy/mlx-vlm#2061: a head dim of 96 with groups of 64 failed deep inside generation, for
// storage that begins in bf16 only at its conversion.
static void fault_C1_groups_that_do_not_divide(void **state)
{
    (void)state;
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    static const size_t dims[] = {96, 80, 72, 8, 32, 160, 544};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        kvern_layer layer = affine_layer(2, dims[i], 4, 64);
        refuse(context, layer, "k_dim");
        layer.start = 4;
        refuse(context, layer, "k_dim");
        layer.k_dim = 128;
        refuse(context, layer, "v_dim");
    }
    kvern_context_release(context);
    const int64_t counts[] = {6, 60, 1, 4};
    naive_check_appends(affine_layer(2, 96, 4, 32), counts, 4);
    naive_check_appends(affine_layer(2, 160, 6, 32), counts, 4);
    naive_check_appends(affine_layer(2, 192, 3, 64), counts, 4);
}

// ml-explore/mlx-examples#1075: the buffer of V grew with the width of K.
static void fault_C3_growth_with_unequal_dims(void **state)
{
    (void)state;
    const int64_t counts[] = {255, 1, 1, 63, 1, 200, 1};
    kvern_layer layer = affine_layer(2, 192, 4, 64);
    layer.v_dim = 128;
    naive_check_appends(layer, counts, 7);
    layer.k_codec.bits = 3;
    layer.v_codec.bits = 8;
    naive_check_appends(layer, counts, 7);
    layer.k_dim = 64;
    layer.v_dim = 512;
    naive_check_appends(layer, counts, 7);
}

typedef struct arrays {
    uint32_t words[17 * 2 * 128 / 4];
    uint16_t scales[17 * 2 * 4], biases[17 * 2 * 4];
} arrays;

static void export_all(const kvern_cache *cache, arrays *k, arrays *v)
{
    memset(k, 0, sizeof *k);
    memset(v, 0, sizeof *v);
    const kvern_affine_arrays to_k = {.words = k->words, .scales = k->scales, .biases = k->biases};
    const kvern_affine_arrays to_v = {.words = v->words, .scales = v->scales, .biases = v->biases};
    assert_ok(kvern_cache_export_affine(cache, 0, 0, 17, &to_k, &to_v));
}

// Blaizzy/mlx-vlm#967: storing one token at a time lost most codes of a word.
static void fault_C4_single_token_packing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        const kvern_layer layer = affine_layer(2, 128, all_bits[i], 32);
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

// The root of the mean square of what codes of `bits` bits change in the results of 64 positions.
static double error_of(uint32_t bits)
{
    enum { DIM = 128, HEADS = 4, TOKENS = 64 };
    static float out[2][TOKENS * HEADS * DIM];
    kvern_layer exact = kvern_layer_default(1, DIM);
    exact.k_codec = exact.v_codec = kvern_codec_dense(KVERN_F32);
    const kvern_layer layers[2] = {exact, affine_layer(1, DIM, bits, 64)};
    for (int i = 0; i < 2; i++) {
        bed *b = bed_create(layers[i], 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, TOKENS, HEADS, out[i]);
        bed_destroy(b);
    }
    double sum = 0;
    for (size_t i = 0; i < TOKENS * HEADS * DIM; i++)
        sum += ((double)out[0][i] - (double)out[1][i]) * ((double)out[0][i] - (double)out[1][i]);
    return sqrt(sum / (TOKENS * HEADS * DIM));
}

// vllm-project/vllm#38479: kernels unpacked with the constants of two bits, whatever the width.
static void fault_C6_every_width_is_read_as_such(void **state)
{
    (void)state;
    double before = INFINITY;
    for (size_t i = 0; i < 6; i++) {
        const double error = error_of(all_bits[i]);
        const double bits_more = i ? all_bits[i] - all_bits[i - 1] : 0;
        if (!(error < before * pow(2, -0.7 * bits_more)))
            fail_msg("%u bits: error %g after %g", (unsigned)all_bits[i], error, before);
        before = error;
    }
    assert_true(before < 0.01);
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    for (uint32_t bits = 0; bits < 34; bits++) {
        if (bits < 2 || bits == 7 || bits > 8)
            refuse(context, affine_layer(1, 64, bits, 64), "bits");
    }
    kvern_context_release(context);
}

// ml-explore/mlx#4202: with groups of 32 the scales were advanced too far beyond 64 positions.
static void fault_C7_scales_of_small_groups(void **state)
{
    (void)state;
    const int64_t counts[] = {64, 1, 63, 128, 1};
    for (size_t i = 0; i < 6; i++) {
        naive_check_appends(affine_layer(2, 128, all_bits[i], 32), counts, 5);
        naive_check_appends(affine_layer(1, 64, all_bits[i], 32), counts, 5);
    }
}

// ml-explore/mlx-swift-lm#232: a scratch array of four entries was indexed by the groups of a head.
static void fault_C9_scratch(void **state)
{
    (void)state;
    static const size_t dims[] = {64, 128, 192, 256, 512, 576};
    const int64_t counts[] = {1, 3, 65, 1, 3};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        naive_check_appends(affine_layer(1, dims[i], all_bits[i], 32), counts, 5);
        naive_check_appends(affine_layer(1, dims[i], all_bits[5 - i], 64), counts, 5);
    }
}

// Blaizzy/mlx-vlm#1310: with one row the prompt was dropped.
static void fault_C10_one_row_batch(void **state)
{
    (void)state;
    enum { DIM = 64, TOKENS = 40 };
    for (size_t i = 0; i < 6; i++) {
        const kvern_layer layer = affine_layer(1, DIM, all_bits[i], 64);
        bed *b = bed_create(layer, 1);
        float *k = new_floats((TOKENS + 1) * DIM, 0), *v = new_floats((TOKENS + 1) * DIM, 0);
        float q[DIM] = {0}, out[DIM];
        for (int p = 0; p <= TOKENS; p++) {
            k[p * DIM + p] = 1; // keys are different directions
            v[p * DIM + p] = 1; // values say which position they are
        }
        q[3] = 400; // scaled by 1/8: a score of 50 for position 3, about 0 for the others
        append_values(b->cache, TOKENS, k, v, 1, NULL, NULL, NULL);
        append_values(b->cache, 1, k + TOKENS * DIM, v + TOKENS * DIM, 1, NULL, q, out);
        for (int d = 0; d < DIM; d++) // the scale 1 / N has a relative error of 2^-8 at most
            assert_true(fabsf(out[d] - (d == 3 ? 1 : 0)) <= 0x1p-8f);
        free(k);
        free(v);
        bed_destroy(b);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
