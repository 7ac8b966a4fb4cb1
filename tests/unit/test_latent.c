// SPDX-License-Identifier: MIT
// Latent layers: their plans and storages, and what their calls refuse.

#include "tests/support/check.h"

#include <kvern/kvern.h>

#include <string.h>

#define R 64
#define ROPE 16

// ---- Plans ----

typedef struct world {
    kvern_context *context;
    kvern_composition *full; // a layer of keys and values
    kvern_cache *cache;
    kvern_state *state;
} world;

static int set_up(void **state)
{
    static world w;
    const kvern_layer layer = kvern_layer_default(1, R);
    assert_ok(kvern_context_create(NULL, &w.context));
    assert_ok(kvern_composition_create(w.context, &layer, 1, &w.full));
    assert_ok(kvern_cache_create(w.full, 0, 1, &w.cache));
    assert_ok(kvern_state_create(w.full, 1, &w.state));
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    kvern_state_destroy(w->state);
    kvern_cache_destroy(w->cache);
    kvern_composition_release(w->full);
    kvern_context_release(w->context);
    return 0;
}

// Dims and codecs of latents in a layer of keys and values would be silently without effect.
static void other_kinds_refuse_fields_of_latents(void **state)
{
    const world *w = *state;
    kvern_composition *none;
    for (int field = 0; field < 6; field++) {
        kvern_layer layer = kvern_layer_default(1, R);
        layer.latent_dim = field == 0 ? R : 0;
        layer.rope_dim = field == 1 ? ROPE : 0;
        layer.index_dim = field == 2 ? ROPE : 0;
        kvern_codec *const codecs[] = {&layer.latent_codec, &layer.rope_codec, &layer.index_codec};
        if (field >= 3)
            *codecs[field - 3] = kvern_codec_dense(KVERN_BF16);
        assert_status(KVERN_ERR_ARGUMENT, kvern_composition_create(w->context, &layer, 1, &none));
        assert_non_null(strstr(kvern_error_detail(), "layer 0: latent_dim, rope_dim, index_dim"));
        assert_null(none);
    }
}

static void expect_refused(const world *w, kvern_status wanted, kvern_layer layer, const char *why)
{
    kvern_composition *none;
    assert_status(wanted, kvern_composition_create(w->context, &layer, 1, &none));
    assert_null(none);
    if (!strstr(kvern_error_detail(), why))
        fail_msg("\"%s\" without \"%s\"", kvern_error_detail(), why);
}

// What a layer of latents cannot be is refused by the name of its field.
static void plans_are_refused_by_name(void **state)
{
    const world *w = *state;
    const kvern_layer good = kvern_layer_latent(R, ROPE, 32);
    const kvern_codec bf16 = kvern_codec_dense(KVERN_BF16);
#define REFUSED(status, change, why)                                                               \
    do {                                                                                           \
        kvern_layer layer = good;                                                                  \
        change;                                                                                    \
        expect_refused(w, status, layer, why);                                                     \
    } while (0)
    REFUSED(KVERN_ERR_ARGUMENT, layer.kv_heads = 2, "kv_heads");
    REFUSED(KVERN_ERR_ARGUMENT, layer.k_dim = R, "k_dim");
    REFUSED(KVERN_ERR_ARGUMENT, layer.v_dim = R + ROPE, "v_dim");
    REFUSED(KVERN_ERR_ARGUMENT, layer.rope_dim = SIZE_MAX - 7, "rope_dim");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.k_codec = bf16, "k_codec");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.v_codec = bf16, "latent_codec");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.window = 100, "window");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.start = 0, "start");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.latent_codec = kvern_codec_affine(7, 64), "latent_codec");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.rope_codec = kvern_codec_affine(4, 64), "rope_dim");
    REFUSED(KVERN_ERR_UNSUPPORTED, layer.index_codec.reserved[0] = 1, "index_codec");
