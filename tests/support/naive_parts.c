// SPDX-License-Identifier: MIT
#include "tests/support/naive_parts.h"

#include "engine/weights/dequantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

naive_run naive_begin(const gguf_file *file, const model_facts *facts, size_t count,
                      const naive_noise *noise)
{
    naive_run run = {.file = file, .facts = facts, .count = count};
    run.noise = noise ? *noise : (naive_noise){0};
    run.random = test_random_seed(run.noise.seed);
    return run;
}

double *naive_numbers(size_t n)
{
    double *x = calloc(n, sizeof *x);
    if (!x) {
        abort();
    }
    return x;
}

float *naive_decode(const naive_run *run, const char *name)
{
    const gguf_tensor *tensor = gguf_find_tensor(run->file, name);
    float *values = tensor ? malloc(tensor->elements * sizeof *values) : NULL;
    if (!values ||
        engine_dequantize(tensor->type, tensor->data, tensor->elements, values) != KVERN_OK) {
        abort();
    }
    return values;
}

static float *decode_layer(const naive_run *run, size_t layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%zu.%s.weight", layer, name);
    return naive_decode(run, full);
}

double naive_disturbed(naive_run *run, double x, double amplitude)
{
    return x + amplitude * test_random_signed(&run->random);
}

static void round_input(naive_run *run, const double *x, size_t n, double *rounded)
{
    for (size_t block = 0; block < n; block += 32) {
        size_t end = block + 32 < n ? block + 32 : n;
        double largest = 0;
        for (size_t i = block; i < end; i++) {
            largest = fmax(largest, fabs(x[i]));
        }
        for (size_t i = block; i < end; i++) {
            rounded[i] = naive_disturbed(run, x[i], run->noise.input * largest);
        }
    }
}

void naive_product(naive_run *run, const float *matrix, const double *x, size_t rows, size_t cols,
                   bool add, double *y)
{
    double *input = naive_numbers(cols);
    for (size_t t = 0; t < run->count; t++) {
        round_input(run, x + t * cols, cols, input);
        for (size_t r = 0; r < rows; r++) {
            double sum = 0;
            double magnitude = 0;
            for (size_t c = 0; c < cols; c++) {
                sum += matrix[r * cols + c] * input[c];
                magnitude += fabs(matrix[r * cols + c] * input[c]);
            }
            sum = naive_disturbed(run, sum, run->noise.sum * magnitude);
            y[t * rows + r] = add ? y[t * rows + r] + sum : sum;
        }
    }
    free(input);
}

void naive_layer_product(naive_run *run, size_t layer, const char *name, const double *x,
                         size_t rows, size_t cols, bool add, double *y)
{
    float *matrix = decode_layer(run, layer, name);
    naive_product(run, matrix, x, rows, cols, add, y);
    free(matrix);
    char tensor[96];
    snprintf(tensor, sizeof tensor, "blk.%zu.%s.bias", layer, name);
    float *bias = gguf_find_tensor(run->file, tensor) ? naive_decode(run, tensor) : NULL;
    for (size_t i = 0; bias && i < run->count * rows; i++) {
        y[i] += bias[i % rows];
    }
    free(bias);
}

void naive_norm(const naive_run *run, const float *weight, const double *x, size_t vectors,
                size_t n, double *y)
{
    for (size_t v = 0; v < vectors; v++, x += n, y += n) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            sum += x[i] * x[i];
        }
        double scale = 1 / sqrt(sum / (double)n + run->facts->norm_epsilon);
        for (size_t i = 0; i < n; i++) {
            y[i] = x[i] * scale * weight[i];
        }
    }
}

void naive_layer_norm(const naive_run *run, size_t layer, const char *name, const double *x,
                      size_t vectors, size_t n, double *y)
{
    float *weight = decode_layer(run, layer, name);
    naive_norm(run, weight, x, vectors, n, y);
    free(weight);
}

double naive_angle(naive_run *run, size_t position, size_t i, double base, double factor)
{
    double frequency = pow(base, -2.0 * (double)i / (double)run->facts->rope[0].dim);
    double angle = (double)position / factor * frequency;
    return naive_disturbed(run, angle, run->noise.angle * (double)position);
}

void naive_store(naive_run *run, double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = naive_disturbed(run, x[i], run->noise.kv * fabs(x[i]));
    }
}

// The weights of the positions from `first` to `last`, which begin at q's KV head in `k`.
static void softmax(const naive_attention *how, const double *q, const double *k, size_t first,
                    size_t last, double *weights)
{
    size_t dim = how->layer->head_dim;
    double largest = -INFINITY;
    double sum = 0;
    for (size_t p = first; p <= last; p++) {
        double score = 0;
        for (size_t d = 0; d < dim; d++) {
            score += q[d] * k[p * how->layer->kv_heads * dim + d];
        }
        score *= how->scale;
        weights[p] = how->softcap > 0 ? how->softcap * tanh(score / how->softcap) : score;
        largest = fmax(largest, weights[p]);
    }
    for (size_t p = first; p <= last; p++) {
        weights[p] = exp(weights[p] - largest);
        sum += weights[p];
    }
    for (size_t p = first; p <= last; p++) {
        weights[p] /= sum;
    }
}

void naive_layer_attend(const naive_run *run, const naive_attention *how, const double *q,
                        const double *k, const double *v, double *out)
{
    size_t dim = how->layer->head_dim;
    double *weights = naive_numbers(run->count);
    for (size_t i = 0; i < run->count * how->layer->heads; i++, q += dim, out += dim) {
        size_t position = i / how->layer->heads;
        size_t kv_head = i % how->layer->heads / (how->layer->heads / how->layer->kv_heads);
        size_t first = how->window && position >= how->window ? position - how->window + 1 : 0;
        softmax(how, q, k + kv_head * dim, first, position, weights);
        for (size_t d = 0; d < dim; d++) {
            out[d] = 0;
            for (size_t p = first; p <= position; p++) {
                out[d] += weights[p] * v[(p * how->layer->kv_heads + kv_head) * dim + d];
            }
        }
    }
    free(weights);
}
