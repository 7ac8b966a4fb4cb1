// SPDX-License-Identifier: MIT
// The same tokens give the same bits, however they were served: one window, decodes, any split into
// chunks, any phase, any batch beside them, any number and order of threads, any kernels, at once
// or later, in place or in a fork. And these are the bits of docs/arithmetic.md.

#include "tests/support/arithmetic_reference.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"
#include "tests/support/storages.h"
#include "tests/support/stored.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TRIM 90 // of newest positions, that a test takes back at once
#define ROW_X 77     // the sequence that everything here is about

// ---- What is served, and by whom ----

#define CHUNKS (-1)

typedef struct shape {
    size_t kv_heads, k_dim, v_dim, query_heads;
    kvern_codec k_codec, v_codec;
    float softcap;
    bool sinks;
    int64_t window, keep; // 0: none; CHUNKS: not a window, but chunks of so many
    // Latents of v_dim numbers and rotated keys of the rest of k_dim; the codec of these is
    // v_codec.
    bool latents;
} shape;

static const shape shapes[] = {
    {1, 8, 8, 1, STORAGE_F32, STORAGE_F32, 0, false, 0, 0, false},
    {3, 64, 64, 9, STORAGE_BF16, STORAGE_BF16, 0, false, 0, 0, false},
    {2, 72, 40, 14, STORAGE_F16, STORAGE_BF16, 30, true, 0, 0, false},
    {1, 192, 128, 5, STORAGE_BF16, STORAGE_F16, 0, true, 0, 0, false},
    {4, 16, 24, 4, STORAGE_BF16, STORAGE_F32, 1.5f, false, 0, 0, false},
    {1, 576, 512, 2, STORAGE_BF16, STORAGE_BF16, 0, false, 0, 0, false},
    {1, 40, 16, 40, STORAGE_F32, STORAGE_F16, 0, true, 0, 0, false},
    {2, 64, 64, 6, STORAGE_AFFINE(8, 64), STORAGE_AFFINE(8, 64), 0, false, 0, 0, false},
    {1, 64, 32, 4, STORAGE_AFFINE(4, 32), STORAGE_AFFINE(2, 32), 20, true, 0, 0, false},
    {2, 128, 64, 2, STORAGE_AFFINE(6, 128), STORAGE_AFFINE(5, 32), 0, false, 0, 0, false},
    {1, 32, 64, 9, STORAGE_AFFINE(3, 32), STORAGE_BF16, 0, false, 0, 0, false},
    {2, 16, 16, 4, STORAGE_BF16, STORAGE_BF16, 0, false, 60, 0, false},
    {1, 24, 8, 3, STORAGE_F32, STORAGE_F16, 0, true, 100, 5, false},
    {1, 64, 64, 4, STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), 0, false, 64, 3, false},
    {1, 8, 8, 2, STORAGE_F32, STORAGE_F32, 0, false, 1, 0, false},
    {1, 32, 32, 2, STORAGE_AFFINE(8, 32), STORAGE_F32, 0, false, 129, 128, false},
    {1, 24, 8, 3, STORAGE_F32, STORAGE_F16, 0, true, 100, CHUNKS, false},
    {1, 64, 64, 2, STORAGE_AFFINE(4, 64), STORAGE_AFFINE(8, 64), 0, false, 1500, CHUNKS, false},
    {1, 40, 32, 16, STORAGE_F32, STORAGE_F32, 0, false, 0, 0, true},
    {1, 576, 512, 6, STORAGE_BF16, STORAGE_F32, 0, true, 0, 0, true},
    {1, 72, 72, 40, STORAGE_F16, STORAGE_F32, 20, false, 0, 0, true},
    {1, 136, 128, 3, STORAGE_AFFINE(4, 64), STORAGE_BF16, 0, false, 0, 0, true},
    {1, 96, 64, 32, STORAGE_AFFINE(8, 32), STORAGE_AFFINE(6, 32), 1.5f, true, 0, 0, true},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static const float sink_logits[64] = {0,     5, -20, 0.25f, 1, -1, 3,  0.5f, 0, 2, 7, -7, 0.1f,
                                      -0.1f, 4, 0,   5,     2, 0,  -3, 1,    1, 1, 1, 1,  0};

// Where the work is done.
typedef struct setting {
    const char *name;
    uint32_t features;
    kvern_executor executor; // run NULL: the default one with `threads` threads
    size_t threads;
} setting;

