// SPDX-License-Identifier: MIT
#include "tests/support/recur_feed.h"

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>

static float *new_floats(size_t count)
{
    float *floats = calloc(count + 1, sizeof *floats);
    assert_non_null(floats);
    return floats;
}

// What a token of a recurrent layer has, in floats.
typedef struct widths {
    size_t x, a, b, y;
} widths;

static widths widths_of(const kvern_layer *layer)
{
    const bool channels = layer->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS;
    const bool ssd = layer->recurrence == KVERN_RECURRENCE_SSD;
    return (widths){2 * layer->key_heads * layer->k_dim + layer->value_heads * layer->v_dim,
                    layer->value_heads * (channels ? layer->k_dim : 1),
                    ssd ? 0 : layer->value_heads, layer->value_heads * layer->v_dim};
}

// ---- Weights ----

static float *random_floats(test_random *random, float *to, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++)
        to[i] = test_random_signed(random) * scale;
    return to + count;
}

static void make_weights(recur_feed *f, const kvern_layer *layer)
{
    const widths w = widths_of(layer);
    const size_t taps = layer->conv_kernel * layer->conv_dim;
    test_random random = test_random_seed(layer->k_dim * 1000 + layer->v_dim);
    float *at = f->numbers = new_floats(taps + layer->conv_dim + 2 * layer->value_heads + w.a);
    f->weights = kvern_recur_weights_default(layer);
    if (taps) {
        f->weights.conv_weight = at;
        at = random_floats(&random, at, taps, 1);
        f->weights.conv_bias = at;
        at = random_floats(&random, at, layer->conv_dim, 0.25f);
    }
    f->weights.a_log = at;
    at = random_floats(&random, at, layer->value_heads, 1);
    f->weights.dt_bias = at;
    at = random_floats(&random, at, w.a, 1);
    if (layer->recurrence == KVERN_RECURRENCE_SSD) {
        f->weights.d = at;
        random_floats(&random, at, layer->value_heads, 1);
    }
}

// ---- Tokens ----

// A token's numbers, of streams that other layers do not have.
static void token_values(uint64_t sequence, int64_t position, int stream, size_t count, float *out)
{
    feed_values(sequence + (UINT64_C(1) << 40), position, (feed_stream)stream, count, out);
}

void recur_feed_create(recur_feed *f, const kvern_cache *cache, const uint64_t *sequences,
                       const int64_t *counts)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const widths w = widths_of(layer);
    size_t token = 0;
    memset(f, 0, sizeof *f);
    f->rows = kvern_cache_rows(cache);
    f->counts = calloc(f->rows + 1, sizeof *f->counts);
    assert_non_null(f->counts);
    for (size_t r = 0; r < f->rows; r++)
        f->tokens_in_all += (size_t)(f->counts[r] = counts[r]);
    f->x = new_floats(f->tokens_in_all * w.x);
    f->a = new_floats(f->tokens_in_all * w.a);
    f->b = new_floats(f->tokens_in_all * w.b);
    f->y_count = f->tokens_in_all * w.y;
    f->y = new_floats(f->y_count);
    for (size_t r = 0; r < f->rows; r++) {
        for (int64_t i = 0; i < counts[r]; i++, token++) {
            const int64_t position = kvern_cache_length(cache, r) + i;
            token_values(sequences[r], position, 0, w.x, f->x + token * w.x);
            token_values(sequences[r], position, 1, w.a, f->a + token * w.a);
            token_values(sequences[r], position, 2, w.b, f->b + token * w.b);
        }
    }
    make_weights(f, layer);
    f->tokens = kvern_recur_tokens_default(layer);
    f->tokens.x = f->x;
    f->tokens.a = f->a;
    f->tokens.b = w.b ? f->b : NULL;
    f->tokens.y = f->y;
    f->tokens.counts = f->counts;
    f->tokens.weights = &f->weights;
}

void recur_feed_destroy(recur_feed *f)
{
    free(f->counts);
    free(f->x);
    free(f->a);
    free(f->b);
    free(f->y);
    free(f->numbers);
    memset(f, 0, sizeof *f);
}

void lane_take(unsigned char *lane, size_t bytes, uint64_t sequence, int64_t position,
               int64_t count)
{
    for (int64_t t = position; t < position + count; t++) {
        test_random random = test_random_seed(sequence * 77777 + (uint64_t)t);
        for (size_t i = 0; i < bytes; i++)
            lane[i] = (unsigned char)(lane[i] * 31 + test_random_below(&random, 256));
    }
}

static void run_lanes(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
                      const int64_t *counts)
{
    const size_t rows = kvern_cache_rows(cache);
    void **lanes = calloc(rows + 1, sizeof *lanes);
    assert_non_null(lanes);
    assert_ok(kvern_cache_lanes(cache, phase, counts, lanes));
    for (size_t r = 0; r < rows; r++) {
        if (counts[r])
            lane_take(lanes[r], kvern_cache_layer(cache)->lane_bytes, sequences[r],
                      kvern_cache_length(cache, r) - counts[r], counts[r]);
        else
            assert_null(lanes[r]);
    }
    free(lanes);
}

void recur_run(kvern_cache *cache, kvern_phase phase, const uint64_t *sequences,
               const int64_t *counts, float *y)
{
    recur_feed f;
    if (kvern_cache_layer(cache)->recurrence == KVERN_RECURRENCE_LANE) {
        run_lanes(cache, phase, sequences, counts);
        return;
    }
    recur_feed_create(&f, cache, sequences, counts);
    f.tokens.y = y;
    assert_ok(kvern_cache_recur(cache, phase, &f.tokens));
    recur_feed_destroy(&f);
}

void recur_one(kvern_cache *cache, kvern_phase phase, uint64_t sequence, int64_t count, float *y)
{
    assert_int_equal(kvern_cache_rows(cache), 1);
    recur_run(cache, phase, &sequence, &count, y);
}

// ---- Comparing ----

unsigned char *recur_content(const kvern_cache *cache, size_t row, size_t *bytes)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t conv =
        layer->conv_kernel ? (layer->conv_kernel - 1) * layer->conv_dim * sizeof(float) : 0;
    const size_t s = layer->value_heads * layer->v_dim * layer->k_dim * sizeof(float);
    *bytes = conv + s + layer->lane_bytes;
    unsigned char *content = malloc(*bytes + 1);
    assert_non_null(content);
    const kvern_recur_state state = {
        .size = sizeof state,
        .conv = conv ? (float *)content : NULL,
        .s = s ? (float *)(content + conv) : NULL,
        .lane = layer->lane_bytes ? content + conv + s : NULL,
    };
    assert_ok(kvern_cache_export_recurrent(cache, row, &state));
    return content;
}

void recur_expect_row(const kvern_cache *wanted, size_t a, const kvern_cache *got, size_t b,
                      const char *what)
{
    size_t count, other;
    unsigned char *x = recur_content(wanted, a, &count), *y = recur_content(got, b, &other);
    assert_int_equal(kvern_cache_length(wanted, a), kvern_cache_length(got, b));
    assert_int_equal(count, other);
    check_same_bytes(x, y, count, what);
    free(x);
    free(y);
}
