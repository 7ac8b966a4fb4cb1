// SPDX-License-Identifier: MIT
#include "tests/support/naive_llama.h"

#include "engine/dequantize.h"
#include "tests/support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct naive {
    const gguf_file *file;
    const model_facts *facts;
    naive_noise noise;
    test_random random;
    size_t count; // tokens
} naive;

static double *numbers(size_t n)
{
    double *x = calloc(n, sizeof *x);
    if (!x) {
        abort();
    }
    return x;
}

// The values of a tensor; free().
static float *decode(const naive *run, const char *name)
{
    const gguf_tensor *tensor = gguf_find_tensor(run->file, name);
    float *values = tensor ? malloc(tensor->elements * sizeof *values) : NULL;
    if (!values ||
        engine_dequantize(tensor->type, tensor->data, tensor->elements, values) != KVERN_OK) {
        abort();
    }
    return values;
}

static float *decode_layer(const naive *run, size_t layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%zu.%s.weight", layer, name);
    return decode(run, full);
}

static double disturbed(naive *run, double x, double amplitude)
{
    return x + amplitude * test_random_signed(&run->random);
}

static void round_input(naive *run, const double *x, size_t n, double *rounded)
{
    for (size_t block = 0; block < n; block += 32) {
        size_t end = block + 32 < n ? block + 32 : n;
        double largest = 0;
        for (size_t i = block; i < end; i++) {
            largest = fmax(largest, fabs(x[i]));
        }
        for (size_t i = block; i < end; i++) {
            rounded[i] = disturbed(run, x[i], run->noise.input * largest);
        }
    }
}

// y[tokens, rows] = x[tokens, cols] times the transposed matrix; `add`: y += that.
static void product(naive *run, const float *matrix, const double *x, size_t rows, size_t cols,
                    bool add, double *y)
{
    double *input = numbers(cols);
    for (size_t t = 0; t < run->count; t++) {
        round_input(run, x + t * cols, cols, input);
        for (size_t r = 0; r < rows; r++) {
            double sum = 0;
            double magnitude = 0;
            for (size_t c = 0; c < cols; c++) {
                sum += matrix[r * cols + c] * input[c];
                magnitude += fabs(matrix[r * cols + c] * input[c]);
            }
            sum = disturbed(run, sum, run->noise.sum * magnitude);
            y[t * rows + r] = add ? y[t * rows + r] + sum : sum;
        }
    }
    free(input);
}

static void layer_product(naive *run, size_t layer, const char *name, const double *x, size_t rows,
                          size_t cols, bool add, double *y)
{
    float *matrix = decode_layer(run, layer, name);
    product(run, matrix, x, rows, cols, add, y);
    free(matrix);
}

static void norm(naive *run, const float *weight, const double *x, double *y)
{
    size_t width = run->facts->width;
    for (size_t t = 0; t < run->count; t++, x += width, y += width) {
        double sum = 0;
        for (size_t i = 0; i < width; i++) {
            sum += x[i] * x[i];
        }
        double scale = 1 / sqrt(sum / (double)width + run->facts->norm_epsilon);
        for (size_t i = 0; i < width; i++) {
            y[i] = x[i] * scale * weight[i];
        }
    }
}

static void layer_norm(naive *run, size_t layer, const char *name, const double *x, double *y)
{
    float *weight = decode_layer(run, layer, name);
    norm(run, weight, x, y);
    free(weight);
}

// Rotates [tokens, heads, head_dim].
static void rotate(naive *run, double *x, size_t heads)
{
    const model_facts *facts = run->facts;
    float *factors =
        facts->rope_scaling == MODEL_ROPE_LLAMA3 ? decode(run, "rope_freqs.weight") : NULL;
    for (size_t t = 0; t < run->count; t++) {
        for (size_t i = 0; i < facts->rope_dim / 2; i++) {
            double frequency = pow(facts->rope_base, -2.0 * (double)i / (double)facts->rope_dim);
            double angle = (double)t / facts->rope_factor * frequency / (factors ? factors[i] : 1);
            angle = disturbed(run, angle, run->noise.angle * (double)t);
            for (size_t head = 0; head < heads; head++) {
                double *pair = x + (t * heads + head) * facts->head_dim + 2 * i;
                double even = pair[0];
                pair[0] = even * cos(angle) - pair[1] * sin(angle);
                pair[1] = even * sin(angle) + pair[1] * cos(angle);
            }
        }
    }
    free(factors);
}

