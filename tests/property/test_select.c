// SPDX-License-Identifier: MIT
// Selections by index keys against a naive one: scores by the words of docs/arithmetic.md, and a
// sort. Every codec of index keys, numbers of heads and dims, batches, chunks, threads and kernels.

#include "tests/support/batch_view.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/latent_feed.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"
#include "tests/support/storages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 4
#define MOST_DIM KVERN_MAX_INDEX_DIM

static const kvern_codec codecs[] = {
    STORAGE_F32,           STORAGE_BF16,          STORAGE_F16,      STORAGE_AFFINE(8, 32),
    STORAGE_AFFINE(4, 64), STORAGE_AFFINE(3, 32), STORAGE_TURBO(4), STORAGE_ROTATED(5, 32)};
#define CODECS (sizeof codecs / sizeof codecs[0])

// One selection: what is asked of which rows.
typedef struct problem {
    size_t rows, heads, dim;
    int64_t lengths[MOST_ROWS], counts[MOST_ROWS];
    int64_t top_k;
    kvern_codec codec;
    float scale; // of the index queries
} problem;

typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    int64_t base[MOST_ROWS]; // positions before the append that is read
} world;

static void world_create(world *w, const problem *p, size_t rows, uint32_t features,
                         kvern_executor executor)
{
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books); // what was never written is NaN
    options.cpu_features = features;
    options.executor = executor;
    kvern_layer layer = kvern_layer_latent(16, 8, p->dim);
    layer.index_codec = p->codec;
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, &layer, 1, &w->composition));
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

// Queries and weights of the token at a position.
static void query_of(const problem *p, uint64_t sequence, int64_t position, float *q,
                     float *weights)
{
    feed_values(sequence + 1000, position, FEED_Q, p->heads * p->dim, q);
    feed_values(sequence + 2000, position, FEED_V, p->heads, weights);
    for (size_t i = 0; i < p->heads * p->dim; i++)
        q[i] *= p->scale;
}

typedef struct lists {
    int64_t *positions, *counts;
    kvern_selection selection;
} lists;

static lists lists_create(size_t queries, int64_t top_k)
{
    lists l = {malloc((queries * (size_t)top_k + 1) * sizeof(int64_t)),
               malloc((queries + 1) * sizeof(int64_t)),
               {0}};
    assert_true(l.positions && l.counts);
    memset(l.positions, 0xff, queries * (size_t)top_k * sizeof(int64_t));
    l.selection = kvern_selection_default(l.positions, l.counts, queries, top_k);
    return l;
}

static void lists_destroy(lists *l)
{
    free(l->positions);
    free(l->counts);
}

// Asks for counts[r] queries from position begin[r] on, of sequences sequences[r]. The tensors have
// any layout and type that holds the values.
static lists ask(const world *w, const problem *p, test_random *random, const uint64_t *sequences,
                 const int64_t *begin, const int64_t *counts)
{
    const size_t rows = kvern_cache_rows(w->cache);
    int64_t first[MOST_ROWS];
    size_t queries = 0;
    float *weights = NULL, q[64 * MOST_DIM];
    batch_view view = batch_view_create(random, KVERN_F32, rows, counts, p->heads, p->dim);
    kvern_index_queries ask_for = kvern_index_queries_default(p->heads, p->dim, p->top_k);
    int64_t tokens = 0;
    for (size_t r = 0; r < rows; r++) {
        queries += (size_t)counts[r];
        tokens = view.start[r] + counts[r] > tokens ? view.start[r] + counts[r] : tokens;
        first[r] = counts[r] ? begin[r] - w->base[r] : 0;
    }
    weights = malloc(((size_t)tokens * p->heads + 1) * sizeof *weights);
    assert_non_null(weights);
    for (size_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < counts[r]; i++) {
            query_of(p, sequences[r], begin[r] + i, q,
                     weights + (size_t)(view.start[r] + i) * p->heads);
            for (size_t h = 0; h < p->heads; h++)
                batch_view_set(&view, r, i, h, q + h * p->dim);
        }
    }
    lists l = lists_create(queries, p->top_k);
    ask_for.q = view.data;
    ask_for.q_token_stride = view.token_stride;
    ask_for.q_head_stride = view.head_stride;
    ask_for.start = view.start;
    ask_for.weights = weights;
    ask_for.counts = counts;
    ask_for.first = first;
    assert_ok(kvern_read_select(w->read, &ask_for, &l.selection));
    assert_int_equal(l.selection.queries, queries);
    free(weights);
    batch_view_destroy(&view);
    return l;
}

// ---- What selections should be ----

typedef struct ranked {
    float score;
    int64_t position;
} ranked;

static int by_rank(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->score > b->score || (isnan(b->score) && !isnan(a->score)))
        return -1;
    if (b->score > a->score || (isnan(a->score) && !isnan(b->score)))
        return 1;
    return (a->position > b->position) - (a->position < b->position);
}

