// SPDX-License-Identifier: MIT
#include "tests/support/naive_gemma3.h"

#include <math.h>
#include <stdlib.h>

static bool is_full(const naive_gemma3 *expected, size_t layer)
{
    return (layer + 1) % expected->full_every == 0;
}

// Rotates [tokens, heads, head_dim] by halves.
static void rotate(naive_run *run, const naive_gemma3 *expected, size_t layer, double *x,
                   size_t heads)
{
    const model_facts *facts = run->facts;
    bool full = is_full(expected, layer);
    size_t half = facts->rope[0].dim / 2;
    for (size_t t = 0; t < run->count; t++) {
        for (size_t i = 0; i < half; i++) {
            double angle =
                naive_angle(run, t, i, full ? expected->full_base : expected->window_base,
                            full ? expected->full_factor : 1);
            for (size_t head = 0; head < heads; head++) {
                double *low = x + (t * heads + head) * facts->layer[0].head_dim + i;
                double first = low[0];
                low[0] = first * cos(angle) - low[half] * sin(angle);
                low[half] = first * sin(angle) + low[half] * cos(angle);
            }
        }
    }
}

static void attention(naive_run *run, const naive_gemma3 *expected, size_t layer,
                      const double *normed, double *out)
{
    const model_facts *facts = run->facts;
    size_t queries = facts->layer[layer].heads * facts->layer[layer].head_dim;
    size_t keys = facts->layer[layer].kv_heads * facts->layer[layer].head_dim;
    double *q = naive_numbers(run->count * queries);
    double *k = naive_numbers(run->count * keys);
    double *v = naive_numbers(run->count * keys);
    double *mixed = naive_numbers(run->count * queries);
    naive_layer_product(run, layer, "attn_q", normed, queries, facts->width, false, q);
    naive_layer_product(run, layer, "attn_k", normed, keys, facts->width, false, k);
    naive_layer_product(run, layer, "attn_v", normed, keys, facts->width, false, v);
    naive_layer_norm(run, layer, "attn_q_norm", q, run->count * facts->layer[layer].heads,
                     facts->layer[layer].head_dim, q);
    naive_layer_norm(run, layer, "attn_k_norm", k, run->count * facts->layer[layer].kv_heads,
                     facts->layer[layer].head_dim, k);
    rotate(run, expected, layer, q, facts->layer[layer].heads);
    rotate(run, expected, layer, k, facts->layer[layer].kv_heads);
    naive_store(run, k, run->count * keys);
    naive_store(run, v, run->count * keys);
    const naive_attention how = {.layer = &facts->layer[layer],
                                 .window = is_full(expected, layer) ? 0 : expected->window,
                                 .scale = expected->attention_scale,
                                 .softcap = expected->attention_softcap};
    naive_layer_attend(run, &how, q, k, v, mixed);
    naive_layer_product(run, layer, "attn_output", mixed, facts->width, queries, false, out);
    free(q);
    free(k);
    free(v);
    free(mixed);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void feed_forward(naive_run *run, size_t layer, const double *normed, double *out)
{
    size_t width = run->facts->width;
    size_t inner = run->facts->layer[layer].feed_forward;
    double *gate = naive_numbers(run->count * inner);
    double *up = naive_numbers(run->count * inner);
    naive_layer_product(run, layer, "ffn_gate", normed, inner, width, false, gate);
    naive_layer_product(run, layer, "ffn_up", normed, inner, width, false, up);
    for (size_t i = 0; i < run->count * inner; i++) {
        gate[i] = gelu(gate[i]) * up[i];
    }
    naive_layer_product(run, layer, "ffn_down", gate, width, inner, false, out);
    free(gate);
    free(up);
}

// x += the norm `name` of `branch`.
static void add_normed(naive_run *run, size_t layer, const char *name, double *branch, double *x)
{
    size_t width = run->facts->width;
    naive_layer_norm(run, layer, name, branch, run->count, width, branch);
    for (size_t i = 0; i < run->count * width; i++) {
        x[i] += branch[i];
    }
}

void naive_gemma3_logits(const gguf_file *file, const model_facts *facts,
                         const naive_gemma3 *expected, const int32_t *tokens, size_t count,
                         const naive_noise *noise, double *logits)
{
    naive_run run = naive_begin(file, facts, count, noise);
    size_t width = facts->width;
    double *x = naive_numbers(count * width);
    double *normed = naive_numbers(count * width);
    double *branch = naive_numbers(count * width);
    float *embedding = naive_decode(&run, "token_embd.weight");
    for (size_t i = 0; i < count * width; i++) {
        x[i] = expected->embedding_scale * embedding[(size_t)tokens[i / width] * width + i % width];
    }
    for (size_t layer = 0; layer < facts->layers; layer++) {
        naive_layer_norm(&run, layer, "attn_norm", x, count, width, normed);
        attention(&run, expected, layer, normed, branch);
        add_normed(&run, layer, "post_attention_norm", branch, x);
        naive_layer_norm(&run, layer, "ffn_norm", x, count, width, normed);
        feed_forward(&run, layer, normed, branch);
        add_normed(&run, layer, "post_ffw_norm", branch, x);
    }
    float *weight = naive_decode(&run, "output_norm.weight");
    naive_norm(&run, weight, x, count, width, normed);
    naive_product(&run, embedding, normed, facts->vocabulary, width, false, logits);
    double cap = expected->logit_softcap;
    for (size_t i = 0; cap > 0 && i < count * facts->vocabulary; i++) {
        logits[i] = cap * tanh(logits[i] / cap);
    }
    free(weight);
    free(embedding);
    free(branch);
    free(normed);
    free(x);
}
