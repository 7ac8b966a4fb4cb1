// SPDX-License-Identifier: MIT
// Tokens that see each other both ways, and blocks that are read without being appended: the bits
// are those of docs/arithmetic.md, in any chunks that cut no range in two, in any batch, on any
// kernels and threads, of all queries or of some, at once or later.

#include "tests/support/arithmetic_reference.h"
#include "tests/support/bed.h"
#include "tests/support/both_ways.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define DIM 64
#define HEADS 4 // query heads
#define ROW_X 77
#define MOST_ROWS 3
#define MOST_TOKENS 2400

// What is served: tokens in groups, behind some of an ordinary window.
typedef struct scene {
    kvern_layer layer;
    kvern_phase phase;
    bool block; // which is read, not appended
    int64_t before, tokens;
    int64_t groups[MOST_TOKENS]; // of the tokens behind `before`
} scene;

// ---- Serving ----

typedef struct server {
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    size_t rows, row;
} server;

static server server_create(const kvern_layer *layer, uint32_t features, kvern_executor executor,
                            size_t rows, size_t row)
{
    server s = {.rows = rows, .row = row};
    kvern_context_options options = kvern_context_options_default();
    options.cpu_features = features;
    options.executor = executor;
    assert_ok(kvern_context_create(&options, &s.context));
    assert_ok(kvern_composition_create(s.context, layer, 1, &s.composition));
    assert_ok(kvern_cache_create(s.composition, 0, rows, &s.cache));
    return s;
}

static void server_destroy(server *s)
{
    kvern_cache_destroy(s->cache);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
}

// Attends the queries of the row in pieces, each with some of its neighbours'.
static void attend(test_random *random, const server *s, const kvern_read *read, const feed *f,
                   float *out)
{
    const size_t floats = HEADS * DIM;
    const int64_t count = f->counts[s->row];
    int64_t counts[MOST_ROWS], first[MOST_ROWS], at_row[MOST_ROWS], starts[MOST_ROWS] = {0};
    kvern_queries queries = f->queries;
    for (size_t r = 1; r < s->rows; r++)
        starts[r] = starts[r - 1] + f->counts[r - 1];
    queries.counts = counts;
    queries.first = first;
    queries.q_start = queries.out_start = at_row;
    for (int64_t at = 0, piece; at < count; at += piece) {
        const uint64_t left = (uint64_t)(count - at);
        piece =
            (int64_t)(test_random_below(random, 2) ? left : 1 + test_random_below(random, left));
        for (size_t r = 0; r < s->rows; r++) {
            const uint64_t most = (uint64_t)f->counts[r];
            counts[r] = r == s->row ? piece : (int64_t)test_random_below(random, most + 1);
            first[r] = r == s->row ? at : (int64_t)most - counts[r];
            at_row[r] = starts[r] + first[r];
        }
        assert_ok(kvern_read_attend(read, &queries));
        memcpy(out + (size_t)at * floats, f->out + (size_t)(starts[s->row] + at) * floats,
               (size_t)piece * floats * sizeof *out);
    }
}

// The next `count` tokens of the row, in these groups (NULL: in none); the neighbours get tokens
// and groups of their own. `last`: the cache is not needed any more.
static void serve_piece(test_random *random, server *s, kvern_phase phase, bool block,
                        const int64_t *groups, int64_t count, bool last, float *out)
{
    uint64_t sequences[MOST_ROWS];
    int64_t counts[MOST_ROWS], *of_rows[MOST_ROWS];
    for (size_t r = 0; r < s->rows; r++) {
        const bool first = phase == KVERN_PHASE_BIDIRECTIONAL;
        const bool fits = !first || kvern_cache_length(s->cache, r) == 0;
        sequences[r] = r == s->row ? ROW_X : 5 + r;
        counts[r] = r == s->row ? count : fits ? 2 + (int64_t)test_random_below(random, 90) : 0;
        of_rows[r] = calloc((size_t)counts[r] + 1, sizeof *of_rows[r]);
        assert_non_null(of_rows[r]);
        both_ways_choose(random, phase, counts[r], of_rows[r]);
    }
    if (groups)
        memcpy(of_rows[s->row], groups, (size_t)count * sizeof *groups);
    feed f = feed_create(s->cache, sequences, counts, HEADS);
    both_ways both = both_ways_of(phase, s->rows, counts, of_rows, &f.tokens);
    kvern_read *read;
    if (block)
        assert_ok(kvern_cache_read_block(s->cache, &f.tokens, &read));
    else
        assert_ok(kvern_cache_append(s->cache, phase, &f.tokens, &read));
    if (last && test_random_below(random, 2)) {
        kvern_cache_destroy(s->cache);
        s->cache = NULL;
    }
    attend(random, s, read, &f, out);
    kvern_read_release(read);
    both_ways_free(&both);
    feed_destroy(&f);
    for (size_t r = 0; r < s->rows; r++)
        free(of_rows[r]);
}