typedef struct server {
    const shape *shape;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    size_t row, rows;
} server;

static server server_create(const shape *s, const setting *at, size_t rows, size_t row)
{
    server made = {.shape = s, .rows = rows, .row = row};
    kvern_context_options options = kvern_context_options_default();
    options.cpu_features = at->features;
    options.executor = at->executor;
    options.threads = at->threads;
    kvern_layer layer = kvern_layer_default(s->kv_heads, s->k_dim);
    layer.v_dim = s->v_dim;
    layer.k_codec = s->k_codec;
    layer.v_codec = s->v_codec;
    if (s->latents) {
        layer = kvern_layer_latent(s->v_dim, s->k_dim - s->v_dim, 0);
        layer.latent_codec = s->k_codec;
        layer.rope_codec = s->v_codec;
    }
    if (s->window) {
        layer.kind = KVERN_LAYER_WINDOW;
        layer.window = s->window;
        layer.keep = s->keep;
        layer.slack = MOST_TRIM;
    }
    if (s->keep == CHUNKS) {
        layer.kind = KVERN_LAYER_CHUNKED;
        layer.chunk = s->window;
        layer.window = layer.keep = 0;
    }
    assert_ok(kvern_context_create(&options, &made.context));
    assert_ok(kvern_composition_create(made.context, &layer, 1, &made.composition));
    assert_ok(kvern_cache_create(made.composition, 0, rows, &made.cache));
    return made;
}

static void server_destroy(server *s)
{
    kvern_cache_destroy(s->cache);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
}

static const setting plain_alone = {"plain, one thread", 0, {.run = NULL}, 1};

// The fastest kernels, so that most of what is compared with the plain ones takes little time.
static setting fast_alone(void)
{
    const kernel_variants variants = kernel_variants_here();
    return (setting){"one thread", variants.features[variants.count - 1], {.run = NULL}, 1};
}

static size_t out_floats(const shape *s)
{
    return s->query_heads * s->v_dim;
}

static float *new_floats(size_t count)
{
    float *floats = calloc(count + 1, sizeof *floats);
    assert_non_null(floats);
    return floats;
}

// ---- Serving ----

static kvern_queries options_of(const server *s, const feed *f)
{
    kvern_queries queries = f->queries;
    queries.softcap = s->shape->softcap;
    queries.sinks = s->shape->sinks ? sink_logits : NULL;
    return queries;
}

// Appends the next `count` tokens of row X, and some of the neighbours'; attends all of them and
// hands out the results of X, at its first position `position`.
static void serve_chunk(server *s, kvern_phase phase, int64_t count, test_random *neighbours,
                        float *out)
{
    uint64_t sequences[64];
    int64_t counts[64], before = 0;
    for (size_t r = 0; r < s->rows; r++) {
        const uint64_t most = phase == KVERN_PHASE_DECODE ? 2 : 40;
        sequences[r] = r == s->row ? ROW_X : 1000 + r;
        counts[r] = r == s->row ? count : (int64_t)test_random_below(neighbours, most);
        before += r < s->row ? counts[r] : 0;
    }
    kvern_read *read;
    feed f = feed_create(s->cache, sequences, counts, s->shape->query_heads);
    const kvern_queries queries = options_of(s, &f);
    assert_ok(feed_append(s->cache, phase, &f, &read));
    assert_ok(kvern_read_attend(read, &queries));
    memcpy(out, f.out + (size_t)before * out_floats(s->shape),
           (size_t)count * out_floats(s->shape) * sizeof *out);
    kvern_read_release(read);
    feed_destroy(&f);
}

// How N tokens are cut.
typedef enum cut { ONE_WINDOW, DECODES, KNOWN_SPAN, RANDOM_CHUNKS, PAGES, CUTS } cut;

static int64_t next_chunk(cut how, int64_t left, test_random *random, kvern_phase *phase)
{
    *phase = KVERN_PHASE_WINDOW;
    switch (how) {
    case DECODES:
        *phase = KVERN_PHASE_DECODE;
        return 1;
    case KNOWN_SPAN:
        *phase = KVERN_PHASE_KNOWN;
        return left;
    case PAGES:
        return left < 64 ? left : 64;
    case RANDOM_CHUNKS: {
        const int64_t chunk = 1 + (int64_t)test_random_below(random, 50);
        *phase = chunk == 1 ? KVERN_PHASE_DECODE : (kvern_phase)(1 + chunk % 2);
        return chunk < left ? chunk : left;
    }
    default:
        return left;
    }
}

