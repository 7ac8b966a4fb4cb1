// SPDX-License-Identifier: MIT
// Latent layers: what their appends and exports refuse.

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
        assert_non_null(strstr(kvern_error_detail(), "layer 0: dims or codecs of latents"));
        assert_null(none);
    }
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
        cmocka_unit_test_setup_teardown(other_kinds_refuse_latents, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
