// SPDX-License-Identifier: MIT
// kvern/storage.h: names of codecs, and how a user's wishes become layers.

#include "tests/support/check.h"

#include <kvern/kvern.h>

#include <string.h>

#define LAYERS 6

static void assert_codec(kvern_codec codec, kvern_codec_kind kind, uint32_t bits, uint32_t group)
{
    assert_int_equal(codec.kind, kind);
    assert_int_equal(codec.bits, bits);
    assert_int_equal(codec.group, group);
    assert_int_equal(codec.scales, kind == KVERN_CODEC_AFFINE ? KVERN_BF16 : 0);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t group; // that is asked for
        kvern_codec_kind kind;
        uint32_t bits, stored_group;
    } CASES[] = {
        {"f32", 64, KVERN_CODEC_F32, 0, 0},        {"bf16", 64, KVERN_CODEC_BF16, 0, 0},
        {"f16", 64, KVERN_CODEC_F16, 0, 0},        {"bf16", 7, KVERN_CODEC_BF16, 0, 0},
        {"q8", 64, KVERN_CODEC_AFFINE, 8, 64},     {"q6", 64, KVERN_CODEC_AFFINE, 6, 64},
        {"q5", 64, KVERN_CODEC_AFFINE, 5, 64},     {"q4", 32, KVERN_CODEC_AFFINE, 4, 32},
        {"q3", 128, KVERN_CODEC_AFFINE, 3, 128},   {"q2", 64, KVERN_CODEC_AFFINE, 2, 64},
        {"q4g32", 64, KVERN_CODEC_AFFINE, 4, 32},  {"q8g64", 128, KVERN_CODEC_AFFINE, 8, 64},
        {"q2g128", 7, KVERN_CODEC_AFFINE, 2, 128},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kvern_codec codec;
        memset(&codec, 0x5a, sizeof codec);
        assert_ok(kvern_codec_parse(CASES[i].name, CASES[i].group, &codec));
        assert_codec(codec, CASES[i].kind, CASES[i].bits, CASES[i].stored_group);
    }
}

static void test_other_names_are_refused(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "",   "q", "q1",   "q7",    "q9",  "q44",    "q4g",   "q4g0",  "q4g48", "q4g32 ", " q4",
        "Q4", "4", "bf17", "bf16 ", "f64", "q4g132", "q4/q8", "q4,q8", "q4h32", "int4",   "q4g-32"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        kvern_codec codec = kvern_codec_affine(3, 128);
        assert_status(KVERN_ERR_ARGUMENT, kvern_codec_parse(NAMES[i], 64, &codec));
        assert_non_null(strstr(kvern_error_detail(), NAMES[i]));
        assert_codec(codec, KVERN_CODEC_AFFINE, 3, 128);
    }
    static const uint32_t GROUPS[] = {0, 1, 16, 48, 63, 65, 256, UINT32_MAX};
    for (size_t i = 0; i < sizeof GROUPS / sizeof GROUPS[0]; i++) {
        kvern_codec codec = kvern_codec_affine(3, 128);
        assert_status(KVERN_ERR_ARGUMENT, kvern_codec_parse("q4", GROUPS[i], &codec));
        assert_codec(codec, KVERN_CODEC_AFFINE, 3, 128);
    }
    kvern_codec codec;
    assert_status(KVERN_ERR_ARGUMENT, kvern_codec_parse(NULL, 64, &codec));
    assert_status(KVERN_ERR_ARGUMENT, kvern_codec_parse("q4", 64, NULL));
}

// Full and windowed layers by turns, in f32, so that nothing is right by chance.
static void make_layers(kvern_layer layers[LAYERS])
{
    for (size_t i = 0; i < LAYERS; i++) {
        layers[i] = i % 2 ? kvern_layer_window(3, 64, 100) : kvern_layer_default(2, 128);
        layers[i].k_codec = layers[i].v_codec = kvern_codec_dense(KVERN_F32);
        layers[i].start = 77;
    }
}

