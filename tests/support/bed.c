// SPDX-License-Identifier: MIT
#include "tests/support/bed.h"

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"

#include <math.h>
#include <stdlib.h>

static bed *create(kvern_layer layer, size_t rows, kvern_executor executor, uint64_t budget_bytes)
{
    bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    ledger_init(&b->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&b->books);
    options.executor = executor;
    options.budget_bytes = budget_bytes;
    assert_ok(kvern_context_create(&options, &b->context));
    assert_ok(kvern_composition_create(b->context, &layer, 1, &b->composition));
    assert_ok(kvern_cache_create(b->composition, 0, rows, &b->cache));
    return b;
}

bed *bed_on(kvern_layer layer, size_t rows, kvern_executor executor)
{
    return create(layer, rows, executor, 0);
}

bed *bed_create(kvern_layer layer, size_t rows)
{
    return bed_within(layer, rows, 0);
}

bed *bed_within(kvern_layer layer, size_t rows, uint64_t budget_bytes)
{
    return create(layer, rows, executor_backwards(1), budget_bytes);
}

void bed_destroy(bed *b)
{
    kvern_cache_destroy(b->cache);
    kvern_composition_release(b->composition);
    kvern_context_release(b->context);
    ledger_finish(&b->books);
    free(b);
}

kvern_layer layer_of(size_t kv_heads, size_t dim, kvern_type type)
{
    kvern_layer layer = kvern_layer_default(kv_heads, dim);
    layer.k_codec = layer.v_codec = kvern_codec_dense(type);
    return layer;
}

void append_values(kvern_cache *cache, int64_t count, const float *k, const float *v,
                   size_t query_heads, const kvern_queries *options, const float *q, float *out)
{
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(cache));
    kvern_queries queries =
        options ? *options : kvern_queries_default(kvern_cache_layer(cache), query_heads);
    kvern_read *read = NULL;
    tokens.k = k;
    tokens.v = v;
    tokens.counts = &count;
    queries.q = q;
    queries.out = out;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, out ? &read : NULL));
    if (out)
        assert_ok(kvern_read_attend(read, &queries));
    kvern_read_release(read);
}

float *new_floats(size_t count, float value)
{
    float *x = malloc((count + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = value;
    return x;
}

// What a fresh cache of one row gives for `count` tokens of a sequence behind `before` others of
// it.
static float *serial(kvern_layer layer, uint64_t sequence, int64_t before, int64_t count,
                     size_t query_heads)
{
    bed *b = bed_create(layer, 1);
    float *out = new_floats((size_t)count * query_heads * layer.v_dim, NAN);
    feed_one(b->cache, KVERN_PHASE_WINDOW, sequence, before, query_heads, NULL);
    feed_one(b->cache, KVERN_PHASE_WINDOW, sequence, count, query_heads, out);
    bed_destroy(b);
    return out;
}

void expect_serial(kvern_layer layer, uint64_t sequence, int64_t before, int64_t count,
                   size_t query_heads, const float *got, const char *what)
{
    float *wanted = serial(layer, sequence, before, count, query_heads);
    check_same_bytes(wanted, got, (size_t)count * query_heads * layer.v_dim * sizeof *got, what);
    free(wanted);
}