static int64_t random_cut(test_random *random, const scene *c, int64_t at)
{
    int64_t end = at + 1 + (int64_t)test_random_below(random, (uint64_t)(c->tokens - at));
    while (end < c->tokens && !both_ways_may_cut(c->groups, c->tokens, end))
        end++;
    return end;
}

// Serves a scene; ranges in as many pieces as there may be. A piece of one row that has no range is
// an ordinary window.
static void serve(test_random *random, const scene *c, server *s, float *out)
{
    float *unused = new_floats((size_t)c->before * HEADS * DIM + 1, 0);
    if (c->before)
        serve_piece(random, s, KVERN_PHASE_WINDOW, false, NULL, c->before, false, unused);
    free(unused);
    const bool whole = c->block || c->phase != KVERN_PHASE_RANGES;
    for (int64_t at = 0, end; at < c->tokens; at = end) {
        end = whole ? c->tokens : random_cut(random, c, at);
        bool grouped = false;
        for (int64_t i = at; i < end; i++)
            grouped = grouped || c->groups[i];
        const kvern_phase phase = grouped || s->rows > 1 ? c->phase : KVERN_PHASE_WINDOW;
        serve_piece(random, s, c->block ? KVERN_PHASE_WINDOW : phase, c->block, c->groups + at,
                    end - at, end == c->tokens, out + (size_t)at * HEADS * DIM);
    }
}

// ---- Any way ----

static void check_ways(test_random *random, const scene *c)
{
    const kernel_variants variants = kernel_variants_here();
    const size_t floats = (size_t)c->tokens * HEADS * DIM;
    float *wanted = new_floats(floats, 0), *got = new_floats(floats, 0);
    for (size_t way = 0; way < 7; way++) {
        const kvern_executor executor =
            way % 3 == 2 ? executor_threads(2) : executor_shuffled(way ? 1 + way % 4 : 1);
        const size_t rows = way < 3 ? 1 : MOST_ROWS;
        server s = server_create(&c->layer, variants.features[way ? (way - 1) % variants.count : 0],
                                 executor, rows, way % rows);
        serve(random, c, &s, way ? got : wanted);
        server_destroy(&s);
        if (way)
            check_same_bytes(wanted, got, floats * sizeof *got, "another way of serving");
    }
    free(wanted);
    free(got);
}

static void choose_scene(test_random *random, const kvern_layer *layer, size_t which, scene *c)
{
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL,
                                         KVERN_PHASE_ENCODER, KVERN_PHASE_WINDOW};
    *c = (scene){.layer = *layer, .phase = phases[which % 4], .block = which % 4 == 3};
    const bool first = c->phase == KVERN_PHASE_BIDIRECTIONAL;
    c->before = first ? 0 : (int64_t)test_random_below(random, 300);
    c->tokens = 2 + (int64_t)test_random_below(random, 250);
    both_ways_choose(random, c->phase, c->tokens, c->groups);
}