#undef REFUSED
    expect_refused(w, KVERN_ERR_ARGUMENT, kvern_layer_latent(0, 8, 0), "latent_dim");
    expect_refused(w, KVERN_ERR_ARGUMENT, kvern_layer_latent(1032, 8, 0), "latent_dim");
    expect_refused(w, KVERN_ERR_ARGUMENT, kvern_layer_latent(60, 8, 0), "latent_dim");
    expect_refused(w, KVERN_ERR_ARGUMENT, kvern_layer_latent(64, 264, 0), "rope_dim");
    expect_refused(w, KVERN_ERR_ARGUMENT, kvern_layer_latent(64, 4, 0), "rope_dim");
    expect_refused(w, KVERN_ERR_ARGUMENT, kvern_layer_latent(64, 8, 264), "index_dim");
    kvern_layer other = kvern_layer_latent(64, 0, 0);
    other.rope_codec = bf16;
    expect_refused(w, KVERN_ERR_ARGUMENT, other, "lane without numbers");
}

// Dense codecs and affine ones, each lane its own; f32 unless it is asked for.
static void storages_are_asked_for(void **state)
{
    const world *w = *state;
    kvern_layer layers[3] = {kvern_layer_latent(64, 0, 0), kvern_layer_latent(64, 32, 64),
                             kvern_layer_default(1, 64)};
    kvern_storage storage = kvern_storage_default();
    kvern_composition *c;
    storage.k = storage.v = kvern_codec_affine(4, 64);
    storage.precise_first = 1;
    storage.start = 100;
    assert_ok(kvern_storage_apply(&storage, layers, 3));
    assert_ok(kvern_composition_create(w->context, layers, 3, &c));
    assert_string_equal(kvern_composition_signature(c, 0), "latent:latent64=f32");
    assert_string_equal(kvern_composition_signature(c, 1),
                        "latent:latent64=f32:rope32=f32:index64=f32");
    assert_string_equal(kvern_composition_signature(c, 2),
                        "full:h1:k64=affine4g64bf16:v64=affine4g64bf16:start100");
    kvern_composition_release(c);
    storage.latent = storage.rope = kvern_codec_dense(KVERN_BF16);
    storage.index = kvern_codec_affine(8, 32);
    const kvern_layer_storage exception = {
        .layer = 1, .k = kvern_codec_affine(6, 64), .v = kvern_codec_dense(KVERN_F16)};
    storage.layers = &exception;
    storage.layer_count = 1;
    assert_ok(kvern_storage_apply(&storage, layers, 3));
    assert_ok(kvern_composition_create(w->context, layers, 3, &c));
    assert_string_equal(kvern_composition_signature(c, 0), "latent:latent64=bf16");
    assert_string_equal(kvern_composition_signature(c, 1),
                        "latent:latent64=affine6g64bf16:rope32=f16:index64=affine8g32bf16");
    for (kvern_capability can = KVERN_CAN_DECODE; can <= KVERN_CAN_RECUR; can++)
        assert_int_equal(kvern_composition_can(c, 0, can),
                         can <= KVERN_CAN_FORK || can == KVERN_CAN_LATENT);
    kvern_composition_release(c);
}

// ---- Calls ----

static void other_kinds_refuse_latents(void **state)
{
    const world *w = *state;
    const float values[R + ROPE] = {0};
    const int64_t counts[1] = {1};
    const kvern_layer plan = kvern_layer_latent(R, ROPE, 0);
    kvern_latent_tokens tokens = kvern_latent_tokens_default(&plan);
    kvern_read *read = (kvern_read *)&tokens;
    float got[R];
    tokens.latent = values;
    tokens.rope = values + R;
    tokens.counts = counts;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_append_latent(w->cache, KVERN_PHASE_DECODE, &tokens, &read));
    assert_non_null(strstr(kvern_error_detail(), "kvern_step_append and kvern_cache_append"));
    assert_null(read);
    assert_ok(kvern_step_begin(w->state, KVERN_PHASE_DECODE, counts));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_append_latent(w->state, 0, &tokens, &read));
    kvern_step_abandon(w->state);
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_export_latent(w->cache, 0, 0, 0, got, NULL, NULL));
    assert_ok(kvern_cache_read_donor(w->cache, &(int64_t){0}, &read));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_read_export_latent(read, 0, 0, 0, got, NULL, NULL));
    kvern_read_release(read);
    assert_int_equal(kvern_cache_length(w->cache, 0), 0);
    assert_false(kvern_cache_can(w->cache, KVERN_CAN_LATENT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(other_kinds_refuse_fields_of_latents, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plans_are_refused_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(storages_are_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_kinds_refuse_latents, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
