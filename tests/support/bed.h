// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_BED_H
#define KVERN_TESTS_SUPPORT_BED_H

// The least that a scenario of one layer needs.

#include "tests/support/ledger.h"

#include <kvern/kvern.h>

// A context whose memory is NaN wherever nothing was written, and a cache in it.
typedef struct bed {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
} bed;

bed *bed_create(kvern_layer layer, size_t rows);
bed *bed_on(kvern_layer layer, size_t rows, kvern_executor executor);
bed *bed_within(kvern_layer layer, size_t rows, uint64_t budget_bytes); // 0: no limit
void bed_destroy(bed *b);

// A layer with both head dims and both codecs alike.
kvern_layer layer_of(size_t kv_heads, size_t dim, kvern_type type);

// `count` floats of one value, from malloc.
float *new_floats(size_t count, float value);

// Appends `count` tokens of given values to a cache of one row and attends all of them with given
// queries: everything packed. `options` NULL: the default ones. `out` NULL: only appended.
void append_values(kvern_cache *cache, int64_t count, const float *k, const float *v,
                   size_t query_heads, const kvern_queries *options, const float *q, float *out);

// Fails the test unless `got` is what a fresh cache of one row gives for `count` tokens of a
// sequence (see feed.h) behind `before` others of it.
void expect_serial(kvern_layer layer, uint64_t sequence, int64_t before, int64_t count,
                   size_t query_heads, const float *got, const char *what);

#endif
