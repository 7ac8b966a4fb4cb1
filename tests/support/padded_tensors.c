// SPDX-License-Identifier: MIT
#include "tests/support/padded_tensors.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

static void *full_of_ones(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    assert_non_null(memory);
    memset(memory, 0xff, bytes);
    return memory;
}

static kvern_affine_arrays new_codes(size_t bytes)
{
    return (kvern_affine_arrays){
        .words = full_of_ones(bytes), .scales = full_of_ones(bytes), .biases = full_of_ones(bytes)};
}

static void create_lanes(padded_tensors *t, const kvern_layer *layer, bool codes,
                         kvern_type latent_type, kvern_type other_type)
{
    const size_t dims[] = {layer->latent_dim, layer->rope_dim, layer->index_dim};
    kvern_padded_planes *p = &t->planes;
    for (size_t i = 0; i < 3; i++)
        t->lane_bytes[i] = t->rows * (size_t)p->width * dims[i] * sizeof(float);
    t->k_bytes = t->v_bytes = 0;
    p->latent_type = latent_type;
    p->rope_type = p->index_type = other_type;
    if (codes)
        p->latent_codes = new_codes(t->lane_bytes[0]);
    else
        p->latent = full_of_ones(t->lane_bytes[0]);
    p->rope = layer->rope_dim ? full_of_ones(t->lane_bytes[1]) : NULL;
    p->index = layer->index_dim ? full_of_ones(t->lane_bytes[2]) : NULL;
}

padded_tensors padded_create(const kvern_cache *cache, int64_t width, bool k_codes, bool v_codes,
                             kvern_type k_type, kvern_type v_type)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    padded_tensors t = {kvern_padded_planes_default(), kvern_cache_rows(cache), 0, 0, {0}};
    const size_t vectors = t.rows * layer->kv_heads * (size_t)width;
    t.k_bytes = vectors * layer->k_dim * sizeof(float);
    t.v_bytes = vectors * layer->v_dim * sizeof(float);
    t.planes.width = width;
    t.planes.left_padding = full_of_ones(t.rows * sizeof(int64_t));
    t.planes.offsets = full_of_ones(t.rows * sizeof(int64_t));
    if (layer->kind == KVERN_LAYER_LATENT) {
        create_lanes(&t, layer, k_codes, k_type, v_type);
        return t;
    }
    t.planes.k_type = k_type;
    t.planes.v_type = v_type;
    if (k_codes)
        t.planes.k_codes = new_codes(t.k_bytes);
    else
        t.planes.k = full_of_ones(t.k_bytes);
    if (v_codes)
        t.planes.v_codes = new_codes(t.v_bytes);
    else
        t.planes.v = full_of_ones(t.v_bytes);
    return t;
}

static void free_codes(kvern_affine_arrays *codes)
{
    free(codes->words);
    free(codes->scales);
    free(codes->biases);
}

void padded_destroy(padded_tensors *t)
{
    free(t->planes.k);
    free(t->planes.v);
    free_codes(&t->planes.k_codes);
    free_codes(&t->planes.v_codes);
    free(t->planes.latent);
    free(t->planes.rope);
    free(t->planes.index);
    free_codes(&t->planes.latent_codes);
    free(t->planes.left_padding);
    free(t->planes.offsets);
}

// Whether planes take codes of such a stream.
static bool has_codes(kvern_codec_kind kind)
{
    return kind >= KVERN_CODEC_AFFINE;
}

padded_tensors padded_export(const kvern_cache *cache)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    bool converted = false;
    for (size_t r = 0; r < kvern_cache_rows(cache); r++)
        converted |= kvern_cache_length(cache, r) && kvern_cache_converted(cache, r);
    const kvern_codec_kind kind =
        layer->kind == KVERN_LAYER_LATENT ? layer->latent_codec.kind : layer->k_codec.kind;
    padded_tensors t =
        padded_create(cache, kvern_cache_padded_width(cache), converted && has_codes(kind),
                      converted && has_codes(layer->v_codec.kind), KVERN_F32, KVERN_F32);
    assert_ok(kvern_cache_export_padded(cache, &t.planes));
    return t;
}

static void expect_same(const void *wanted, const void *got, size_t bytes, const char *what)
{
    assert_int_equal(wanted != NULL, got != NULL);
    if (wanted)
        check_same_bytes(wanted, got, bytes, what);
}

static void expect_same_codes(const kvern_affine_arrays *wanted, const kvern_affine_arrays *got,
                              size_t bytes, const char *what)
{
    expect_same(wanted->words, got->words, bytes, what);
    expect_same(wanted->scales, got->scales, bytes, what);
    expect_same(wanted->biases, got->biases, bytes, what);
}

void padded_expect_same(const padded_tensors *wanted, const padded_tensors *got, const char *what)
{
    const kvern_padded_planes *a = &wanted->planes, *b = &got->planes;
    assert_int_equal(wanted->rows, got->rows);
    assert_int_equal(a->width, b->width);
    check_same_bytes(a->left_padding, b->left_padding, wanted->rows * sizeof(int64_t), what);
    check_same_bytes(a->offsets, b->offsets, wanted->rows * sizeof(int64_t), what);
    expect_same(a->k, b->k, wanted->k_bytes, what);
    expect_same(a->v, b->v, wanted->v_bytes, what);
    expect_same_codes(&a->k_codes, &b->k_codes, wanted->k_bytes, what);
    expect_same_codes(&a->v_codes, &b->v_codes, wanted->v_bytes, what);
    expect_same(a->latent, b->latent, wanted->lane_bytes[0], what);
    expect_same(a->rope, b->rope, wanted->lane_bytes[1], what);
    expect_same(a->index, b->index, wanted->lane_bytes[2], what);
    expect_same_codes(&a->latent_codes, &b->latent_codes, wanted->lane_bytes[0], what);
}
