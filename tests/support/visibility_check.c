// SPDX-License-Identifier: MIT
#include "tests/support/visibility_check.h"

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/storages.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

// What a run stores, and what its results must be.
typedef struct run {
    const kvern_layer *layer;
    int64_t poisoned; // the position with a NaN; -1: none
    bool in_keys;     // rather than in values
} run;

// Numbers that follow from the position, whose sums tell sets of positions apart and are exact.
static float code(int64_t position, size_t d)
{
    switch (d % 4) {
    case 0:
        return 1;
    case 1:
        return (float)position;
    case 2:
        return (float)((position * position * 31 + position * 7) % 1009);
    default:
        return (float)(position % 2);
    }
}

static void fill(const run *r, float *k, float *v, int64_t first, int64_t count)
{
    const size_t k_count = r->layer->kv_heads * r->layer->k_dim;
    const size_t v_count = r->layer->kv_heads * r->layer->v_dim;
    for (int64_t i = 0; i < count; i++) {
        const bool poisoned = first + i == r->poisoned;
        for (size_t d = 0; d < k_count; d++)
            k[(size_t)i * k_count + d] = poisoned && r->in_keys ? NAN : 0.25f;
        for (size_t d = 0; d < v_count; d++)
            v[(size_t)i * v_count + d] = poisoned && !r->in_keys ? NAN : code(first + i, d);
    }
}

// All scores are equal, so a result is the mean over the positions seen: of whole numbers, with one
// rounding.
static float mean_of(const run *r, int64_t query, size_t d)
{
    double sum = 0, seen = 0;
    for (int64_t p = 0; p <= query; p++) {
        if (layer_sees(r->layer, query, p)) {
            sum += (double)code(p, d);
            seen++;
        }
    }
    return (float)sum / (float)seen;
}

static void check_query(const run *r, int64_t query, const float *out)
{
    const size_t dim = r->layer->v_dim;
    if (r->poisoned >= 0) {
        const bool wanted = layer_sees(r->layer, query, r->poisoned);
        for (size_t d = 0; d < dim; d++) {
            if (isnan(out[d]) != wanted)
                fail_msg("window %lld, keep %lld, chunk %lld: query %lld %s position %lld",
                         (long long)r->layer->window, (long long)r->layer->keep,
                         (long long)r->layer->chunk, (long long)query,
                         wanted ? "does not see" : "sees", (long long)r->poisoned);
        }
        return;
    }
    for (size_t d = 0; d < 4; d++) {
        if (out[d] != mean_of(r, query, d))
            fail_msg(
                "window %lld, keep %lld, chunk %lld: query %lld sees other positions: mean %zu",
                (long long)r->layer->window, (long long)r->layer->keep, (long long)r->layer->chunk,
                (long long)query, d);
    }
}

static void append(const run *r, kvern_cache *cache, kvern_phase phase, int64_t count)
{
    const kvern_layer *layer = r->layer;
    const int64_t first = kvern_cache_length(cache, 0);
    const size_t tokens = (size_t)count, heads = layer->kv_heads;
    float *k = new_floats(tokens * heads * layer->k_dim, 0);
    float *v = new_floats(tokens * heads * layer->v_dim, 0);
    float *q = new_floats(tokens * heads * layer->k_dim, 0);
    float *out = new_floats(tokens * heads * layer->v_dim, INFINITY);
    kvern_tokens t = kvern_tokens_default(layer);
    kvern_queries queries = kvern_queries_default(layer, heads);
    kvern_read *read;
    fill(r, k, v, first, count);
    t.k = k;
    t.v = v;
    t.counts = &count;
    queries.q = q;
    queries.out = out;
    assert_ok(kvern_cache_append(cache, phase, &t, &read));
    assert_ok(kvern_read_attend(read, &queries));
    kvern_read_release(read);
    for (size_t i = 0; i < tokens * heads; i++)
        check_query(r, first + (int64_t)(i / heads), out + i * layer->v_dim);
    free(k);
    free(v);
    free(q);
    free(out);
}

static void serve(const run *r, const visibility_step *steps, size_t count)
{
    bed *b = bed_create(*r->layer, 1);
    for (size_t s = 0; s < count; s++) {
        const bool decodes = steps[s].phase == KVERN_PHASE_DECODE;
        for (int64_t i = 0; decodes && i < steps[s].tokens; i++)
            append(r, b->cache, KVERN_PHASE_DECODE, 1);
        if (!decodes)
            append(r, b->cache, steps[s].phase, steps[s].tokens);
        assert_ok(kvern_cache_trim(b->cache, 0, steps[s].trim));
    }
    bed_destroy(b);
}

void visibility_check_position(const kvern_layer *layer, const visibility_step *steps, size_t count,
                               int64_t position)
{
    serve(&(run){layer, position, true}, steps, count);
    serve(&(run){layer, position, false}, steps, count);
}

void visibility_check(const kvern_layer *layer, const visibility_step *steps, size_t count)
{
    int64_t length = 0;
    for (size_t s = 0; s < count; s++)
        length += steps[s].tokens - steps[s].trim;
    if (layer->v_codec.kind == KVERN_CODEC_F32 && layer->start == KVERN_NO_START)
        serve(&(run){layer, -1, false}, steps, count);
    const int64_t last = layer_first_seen(layer, length - 1), keep = layer->keep;
    const int64_t edges[] = {0,  keep - 1, keep, keep + 1, 62,        63,
                             64, last - 1, last, last + 1, length / 3};
    for (size_t i = 0; length > 40 && i < sizeof edges / sizeof edges[0]; i++) {
        if (edges[i] >= 0 && edges[i] < length)
            serve(&(run){layer, edges[i], i % 2}, steps, count);
    }
    for (int64_t p = 0; length <= 40 && p < length; p++)
        visibility_check_position(layer, steps, count, p);
}