static void any_way_of_serving_gives_the_same_bits(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    scene *c = malloc(sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < 4 * storage_count; i += 3) { // each storage in a phase or two
        const storage *s = &storages[i / 4];
        const size_t which = i % 4;
        const kvern_layer layers[] = {storage_layer(s, 2, DIM),
                                      storage_window(s, 2, DIM, 60, i % 8 < 4 ? 5 : 0, 10),
                                      storage_chunked(s, 1, DIM, 100, 10)};
        const kvern_layer *layer = &layers[(i + i / 4) % (which == 3 ? 2 : 3)];
        if (layer->start != KVERN_NO_START && which == 0)
            continue; // in pieces, whose ends are a part of the numbers
        choose_scene(&random, layer, which, c);
        check_ways(&random, c);
    }
    free(c);
}

// ---- The arithmetic ----

// Results against the second implementation, over several spans of the arithmetic.
static void check_reference(test_random *random, const scene *c)
{
    const size_t floats = (size_t)c->tokens * HEADS * DIM;
    float *out = new_floats(floats, 0);
    const int64_t length = c->before + c->tokens;
    int64_t *groups = calloc((size_t)length, sizeof *groups);
    float *k = new_floats((size_t)length * DIM, 0), *v = new_floats((size_t)length * DIM, 0);
    assert_non_null(groups);
    for (int64_t p = 0; p < length; p++) {
        feed_values(ROW_X, p, FEED_K, DIM, k + p * DIM);
        feed_values(ROW_X, p, FEED_V, DIM, v + p * DIM);
        groups[p] = p < c->before ? 0 : c->block ? 1 : c->groups[p - c->before];
    }
    const kernel_variants variants = kernel_variants_here();
    server s =
        server_create(&c->layer, variants.features[variants.count - 1], executor_shuffled(2), 1, 0);
    serve(random, c, &s, out);
    const reference_stream of_k = {.x = k, .stride = DIM, .dim = DIM};
    const reference_stream of_v = {.x = v, .stride = DIM, .dim = DIM};
    const reference_head head = {of_k, of_v};
    for (int i = 0; i < 40; i++) {
        const int64_t token = (int64_t)test_random_below(random, (uint64_t)c->tokens);
        const size_t h = test_random_below(random, HEADS);
        float q[HEADS * DIM], wanted[KVERN_MAX_HEAD_DIM];
        feed_values(ROW_X, c->before + token, FEED_Q, HEADS * DIM, q);
        const kvern_layer *layer = &c->layer;
        const reference_query query = {
            .position = c->before + token,
            .recent = layer->window ? layer->window - layer->keep : 0,
            .keep = layer->keep,
            .chunk = layer->chunk,
            .length = length,
            .groups = groups,
            .block = c->block ? c->before : 0,
            .q = q + h * DIM,
            .scale = kvern_queries_default(layer, HEADS).scale,
        };
        reference_attend(&head, &query, wanted);
        check_same_bytes(wanted, out + ((size_t)token * HEADS + h) * DIM, DIM * sizeof(float),
                         "docs/arithmetic.md");
    }
    server_destroy(&s);
    free(groups);
    free(k);
    free(v);
    free(out);
}

static void results_are_those_of_the_arithmetic_page(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    const storage *f32 = &storages[1];
    const kvern_layer layers[] = {
        storage_layer(f32, 1, DIM), storage_window(f32, 1, DIM, 1200, 0, 0),
        storage_window(f32, 1, DIM, 100, 70, 0), storage_chunked(f32, 1, DIM, 1100, 0)};
    scene *c = malloc(sizeof *c);
    assert_non_null(c);
    for (size_t i = 0; i < 4 * COUNT(layers); i++) {
        if (layers[i / 4].kind == KVERN_LAYER_CHUNKED && i % 4 == 3)
            continue;
        choose_scene(&random, &layers[i / 4], i % 4, c);
        c->before *= 4;
        c->tokens = 1200 + (int64_t)test_random_below(&random, 1000);
        both_ways_choose(&random, c->phase, c->tokens, c->groups);
        check_reference(&random, c);
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_way_of_serving_gives_the_same_bits),
        cmocka_unit_test(results_are_those_of_the_arithmetic_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