static void store(naive *run, double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = disturbed(run, x[i], run->noise.kv * fabs(x[i]));
    }
}

// One query head of one token over the positions up to its own.
static void attend_head(const naive *run, const double *q, const double *k, const double *v,
                        size_t position, size_t kv_head, double *weights, double *out)
{
    size_t dim = run->facts->head_dim;
    size_t heads = run->facts->kv_heads;
    double largest = -INFINITY;
    double sum = 0;
    for (size_t p = 0; p <= position; p++) {
        weights[p] = 0;
        for (size_t d = 0; d < dim; d++) {
            weights[p] += q[d] * k[(p * heads + kv_head) * dim + d];
        }
        weights[p] /= sqrt((double)dim);
        largest = fmax(largest, weights[p]);
    }
    for (size_t p = 0; p <= position; p++) {
        weights[p] = exp(weights[p] - largest);
        sum += weights[p];
    }
    for (size_t d = 0; d < dim; d++) {
        out[d] = 0;
        for (size_t p = 0; p <= position; p++) {
            out[d] += weights[p] / sum * v[(p * heads + kv_head) * dim + d];
        }
    }
}

static void attention(naive *run, size_t layer, const double *normed, double *x)
{
    const model_facts *facts = run->facts;
    size_t queries = facts->heads * facts->head_dim;
    size_t keys = facts->kv_heads * facts->head_dim;
    double *q = numbers(run->count * queries);
    double *k = numbers(run->count * keys);
    double *v = numbers(run->count * keys);
    double *mixed = numbers(run->count * queries);
    double *weights = numbers(run->count);
    layer_product(run, layer, "attn_q", normed, queries, facts->width, false, q);
    layer_product(run, layer, "attn_k", normed, keys, facts->width, false, k);
    layer_product(run, layer, "attn_v", normed, keys, facts->width, false, v);
    rotate(run, q, facts->heads);
    rotate(run, k, facts->kv_heads);
    store(run, k, run->count * keys);
    store(run, v, run->count * keys);
    for (size_t t = 0; t < run->count; t++) {
        for (size_t head = 0; head < facts->heads; head++) {
            size_t at = (t * facts->heads + head) * facts->head_dim;
            attend_head(run, q + at, k, v, t, head / (facts->heads / facts->kv_heads), weights,
                        mixed + at);
        }
    }
    layer_product(run, layer, "attn_output", mixed, facts->width, queries, true, x);
    free(q);
    free(k);
    free(v);
    free(mixed);
    free(weights);
}

static void feed_forward(naive *run, size_t layer, const double *normed, double *x)
{
    size_t width = run->facts->width;
    size_t inner = run->facts->feed_forward;
    double *gate = numbers(run->count * inner);
    double *up = numbers(run->count * inner);
    layer_product(run, layer, "ffn_gate", normed, inner, width, false, gate);
    layer_product(run, layer, "ffn_up", normed, inner, width, false, up);
    for (size_t i = 0; i < run->count * inner; i++) {
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    }
    layer_product(run, layer, "ffn_down", gate, width, inner, true, x);
    free(gate);
    free(up);
}

void naive_llama_logits(const gguf_file *file, const model_facts *facts, const int32_t *tokens,
                        size_t count, const naive_noise *noise, double *logits)
{
    naive run = {.file = file, .facts = facts, .count = count};
    run.noise = noise ? *noise : (naive_noise){0};
    run.random = test_random_seed(run.noise.seed);
    size_t width = facts->width;
    double *x = numbers(count * width);
    double *normed = numbers(count * width);
    float *embedding = decode(&run, "token_embd.weight");
    for (size_t i = 0; i < count * width; i++) {
        x[i] = embedding[(size_t)tokens[i / width] * width + i % width];
    }
    for (size_t layer = 0; layer < facts->layers; layer++) {
        layer_norm(&run, layer, "attn_norm", x, normed);
        attention(&run, layer, normed, x);
        layer_norm(&run, layer, "ffn_norm", x, normed);
        feed_forward(&run, layer, normed, x);
    }
    float *weight = decode(&run, "output_norm.weight");
    norm(&run, weight, x, normed);
    float *output = facts->tied_output ? NULL : decode(&run, "output.weight");
    product(&run, output ? output : embedding, normed, facts->vocabulary, width, false, logits);
    free(weight);
    free(output);
    free(embedding);
    free(normed);
    free(x);
}