// All results of `count` tokens of X, served one way.
static float *serve(const shape *shape, const setting *at, int64_t count, cut how, size_t rows,
                    uint64_t seed)
{
    test_random random = test_random_seed(seed);
    server s = server_create(shape, at, rows, test_random_below(&random, rows));
    float *out = new_floats((size_t)count * out_floats(shape));
    for (int64_t done = 0; done < count;) {
        kvern_phase phase;
        const int64_t chunk = next_chunk(how, count - done, &random, &phase);
        serve_chunk(&s, phase, chunk, &random, out + (size_t)done * out_floats(shape));
        done += chunk;
    }
    server_destroy(&s);
    return out;
}

static void expect_served(const float *wanted, const shape *shape, const setting *at, int64_t count,
                          cut how, size_t rows, uint64_t seed, const char *what)
{
    float *got = serve(shape, at, count, how, rows, seed);
    check_same_bytes(wanted, got, (size_t)count * out_floats(shape) * sizeof *got, what);
    free(got);
}

#define SHORT_TOKENS 135

static void windows_decodes_and_chunks_are_equal(void **state)
{
    (void)state;
    const setting fast = fast_alone();
    static const char *const names[] = {"window", "decodes", "known span", "chunks", "pages"};
    const uint64_t seed = check_seed();
    for (size_t i = 0; i < SHAPES; i++) {
        float *wanted = serve(&shapes[i], &plain_alone, SHORT_TOKENS, ONE_WINDOW, 1, seed);
        for (int how = DECODES; how < CUTS; how++)
            expect_served(wanted, &shapes[i], how % 2 ? &fast : &plain_alone, SHORT_TOKENS,
                          (cut)how, 1, seed + i, names[how]);
        free(wanted);
    }
}

static void neighbours_change_nothing(void **state)
{
    (void)state;
    const setting fast = fast_alone();
    const uint64_t seed = check_seed();
    for (size_t i = 0; i < SHAPES; i++) {
        float *wanted = serve(&shapes[i], &plain_alone, SHORT_TOKENS, ONE_WINDOW, 1, seed);
        for (size_t rows = 2; rows <= 12; rows += 5) {
            expect_served(wanted, &shapes[i], &fast, SHORT_TOKENS, RANDOM_CHUNKS, rows, seed + rows,
                          "chunks in a batch");
            expect_served(wanted, &shapes[i], &fast, SHORT_TOKENS, ONE_WINDOW, rows, seed + rows,
                          "a window in a batch");
        }
        free(wanted);
    }
}

// Kernels and executors, all combined with a cut and a batch.
static void kernels_and_threads_change_nothing(void **state)
{
    (void)state;
    const uint64_t seed = check_seed();
    const kernel_variants variants = kernel_variants_here();
    for (size_t i = 0; i < SHAPES; i++) {
        float *wanted = serve(&shapes[i], &plain_alone, SHORT_TOKENS, ONE_WINDOW, 1, seed);
        for (size_t v = 0; v < variants.count; v++) {
            const uint32_t features = variants.features[v];
            const setting settings[] = {
                {"one thread", features, {.run = NULL}, 1},
                {"three threads", features, {.run = NULL}, 3},
                {"backwards", features, executor_backwards(3), 0},
                {"shuffled", features, executor_shuffled(7), 0},
                {"odd environments", features, executor_odd_environment(3), 0},
            };
            const size_t count = sizeof settings / sizeof settings[0];
            for (size_t j = v ? 0 : i % 2; j < count; j += v ? 1 : 2) // plain ones take long
                expect_served(wanted, &shapes[i], &settings[j], SHORT_TOKENS,
                              j % 2 ? ONE_WINDOW : RANDOM_CHUNKS, 1 + j / 2, seed + j,
                              settings[j].name);
        }
        free(wanted);
    }
}

// ---- Long rows: many spans, cut by spans when there are threads for them ----

#define LONG_TOKENS 5000
#define LAST_TOKENS 12