static int by_position(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static float score_of(const problem *p, const float *q, const float *weights, const float *key)
{
    float s = 0;
    for (size_t h = 0; h < p->heads; h++) {
        float t = 0;
        for (size_t d = 0; d < p->dim; d++)
            t = fmaf(q[h * p->dim + d], key[d], t);
        s = fmaf(weights[h], t < 0 ? 0 : t, s);
    }
    return s;
}

// Of the keys as they are stored; codes are added up in another way, so that near ones may change
// places: `slack` is what scores may differ by.
static void check_list(const problem *p, const float *keys, uint64_t sequence, int64_t position,
                       const int64_t *got, int64_t count, double slack)
{
    static float q[64 * MOST_DIM], weights[64];
    ranked *all = malloc((size_t)(position + 1) * sizeof *all);
    int64_t *wanted = malloc((size_t)p->top_k * sizeof *wanted);
    assert_true(all && wanted);
    const int64_t k = position + 1 < p->top_k ? position + 1 : p->top_k;
    assert_int_equal(count, k);
    query_of(p, sequence, position, q, weights);
    for (int64_t j = 0; j <= position; j++)
        all[j] = (ranked){score_of(p, q, weights, keys + (size_t)j * p->dim), j};
    const ranked *scores = all;
    double least = INFINITY;
    for (int64_t i = 0; i < k; i++) {
        assert_true(got[i] >= 0 && got[i] <= position && (i == 0 || got[i] > got[i - 1]));
        least = fmin(least, (double)scores[got[i]].score);
    }
    qsort(all, (size_t)position + 1, sizeof *all, by_rank);
    for (int64_t i = 0; i < k; i++)
        wanted[i] = all[i].position;
    qsort(wanted, (size_t)k, sizeof *wanted, by_position);
    if (slack == 0)
        check_same_bytes(wanted, got, (size_t)k * sizeof *wanted, "positions");
    else
        assert_true(least >= (double)all[k - 1].score - slack);
    free(all);
    free(wanted);
}

static void check_lists(const world *w, const problem *p, const lists *l)
{
    const bool is_dense = p->codec.kind < KVERN_CODEC_AFFINE;
    size_t query = 0;
    for (size_t r = 0; r < p->rows; r++) {
        float *keys = malloc(((size_t)p->lengths[r] * p->dim + 1) * sizeof *keys);
        assert_non_null(keys);
        assert_ok(kvern_read_export_latent(w->read, r, 0, p->lengths[r], NULL, NULL, keys));
        for (int64_t i = 0; i < p->counts[r]; i++, query++) {
            // Products of up to 4 * scale with keys of up to 1, `dim` of them, weights up to 1.
            const double size = 4 * (double)p->scale * (double)p->dim * (double)p->heads;
            check_list(p, keys, r + 1, p->lengths[r] - p->counts[r] + i,
                       l->positions + (int64_t)query * p->top_k, l->counts[query],
                       is_dense ? 0 : 4 * size * (double)(p->dim + p->heads) * 0x1p-24);
        }
        free(keys);
    }
}

// ---- Tests ----

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

static problem random_problem(test_random *random, size_t number)
{
    static const size_t heads[] = {1, 2, 5, 16, 33, 64};
    problem p = {.rows = 1 + test_random_below(random, MOST_ROWS),
                 .heads = heads[test_random_below(random, 6)],
                 .codec = codecs[number % CODECS],
                 .scale = number % 7 == 0 ? 1e-20f : 1};
    const size_t unit = p.codec.kind == KVERN_CODEC_TURBO ? 16 : p.codec.group;
    p.dim = unit ? unit * (1 + test_random_below(random, 2))
                 : 8 * (1 + test_random_below(random, p.heads > 16 ? 4 : MOST_DIM / 8));
    const int64_t most = number % 6 == 5 ? 2300 : 300;
    for (size_t r = 0; r < p.rows; r++) {
        p.lengths[r] = 1 + (int64_t)test_random_below(random, (uint64_t)most);
        const int64_t counts = 1 + (int64_t)test_random_below(random, 20);
        p.counts[r] = counts < p.lengths[r] ? counts : p.lengths[r];
    }
    if (number % 3 == 0)
        p.counts[test_random_below(random, p.rows)] = 0;
    p.top_k = 1 + (int64_t)test_random_below(random, number % 4 ? 100 : 1500);
    return p;
}

static void fill(world *w, const problem *p)
{
    uint64_t sequences[MOST_ROWS];
    int64_t before[MOST_ROWS];
    for (size_t r = 0; r < p->rows; r++) {
        sequences[r] = r + 1;
        before[r] = w->base[r] = p->lengths[r] - p->counts[r];
    }
    latent_feed_rows(w->cache, KVERN_PHASE_WINDOW, sequences, before, NULL);
    latent_feed_rows(w->cache, KVERN_PHASE_WINDOW, sequences, p->counts, &w->read);
}

static void selections_equal_naive_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (size_t number = 0; number < (check_is_long() ? 3000 : HAS_SANITIZER ? 24 : 90); number++) {
        static const uint64_t sequences[MOST_ROWS] = {1, 2, 3, 4};
        const problem p = random_problem(&random, number);
        int64_t begin[MOST_ROWS];
        world w;
        world_create(&w, &p, p.rows, features_number(number), executor_number(number));
        fill(&w, &p);
        for (size_t r = 0; r < p.rows; r++)
            begin[r] = p.lengths[r] - p.counts[r];
        lists l = ask(&w, &p, &random, sequences, begin, p.counts);
        check_lists(&w, &p, &l);
        lists_destroy(&l);
        world_destroy(&w);
    }
}

