// SPDX-License-Identifier: MIT
#include "tests/support/naive_llama.h"

#include <math.h>
#include <stdlib.h>

// Rotates [tokens, heads, head_dim] by neighbours.
static void rotate(naive_run *run, double *x, size_t heads)
{
    const model_facts *facts = run->facts;
    bool scaled = facts->rope[0].scaling == MODEL_ROPE_LLAMA3;
    float *factors = scaled ? naive_decode(run, "rope_freqs.weight") : NULL;
    for (size_t t = 0; t < run->count; t++) {
        for (size_t i = 0; i < facts->rope[0].dim / 2; i++) {
            double factor = facts->rope[0].factor * (factors ? (double)factors[i] : 1);
            double angle = naive_angle(run, t, i, facts->rope[0].base, factor);
            for (size_t head = 0; head < heads; head++) {
                double *pair = x + (t * heads + head) * facts->layer[0].head_dim + 2 * i;
                double even = pair[0];
                pair[0] = even * cos(angle) - pair[1] * sin(angle);
                pair[1] = even * sin(angle) + pair[1] * cos(angle);
            }
        }
    }
    free(factors);
}

static void attention(naive_run *run, size_t layer, const double *normed, double *x)
{
    const model_facts *facts = run->facts;
    const model_layer_facts *sizes = &facts->layer[layer];
    const naive_attention how = {.layer = sizes, .scale = 1 / sqrt((double)sizes->head_dim)};
    size_t queries = sizes->heads * sizes->head_dim;
    size_t keys = sizes->kv_heads * sizes->head_dim;
    double *q = naive_numbers(run->count * queries);
    double *k = naive_numbers(run->count * keys);
    double *v = naive_numbers(run->count * keys);
    double *mixed = naive_numbers(run->count * queries);
    naive_layer_product(run, layer, "attn_q", normed, queries, facts->width, false, q);
    naive_layer_product(run, layer, "attn_k", normed, keys, facts->width, false, k);
    naive_layer_product(run, layer, "attn_v", normed, keys, facts->width, false, v);
    rotate(run, q, sizes->heads);
    rotate(run, k, sizes->kv_heads);
    naive_store(run, k, run->count * keys);
    naive_store(run, v, run->count * keys);
    naive_layer_attend(run, &how, q, k, v, mixed);
    naive_layer_product(run, layer, "attn_output", mixed, facts->width, queries, true, x);
    free(q);
    free(k);
    free(v);
    free(mixed);
}

static void feed_forward(naive_run *run, size_t layer, const double *normed, double *x)
{
    size_t width = run->facts->width;
    size_t inner = run->facts->layer[layer].feed_forward;
    double *gate = naive_numbers(run->count * inner);
    double *up = naive_numbers(run->count * inner);
    naive_layer_product(run, layer, "ffn_gate", normed, inner, width, false, gate);
    naive_layer_product(run, layer, "ffn_up", normed, inner, width, false, up);
    for (size_t i = 0; i < run->count * inner; i++) {
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    }
    naive_layer_product(run, layer, "ffn_down", gate, width, inner, true, x);
    free(gate);
    free(up);
}

void naive_llama_logits(const gguf_file *file, const model_facts *facts, const int32_t *tokens,
                        size_t count, const naive_noise *noise, double *logits)
{
    naive_run run = naive_begin(file, facts, count, noise);
    size_t width = facts->width;
    double *x = naive_numbers(count * width);
    double *normed = naive_numbers(count * width);
    float *embedding = naive_decode(&run, "token_embd.weight");
    for (size_t i = 0; i < count * width; i++) {
        x[i] = embedding[(size_t)tokens[i / width] * width + i % width];
    }
    for (size_t layer = 0; layer < facts->layers; layer++) {
        naive_layer_norm(&run, layer, "attn_norm", x, count, width, normed);
        attention(&run, layer, normed, x);
        naive_layer_norm(&run, layer, "ffn_norm", x, count, width, normed);
        feed_forward(&run, layer, normed, x);
    }
    float *weight = naive_decode(&run, "output_norm.weight");
    naive_norm(&run, weight, x, count, width, normed);
    float *output = facts->tied_output ? NULL : naive_decode(&run, "output.weight");
    naive_product(&run, output ? output : embedding, normed, facts->vocabulary, width, false,
                  logits);
    free(weight);
    free(output);
    free(embedding);
    free(normed);
    free(x);
}