// The results of the last tokens of a long row.
static float *serve_long(const shape *shape, const setting *at, cut how)
{
    test_random random = test_random_seed(check_seed());
    server s = server_create(shape, at, 1, 0);
    float *out = new_floats(LAST_TOKENS * out_floats(shape));
    int64_t done = 0;
    while (done < LONG_TOKENS - LAST_TOKENS) {
        kvern_phase phase;
        const int64_t left = LONG_TOKENS - LAST_TOKENS - done;
        const int64_t chunk =
            next_chunk(how == DECODES ? RANDOM_CHUNKS : how, left, &random, &phase);
        feed_one(s.cache, phase, ROW_X, chunk, shape->query_heads, NULL);
        done += chunk;
    }
    for (int64_t last = 0; last < LAST_TOKENS;) {
        kvern_phase phase;
        const int64_t chunk = next_chunk(how, LAST_TOKENS - last, &random, &phase);
        serve_chunk(&s, phase, chunk, &random, out + (size_t)last * out_floats(shape));
        last += chunk;
    }
    server_destroy(&s);
    return out;
}

static void expect_long(const float *wanted, const shape *shape, const setting *at, cut how)
{
    float *got = serve_long(shape, at, how);
    check_same_bytes(wanted, got, LAST_TOKENS * out_floats(shape) * sizeof *got, at->name);
    free(got);
}

static void long_rows_are_equal_on_any_threads(void **state)
{
    (void)state;
    static const shape long_shapes[] = {
        {1, 64, 64, 4, STORAGE_BF16, STORAGE_BF16, 0, false, 0, 0, false}, // one tile: cut by spans
        {2, 32, 48, 10, STORAGE_F16, STORAGE_F32, 20, true, 0, 0, false},
        {1, 64, 64, 4, STORAGE_AFFINE(4, 64), STORAGE_AFFINE(8, 32), 0, false, 0, 0, false},
        {1, 32, 32, 4, STORAGE_AFFINE(8, 32), STORAGE_BF16, 0, true, 3000, 1100, false},
        {1, 40, 32, 16, STORAGE_F32, STORAGE_F32, 0, false, 0, 0, true},
        {1, 72, 64, 5, STORAGE_AFFINE(8, 32), STORAGE_BF16, 0, true, 0, 0, true},
    };
    const kernel_variants variants = kernel_variants_here();
    const uint32_t best = variants.features[variants.count - 1];
    for (size_t i = 0; i < sizeof long_shapes / sizeof long_shapes[0]; i++) {
        const shape *s = &long_shapes[i];
        float *wanted = serve_long(s, &plain_alone, ONE_WINDOW);
        const setting settings[] = {
            {"plain, one thread", 0, {.run = NULL}, 1},
            {"one thread", best, {.run = NULL}, 1},
            {"two threads", best, {.run = NULL}, 2},
            {"plain, three threads", 0, executor_threads(3), 0},
            {"seven threads", best, executor_threads(7), 0},
            {"backwards", best, executor_backwards(7), 0},
            {"shuffled", variants.features[1 % variants.count], executor_shuffled(3), 0},
            {"odd environments", best, executor_odd_environment(2), 0},
        };
        for (size_t j = 0; j < sizeof settings / sizeof settings[0]; j++) {
            if (i < 2)
                expect_long(wanted, s, &settings[j], DECODES);
            expect_long(wanted, s, &settings[j], RANDOM_CHUNKS);
        }
        free(wanted);
    }
}

// A long row beside short ones: how its work is cut must not show.
static void fault_V1_split_count_by_batch(void **state)
{
    (void)state;
    const kernel_variants variants = kernel_variants_here();
    const shape s = {2, 32, 32, 4, STORAGE_BF16, STORAGE_BF16, 0, false, 0, 0, false};
    const setting at = {"shuffled", variants.features[variants.count - 1], executor_shuffled(4), 0};
    const size_t sizes[] = {1, 2, 8, 32};
    float alone[4 * 32], beside[4 * 32];
    for (size_t i = 0; i < 4; i++) {
        test_random random = test_random_seed(check_seed() + i);
        server x = server_create(&s, &at, sizes[i], test_random_below(&random, sizes[i]));
        int64_t counts[64] = {0};
        uint64_t sequences[64] = {0};
        counts[x.row] = 8192;
        sequences[x.row] = ROW_X;
        feed_run(x.cache, KVERN_PHASE_WINDOW, sequences, counts, 4, NULL);
        serve_chunk(&x, KVERN_PHASE_DECODE, 1, &random, i ? beside : alone);
        if (i)
            check_same_bytes(alone, beside, sizeof alone, "a row of 8192 beside others");
        server_destroy(&x);
    }
}