static void assert_layer(const kvern_layer *layer, uint32_t k_bits, uint32_t v_bits, int64_t start)
{
    const kvern_codec_kind k = k_bits ? KVERN_CODEC_AFFINE : KVERN_CODEC_BF16;
    const kvern_codec_kind v = v_bits ? KVERN_CODEC_AFFINE : KVERN_CODEC_BF16;
    assert_codec(layer->k_codec, k, k_bits, k_bits ? 64 : 0);
    assert_codec(layer->v_codec, v, v_bits, v_bits ? 64 : 0);
    assert_int_equal(layer->start, start);
}

// Everything but codecs and starts is as it was.
static void assert_geometry(const kvern_layer layers[LAYERS])
{
    kvern_layer before[LAYERS];
    make_layers(before);
    for (size_t i = 0; i < LAYERS; i++) {
        before[i].k_codec = layers[i].k_codec;
        before[i].v_codec = layers[i].v_codec;
        before[i].start = layers[i].start;
        assert_int_equal(before[i].size, layers[i].size);
        assert_int_equal(before[i].kind, layers[i].kind);
        assert_int_equal(before[i].kv_heads, layers[i].kv_heads);
        assert_int_equal(before[i].k_dim, layers[i].k_dim);
        assert_int_equal(before[i].v_dim, layers[i].v_dim);
        assert_int_equal(before[i].window, layers[i].window);
        assert_int_equal(before[i].keep, layers[i].keep);
        assert_int_equal(before[i].slack, layers[i].slack);
    }
}

static void test_default_is_bf16(void **state)
{
    (void)state;
    kvern_layer layers[LAYERS];
    kvern_storage storage = kvern_storage_default();
    make_layers(layers);
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    for (size_t i = 0; i < LAYERS; i++)
        assert_layer(&layers[i], 0, 0, KVERN_NO_START);
    assert_geometry(layers);
}

// A start belongs to layers that are quantized somewhere, and to no others.
static void test_start(void **state)
{
    (void)state;
    kvern_layer layers[LAYERS];
    kvern_storage storage = kvern_storage_default();
    storage.start = 512;
    make_layers(layers);
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_layer(&layers[0], 0, 0, KVERN_NO_START);
    storage.v = kvern_codec_affine(4, 64);
    storage.precise_first = 1;
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_layer(&layers[0], 0, 0, KVERN_NO_START);
    for (size_t i = 1; i < LAYERS; i++)
        assert_layer(&layers[i], 0, 4, 512);
    storage.k = storage.v;
    storage.v = kvern_codec_dense(KVERN_BF16);
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_layer(&layers[1], 4, 0, 512);
    assert_geometry(layers);
}

static void test_precise_layers(void **state)
{
    (void)state;
    kvern_storage storage = kvern_storage_default();
    storage.k = kvern_codec_affine(8, 64);
    storage.v = kvern_codec_affine(4, 64);
    for (size_t first = 0; first <= LAYERS; first++)
        for (size_t last = 0; last <= LAYERS; last++) {
            kvern_layer layers[LAYERS];
            make_layers(layers);
            storage.precise_first = first;
            storage.precise_last = last;
            assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
            for (size_t i = 0; i < LAYERS; i++) {
                const bool precise = i < first || i + last >= LAYERS;
                assert_layer(&layers[i], precise ? 0 : 8, precise ? 0 : 4, KVERN_NO_START);
            }
        }
}

static void test_exceptions_win(void **state)
{
    (void)state;
    const kvern_codec bf16 = kvern_codec_dense(KVERN_BF16);
    const kvern_layer_storage others[] = {
        {.layer = 5,
         .k = kvern_codec_affine(6, 64),
         .v = kvern_codec_affine(5, 64)}, // above precise_last
        {.layer = 0,
         .k = kvern_codec_affine(2, 64),
         .v = kvern_codec_affine(3, 64)}, // and precise_first
        {.layer = 2, .k = bf16, .v = bf16},
    };
    kvern_layer layers[LAYERS];
    kvern_storage storage = kvern_storage_default();
    storage.k = storage.v = kvern_codec_affine(4, 64);
    storage.start = 0;
    storage.precise_first = storage.precise_last = 2;
    storage.layers = others;
    storage.layer_count = 3;
    make_layers(layers);
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_layer(&layers[0], 2, 3, 0);
    assert_layer(&layers[1], 0, 0, KVERN_NO_START);
    assert_layer(&layers[2], 0, 0, KVERN_NO_START);
    assert_layer(&layers[3], 4, 4, 0);
    assert_layer(&layers[4], 0, 0, KVERN_NO_START);
    assert_layer(&layers[5], 6, 5, 0);
    assert_geometry(layers);
}

