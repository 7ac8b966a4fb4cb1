// SPDX-License-Identifier: MIT
#include "tests/support/batch_view.h"

#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <stdlib.h>
#include <string.h>

#define FILLER 0xff

typedef enum layout {
    PACKED,      // [tokens, heads, dim], rows behind each other
    SCATTERED,   // the same with gaps everywhere, rows in another order
    LEFT_PADDED, // [rows, heads, length, dim], tokens at the end of the length
    RIGHT_PADDED,
    HEADS_APART, // [heads, tokens, dim]
    LAYOUTS
} layout;

static int64_t sum_of(const batch_view *v)
{
    int64_t sum = 0;
    for (size_t r = 0; r < v->rows; r++)
        sum += v->counts[r];
    return sum;
}

static int64_t most_of(const batch_view *v)
{
    int64_t most = 0;
    for (size_t r = 0; r < v->rows; r++)
        most = v->counts[r] > most ? v->counts[r] : most;
    return most;
}

static void lay_out_packed(batch_view *v)
{
    const int64_t heads = (int64_t)v->heads, dim = (int64_t)v->dim;
    int64_t at = 0;
    v->packed = true;
    v->token_stride = heads * dim;
    v->head_stride = dim;
    for (size_t r = 0; r < v->rows; r++) {
        v->start[r] = at;
        at += v->counts[r];
    }
    v->elements = (size_t)(at * v->token_stride);
}

static void lay_out_scattered(batch_view *v, test_random *random)
{
    const int64_t heads = (int64_t)v->heads, dim = (int64_t)v->dim;
    int64_t at = (int64_t)test_random_below(random, 3);
    v->head_stride = dim + (int64_t)test_random_below(random, 5);
    v->token_stride = heads * v->head_stride + (int64_t)test_random_below(random, 9);
    for (size_t r = v->rows; r-- > 0;) {
        v->start[r] = at;
        at += v->counts[r] + (int64_t)test_random_below(random, 3);
    }
    v->elements = (size_t)(at * v->token_stride);
}

static void lay_out_padded(batch_view *v, test_random *random, bool left)
{
    const int64_t heads = (int64_t)v->heads, dim = (int64_t)v->dim;
    const int64_t length = most_of(v) + (int64_t)test_random_below(random, 3);
    v->token_stride = dim;
    v->head_stride = length * dim;
    for (size_t r = 0; r < v->rows; r++)
        v->start[r] = (int64_t)r * heads * length + (left ? length - v->counts[r] : 0);
    v->elements = v->rows * (size_t)(heads * length * dim);
}

static void lay_out_heads_apart(batch_view *v)
{
    const int64_t dim = (int64_t)v->dim;
    lay_out_packed(v);
    v->token_stride = dim;
    v->head_stride = sum_of(v) * dim;
    v->elements = v->heads * (size_t)v->head_stride;
}

static void lay_out(batch_view *v, test_random *random)
{
    switch ((layout)test_random_below(random, LAYOUTS)) {
    case PACKED:
        lay_out_packed(v);
        break;
    case SCATTERED:
        lay_out_scattered(v, random);
        break;
    case LEFT_PADDED:
        lay_out_padded(v, random, true);
        break;
    case RIGHT_PADDED:
        lay_out_padded(v, random, false);
        break;
    default:
        lay_out_heads_apart(v);
    }
}

static size_t index_of(const batch_view *v, size_t row, int64_t token, size_t head)
{
    return (size_t)((v->start[row] + token) * v->token_stride + (int64_t)head * v->head_stride);
}

static void name_tokens(batch_view *v)
{
    for (size_t r = 0; r < v->rows; r++) {
        for (int64_t i = 0; i < v->counts[r]; i++) {
            for (size_t h = 0; h < v->heads; h++) {
                assert_true(index_of(v, r, i, h) + v->dim <= v->elements);
                memset(v->named + index_of(v, r, i, h), 1, v->dim);
            }
        }
    }
}

static void *new_bytes(size_t bytes, int filler)
{
    void *memory = malloc(bytes + 1);
    assert_non_null(memory);
    return memset(memory, filler, bytes + 1);
}

batch_view batch_view_create(test_random *random, kvern_type type, size_t rows,
                             const int64_t *counts, size_t heads, size_t dim)
{
    batch_view v = {.type = type, .rows = rows, .heads = heads, .dim = dim};
    v.counts = new_bytes(rows * sizeof *counts, 0);
    v.start = new_bytes(rows * sizeof *counts, 0);
    if (rows)
        memcpy(v.counts, counts, rows * sizeof *counts);
    lay_out(&v, random);
    v.data = new_bytes(v.elements * kvern_type_bytes(type), FILLER);
    v.named = new_bytes(v.elements, 0);
    name_tokens(&v);
    return v;
}

void batch_view_destroy(batch_view *v)
{
    free(v->counts);
    free(v->start);
    free(v->data);
    free(v->named);
    memset(v, 0, sizeof *v);
}

void batch_view_set(batch_view *v, size_t row, int64_t token, size_t head, const float *values)
{
    for (size_t d = 0; d < v->dim; d++)
        element_set(v->type, v->data, index_of(v, row, token, head) + d, values[d]);
}

void batch_view_get(const batch_view *v, size_t row, int64_t token, size_t head, float *values)
{
    for (size_t d = 0; d < v->dim; d++)
        values[d] = element_get(v->type, v->data, index_of(v, row, token, head) + d);
}

void batch_view_expect_rest_untouched(const batch_view *v)
{
    const size_t bytes = kvern_type_bytes(v->type);
    for (size_t i = 0; i < v->elements * bytes; i++) {
        if (!v->named[i / bytes] && ((const unsigned char *)v->data)[i] != FILLER)
            fail_msg("element %zu belongs to no token and was written", i / bytes);
    }
}
