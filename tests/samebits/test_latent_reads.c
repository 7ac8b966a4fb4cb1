// SPDX-License-Identifier: MIT
// Reads of latents against reads of what they stand for, bit for bit: selected positions against a
// row that holds these positions and no others; materialized reads against a full-attention layer
// of f32 that stores the keys and values which the test makes; all codecs, chunks, threads and
// kernels. And both kinds of reads against float64.

#include "src/codec/codec.h"
#include "src/codec/rotation/rotation.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/latent_feed.h"
#include "tests/support/latent_reference.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"
#include "tests/support/storages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 3
#define WEIGHTS_SEQUENCE 77

// What is attended, and by whom.
typedef struct problem {
    size_t rows, heads, latent, rope, nope, value;
    int64_t lengths[MOST_ROWS], counts[MOST_ROWS];
    kvern_codec latent_codec, rope_codec;
    bool sinks;
    float softcap;
} problem;

typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
} world;

static void world_create(world *w, const kvern_layer *layer, size_t rows, uint32_t features,
                         kvern_executor executor)
{
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books); // what was never written is NaN
    options.cpu_features = features;
    options.executor = executor;
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, layer, 1, &w->composition));
    assert_ok(kvern_cache_create(w->composition, 0, rows, &w->cache));
}

static void world_destroy(world *w)
{
    kvern_read_release(w->read);
    kvern_cache_destroy(w->cache);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

static kvern_executor executor_number(size_t i)
{
    switch (i % 5) {
    case 0:
        return executor_backwards(1);
    case 1:
        return executor_shuffled(3);
    case 2:
        return executor_threads(4);
    case 3:
        return executor_odd_environment(2);
    default:
        return executor_backwards(16);
    }
}

static uint32_t features_number(size_t i)
{
    const kernel_variants variants = kernel_variants_here();
    return variants.features[variants.count - 1 - i % variants.count];
}

static kvern_layer layer_of(const problem *p)
{
    kvern_layer layer = kvern_layer_latent(p->latent, p->rope, 0);
    layer.rotated_latents = 1;
    layer.latent_codec = p->latent_codec;
    if (p->rope)
        layer.rope_codec = p->rope_codec;
    return layer;
}

static float *take(size_t floats)
{
    float *memory = malloc((floats + 1) * sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static size_t query_count(const problem *p)
{
    size_t queries = 0;
    for (size_t r = 0; r < p->rows; r++)
        queries += (size_t)p->counts[r];
    return queries;
}

// Of sequence r + 1 in row r, in one chunk and the tokens that are read.
static void fill(world *w, const problem *p)
{
    uint64_t sequences[MOST_ROWS];
    int64_t before[MOST_ROWS];
    for (size_t r = 0; r < p->rows; r++) {
        sequences[r] = r + 1;
        before[r] = p->lengths[r] - p->counts[r];
    }
    latent_feed_rows(w->cache, KVERN_PHASE_WINDOW, sequences, before, NULL);
    latent_feed_rows(w->cache, KVERN_PHASE_WINDOW, sequences, p->counts, &w->read);
}

// Queries of `dim` numbers per head for all tokens that are read.
static float *queries_of(const problem *p, size_t dim)
{
    float *q = take(query_count(p) * p->heads * dim), *at = q;
    for (size_t r = 0; r < p->rows; r++)
        for (int64_t i = 0; i < p->counts[r]; i++, at += p->heads * dim)
            feed_values(r + 100, p->lengths[r] - p->counts[r] + i, FEED_Q, p->heads * dim, at);
    return q;
}

static const float sinks[64] = {1, -2, 0.5f, 3};

static kvern_queries view_of(const problem *p, const kvern_layer *layer, size_t query, size_t value)
{
    kvern_queries queries = kvern_queries_default(layer, p->heads);
    queries.q_token_stride = (int64_t)(p->heads * query);
    queries.q_head_stride = (int64_t)query;
    queries.out_token_stride = (int64_t)(p->heads * value);
    queries.out_head_stride = (int64_t)value;
    queries.scale = 0.11f;
    queries.softcap = p->softcap;
    queries.sinks = p->sinks ? sinks : NULL;
    return queries;
}

// ---- Selections ----

typedef struct lists {
    int64_t *positions, *counts;
    kvern_selection selection;
} lists;

static lists lists_create(test_random *random, const problem *p)
{
    static const uint64_t shares[] = {0, 20, 200, 900, 1000};
    int64_t stride = 1;
    for (size_t r = 0; r < p->rows; r++)
        stride = p->lengths[r] > stride ? p->lengths[r] : stride;
    const size_t queries = query_count(p);
    lists l = {malloc((queries * (size_t)stride + 1) * sizeof(int64_t)),
               malloc((queries + 1) * sizeof(int64_t)),
               {0}};
    assert_true(l.positions && l.counts);
    l.selection = kvern_selection_default(l.positions, l.counts, queries, stride);
    l.selection.queries = queries;
    for (size_t r = 0, n = 0; r < p->rows; r++) {
        for (int64_t i = 0; i < p->counts[r]; i++, n++) {
            const int64_t position = p->lengths[r] - p->counts[r] + i;
            const uint64_t share = shares[test_random_below(random, 5)];
            l.counts[n] = 0;
            for (int64_t j = 0; j <= position; j++)
                if (j == position || test_random_below(random, 1000) < share)
                    l.positions[(int64_t)n * stride + l.counts[n]++] = j;
        }
    }
    return l;
}

static void lists_destroy(lists *l)
{
    free(l->positions);
    free(l->counts);
}

// One query over a row with the listed positions alone; materialized where there are weights.
static void attend_listed(const problem *p, const kvern_layer *layer, const kvern_queries *like,
                          const kvern_latent_weights *weights, uint64_t sequence, const float *q,
                          const int64_t *positions, int64_t count, float *out)
{
    world w;
    (void)p;
    world_create(&w, layer, 1, 0, executor_backwards(1));
    latent_feed_listed(w.cache, sequence, positions, count, &w.read);
    const int64_t one = 1, first = count - 1;
    kvern_queries queries = *like;
    queries.selection = NULL;
    queries.q = q;
    queries.out = out;
    queries.counts = &one;
    queries.first = &first;
    if (weights)
        assert_ok(kvern_read_attend_materialized(w.read, &queries, weights));
    else
        assert_ok(kvern_read_attend(w.read, &queries));
    world_destroy(&w);
}

static void check_selected(const problem *p, size_t number, const kvern_latent_weights *weights)
{
    const kvern_layer layer = layer_of(p);
    const size_t dim = (weights ? weights->nope_dim : p->latent) + p->rope;
    const size_t value = weights ? weights->value_dim : p->latent, token = p->heads * value;
    test_random random = test_random_seed(check_seed() + number);
    world w;
    world_create(&w, &layer, p->rows, features_number(number), executor_number(number));
    fill(&w, p);
    lists l = lists_create(&random, p);
    float *q = queries_of(p, dim), *out = take(query_count(p) * token), *wanted = take(token);
    kvern_queries queries = view_of(p, &layer, dim, value);
    queries.q = q;
    queries.out = out;
    queries.selection = &l.selection;
    if (weights)
        assert_ok(kvern_read_attend_materialized(w.read, &queries, weights));
    else
        assert_ok(kvern_read_attend(w.read, &queries));
    for (size_t r = 0, n = 0; r < p->rows; r++) {
        for (int64_t i = 0; i < p->counts[r]; i++, n++) {
            attend_listed(p, &layer, &queries, weights, r + 1, q + n * p->heads * dim,
                          l.positions + (int64_t)n * l.selection.stride, l.counts[n], wanted);
            check_same_bytes(wanted, out + n * token, token * sizeof *out, "selected");
        }
    }
    free(q);
    free(out);
    free(wanted);
    lists_destroy(&l);
    world_destroy(&w);
}

static problem problem_number(size_t i)
{
    static const kvern_codec codecs[] = {
        STORAGE_F32,           STORAGE_BF16,     STORAGE_F16,           STORAGE_AFFINE(8, 32),
        STORAGE_AFFINE(4, 64), STORAGE_TURBO(4), STORAGE_ROTATED(3, 32)};
    static const problem shapes[] = {
        {.rows = 2,
         .heads = 5,
         .latent = 64,
         .rope = 64,
         .nope = 24,
         .value = 40,
         .lengths = {300, 70},
         .counts = {3, 2}},
        {.rows = 1,
         .heads = 33,
         .latent = 64,
         .rope = 64,
         .nope = 8,
         .value = 8,
         .lengths = {1100},
         .counts = {2}},
        {.rows = 3,
         .heads = 2,
         .latent = 64,
         .rope = 0,
         .nope = 8,
         .value = 72,
         .lengths = {64, 1, 200},
         .counts = {5, 1, 0}},
        {.rows = 1,
         .heads = 1,
         .latent = 64,
         .rope = 64,
         .nope = 16,
         .value = 8,
         .lengths = {2600},
         .counts = {300}},
    };
    problem p = shapes[i % 4];
    p.latent_codec = codecs[i % 7];
    p.rope_codec = codecs[(i + i / 7) % 7];
    p.sinks = i % 3 == 1;
    p.softcap = i % 4 == 3 ? 15 : 0;
    return p;
}

static void selected_latents_equal_rows_of_the_selected(void **state)
{
    (void)state;
    for (size_t i = 0; i < (HAS_SANITIZER ? 8 : 20); i++) {
        problem p = problem_number(i);
        p.counts[0] = p.counts[0] > 5 ? 5 : p.counts[0];
        check_selected(&p, i, NULL);
    }
}

// ---- Materialized reads ----

static float *weights_create(const problem *p, const kvern_layer *layer,
                             kvern_latent_weights *weights)
{
    const size_t row = p->latent, rows = p->heads * (p->nope + p->value);
    float *w = take(rows * row);
    for (size_t i = 0; i < rows; i++)
        feed_values(WEIGHTS_SEQUENCE, (int64_t)i, FEED_K, row, w + i * row);
    *weights = kvern_latent_weights_default(layer, p->nope, p->value);
    weights->weights = w;
    return w;
}

// docs/arithmetic.md, "Materialized reads": numbers of a key or value, from row j of head h on.
static void make(const problem *p, const float *weights, size_t head, size_t begin, size_t count,
                 const float *latent, float *to)
{
    const float *row = weights + (head * (p->nope + p->value) + begin) * p->latent;
    for (size_t j = 0; j < count; j++, row += p->latent) {
        to[j] = 0;
        for (size_t d = 0; d < p->latent; d++)
            to[j] = fmaf(row[d], latent[d], to[j]);
    }
}

// The keys and values of all heads for positions [begin, begin + count) of a row of the read.
static void make_tokens(const problem *p, const kvern_read *read, size_t row, int64_t begin,
                        int64_t count, const float *weights, float *k, float *v)
{
    const size_t dim = p->nope + p->rope;
    float *latent = take((size_t)count * p->latent), *rope = take((size_t)count * p->rope);
    assert_ok(
        kvern_read_export_latent(read, row, begin, count, latent, p->rope ? rope : NULL, NULL));
    for (size_t i = 0; i < (size_t)count; i++) {
        for (size_t h = 0; h < p->heads; h++) {
            float *key = k + (i * p->heads + h) * dim;
            make(p, weights, h, 0, p->nope, latent + i * p->latent, key);
            memcpy(key + p->nope, rope + i * p->rope, p->rope * sizeof *rope);
            make(p, weights, h, p->nope, p->value, latent + i * p->latent,
                 v + (i * p->heads + h) * p->value);
        }
    }
    free(latent);
    free(rope);
}

static void append_made(world *full, const problem *p, const kvern_read *read, bool last,
                        const float *weights)
{
    const kvern_layer *layer = kvern_cache_layer(full->cache);
    int64_t counts[MOST_ROWS], all = 0;
    for (size_t r = 0; r < p->rows; r++)
        all += counts[r] = last ? p->counts[r] : p->lengths[r] - p->counts[r];
    float *k = take((size_t)all * p->heads * layer->k_dim);
    float *v = take((size_t)all * p->heads * layer->v_dim);
    for (size_t r = 0, at = 0; r < p->rows; at += (size_t)counts[r++])
        if (counts[r])
            make_tokens(p, read, r, last ? p->lengths[r] - p->counts[r] : 0, counts[r], weights,
                        k + at * p->heads * layer->k_dim, v + at * p->heads * layer->v_dim);
    kvern_tokens tokens = kvern_tokens_default(layer);
    tokens.k = k, tokens.v = v, tokens.counts = counts;
    assert_ok(
        kvern_cache_append(full->cache, KVERN_PHASE_WINDOW, &tokens, last ? &full->read : NULL));
    free(k);
    free(v);
}

// The same queries on a layer that stores what the test makes.
static void attend_made(const problem *p, const kvern_read *read, const float *weights,
                        const kvern_queries *queries, float *out)
{
    kvern_layer layer = kvern_layer_default(p->heads, p->nope + p->rope);
    layer.v_dim = p->value;
    layer.k_codec = layer.v_codec = kvern_codec_dense(KVERN_F32);
    world full;
    world_create(&full, &layer, p->rows, 0, executor_backwards(1));
    append_made(&full, p, read, false, weights);
    append_made(&full, p, read, true, weights);
    kvern_queries q = *queries;
    q.out = out;
    assert_ok(kvern_read_attend(full.read, &q));
    world_destroy(&full);
}

static void materialized_reads_equal_a_layer_of_the_made(void **state)
{
    (void)state;
    for (size_t i = 0; i < (HAS_SANITIZER ? 8 : 20); i++) {
        const problem p = problem_number(i);
        const kvern_layer layer = layer_of(&p);
        const size_t dim = p.nope + p.rope, floats = query_count(&p) * p.heads * p.value;
        kvern_latent_weights weights;
        world w;
        world_create(&w, &layer, p.rows, features_number(i), executor_number(i));
        fill(&w, &p);
        float *rows = weights_create(&p, &layer, &weights);
        float *q = queries_of(&p, dim), *out = take(floats), *wanted = take(floats);
        kvern_queries queries = view_of(&p, &layer, dim, p.value);
        queries.q = q;
        queries.out = out;
        assert_ok(kvern_read_attend_materialized(w.read, &queries, &weights));
        attend_made(&p, w.read, rows, &queries, wanted);
        check_same_bytes(wanted, out, floats * sizeof *out, "materialized");
        free(rows);
        free(q);
        free(out);
        free(wanted);
        world_destroy(&w);
    }
}

static void materialized_reads_of_the_selected(void **state)
{
    (void)state;
    for (size_t i = 0; i < (HAS_SANITIZER ? 5 : 12); i++) {
        problem p = problem_number(i);
        p.counts[0] = p.counts[0] > 4 ? 4 : p.counts[0];
        const kvern_layer layer = layer_of(&p);
        kvern_latent_weights weights;
        float *rows = weights_create(&p, &layer, &weights);
        check_selected(&p, i, &weights);
        free(rows);
    }
}

// Token by token, in a batch or alone: equal bits. Weights and queries lie apart, in other types.
static void materialized_reads_do_not_depend_on_chunks(void **state)
{
    (void)state;
    problem p = problem_number(0);
    p.lengths[0] = 400, p.counts[0] = 330; // more queries than a tile holds
    const kvern_layer layer = layer_of(&p);
    const size_t dim = p.nope + p.rope, token = p.heads * p.value;
    kvern_latent_weights weights;
    world w;
    world_create(&w, &layer, p.rows, features_number(0), executor_number(2));
    fill(&w, &p);
    float *rows = weights_create(&p, &layer, &weights);
    float *q = queries_of(&p, dim), *out = take(query_count(&p) * token), *one = take(token);
    kvern_queries queries = view_of(&p, &layer, dim, p.value);
    queries.q = q;
    queries.out = out;
    assert_ok(kvern_read_attend_materialized(w.read, &queries, &weights));
    for (int64_t i = 0; i < p.counts[0]; i += 29) {
        const int64_t counts[MOST_ROWS] = {1, 0}, first[MOST_ROWS] = {i, 0};
        queries.counts = counts, queries.first = first;
        queries.q = q + (size_t)i * p.heads * dim;
        queries.out = one;
        assert_ok(kvern_read_attend_materialized(w.read, &queries, &weights));
        check_same_bytes(out + (size_t)i * token, one, token * sizeof *one, "one query");
    }
    free(rows);
    free(q);
    free(out);
    free(one);
    world_destroy(&w);
}

// ---- Lanes of rotated vectors ----

// What a lane has of one token: as it lies there, not rotated back.
static void store_lane(const kvern_codec *codec, size_t dim, const float *x, float *to)
{
    const kvern_codec_type *type = kvern_codec_type_of(codec);
    const kvern_codec_kernels *plain = type->kernels_of(codec, 0);
    void *block = aligned_alloc(64, type->block_bytes(codec, dim));
    float *values = take(dim * KVERN_PAGE_POSITIONS);
    assert_non_null(block);
    memset(block, 0, type->block_bytes(codec, dim));
    plain->encode(codec, KVERN_STREAM_K, block, dim, 0, KVERN_F32, x);
    plain->decode_block(codec, block, dim, 0, dim, values);
    for (size_t d = 0; d < dim; d++)
        to[d] = values[d * KVERN_PAGE_POSITIONS];
    free(block);
    free(values);
}

// The first row of `p` in a layer of f32 that stores the numbers as they lie in the layer of `p`.
static void fill_with_stored(world *w, const problem *p)
{
    const kvern_layer *layer = kvern_cache_layer(w->cache);
    const size_t length = (size_t)p->lengths[0];
    float *latent = take(length * p->latent), *rope = take(length * p->rope), *x = take(p->latent);
    for (size_t i = 0; i < length; i++) {
        latent_feed_values(1, (int64_t)i, LATENT_LANE, p->latent, x);
        store_lane(&p->latent_codec, p->latent, x, latent + i * p->latent);
        latent_feed_values(1, (int64_t)i, ROPE_LANE, p->rope, x);
        if (p->rope)
            store_lane(&p->rope_codec, p->rope, x, rope + i * p->rope);
    }
    kvern_latent_tokens tokens = kvern_latent_tokens_default(layer);
    const int64_t before = p->lengths[0] - p->counts[0];
    tokens.latent = latent;
    tokens.rope = p->rope ? rope : NULL;
    tokens.counts = &before;
    assert_ok(kvern_cache_append_latent(w->cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    tokens.latent = latent + (size_t)before * p->latent;
    tokens.rope = p->rope ? rope + (size_t)before * p->rope : NULL;
    tokens.counts = p->counts;
    assert_ok(kvern_cache_append_latent(w->cache, KVERN_PHASE_WINDOW, &tokens, &w->read));
    free(latent);
    free(rope);
    free(x);
}

static bool rotates(const kvern_codec *codec)
{
    return kvern_codec_type_of(codec)->kernels_of(codec, 0)->rotate != NULL;
}

// docs/arithmetic.md, "Latents": queries are rotated lane by lane, and results rotated back, each
// once; between them all is as in a layer of f32 that stores the rotated numbers.
static void check_rotated(problem p, size_t number)
{
    const size_t dim = p.latent + p.rope, vectors = (size_t)p.counts[0] * p.heads;
    p.rows = 1;
    const kvern_layer layer = layer_of(&p), dense = kvern_layer_latent(p.latent, p.rope, 0);
    world w, of_stored;
    world_create(&w, &layer, 1, features_number(number), executor_number(number));
    world_create(&of_stored, &dense, 1, 0, executor_backwards(1));
    fill(&w, &p);
    fill_with_stored(&of_stored, &p);
    float *q = queries_of(&p, dim), *out = take(vectors * p.latent);
    float *wanted = take(vectors * p.latent);
    kvern_queries queries = view_of(&p, &layer, dim, p.latent);
    queries.q = q, queries.out = out, queries.scale = 1;
    assert_ok(kvern_read_attend(w.read, &queries));
    for (size_t i = 0; i < vectors; i++) {
        if (rotates(&p.latent_codec))
            kvern_rotate_plain(p.latent, q + i * dim);
        if (p.rope && rotates(&p.rope_codec))
            kvern_rotate_plain(p.rope, q + i * dim + p.latent);
    }
    queries.out = wanted;
    assert_ok(kvern_read_attend(of_stored.read, &queries));
    for (size_t i = 0; i < vectors && rotates(&p.latent_codec); i++)
        kvern_rotate_back_plain(p.latent, wanted + i * p.latent);
    check_same_bytes(wanted, out, vectors * p.latent * sizeof *out, "rotated lanes");
    free(q);
    free(out);
    free(wanted);
    world_destroy(&w);
    world_destroy(&of_stored);
}

static void rotated_lanes_are_read_rotated(void **state)
{
    (void)state;
    size_t checked = 0;
    for (size_t i = 0; i < 28; i++) {
        const problem p = problem_number(i);
        if (!rotates(&p.latent_codec) && !rotates(&p.rope_codec))
            continue;
        check_rotated(p, i);
        checked++;
    }
    assert_true(checked >= 12);
}

// ---- Float64 ----

// The absorbed read by the caller's side of it: q Wk before, Wv after, in double and rounded once.
static void attend_absorbed(const problem *p, const world *w, const kvern_layer *layer,
                            const float *weights, const float *q, float scale, double *out)
{
    const size_t dim = p->latent + p->rope;
    float *absorbed = take(p->heads * dim), *context = take(p->heads * p->latent);
    for (size_t h = 0; h < p->heads; h++) {
        const float *rows = weights + h * (p->nope + p->value) * p->latent;
        const float *from = q + h * (p->nope + p->rope);
        for (size_t d = 0; d < p->latent; d++) {
            double sum = 0;
            for (size_t n = 0; n < p->nope; n++)
                sum += (double)from[n] * (double)rows[n * p->latent + d];
            absorbed[h * dim + d] = (float)sum;
        }
        memcpy(absorbed + h * dim + p->latent, from + p->nope, p->rope * sizeof *from);
    }
    kvern_queries queries = kvern_queries_default(layer, p->heads);
    queries.q = absorbed;
    queries.out = context;
    queries.scale = scale;
    assert_ok(kvern_read_attend(w->read, &queries));
    for (size_t h = 0; h < p->heads; h++) {
        for (size_t v = 0; v < p->value; v++) {
            const float *row = weights + (h * (p->nope + p->value) + p->nope + v) * p->latent;
            out[h * p->value + v] = 0;
            for (size_t d = 0; d < p->latent; d++)
                out[h * p->value + v] += (double)row[d] * (double)context[h * p->latent + d];
        }
    }
    free(absorbed);
    free(context);
}

static void both_reads_agree_with_float64(void **state)
{
    (void)state;
    const float scale = 0.02f;
    for (size_t i = 0; i < 8; i++) {
        problem p = problem_number(i);
        p.rows = 1, p.counts[0] = 1, p.lengths[0] = 200 + 40 * (int64_t)i;
        p.softcap = 0, p.sinks = false;
        const kvern_layer layer = layer_of(&p);
        const size_t dim = p.nope + p.rope, length = (size_t)p.lengths[0];
        kvern_latent_weights weights;
        world w;
        world_create(&w, &layer, 1, features_number(i), executor_number(i));
        fill(&w, &p);
        float *rows = weights_create(&p, &layer, &weights), *q = queries_of(&p, dim);
        float *out = take(p.heads * p.value), *latent = take(length * p.latent);
        float *rope = take(length * p.rope);
        double *absorbed = malloc(p.heads * p.value * sizeof *absorbed);
        assert_non_null(absorbed);
        kvern_queries queries = view_of(&p, &layer, dim, p.value);
        queries.q = q, queries.out = out, queries.scale = scale;
        assert_ok(kvern_read_attend_materialized(w.read, &queries, &weights));
        attend_absorbed(&p, &w, &layer, rows, q, scale, absorbed);
        assert_ok(kvern_read_export_latent(w.read, 0, 0, p.lengths[0], latent, p.rope ? rope : NULL,
                                           NULL));
        for (size_t h = 0; h < p.heads; h++) {
            const float *head_rows = rows + h * (p.nope + p.value) * p.latent;
            const latent_head head = {.latent = p.latent,
                                      .rope = p.rope,
                                      .nope = p.nope,
                                      .value = p.value,
                                      .key_rows = head_rows,
                                      .value_rows = head_rows + p.nope * p.latent,
                                      .latents = latent,
                                      .ropes = rope,
                                      .q = q + h * dim,
                                      .scale = (double)scale};
            latent_result e = latent_reference(&head, NULL, p.lengths[0]);
            // Rotating adds 4 (log2 64 + 2) = 32 roundings to 140 or more, and errors go by the
            // lengths of vectors, |a| |b| instead of sum |a b|: 1.5 times as much of such numbers.
            if (rotates(&p.latent_codec) || rotates(&p.rope_codec))
                e.tolerance *= 2;
            for (size_t v = 0; v < p.value; v++) {
                assert_true(fabs((double)out[h * p.value + v] - e.out[v]) <= e.tolerance);
                assert_true(fabs(absorbed[h * p.value + v] - e.out[v]) <= e.tolerance);
            }
            assert_true(e.tolerance < 0.05 * e.value_size); // or nothing would be shown
        }
        free(rows);
        free(q);
        free(out);
        free(latent);
        free(rope);
        free(absorbed);
        world_destroy(&w);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selected_latents_equal_rows_of_the_selected),
        cmocka_unit_test(materialized_reads_equal_a_layer_of_the_made),
        cmocka_unit_test(materialized_reads_of_the_selected),
        cmocka_unit_test(materialized_reads_do_not_depend_on_chunks),
        cmocka_unit_test(rotated_lanes_are_read_rotated),
        cmocka_unit_test(both_reads_agree_with_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