// The refusal, the sentence, and every byte of the layers as it was.
static void assert_refused(kvern_status status, const kvern_storage *storage, const char *detail)
{
    kvern_layer layers[LAYERS], before[LAYERS];
    memset(before, 0, sizeof before);
    make_layers(before);
    memcpy(layers, before, sizeof layers);
    assert_status(status, kvern_storage_apply(storage, layers, LAYERS));
    assert_memory_equal(layers, before, sizeof layers);
    assert_non_null(strstr(kvern_error_detail(), detail));
}

// A residual belongs to layers that are quantized, and where it covers all that a window shows, the
// layer is in bf16.
static void test_residual(void **state)
{
    (void)state;
    kvern_layer layers[3] = {kvern_layer_default(2, 64), kvern_layer_window(2, 64, 512),
                             kvern_layer_window(2, 64, 128)};
    kvern_storage storage = kvern_storage_default();
    storage.residual = 128;
    storage.precise_sinks = 4;
    assert_ok(kvern_storage_apply(&storage, layers, 3));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(layers[i].residual + layers[i].precise_sinks, 0); // all is in bf16
    storage.k = storage.v = kvern_codec_affine(4, 64);
    storage.start = 300;
    assert_ok(kvern_storage_apply(&storage, layers, 3));
    for (size_t i = 0; i < 2; i++) {
        assert_layer(&layers[i], 4, 4, 300);
        assert_int_equal(layers[i].residual, 128);
        assert_int_equal(layers[i].precise_sinks, 4);
    }
    assert_layer(&layers[2], 0, 0, KVERN_NO_START);
    assert_int_equal(layers[2].residual + layers[2].precise_sinks, 0);
    storage.residual = -1;
    assert_status(KVERN_ERR_RANGE, kvern_storage_apply(&storage, layers, 3));
    assert_layer(&layers[0], 4, 4, 300);
    storage.residual = 0;
    layers[0].size = layers[1].size = layers[2].size = offsetof(kvern_layer, residual);
    storage.precise_sinks = 4;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, 1));
    assert_non_null(strstr(kvern_error_detail(), "has no residual"));
}

// What an exception says of what stays precise is honoured or refused.
static void test_residual_of_one_layer(void **state)
{
    (void)state;
    kvern_layer layers[] = {kvern_layer_default(1, 64), kvern_layer_window(1, 64, 100),
                            kvern_layer_latent(64, 0, 0)};
    const kvern_codec q4 = kvern_codec_affine(4, 64);
    kvern_layer_storage other = {.layer = 1, .k = q4, .v = q4, .residual = 60, .precise_sinks = 1};
    kvern_storage storage = kvern_storage_default();
    storage.layers = &other;
    storage.layer_count = 1;
    assert_ok(kvern_storage_apply(&storage, layers, 3));
    assert_int_equal(layers[0].residual, 0);
    assert_int_equal(layers[1].residual, 60);
    assert_int_equal(layers[1].precise_sinks, 1);
    other.residual = 100; // all that a query sees
    assert_ok(kvern_storage_apply(&storage, layers, 3));
    assert_int_equal(layers[1].residual, 0);
    assert_int_equal(layers[1].k_codec.kind, KVERN_CODEC_BF16);
    other.residual = -2;
    assert_status(KVERN_ERR_RANGE, kvern_storage_apply(&storage, layers, 3));
    other = (kvern_layer_storage){.layer = 2, .k = q4, .v = q4, .residual = 64};
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, 3));
    assert_int_equal(layers[2].latent_codec.kind, KVERN_CODEC_F32);
}

