// SPDX-License-Identifier: MIT
#include "bench/measure/naive_recurrence.h"

#include <math.h>

static size_t channels_of(const kvern_layer *layer)
{
    return 2 * layer->key_heads * layer->k_dim + layer->value_heads * layer->v_dim;
}

size_t naive_recurrence_scratch(const kvern_layer *layer)
{
    return 3 * layer->k_dim + layer->v_dim;
}

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static void convolve(const kvern_layer *layer, const kvern_recur_tokens *tokens, size_t t,
                     size_t channel, size_t dim, float *out)
{
    const size_t taps = layer->conv_kernel, channels = channels_of(layer);
    for (size_t c = 0; c < dim; c++) {
        float sum = 0;
        for (size_t j = 0; j < taps; j++) {
            if (t + j + 1 >= taps)
                sum += tokens->weights->conv_weight[j * channels + channel + c] *
                       tokens->x[(t + j + 1 - taps) * channels + channel + c];
        }
        out[c] = sum * sigmoid(sum);
    }
}

static void normalize(size_t n, float *x, float eps, float factor)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const float scale = factor / sqrtf(sum / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

// One token through the matrix of one head, pass by pass.
static void take_step(const kvern_layer *layer, const float *q, const float *k, const float *v,
                      const float *decay, float beta, float skip, float *s, float *y)
{
    const size_t n = layer->k_dim;
    for (size_t e = 0; e < layer->v_dim; e++, s += n) {
        float m = 0, sum = 0;
        for (size_t i = 0; i < n; i++)
            s[i] *= decay[i];
        for (size_t i = 0; i < n; i++)
            m += s[i] * k[i];
        const float d = layer->recurrence == KVERN_RECURRENCE_SSD ? beta * v[e] : beta * (v[e] - m);
        for (size_t i = 0; i < n; i++)
            s[i] += k[i] * d;
        for (size_t i = 0; i < n; i++)
            sum += s[i] * q[i];
        y[e] = sum + skip * v[e];
    }
}

void naive_recurrence(const kvern_layer *layer, const kvern_recur_tokens *tokens, size_t count,
                      size_t first_head, size_t heads, float *s, float *scratch)
{
    const kvern_recur_weights *w = tokens->weights;
    const bool ssd = layer->recurrence == KVERN_RECURRENCE_SSD;
    const bool per_channel = layer->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS;
    const size_t n = layer->k_dim, keys = layer->key_heads * n;
    const size_t values = layer->value_heads * layer->v_dim, decays = per_channel ? n : 1;
    float *q = scratch, *k = q + n, *decay = k + n, *v = decay + n;
    for (size_t t = 0; t < count; t++) {
        for (size_t h = first_head; h < first_head + heads; h++) {
            const size_t key = h / (layer->value_heads / layer->key_heads) * n;
            convolve(layer, tokens, t, (ssd ? values + keys : 0) + key, n, q);
            convolve(layer, tokens, t, (ssd ? values : keys) + key, n, k);
            convolve(layer, tokens, t, (ssd ? 0 : 2 * keys) + h * layer->v_dim, layer->v_dim, v);
            if (!ssd) {
                normalize(n, q, w->norm_eps, w->q_factor);
                normalize(n, k, w->norm_eps, w->k_factor);
            }
            float dt = 0;
            for (size_t i = 0; i < n; i++) {
                const size_t at = h * decays + (per_channel ? i : 0);
                dt = softplus(tokens->a[t * layer->value_heads * decays + at] + w->dt_bias[at]);
                decay[i] = expf(-expf(w->a_log[h]) * dt);
            }
            const float beta = ssd ? dt : sigmoid(tokens->b[t * layer->value_heads + h]);
            take_step(layer, q, k, v, decay, beta, ssd ? w->d[h] : 0, s + h * layer->v_dim * n,
                      tokens->y + t * values + h * layer->v_dim);
        }
    }
}