// Keys that are equal, not numbers, infinite, or zeros of both signs, where a naive sort knows what
// to do.
static void ties_and_specials_have_their_place(void **state)
{
    (void)state;
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1, 1, -1, 1e-45f, 3e38f};
    test_random random = test_random_seed(check_seed() + 1);
    for (size_t number = 0; number < (HAS_SANITIZER ? 20 : 60); number++) {
        const int64_t length = 100 + (int64_t)test_random_below(&random, 900);
        const problem p = {.rows = 1,
                           .heads = 1 + number % 3,
                           .dim = 8,
                           .lengths = {length},
                           .counts = {1},
                           .top_k = 1 + (int64_t)test_random_below(&random, 99),
                           .codec = codecs[number % 3],
                           .scale = 1};
        float *index = calloc((size_t)length * 8, sizeof *index);
        float *latent = calloc((size_t)length * 16, sizeof *latent);
        assert_true(index && latent);
        for (int64_t j = 0; j < length; j++)
            index[8 * j + (int64_t)test_random_below(&random, 8)] =
                specials[test_random_below(&random, sizeof specials / sizeof specials[0])];
        world w;
        world_create(&w, &p, 1, features_number(number), executor_number(number));
        kvern_latent_tokens tokens = kvern_latent_tokens_default(kvern_cache_layer(w.cache));
        tokens.latent = latent, tokens.rope = latent, tokens.index = index;
        tokens.counts = &length;
        assert_ok(kvern_cache_append_latent(w.cache, KVERN_PHASE_WINDOW, &tokens, &w.read));
        static const uint64_t sequence = 1;
        const int64_t begin = length - 1;
        lists l = ask(&w, &p, &random, &sequence, &begin, p.counts);
        check_lists(&w, &p, &l);
        lists_destroy(&l);
        world_destroy(&w);
        free(index);
        free(latent);
    }
}

// One row at a time, decoded token by token or in chunks, on plain kernels: the same lists.
static void selections_do_not_depend_on_how_they_are_made(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 2);
    for (size_t number = 0; number < (HAS_SANITIZER ? 6 : 18); number++) {
        problem p = random_problem(&random, number);
        static const uint64_t sequences[MOST_ROWS] = {1, 2, 3, 4};
        int64_t begin[MOST_ROWS];
        world w;
        world_create(&w, &p, p.rows, features_number(number), executor_number(number));
        fill(&w, &p);
        for (size_t r = 0; r < p.rows; r++)
            begin[r] = p.lengths[r] - p.counts[r];
        lists batch = ask(&w, &p, &random, sequences, begin, p.counts);
        size_t query = 0;
        for (size_t r = 0; r < p.rows; r++) {
            world alone;
            world_create(&alone, &p, 1, 0, executor_backwards(1));
            latent_feed_rows(alone.cache, KVERN_PHASE_WINDOW, &sequences[r], &begin[r], NULL);
            for (int64_t i = 0, chunk; i < p.counts[r]; i += chunk) {
                const int64_t at = begin[r] + i;
                chunk = 1 + (int64_t)test_random_below(&random, (uint64_t)(p.counts[r] - i));
                alone.base[0] = at;
                latent_feed_rows(alone.cache, KVERN_PHASE_WINDOW, &sequences[r], &chunk,
                                 &alone.read);
                lists l = ask(&alone, &p, &random, &sequences[r], &at, &chunk);
                for (int64_t c = 0; c < chunk; c++, query++) {
                    assert_int_equal(l.counts[c], batch.counts[query]);
                    check_same_bytes(l.positions + c * p.top_k,
                                     batch.positions + (int64_t)query * p.top_k,
                                     (size_t)l.counts[c] * sizeof(int64_t), "positions");
                }
                lists_destroy(&l);
                kvern_read_release(alone.read);
                alone.read = NULL;
            }
            world_destroy(&alone);
        }
        lists_destroy(&batch);
        world_destroy(&w);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selections_equal_naive_ones),
        cmocka_unit_test(ties_and_specials_have_their_place),
        cmocka_unit_test(selections_do_not_depend_on_how_they_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