// Codes of rotated vectors reach latents where somebody has asked for them there: not because all
// keys and values are stored so.
static void test_rotated_latents(void **state)
{
    (void)state;
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    kvern_layer layers[] = {kvern_layer_latent(64, 64, 64), kvern_layer_default(1, 64)};
    kvern_composition *composition;
    kvern_storage storage = kvern_storage_default();
    assert_int_equal(storage.rotated_latents, 0);
    storage.k = storage.v = kvern_codec_turbo(4);
    assert_ok(kvern_storage_apply(&storage, layers, 2));
    assert_int_equal(layers[0].latent_codec.kind, KVERN_CODEC_F32);
    storage.latent = kvern_codec_turbo(4);
    storage.rope = kvern_codec_rotated(8, 64);
    assert_ok(kvern_storage_apply(&storage, layers, 2));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, layers, 2, &composition));
    storage.rotated_latents = 1;
    assert_ok(kvern_storage_apply(&storage, layers, 2));
    assert_int_equal(layers[0].rotated_latents, 1);
    assert_int_equal(layers[1].rotated_latents, 0);
    assert_ok(kvern_composition_create(context, layers, 2, &composition));
    kvern_composition_release(composition);
    storage.rotated_latents = 2;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, 2));
    assert_int_equal(layers[0].rotated_latents, 1);
    kvern_context_release(context);
}

// Windows and chunks can be stored in another way than other layers; what is precise wins over it,
// and exceptions do.
static void test_windows_apart(void **state)
{
    (void)state;
    kvern_layer layers[5] = {kvern_layer_default(2, 64), kvern_layer_window(2, 64, 512),
                             kvern_layer_chunked(2, 64, 512), kvern_layer_window(2, 64, 32),
                             kvern_layer_window(2, 64, 512)};
    const kvern_layer_storage other = {
        .layer = 2, .k = kvern_codec_affine(2, 64), .v = kvern_codec_affine(2, 64)};
    kvern_storage storage = kvern_storage_default();
    storage.k = storage.v = kvern_codec_affine(4, 64);
    storage.window_k = kvern_codec_affine(6, 64);
    storage.window_v = kvern_codec_affine(5, 64);
    storage.residual = 128;
    storage.window_residual = 64;
    assert_ok(kvern_storage_apply(&storage, layers, 5));
    assert_layer(&layers[1], 4, 4, KVERN_NO_START); // not apart
    assert_int_equal(layers[1].residual, 128);
    storage.windows_apart = 1;
    storage.precise_last = 1;
    storage.layers = &other;
    storage.layer_count = 1;
    assert_ok(kvern_storage_apply(&storage, layers, 5));
    assert_layer(&layers[0], 4, 4, KVERN_NO_START);
    assert_layer(&layers[1], 6, 5, KVERN_NO_START);
    assert_layer(&layers[2], 2, 2, KVERN_NO_START);
    assert_layer(&layers[3], 0, 0, KVERN_NO_START); // its residual covers it
    assert_layer(&layers[4], 0, 0, KVERN_NO_START);
    assert_int_equal(layers[0].residual, 128);
    assert_int_equal(layers[1].residual, 64);
    assert_int_equal(layers[2].residual, 64);
    assert_int_equal(layers[3].residual, 0);
    storage.windows_apart = 2;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, 5));
    storage.windows_apart = 1;
    storage.window_residual = -1;
    assert_status(KVERN_ERR_RANGE, kvern_storage_apply(&storage, layers, 5));
    storage.window_residual = 0;
    storage.window_k.reserved[0] = 1;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, 5));
    assert_layer(&layers[1], 6, 5, KVERN_NO_START);
}