static void fault_V3_row_count_threshold(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 2, 8, 16, 32, 44, 64};
    const shape s = {2, 64, 64, 8, STORAGE_BF16, STORAGE_BF16, 0, false, 0, 0, false};
    const kernel_variants variants = kernel_variants_here();
    const setting at = {"", variants.features[variants.count - 1], executor_shuffled(4), 0};
    float *wanted = serve(&s, &at, 70, RANDOM_CHUNKS, 1, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (uint64_t repeat = 0; repeat < 2; repeat++)
            expect_served(wanted, &s, &at, 70, RANDOM_CHUNKS, sizes[i], repeat, "repeats");
    }
    free(wanted);
}

// ---- Later, and elsewhere ----

#define KEPT 12

// Reads of every chunk are kept, the row is trimmed and grown over, the cache goes: then they are
// attended, the last one first.
static void reads_attended_later_are_equal(void **state)
{
    (void)state;
    const setting fast = fast_alone();
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *sh = &shapes[i];
        float *wanted = serve(sh, &plain_alone, KEPT * 13, ONE_WINDOW, 1, 1);
        server s = server_create(sh, &fast, 1, 0);
        kvern_read *reads[KEPT];
        feed feeds[KEPT];
        for (int c = 0; c < KEPT; c++) {
            feeds[c] = feed_create(s.cache, &(uint64_t){ROW_X}, &(int64_t){13}, sh->query_heads);
            assert_ok(feed_append(s.cache, KVERN_PHASE_WINDOW, &feeds[c], &reads[c]));
            feed_one(s.cache, KVERN_PHASE_WINDOW, 5, 60 + c, sh->query_heads, NULL);
            assert_ok(kvern_cache_trim(s.cache, 0, 60 + c));
        }
        assert_ok(kvern_cache_reset(s.cache, 0));
        feed_one(s.cache, KVERN_PHASE_WINDOW, 6, 300, sh->query_heads, NULL);
        server_destroy(&s);
        for (int c = KEPT; c-- > 0;) {
            const kvern_queries queries = options_of(&s, &feeds[c]);
            assert_ok(kvern_read_attend(reads[c], &queries));
            check_same_bytes(wanted + (size_t)c * 13 * out_floats(sh), feeds[c].out,
                             feeds[c].out_count * sizeof(float), "a read attended later");
            kvern_read_release(reads[c]);
            feed_destroy(&feeds[c]);
        }
        free(wanted);
    }
}

// Trimmed back and served again, with other tokens in between: nothing of them is left.
static void trimmed_rows_are_equal(void **state)
{
    (void)state;
    const setting fast = fast_alone();
    test_random random = test_random_seed(check_seed());
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *sh = &shapes[i];
        float *wanted = serve(sh, &plain_alone, SHORT_TOKENS, ONE_WINDOW, 1, 1);
        float *got = new_floats(SHORT_TOKENS * out_floats(sh));
        server s = server_create(sh, &fast, 1, 0);
        for (int64_t done = 0; done < SHORT_TOKENS;) {
            kvern_phase phase;
            const int64_t wrong = (int64_t)test_random_below(&random, MOST_TRIM);
            feed_one(s.cache, KVERN_PHASE_WINDOW, 9, wrong, sh->query_heads, NULL);
            assert_ok(kvern_cache_trim(s.cache, 0, wrong));
            const int64_t chunk = next_chunk(RANDOM_CHUNKS, SHORT_TOKENS - done, &random, &phase);
            serve_chunk(&s, phase, chunk, &random, got + (size_t)done * out_floats(sh));
            done += chunk;
        }
        check_same_bytes(wanted, got, SHORT_TOKENS * out_floats(sh) * sizeof *got, "trimmed");
        server_destroy(&s);
        free(got);
        free(wanted);
    }
}

