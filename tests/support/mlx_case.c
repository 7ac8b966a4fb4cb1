// SPDX-License-Identifier: MIT
#include "tests/support/mlx_case.h"

#include "src/state/walk.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, DIM = 8, WIDE_DIM = 32, GROUP = 32 };

// ---- Cases ----

static kvern_layer dense(kvern_type type)
{
    kvern_layer layer = kvern_layer_default(HEADS, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_dense(type);
    return layer;
}

static kvern_layer codes(uint32_t bits)
{
    kvern_layer layer = kvern_layer_default(HEADS, WIDE_DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(bits, GROUP);
    return layer;
}

static kvern_layer window(int64_t positions, int64_t keep)
{
    kvern_layer layer = kvern_layer_window(HEADS, DIM, positions);
    layer.keep = keep;
    return layer;
}

static kvern_layer latents(size_t index_dim)
{
    kvern_layer layer = kvern_layer_latent(16, 8, index_dim);
    layer.latent_codec = layer.rope_codec = kvern_codec_dense(KVERN_BF16);
    if (index_dim)
        layer.index_codec = kvern_codec_dense(KVERN_BF16);
    return layer;
}

static kvern_layer delta(void)
{
    return kvern_layer_recurrent(KVERN_RECURRENCE_DELTA, 2, 4, 16, 8, 4);
}

const size_t mlx_case_count = 13;

mlx_case mlx_case_at(size_t index)
{
    static const size_t hybrid_lists[] = {2, 1};
    const mlx_case cases[] = {
        {.name = "kv",
         .rows = 1,
         .lengths = {11},
         .layers = 3,
         .layer = {dense(KVERN_BF16), dense(KVERN_F16), dense(KVERN_F32)}},
        {.name = "concatenate",
         .rows = 1,
         .lengths = {11},
         .layers = 1,
         .layer = {dense(KVERN_BF16)}},
        {.name = "quantized",
         .rows = 1,
         .lengths = {284},
         .layers = 3,
         .layer = {codes(8), codes(4), codes(6)}},
        {.name = "rotating",
         .rows = 1,
         .lengths = {13},
         .layers = 5,
         .layer = {window(8, 2), window(8, 0), window(8, 0), window(100, 0), window(8, 0)}},
        {.name = "chunked",
         .rows = 1,
         .lengths = {305},
         .layers = 2,
         .layer = {kvern_layer_chunked(HEADS, DIM, 256), dense(KVERN_BF16)},
         .has_dropped = true},
        {.name = "chunked-young",
         .rows = 1,
         .lengths = {20},
         .layers = 1,
         .layer = {kvern_layer_chunked(HEADS, DIM, 32)}},
        {.name = "batch",
         .rows = 3,
         .lengths = {10, 12, 7},
         .layers = 4,
         .layer = {dense(KVERN_BF16), window(8, 0), window(8, 0), window(50, 0)}},
        {.name = "merged",
         .rows = 3,
         .lengths = {20, 3, 8},
         .layers = 2,
         .layer = {dense(KVERN_BF16), window(8, 0)}},
        {.name = "arrays",
         .rows = 1,
         .lengths = {11},
         .layers = 2,
         .layer = {delta(), dense(KVERN_BF16)}},
        {.name = "sparse",
         .rows = 2,
         .lengths = {8, 11},
         .layers = 2,
         .layer = {delta(), dense(KVERN_BF16)},
         .only_states = true,
         .no_conv = true},
        {.name = "split",
         .rows = 1,
         .lengths = {11},
         .layers = 2,
         .layer = {kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 4, 4, 8, 8, 4),
                   latents(0)}},
        {.name = "indexed", .rows = 1, .lengths = {11}, .layers = 1, .layer = {latents(16)}},
        {.name = "hybrid",
         .rows = 1,
         .lengths = {11},
         .layers = 3,
         .layer = {delta(), dense(KVERN_BF16), dense(KVERN_BF16)},
         .lists = hybrid_lists,
         .list_count = 2},
    };
    assert_int_equal(sizeof cases / sizeof cases[0], mlx_case_count);
    return cases[index];
}

mlx_case mlx_case_named(const char *name)
{
    for (size_t i = 0; i < mlx_case_count; i++) {
        const mlx_case c = mlx_case_at(i);
        if (strcmp(c.name, name) == 0)
            return c;
    }
    fail_msg("no case %s", name);
    return (mlx_case){0};
}

kvern_composition *mlx_case_composition(kvern_context *context, const mlx_case *c)
{
    kvern_composition *composition;
    assert_ok(kvern_composition_create(context, c->layer, c->layers, &composition));
    return composition;
}

bool mlx_case_appends(const mlx_case *c)
{
    bool appends = true;
    for (size_t l = 0; l < c->layers; l++)
        appends = appends && c->layer[l].kind != KVERN_LAYER_RECURRENT;
    return appends;
}

// ---- Numbers ----

float mlx_number(uint64_t seed, size_t layer, mlx_stream stream, size_t row, size_t head,
                 int64_t position, size_t dim)
{
    uint32_t x = (uint32_t)(3266489917u * seed + 7919u * layer + 104729u * (uint64_t)stream +
                            1299709u * row + 15485863u * head + 32452843u * (uint64_t)position +
                            49979687u * dim);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((int)(x % 511) - 255) / 64;
}

// [heads, dim] of one position.
static void fill_position(uint64_t seed, size_t layer, mlx_stream stream, size_t row,
                          int64_t position, size_t heads, size_t dim, float *to)
{
    for (size_t h = 0; h < heads; h++) {
        for (size_t d = 0; d < dim; d++)
            to[h * dim + d] = mlx_number(seed, layer, stream, row, h, position, d);
    }
}

// ---- Filling ----

// Packed tokens of all rows.
static float *new_tokens(uint64_t seed, size_t layer, mlx_stream stream, const kvern_state *state,
                         size_t heads, size_t dim)
{
    size_t count = 0;
    for (size_t r = 0; r < kvern_state_rows(state); r++)
        count += (size_t)kvern_step_count(state, r);
    float *tokens = malloc((count * heads * dim + 1) * sizeof *tokens), *to = tokens;
    assert_non_null(tokens);
    for (size_t r = 0; r < kvern_state_rows(state); r++) {
        for (int64_t i = 0; i < kvern_step_count(state, r); i++, to += heads * dim)
            fill_position(seed, layer, stream, r, kvern_step_position(state, r) + i, heads, dim,
                          to);
    }
    return tokens;
}

static void append_latents(const kvern_layer *plan, uint64_t seed, size_t layer, kvern_state *state)
{
    kvern_latent_tokens tokens = kvern_latent_tokens_default(plan);
    float *latent = new_tokens(seed, layer, MLX_KEYS, state, 1, plan->latent_dim);
    float *rope = new_tokens(seed, layer, MLX_VALUES, state, 1, plan->rope_dim);
    float *index = new_tokens(seed, layer, MLX_INDEX, state, 1, plan->index_dim);
    tokens.latent = latent;
    tokens.rope = rope;
    tokens.index = plan->index_dim ? index : NULL;
    assert_ok(kvern_step_append_latent(state, layer, &tokens, NULL));
    free(latent);
    free(rope);
    free(index);
}

static void append_layer(const kvern_layer *plan, uint64_t seed, size_t layer, kvern_state *state)
{
    if (plan->kind == KVERN_LAYER_LATENT) {
        append_latents(plan, seed, layer, state);
        return;
    }
    kvern_tokens tokens = kvern_tokens_default(plan);
    float *k = new_tokens(seed, layer, MLX_KEYS, state, plan->kv_heads, plan->k_dim);
    float *v = new_tokens(seed, layer, MLX_VALUES, state, plan->kv_heads, plan->v_dim);
    tokens.k = k;
    tokens.v = v;
    assert_ok(kvern_step_append(state, layer, &tokens, NULL));
    free(k);
    free(v);
}

void mlx_case_fill(const mlx_case *c, uint64_t seed, kvern_state *state, int64_t chunk)
{
    for (bool more = true; more;) {
        int64_t counts[MLX_MOST_ROWS] = {0};
        more = false;
        for (size_t r = 0; r < c->rows; r++) {
            const int64_t left = c->lengths[r] - kvern_state_length(state, r);
            counts[r] = left < chunk ? left : chunk;
            more = more || left > chunk;
        }
        assert_ok(kvern_step_begin(state, KVERN_PHASE_WINDOW, counts));
        for (size_t l = 0; l < c->layers; l++)
            append_layer(&c->layer[l], seed, l, state);
        assert_ok(kvern_step_end(state));
    }
}

// ---- Checking ----

// The first position, behind the kept ones, that the last query sees.
static int64_t first_seen(const kvern_layer *plan, int64_t length)
{
    if (plan->kind == KVERN_LAYER_WINDOW && length > plan->window)
        return length - (plan->window - plan->keep);
    if (plan->kind == KVERN_LAYER_CHUNKED && length > 0)
        return (length - 1) / plan->chunk * plan->chunk;
    return 0;
}

static void expect_same(const float *wanted, const float *got, size_t count, const char *what,
                        size_t layer, size_t row, int64_t position)
{
    char text[80];
    snprintf(text, sizeof text, "%s of layer %zu, row %zu, position %lld", what, layer, row,
             (long long)position);
    check_same_floats(wanted, got, count, text);
}

static void check_position(const kvern_layer *plan, uint64_t seed, size_t layer,
                           const kvern_cache *cache, size_t row, int64_t position)
{
    float k[HEADS * WIDE_DIM], v[HEADS * WIDE_DIM], index[WIDE_DIM], wanted[HEADS * WIDE_DIM];
    const bool latent = plan->kind == KVERN_LAYER_LATENT;
    const size_t heads = latent ? 1 : plan->kv_heads;
    const size_t k_dim = latent ? plan->latent_dim : plan->k_dim;
    const size_t v_dim = latent ? plan->rope_dim : plan->v_dim;
    if (latent)
        assert_ok(kvern_cache_export_latent(cache, row, position, 1, k, v,
                                            plan->index_dim ? index : NULL));
    else
        assert_ok(kvern_cache_export(cache, row, position, 1, k, v));
    fill_position(seed, layer, MLX_KEYS, row, position, heads, k_dim, wanted);
    expect_same(wanted, k, heads * k_dim, "keys", layer, row, position);
    fill_position(seed, layer, MLX_VALUES, row, position, heads, v_dim, wanted);
    expect_same(wanted, v, heads * v_dim, "values", layer, row, position);
    fill_position(seed, layer, MLX_INDEX, row, position, 1, plan->index_dim, wanted);
    expect_same(wanted, index, plan->index_dim, "index keys", layer, row, position);
}

static void check_recurrent(const mlx_case *c, uint64_t seed, size_t layer,
                            const kvern_cache *cache, size_t row)
{
    const kvern_layer *plan = &c->layer[layer];
    const size_t taps = plan->conv_kernel - 1, size = plan->v_dim * plan->k_dim;
    float *conv = malloc(taps * plan->conv_dim * sizeof *conv);
    float *s = malloc(plan->value_heads * size * sizeof *s), wanted;
    const kvern_recur_state state = {.size = sizeof state, .conv = conv, .s = s};
    assert_true(conv && s);
    assert_ok(kvern_cache_export_recurrent(cache, row, &state));
    for (size_t i = 0; i < taps * plan->conv_dim; i++) {
        wanted = c->no_conv ? 0
                            : mlx_number(seed, layer, MLX_CONV, row, 0,
                                         (int64_t)(i / plan->conv_dim), i % plan->conv_dim);
        expect_same(&wanted, &conv[i], 1, "convolution", layer, row, (int64_t)i);
    }
    for (size_t i = 0; i < plan->value_heads * size; i++) {
        wanted = mlx_number(seed, layer, MLX_STATE, row, i / size,
                            (int64_t)(i % size / plan->k_dim), i % plan->k_dim);
        expect_same(&wanted, &s[i], 1, "state", layer, row, (int64_t)i);
    }
    free(conv);
    free(s);
}

// Codes are those of an append of the same values.
static void check_codes(const kvern_layer *plan, const kvern_cache *cache,
                        const kvern_cache *appended, size_t row, int64_t position)
{
    unsigned char codes[2][6][HEADS * WIDE_DIM] = {{{0}}};
    for (size_t i = 0; i < 2; i++) {
        const kvern_affine_arrays k = {(void *)codes[i][0], codes[i][1], codes[i][2], {NULL}};
        const kvern_affine_arrays v = {(void *)codes[i][3], codes[i][4], codes[i][5], {NULL}};
        assert_ok(kvern_cache_export_affine(i ? appended : cache, row, position, 1, &k, &v));
    }
    assert_true(plan->kv_heads == HEADS && plan->k_dim == WIDE_DIM);
    check_same_bytes(codes[1], codes[0], sizeof codes[0], "codes");
}

static void check_row(const mlx_case *c, uint64_t seed, size_t layer, const kvern_cache *cache,
                      const kvern_cache *appended, size_t row)
{
    const kvern_layer *plan = &c->layer[layer];
    const int64_t first = first_seen(plan, c->lengths[row]);
    for (int64_t p = 0; p < c->lengths[row]; p++) {
        if (p >= plan->keep && p < first)
            continue;
        if (plan->k_codec.kind == KVERN_CODEC_AFFINE)
            check_codes(plan, cache, appended, row, p);
        else
            check_position(plan, seed, layer, cache, row, p);
    }
}

void mlx_case_check_cache(const mlx_case *c, uint64_t seed, size_t layer, const kvern_cache *cache,
                          const kvern_cache *appended)
{
    assert_int_equal(c->rows, kvern_cache_rows(cache));
    for (size_t r = 0; r < c->rows; r++) {
        assert_int_equal(c->lengths[r], kvern_cache_length(cache, r));
        if (c->layer[layer].kind == KVERN_LAYER_RECURRENT)
            check_recurrent(c, seed, layer, cache, r);
        else
            check_row(c, seed, layer, cache, appended, r);
    }
}

void mlx_case_check(const mlx_case *c, uint64_t seed, const kvern_state *state)
{
    kvern_state *appended = NULL;
    if (mlx_case_appends(c)) {
        assert_ok(kvern_state_create(kvern_state_composition(state), c->rows, &appended));
        mlx_case_fill(c, seed, appended, INT32_MAX);
    }
    assert_int_equal(c->rows, kvern_state_rows(state));
    const char *wrong = kvern_state_walk(state);
    if (wrong)
        fail_msg("%s: %s", c->name, wrong);
    for (size_t l = 0; l < c->layers; l++)
        mlx_case_check_cache(c, seed, l, kvern_state_cache(state, l),
                             appended ? kvern_state_cache(appended, l) : NULL);
    kvern_state_destroy(appended);
}
