// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_BATCH_VIEW_H
#define KVERN_TESTS_SUPPORT_BATCH_VIEW_H

// Tensors of a batch in the layouts that callers have: packed, padded on either side, heads apart,
// rows in another order, with gaps. Everything that no token names is filled with 0xff, which is
// NaN in every type, and must stay so.

#include "tests/support/random.h"

#include <kvern/composition.h>

#include <stdbool.h>

typedef struct batch_view {
    kvern_type type;
    size_t rows, heads, dim;
    int64_t token_stride, head_stride;
    int64_t *counts; // tokens per row
    int64_t *start;  // first token per row
    bool packed;     // start may be left out: rows follow each other
    size_t elements;
    void *data;
    unsigned char *named; // per element: whether it belongs to a token
} batch_view;

// A tensor for counts[r] tokens per row, in a random layout.
batch_view batch_view_create(test_random *random, kvern_type type, size_t rows,
                             const int64_t *counts, size_t heads, size_t dim);
void batch_view_destroy(batch_view *view);

// One head of one token. Values are rounded to the type of the tensor when they are set.
void batch_view_set(batch_view *view, size_t row, int64_t token, size_t head, const float *values);
void batch_view_get(const batch_view *view, size_t row, int64_t token, size_t head, float *values);

// Fails the test when something outside of the tokens was written.
void batch_view_expect_rest_untouched(const batch_view *view);

#endif