// A fork at every kind of position continues X, while the original goes another way.
static void forks_are_equal(void **state)
{
    (void)state;
    const setting fast = fast_alone();
    static const size_t row = 0;
    static const int64_t at[] = {0, 1, 63, 64, 65, 100, 128};
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *sh = &shapes[i];
        float *wanted = serve(sh, &plain_alone, SHORT_TOKENS, ONE_WINDOW, 1, 1);
        float *got = new_floats(SHORT_TOKENS * out_floats(sh));
        for (size_t j = 0; j < sizeof at / sizeof at[0]; j++) {
            test_random random = test_random_seed(j);
            const size_t bytes = (size_t)(SHORT_TOKENS - at[j]) * out_floats(sh) * sizeof *got;
            server s = server_create(sh, &fast, 1, 0), fork = s;
            feed_one(s.cache, KVERN_PHASE_WINDOW, ROW_X, at[j], sh->query_heads, NULL);
            assert_ok(kvern_cache_fork(s.cache, &row, 1, &fork.cache));
            feed_one(s.cache, KVERN_PHASE_WINDOW, 8, 70, sh->query_heads, NULL);
            serve_chunk(&fork, KVERN_PHASE_WINDOW, SHORT_TOKENS - at[j], &random, got);
            check_same_bytes(wanted + (size_t)at[j] * out_floats(sh), got, bytes, "a fork");
            assert_ok(kvern_cache_trim(s.cache, 0, 70));
            kvern_cache_destroy(fork.cache);
            serve_chunk(&s, KVERN_PHASE_WINDOW, SHORT_TOKENS - at[j], &random, got);
            check_same_bytes(wanted + (size_t)at[j] * out_floats(sh), got, bytes, "the original");
            server_destroy(&s);
        }
        free(got);
        free(wanted);
    }
}

// Some queries of an append give what they give among all of them.
static void subsets_of_queries_are_equal(void **state)
{
    (void)state;
    const setting fast = fast_alone();
    test_random random = test_random_seed(check_seed());
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *sh = &shapes[i];
        float *wanted = serve(sh, &plain_alone, SHORT_TOKENS, ONE_WINDOW, 1, 1);
        server s = server_create(sh, &fast, 1, 0);
        kvern_read *read;
        feed f =
            feed_create(s.cache, &(uint64_t){ROW_X}, &(int64_t){SHORT_TOKENS}, sh->query_heads);
        assert_ok(feed_append(s.cache, KVERN_PHASE_WINDOW, &f, &read));
        for (int round = 0; round < 20; round++) {
            kvern_queries queries = options_of(&s, &f);
            const int64_t first = (int64_t)test_random_below(&random, SHORT_TOKENS);
            const int64_t count =
                (int64_t)test_random_below(&random, (uint64_t)(SHORT_TOKENS - first)) + 1;
            queries.counts = &count;
            queries.first = &first;
            queries.q_start = &first;
            assert_ok(kvern_read_attend(read, &queries));
            check_same_bytes(wanted + (size_t)first * out_floats(sh), f.out,
                             (size_t)count * out_floats(sh) * sizeof(float), "some queries");
        }
        kvern_read_release(read);
        feed_destroy(&f);
        server_destroy(&s);
        free(wanted);
    }
}

// A tile whose first queries see one span and whose last ones see two: spans that a query does not
// see are left out of its result, not added as zeros, which would lose the sign of -0. Values that
// are too small for their weights make such a sum.
static void zeros_keep_their_sign_at_the_border_of_a_span(void **state)
{
    (void)state;
    enum { DIM = 8, TOKENS = 1040, FIRST = 1010, QUERIES = TOKENS - FIRST };
    const shape sh = {1, DIM, DIM, 1, STORAGE_F32, STORAGE_F32, 0, false, 0, 0, false};
    const setting fast = fast_alone();
    server s = server_create(&sh, &fast, 1, 0);
    feed f = feed_create(s.cache, &(uint64_t){ROW_X}, &(int64_t){TOKENS}, 1);
    for (int i = 0; i < TOKENS * DIM; i++) {
        f.k[i] = i == 0 ? 2.0f : 0.0f; // position 0 has weight 1, the others exp(-2)
        f.v[i] = i < DIM ? 0.0f : -1e-45f;
        f.q[i] = i % DIM ? 0.0f : 1.0f;
    }
    kvern_read *read;
    assert_ok(feed_append(s.cache, KVERN_PHASE_WINDOW, &f, &read));
    kvern_queries queries = f.queries;
    const int64_t first = FIRST, count = QUERIES, one = 1;
    float alone[DIM];
    queries.scale = 1;
    queries.counts = &count;
    queries.first = queries.q_start = &first;
    assert_ok(kvern_read_attend(read, &queries));
    for (int64_t i = 0; i < QUERIES; i++) {
        const int64_t at = FIRST + i;
        queries.counts = &one;
        queries.first = queries.q_start = &at;
        queries.out = alone;
        assert_ok(kvern_read_attend(read, &queries));
        check_same_bytes(alone, f.out + i * DIM, sizeof alone, "a query among others");
        assert_true(alone[0] == 0 && (signbit(alone[0]) || at >= 1024));
    }
    kvern_read_release(read);
    feed_destroy(&f);
    server_destroy(&s);
}

// ---- The definition ----

