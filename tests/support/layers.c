// SPDX-License-Identifier: MIT
#include "tests/support/layers.h"

static kvern_codec choose_codec(test_random *random, size_t *dim, size_t most)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    if (test_random_below(random, 3))
        return kvern_codec_dense((kvern_type)test_random_below(random, 3));
    const uint64_t kind = test_random_below(random, 3);
    if (kind == 1 && (*dim + 15) / 16 * 16 <= most) {
        *dim = (*dim + 15) / 16 * 16;
        return kvern_codec_turbo(1 + (uint32_t)test_random_below(random, 6));
    }
    const uint32_t group = groups[test_random_below(random, 3)];
    kvern_codec codec = kvern_codec_affine(bits[test_random_below(random, 6)], group);
    if (kind == 2)
        codec.kind = KVERN_CODEC_ROTATED;
    codec.scales = (kvern_type)test_random_below(random, 3);
    const size_t groups_at_most = most / group, wanted = (*dim + group - 1) / group;
    *dim = group * (wanted < groups_at_most ? wanted : groups_at_most);
    return codec;
}

static void choose_window(test_random *random, kvern_layer *layer)
{
    static const int64_t windows[] = {1, 2, 8, 60, 64, 100, 129, 300, 512, 1100};
    const int64_t window = windows[test_random_below(random, 10)];
    layer->slack = (int64_t)test_random_below(random, 3) * (int64_t)test_random_below(random, 70);
    if (test_random_below(random, 3) == 0) {
        layer->kind = KVERN_LAYER_CHUNKED;
        layer->chunk = window;
        return;
    }
    layer->kind = KVERN_LAYER_WINDOW;
    layer->window = window;
    if (test_random_below(random, 3) == 0)
        layer->keep = (int64_t)test_random_below(random, (uint64_t)layer->window);
}

// Takes more room than bf16, or might.
static bool is_wide(const kvern_codec *codec)
{
    return codec->kind == KVERN_CODEC_F32 || (codec->group && codec->scales == KVERN_F32);
}

void layer_choose_precise(test_random *random, kvern_layer *layer)
{
    static const int64_t residuals[] = {0, 1, 30, 64, 100, 128, 400}, sinks[] = {0, 0, 4, 64, 100};
    layer->residual = residuals[test_random_below(random, 7)];
    layer->precise_sinks = sinks[test_random_below(random, 5)];
    const int64_t seen = layer->kind == KVERN_LAYER_CHUNKED ? layer->chunk : layer->window;
    if (layer->kind != KVERN_LAYER_FULL && layer->residual >= seen)
        layer->residual = seen - 1;
}

void layer_choose_storage(test_random *random, kvern_layer *layer)
{
    layer->k_codec = choose_codec(random, &layer->k_dim, KVERN_MAX_HEAD_DIM);
    layer->v_codec = choose_codec(random, &layer->v_dim, KVERN_MAX_HEAD_DIM);
    if (test_random_below(random, 2))
        choose_window(random, layer);
    const bool wide = is_wide(&layer->k_codec) || is_wide(&layer->v_codec);
    if (!wide && test_random_below(random, 2)) // conversion must not need more room than bf16
        layer->start = (int64_t)(test_random_below(random, 4) * test_random_below(random, 200));
    if (!wide && test_random_below(random, 3) == 0)
        layer_choose_precise(random, layer);
}

kvern_layer layer_choose_latents(test_random *random, bool large)
{
    size_t latent = 8 * (1 + test_random_below(random, large ? KVERN_MAX_LATENT_DIM / 8 : 20));
    size_t rope = 8 * test_random_below(random, large ? 1 + KVERN_MAX_ROPE_DIM / 8 : 5);
    size_t index = test_random_below(random, 3) ? 0 : 8 * (1 + test_random_below(random, 16));
    const kvern_codec codec = choose_codec(random, &latent, KVERN_MAX_LATENT_DIM);
    const kvern_codec rope_codec = choose_codec(random, &rope, KVERN_MAX_ROPE_DIM);
    const kvern_codec index_codec = choose_codec(random, &index, KVERN_MAX_INDEX_DIM);
    kvern_layer layer = kvern_layer_latent(latent, rope, index);
    layer.rotated_latents = 1;
    layer.latent_codec = codec;
    if (rope)
        layer.rope_codec = rope_codec;
    if (index)
        layer.index_codec = index_codec;
    return layer;
}