// Every preset has a name, takes less than the one before it, by its codes or by its residual, and
// leaves the rest alone.
static void test_presets(void **state)
{
    (void)state;
    kvern_context *context;
    uint64_t before = kvern_type_bytes(KVERN_BF16) * 2 * 64;
    int64_t residual = 0;
    size_t count = 0;
    assert_ok(kvern_context_create(NULL, &context));
    for (const char *name; (name = kvern_storage_preset_name(count)); count++) {
        kvern_layer layer = kvern_layer_default(1, 64);
        kvern_storage storage = kvern_storage_default();
        kvern_composition *composition;
        storage.start = 77;
        storage.precise_last = 0;
        assert_ok(kvern_storage_preset(name, &storage));
        assert_int_equal(storage.start, 77);
        assert_ok(kvern_storage_apply(&storage, &layer, 1));
        assert_ok(kvern_composition_create(context, &layer, 1, &composition));
        const uint64_t bytes = kvern_composition_bytes_per_token(composition);
        assert_true(bytes < before || (bytes == before && storage.residual < residual));
        before = bytes;
        residual = storage.residual;
        kvern_composition_release(composition);
    }
    assert_true(count >= 3);
    kvern_storage storage = kvern_storage_default(), same = storage;
    assert_status(KVERN_ERR_ARGUMENT, kvern_storage_preset("tiny", &storage));
    assert_status(KVERN_ERR_ARGUMENT, kvern_storage_preset(NULL, &storage));
    assert_status(KVERN_ERR_ARGUMENT, kvern_storage_preset("light", NULL));
    assert_memory_equal(&storage, &same, sizeof same);
    storage.size = offsetof(kvern_storage, residual);
    assert_status(KVERN_ERR_ARGUMENT, kvern_storage_preset("light", &storage));
    kvern_context_release(context);
}

static void test_refusals_change_nothing(void **state)
{
    (void)state;
    const kvern_codec q4 = kvern_codec_affine(4, 64);
    kvern_layer_storage others[] = {{.layer = 1, .k = q4, .v = q4},
                                    {.layer = 3, .k = q4, .v = q4},
                                    {.layer = 1, .k = q4, .v = q4}};
    kvern_storage storage = kvern_storage_default();
    storage.layers = others;
    storage.layer_count = 3;
    assert_refused(KVERN_ERR_RANGE, &storage, "layer 1 twice");
    others[2].layer = LAYERS;
    assert_refused(KVERN_ERR_RANGE, &storage, "layer 6, and there are 6 layers");
    others[2].layer = SIZE_MAX;
    assert_refused(KVERN_ERR_RANGE, &storage, "there are 6 layers");
    storage.layers = NULL;
    assert_refused(KVERN_ERR_ARGUMENT, &storage, "NULL");
    storage.layer_count = 0;
    storage.precise_first = LAYERS + 1;
    assert_refused(KVERN_ERR_RANGE, &storage, "7 first");
    storage.precise_first = 0;
    storage.precise_last = SIZE_MAX;
    assert_refused(KVERN_ERR_RANGE, &storage, "last layers");
    storage.precise_last = 0;
    storage.size--;
    assert_refused(KVERN_ERR_ARGUMENT, &storage, "kvern_storage.size");
    assert_refused(KVERN_ERR_ARGUMENT, NULL, "NULL");
    storage = kvern_storage_default();
    assert_status(KVERN_ERR_ARGUMENT, kvern_storage_apply(&storage, NULL, 1));
    assert_ok(kvern_storage_apply(&storage, NULL, 0));
}

// What apply makes, a composition takes; and where a codec does not suit a layer, it says which.
static void test_composition(void **state)
{
    (void)state;
    kvern_layer layers[LAYERS];
    kvern_context *context;
    kvern_composition *composition;
    kvern_storage storage = kvern_storage_default();
    assert_ok(kvern_context_create(NULL, &context));
    make_layers(layers);
    storage.k = storage.v = kvern_codec_affine(4, 64);
    storage.start = 100;
    storage.precise_last = 1;
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_ok(kvern_composition_create(context, layers, LAYERS, &composition));
    // 4.5 bits for 2 heads of 128 and 3 of 64, keys and values; the last layer in 16.
    assert_int_equal(kvern_composition_bytes_per_token(composition),
                     3 * 2 * 2 * 72 + 2 * 2 * 3 * 36 + 2 * 3 * 128);
    kvern_composition_release(composition);
    storage.k = kvern_codec_affine(4, 128); // the windowed layers have a head dim of 64
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, layers, LAYERS, &composition));
    assert_non_null(strstr(kvern_error_detail(), "layer 1"));
    kvern_context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_other_names_are_refused),
        cmocka_unit_test(test_default_is_bf16),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_precise_layers),
        cmocka_unit_test(test_exceptions_win),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_windows_apart),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_refusals_change_nothing),
        cmocka_unit_test(test_residual_of_one_layer),
        cmocka_unit_test(test_composition),
        cmocka_unit_test(test_rotated_latents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
