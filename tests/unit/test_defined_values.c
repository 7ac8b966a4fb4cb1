// SPDX-License-Identifier: MIT
// Reads of rows whose last block is partly filled, in every storage. Plain runs see numbers; under
// valgrind (valgrind/unit_defined_values) a bit of a slot that was never stored and reached an
// output would be reported where the output is looked at. Values of one and two bits are read by
// the plain kernels: the AVX2 ones look a code up by three bits, the upper of which are the next
// slots', in a table whose parts are equal, and memcheck believes that these bits matter.

#include "tests/support/check.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>
#include <math.h>
#include <stdlib.h>

#define DIM 64
#define TOKENS 37
#define WHOLE_TILES 48
#define ROPE 32
#define TOP_K 9

static void append_some(kvern_cache *cache, const kvern_layer *layer, int64_t count,
                        const float *values, kvern_read **read)
{
    if (layer->kind == KVERN_LAYER_LATENT) {
        kvern_latent_tokens latents = kvern_latent_tokens_default(layer);
        latents.latent = values;
        latents.rope = values;
        latents.index = layer->index_dim ? values : NULL;
        latents.counts = &count;
        assert_ok(kvern_cache_append_latent(cache, KVERN_PHASE_KNOWN, &latents, read));
        return;
    }
    kvern_tokens tokens = kvern_tokens_default(layer);
    tokens.k = tokens.v = values;
    tokens.k_type = tokens.v_type = KVERN_F32;
    tokens.counts = &count;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_KNOWN, &tokens, read));
}

static bool is_short(kvern_codec codec)
{
    return codec.bits == 1 || codec.bits == 2;
}

static bool is_plain(const kvern_layer *layer)
{
    return is_short(layer->v_codec) || is_short(layer->latent_codec);
}

// A tile is filled partly, but for turbo keys that the plain kernels read: they look at the scales
// of all slots of a tile, to widen them.
static int64_t count_for(const kvern_layer *layer)
{
    return is_plain(layer) && layer->k_codec.kind == KVERN_CODEC_TURBO ? WHOLE_TILES : TOKENS;
}

static void read_some(kvern_layer layer)
{
    const int64_t count = count_for(&layer);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    float *values = malloc(WHOLE_TILES * DIM * sizeof *values), out[DIM];
    assert_non_null(values);
    for (size_t i = 0; i < WHOLE_TILES * DIM; i++)
        values[i] = (float)((i * 37) % 101) / 64 - 0.75f;
    kvern_context_options options = kvern_context_options_default();
    if (is_plain(&layer))
        options.cpu_features = 0;
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    append_some(cache, &layer, count, values, &read);
    kvern_queries queries = kvern_queries_default(&layer, 1);
    const int64_t one = 1, last = count - 1;
    queries.q = values;
    queries.out = out;
    queries.q_type = queries.out_type = KVERN_F32;
    queries.counts = &one;
    queries.first = &last;
    queries.scale = 0.125f;
    assert_ok(kvern_read_attend(read, &queries));
    for (size_t d = 0; d < DIM; d++)
        assert_true(isfinite(out[d]) && fabsf(out[d]) < 1.0f);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
    free(values);
}

static void test_every_storage(void **state)
{
    (void)state;
    for (size_t s = 0; s < storage_count; s++)
        read_some(storage_layer(&storages[s], 1, DIM));
}

// Latents and rotated keys.
static void test_latents(void **state)
{
    (void)state;
    static const kvern_codec codecs[] = {STORAGE_F32,           STORAGE_BF16,
                                         STORAGE_F16,           STORAGE_AFFINE(8, 32),
                                         STORAGE_AFFINE(4, 32), STORAGE_AFFINE(2, 32)};
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        kvern_layer layer = kvern_layer_latent(DIM, ROPE, 0);
        layer.latent_codec = layer.rope_codec = codecs[i];
        read_some(layer);
    }
}

// Index keys of a block that is partly filled, of which a query selects some.
static void select_some(kvern_codec codec, uint32_t features)
{
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    float values[TOKENS * DIM];
    const float weights[] = {0.5f, -0.25f};
    int64_t positions[TOP_K], count = 0;
    const int64_t one = 1, last = TOKENS - 1;
    kvern_layer layer = kvern_layer_latent(DIM, ROPE, DIM);
    layer.index_codec = codec;
    for (size_t i = 0; i < TOKENS * DIM; i++)
        values[i] = (float)((i * 37) % 101) / 64 - 0.75f;
    kvern_context_options options = kvern_context_options_default();
    options.cpu_features &= features;
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    append_some(cache, &layer, TOKENS, values, &read);
    kvern_selection selection = kvern_selection_default(positions, &count, 1, TOP_K);
    kvern_index_queries index = kvern_index_queries_default(2, DIM, TOP_K);
    index.q = values;
    index.q_type = KVERN_F32;
    index.weights = weights;
    index.counts = &one;
    index.first = &last;
    assert_ok(kvern_read_select(read, &index, &selection));
    assert_int_equal(count, TOP_K);
    for (size_t i = 0; i < TOP_K; i++)
        assert_true(positions[i] < TOKENS && positions[i] > (i ? positions[i - 1] : -1));
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void test_selections(void **state)
{
    (void)state;
    static const kvern_codec codecs[] = {STORAGE_F32, STORAGE_BF16, STORAGE_AFFINE(8, 32)};
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        select_some(codecs[i], 0);
        select_some(codecs[i], UINT32_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_storage),
        cmocka_unit_test(test_latents),
        cmocka_unit_test(test_selections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
