// SPDX-License-Identifier: MIT
// Threads that select positions and attend them on one read, materialized reads among them, each of
// them split over the context's own threads, while the cache goes on: the bits of a serial run.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/latent_feed.h"
#include "tests/support/sanitizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 3
#define HEADS 9
#define INDEX_HEADS 6
#define INDEX_DIM 32
#define LATENT 64
#define ROPE 16
#define NOPE 24
#define VALUE 32
#define TOP_K 100
#define LENGTH (HAS_SANITIZER ? 400 : 1200)
#define TOKENS 4
#define QUERIES (ROWS * TOKENS)
#define THREADS 5
#define ROUNDS (HAS_SANITIZER ? 1 : 6)

static const uint64_t sequences[ROWS] = {1, 2, 3};
static float q[QUERIES * HEADS * (LATENT + ROPE)], index_q[QUERIES * INDEX_HEADS * INDEX_DIM];
static float weights[QUERIES * INDEX_HEADS], rows[HEADS * (NOPE + VALUE) * LATENT];

// What one run answers.
typedef struct answers {
    int64_t positions[QUERIES * TOP_K], counted[QUERIES];
    float absorbed[QUERIES * HEADS * LATENT];
    float made[QUERIES * HEADS * VALUE], made_selected[QUERIES * HEADS * VALUE];
} answers;

typedef struct worker {
    const kvern_read *read;
    const kvern_layer *layer;
    const answers *wanted;
    bool same;
} worker;

static void answer(const kvern_read *read, const kvern_layer *layer, answers *a)
{
    kvern_selection selection = kvern_selection_default(a->positions, a->counted, QUERIES, TOP_K);
    kvern_index_queries ask = kvern_index_queries_default(INDEX_HEADS, INDEX_DIM, TOP_K);
    ask.q = index_q, ask.weights = weights;
    assert_ok(kvern_read_select(read, &ask, &selection));
    kvern_queries queries = kvern_queries_default(layer, HEADS);
    queries.q = q, queries.out = a->absorbed, queries.selection = &selection;
    assert_ok(kvern_read_attend(read, &queries));
    kvern_latent_weights w = kvern_latent_weights_default(layer, NOPE, VALUE);
    w.weights = rows;
    queries.q_head_stride = NOPE + ROPE, queries.q_token_stride = HEADS * (NOPE + ROPE);
    queries.out_head_stride = VALUE, queries.out_token_stride = HEADS * VALUE;
    queries.out = a->made_selected;
    assert_ok(kvern_read_attend_materialized(read, &queries, &w));
    queries.out = a->made, queries.selection = NULL;
    assert_ok(kvern_read_attend_materialized(read, &queries, &w));
}

static void *run_worker(void *arg)
{
    worker *w = arg;
    answers *a = malloc(sizeof *a);
    w->same = a != NULL;
    for (int i = 0; i < ROUNDS && w->same; i++) {
        memset(a, 0, sizeof *a);
        answer(w->read, w->layer, a);
        w->same = memcmp(a, w->wanted, sizeof *a) == 0;
    }
    free(a);
    return NULL;
}

// A read of rows of LENGTH positions, and the cache that it came from.
static kvern_read *make_read(const kvern_composition *composition, kvern_cache **cache)
{
    static const int64_t before[ROWS] = {LENGTH, 300, 40}, tokens[ROWS] = {TOKENS, TOKENS, TOKENS};
    kvern_read *read;
    assert_ok(kvern_cache_create((kvern_composition *)composition, 0, ROWS, cache));
    latent_feed_rows(*cache, KVERN_PHASE_WINDOW, sequences, before, NULL);
    latent_feed_rows(*cache, KVERN_PHASE_WINDOW, sequences, tokens, &read);
    return read;
}

static void *append_on(void *arg)
{
    kvern_cache *cache = arg;
    static const int64_t one[ROWS] = {1, 1, 1};
    for (int i = 0; i < 40; i++)
        latent_feed_rows(cache, KVERN_PHASE_DECODE, sequences, one, NULL);
    return NULL;
}

static void open_context(size_t threads, kvern_context **context, kvern_composition **composition,
                         const kvern_layer *layer)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = threads;
    assert_ok(kvern_context_create(&options, context));
    assert_ok(kvern_composition_create(*context, layer, 1, composition));
}

static void reads_are_shared_by_threads(void **state)
{
    (void)state;
    kvern_layer layer = kvern_layer_latent(LATENT, ROPE, INDEX_DIM);
    layer.latent_codec = kvern_codec_dense(KVERN_BF16);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    static answers wanted;
    feed_values(1, 0, FEED_Q, sizeof q / sizeof q[0], q);
    feed_values(2, 0, FEED_Q, sizeof index_q / sizeof index_q[0], index_q);
    feed_values(3, 0, FEED_V, sizeof weights / sizeof weights[0], weights);
    feed_values(4, 0, FEED_K, sizeof rows / sizeof rows[0], rows);
    open_context(1, &context, &composition, &layer);
    kvern_read *read = make_read(composition, &cache);
    answer(read, &layer, &wanted);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);

    open_context(4, &context, &composition, &layer);
    read = make_read(composition, &cache);
    pthread_t threads[THREADS], appender;
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){read, &layer, &wanted, false};
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    assert_int_equal(pthread_create(&appender, NULL, append_on, cache), 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].same);
    }
    assert_int_equal(pthread_join(appender, NULL), 0);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_shared_by_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