// What a codec stores of all positions, and how it is laid out.
typedef struct what_is_stored {
    const float *x;
    size_t heads, dim, groups; // of a head; no groups: x are values
    float *scales, *biases;    // [token][head][group]
} what_is_stored;

// Replaces the values at x, [tokens][heads][dim].
static what_is_stored stored_stream(const kvern_codec *codec, float *x, size_t tokens, size_t heads,
                                    size_t dim)
{
    const size_t groups = codec->group ? dim / codec->group : 0;
    what_is_stored s = {x,
                        heads,
                        dim,
                        groups,
                        new_floats(tokens * heads * groups),
                        new_floats(tokens * heads * groups)};
    for (size_t i = 0; i < tokens * heads; i++, x += dim) {
        if (groups)
            stored_codes(codec, x, dim, x, s.scales + i * groups, s.biases + i * groups);
        else
            stored_values(codec, true, x, dim, x);
    }
    return s;
}

// Replaces the latents and rotated keys at x by the numbers that they are read as.
static what_is_stored stored_latents(const shape *sh, float *x, size_t tokens)
{
    const size_t latent = sh->v_dim, rope = sh->k_dim - sh->v_dim;
    for (size_t i = 0; i < tokens; i++) {
        stored_values(&sh->k_codec, true, x + i * sh->k_dim, latent, x + i * sh->k_dim);
        if (rope)
            stored_values(&sh->v_codec, true, x + i * sh->k_dim + latent, rope,
                          x + i * sh->k_dim + latent);
    }
    return (what_is_stored){x, 1, sh->k_dim, 0, new_floats(0), new_floats(0)};
}

static reference_stream stream_of(const what_is_stored *s, size_t head)
{
    return (reference_stream){
        .x = s->x + head * s->dim,
        .dim = (int64_t)s->dim,
        .stride = (int64_t)(s->heads * s->dim),
        .group = s->groups ? (int64_t)(s->dim / s->groups) : 0,
        .scales = s->scales + head * s->groups,
        .biases = s->biases + head * s->groups,
        .side_stride = (int64_t)(s->heads * s->groups),
    };
}

// The library against docs/arithmetic.md as written down in tests/support, for positions around the
// borders of blocks and spans.
static void results_are_those_of_the_arithmetic_page(void **state)
{
    (void)state;
    enum { TOKENS = 2100 };
    static const int64_t positions[] = {0,   1,    15,   16,   63,   64,   65,   127,
                                        500, 1022, 1023, 1024, 1025, 2047, 2048, 2099};
    const kernel_variants variants = kernel_variants_here();
    const setting at = {"", variants.features[variants.count - 1], {.run = NULL}, 1};
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *sh = &shapes[i];
        server s = server_create(sh, &at, 1, 0);
        feed f = feed_create(s.cache, &(uint64_t){ROW_X}, &(int64_t){TOKENS}, sh->query_heads);
        kvern_read *read;
        assert_ok(feed_append(s.cache, KVERN_PHASE_WINDOW, &f, &read));
        const what_is_stored k =
            sh->latents ? stored_latents(sh, f.k, TOKENS)
                        : stored_stream(&sh->k_codec, f.k, TOKENS, sh->kv_heads, sh->k_dim);
        const kvern_codec v_codec = sh->latents ? (kvern_codec)STORAGE_F32 : sh->v_codec;
        const what_is_stored v = stored_stream(&v_codec, f.v, TOKENS, sh->kv_heads, sh->v_dim);
        for (size_t j = 0; j < sizeof positions / sizeof positions[0]; j++) {
            kvern_queries queries = options_of(&s, &f);
            const int64_t one = 1;
            queries.counts = &one;
            queries.first = queries.q_start = &positions[j];
            assert_ok(kvern_read_attend(read, &queries));
            for (size_t h = 0; h < sh->query_heads; h++) {
                const size_t head = h / (sh->query_heads / sh->kv_heads);
                reference_head stored = {stream_of(&k, head), stream_of(&v, head)};
                if (sh->latents) { // the keys, as far as they are latents, are the values
                    stored.v = stored.k;
                    stored.v.dim = (int64_t)sh->v_dim;
                }
                const reference_query query = {
                    .position = positions[j],
                    .recent = sh->keep == CHUNKS ? 0 : sh->window - sh->keep,
                    .keep = sh->keep == CHUNKS ? 0 : sh->keep,
                    .chunk = sh->keep == CHUNKS ? sh->window : 0,
                    .q = f.q + ((size_t)positions[j] * sh->query_heads + h) * sh->k_dim,
                    .scale = queries.scale,
                    .softcap = sh->softcap,
                    .sink = sh->sinks ? &sink_logits[h] : NULL,
                };
                float wanted[KVERN_MAX_HEAD_DIM];
                reference_attend(&stored, &query, wanted);
                check_same_bytes(wanted, f.out + h * sh->v_dim, sh->v_dim * sizeof(float),
                                 "docs/arithmetic.md");
            }
        }
        free(k.scales);
        free(k.biases);
        free(v.scales);
        free(v.biases);
        kvern_read_release(read);
        feed_destroy(&f);
        server_destroy(&s);
    }
}

