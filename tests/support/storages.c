// SPDX-License-Identifier: MIT
#include "tests/support/storages.h"

const storage storages[] = {
    {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0},
    {"f32", STORAGE_F32, STORAGE_F32, KVERN_NO_START, 0, 0},
    {"f16", STORAGE_F16, STORAGE_F16, KVERN_NO_START, 0, 0},
    {"8 bits", STORAGE_AFFINE(8, 64), STORAGE_AFFINE(8, 64), KVERN_NO_START, 0, 0},
    {"6 bits", STORAGE_AFFINE(6, 32), STORAGE_AFFINE(6, 64), KVERN_NO_START, 0, 0},
    {"5 and 3 bits", STORAGE_AFFINE(5, 64), STORAGE_AFFINE(3, 32), KVERN_NO_START, 0, 0},
    {"4 bits", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), KVERN_NO_START, 0, 0},
    {"2 bits", STORAGE_AFFINE(2, 32), STORAGE_AFFINE(2, 32), KVERN_NO_START, 0, 0},
    {"bf16 and 4 bits", STORAGE_BF16, STORAGE_AFFINE(4, 32), KVERN_NO_START, 0, 0},
    {"8 bits from 0 on", STORAGE_AFFINE(8, 64), STORAGE_AFFINE(8, 64), 0, 0, 0},
    {"4 bits from 70 on", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), 70, 0, 0},
    {"turbo 4 bits", STORAGE_TURBO(4), STORAGE_TURBO(4), KVERN_NO_START, 0, 0},
    {"turbo 6 and 5 bits", STORAGE_TURBO(6), STORAGE_TURBO(5), KVERN_NO_START, 0, 0},
    {"turbo 3 and 1 bits", STORAGE_TURBO(3), STORAGE_TURBO(1), KVERN_NO_START, 0, 0},
    {"rotated 4 bits", STORAGE_ROTATED(4, 64), STORAGE_ROTATED(4, 64), KVERN_NO_START, 0, 0},
    {"rotated 3 and turbo 2 bits", STORAGE_ROTATED(3, 32), STORAGE_TURBO(2), KVERN_NO_START, 0, 0},
    {"turbo 2 bits and bf16", STORAGE_TURBO(2), STORAGE_BF16, KVERN_NO_START, 0, 0},
    {"4 bits behind 70", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), KVERN_NO_START, 70, 3},
    {"8 and 3 bits behind 1", STORAGE_AFFINE(8, 64), STORAGE_AFFINE(3, 32), 70, 1, 0},
};
const size_t storage_count = sizeof storages / sizeof storages[0];

kvern_layer storage_layer(const storage *s, size_t kv_heads, size_t dim)
{
    kvern_layer layer = kvern_layer_default(kv_heads, dim);
    layer.k_codec = s->k_codec;
    layer.v_codec = s->v_codec;
    layer.start = s->start;
    layer.residual = s->residual;
    layer.precise_sinks = s->precise_sinks;
    return layer;
}

kvern_layer storage_window(const storage *s, size_t kv_heads, size_t dim, int64_t window,
                           int64_t keep, int64_t slack)
{
    kvern_layer layer = storage_layer(s, kv_heads, dim);
    layer.kind = KVERN_LAYER_WINDOW;
    layer.window = window;
    layer.keep = keep;
    layer.slack = slack;
    if (layer.residual >= window)
        layer.residual = window - 1;
    return layer;
}

kvern_layer storage_chunked(const storage *s, size_t kv_heads, size_t dim, int64_t chunk,
                            int64_t slack)
{
    kvern_layer layer = storage_layer(s, kv_heads, dim);
    layer.kind = KVERN_LAYER_CHUNKED;
    layer.chunk = chunk;
    layer.slack = slack;
    if (layer.residual >= chunk)
        layer.residual = chunk - 1;
    return layer;
}

void for_every_storage(storage_check *check, size_t kv_heads, size_t dim, int64_t window)
{
    for (size_t s = 0; s < storage_count; s++) {
        const storage *st = &storages[s];
        const int64_t keep = (int64_t)s % 3 < window ? (int64_t)s % 3 : 0;
        check(storage_layer(st, kv_heads, dim), st->name);
        check(storage_window(st, kv_heads, dim, window, keep, window), st->name);
        check(storage_chunked(st, kv_heads, dim, window, window), st->name);
    }
}

void for_every_latent(storage_check *check, size_t latent_dim)
{
    static const struct {
        const char *name;
        kvern_codec codec;
    } list[] = {{"latents in f32", STORAGE_F32},
                {"latents in bf16", STORAGE_BF16},
                {"latents in f16", STORAGE_F16},
                {"latents of 8 bits", STORAGE_AFFINE(8, 64)},
                {"latents of 6 bits", STORAGE_AFFINE(6, 32)},
                {"latents of 5 bits", STORAGE_AFFINE(5, 64)},
                {"latents of 4 bits", STORAGE_AFFINE(4, 32)},
                {"latents of 3 bits", STORAGE_AFFINE(3, 32)},
                {"latents of 2 bits", STORAGE_AFFINE(2, 32)},
                {"latents of turbo 4 bits", STORAGE_TURBO(4)},
                {"latents of turbo 3 bits", STORAGE_TURBO(3)},
                {"latents of rotated 4 bits", STORAGE_ROTATED(4, 32)}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        kvern_layer layer = kvern_layer_latent(latent_dim, i % 3 ? 32 : 0, 0);
        layer.latent_codec = list[i].codec;
        layer.rotated_latents = 1;
        if (i % 3 == 1)
            layer.rope_codec = list[i].codec;
        check(layer, list[i].name);
    }
}

int64_t layer_first_seen(const kvern_layer *layer, int64_t query)
{
    const int64_t recent = layer->window - layer->keep;
    if (layer->kind == KVERN_LAYER_CHUNKED)
        return query / layer->chunk * layer->chunk;
    return layer->kind == KVERN_LAYER_WINDOW && query >= recent ? query - recent + 1 : 0;
}

bool layer_sees(const kvern_layer *layer, int64_t query, int64_t position)
{
    return position <= query &&
           (position < layer->keep || position >= layer_first_seen(layer, query));
}