// ---- bf16 first ----

// The ends of the appends of a bf16-first row are part of its numbers; nothing else is. The same
// appends give the same bits in every phase, batch, and setting, attended at once or at the end.
static void equal_appends_of_a_row_that_converts_are_equal(void **state)
{
    (void)state;
    enum { APPENDS = 9, TOKENS = 7 + 1 + 1 + 60 + 1 + 1 + 50 + 1 + 13 };
    static const int64_t counts[APPENDS] = {7, 1, 1, 60, 1, 1, 50, 1, 13};
    const kernel_variants variants = kernel_variants_here();
    const shape sh = {2,     64, 64, 6,    STORAGE_AFFINE(4, 64), STORAGE_AFFINE(6, 32), 0,
                      false, 0,  0,  false};
    const shape windowed = {2,     64, 64, 6,    STORAGE_AFFINE(8, 32), STORAGE_AFFINE(2, 64), 0,
                            false, 30, 3,  false};
    for (int kind = 0; kind < 4; kind++) {
        const shape *at_shape = kind % 2 ? &windowed : &sh;
        float *wanted = NULL;
        for (size_t way = 0; way < 12; way++) {
            const setting settings[] = {
                {"one thread", variants.features[way % variants.count], {.run = NULL}, 1},
                {"shuffled", variants.features[way % variants.count], executor_shuffled(3), 0}};
            test_random random = test_random_seed(way);
            server s = server_create(at_shape, way ? &settings[way % 2] : &plain_alone,
                                     way < 6 ? 1 : 4, way < 6 ? 0 : way % 4);
            kvern_layer layer = *kvern_cache_layer(s.cache);
            layer.start = kind < 2 ? 65 : 0;
            kvern_cache_destroy(s.cache);
            kvern_composition_release(s.composition);
            assert_ok(kvern_composition_create(s.context, &layer, 1, &s.composition));
            assert_ok(kvern_cache_create(s.composition, 0, s.rows, &s.cache));
            float *out = new_floats(TOKENS * out_floats(at_shape));
            int64_t done = 0;
            for (int a = 0; a < APPENDS; a++) {
                const kvern_phase phase = counts[a] == 1 && way % 3 != 1 ? KVERN_PHASE_DECODE
                                          : way % 2                      ? KVERN_PHASE_WINDOW
                                                                         : KVERN_PHASE_KNOWN;
                serve_chunk(&s, phase, counts[a], &random,
                            out + (size_t)done * out_floats(at_shape));
                done += counts[a];
                assert_int_equal(kvern_cache_converted(s.cache, s.row), done >= layer.start);
            }
            if (wanted)
                check_same_bytes(wanted, out, TOKENS * out_floats(at_shape) * sizeof *out,
                                 "equal appends");
            server_destroy(&s);
            if (wanted)
                free(out);
            else
                wanted = out;
        }
        free(wanted);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_arithmetic_page),
        cmocka_unit_test(windows_decodes_and_chunks_are_equal),
        cmocka_unit_test(neighbours_change_nothing),
        cmocka_unit_test(kernels_and_threads_change_nothing),
        cmocka_unit_test(long_rows_are_equal_on_any_threads),
        cmocka_unit_test(fault_V1_split_count_by_batch),
        cmocka_unit_test(fault_V3_row_count_threshold),
        cmocka_unit_test(reads_attended_later_are_equal),
        cmocka_unit_test(trimmed_rows_are_equal),
        cmocka_unit_test(forks_are_equal),
        cmocka_unit_test(subsets_of_queries_are_equal),
        cmocka_unit_test(equal_appends_of_a_row_that_converts_are_equal),
        cmocka_unit_test(zeros_keep_their_sign_at_the_border_of_a_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
