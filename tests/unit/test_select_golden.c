// SPDX-License-Identifier: MIT
// Selections and reads of latents against mlx-lm's attention of DeepSeek V3.2 in float32, append by
// append: the results of the golden file, or of another one of its kind that is named as the
// argument (tests/golden/select).

#include "tests/support/check.h"
#include "tests/support/golden_file.h"
#include "tests/support/latent_reference.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>

static const char *path = KVERN_TESTS_DIR "/golden/select/select.bin";

enum { SEED, HEADS, LATENT, ROPE, NOPE, VALUE, INDEX_HEADS, INDEX_DIM, TOP_K, APPENDS, NUMBERS };

#define MOST_TOKENS 64
#define MOST_APPENDS 16

typedef struct world {
    size_t n[NUMBERS];
    float scale;
    float *key_rows, *value_rows; // [heads][nope or value][latent]
    float *rows;                  // the same as one tensor
    size_t tokens[MOST_APPENDS];
    float *latent, *rope, *index; // of all positions
    int64_t length;               // before the append
    kvern_layer layer;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
} world;

// One append, and what mlx-lm answered.
typedef struct answer {
    size_t tokens;
    float *q, *index_q, *weights, *out;
    int32_t *selected;
} answer;

static float *take(FILE *file, size_t count)
{
    float *x = malloc((count + 1) * sizeof *x);
    assert_non_null(x);
    golden_file_take(file, x, count * sizeof *x);
    return x;
}

static void open_world(FILE *file, world *w)
{
    for (size_t i = 0; i < NUMBERS; i++)
        w->n[i] = (size_t)golden_file_number(file);
    const size_t *n = w->n;
    golden_file_take(file, &w->scale, sizeof w->scale);
    w->key_rows = take(file, n[HEADS] * n[NOPE] * n[LATENT]);
    w->value_rows = take(file, n[HEADS] * n[VALUE] * n[LATENT]);
    w->rows = malloc(n[HEADS] * (n[NOPE] + n[VALUE]) * n[LATENT] * sizeof(float));
    w->latent = malloc(MOST_TOKENS * n[LATENT] * sizeof(float));
    w->rope = malloc(MOST_TOKENS * n[ROPE] * sizeof(float));
    w->index = malloc(MOST_TOKENS * n[INDEX_DIM] * sizeof(float));
    assert_true(n[APPENDS] <= MOST_APPENDS && w->rows && w->latent && w->rope && w->index);
    for (size_t h = 0; h < n[HEADS]; h++) {
        float *to = w->rows + h * (n[NOPE] + n[VALUE]) * n[LATENT];
        for (size_t i = 0; i < n[NOPE] * n[LATENT]; i++)
            to[i] = w->key_rows[h * n[NOPE] * n[LATENT] + i];
        for (size_t i = 0; i < n[VALUE] * n[LATENT]; i++)
            to[n[NOPE] * n[LATENT] + i] = w->value_rows[h * n[VALUE] * n[LATENT] + i];
    }
    for (size_t a = 0; a < n[APPENDS]; a++)
        w->tokens[a] = (size_t)golden_file_number(file);
    w->layer = kvern_layer_latent(n[LATENT], n[ROPE], n[INDEX_DIM]);
    assert_ok(kvern_context_create(NULL, &w->context));
    assert_ok(kvern_composition_create(w->context, &w->layer, 1, &w->composition));
    assert_ok(kvern_cache_create(w->composition, 0, 1, &w->cache));
}

static void close_world(world *w)
{
    kvern_cache_destroy(w->cache);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    free(w->key_rows);
    free(w->value_rows);
    free(w->rows);
    free(w->latent);
    free(w->rope);
    free(w->index);
}

static answer take_answer(FILE *file, world *w, size_t tokens)
{
    const size_t *n = w->n, at = (size_t)w->length;
    answer a = {.tokens = tokens};
    assert_true(at + tokens <= MOST_TOKENS);
    golden_file_take(file, w->latent + at * n[LATENT], tokens * n[LATENT] * sizeof(float));
    golden_file_take(file, w->rope + at * n[ROPE], tokens * n[ROPE] * sizeof(float));
    golden_file_take(file, w->index + at * n[INDEX_DIM], tokens * n[INDEX_DIM] * sizeof(float));
    a.q = take(file, tokens * n[HEADS] * (n[NOPE] + n[ROPE]));
    a.index_q = take(file, tokens * n[INDEX_HEADS] * n[INDEX_DIM]);
    a.weights = take(file, tokens * n[INDEX_HEADS]);
    a.out = take(file, tokens * n[HEADS] * n[VALUE]);
    a.selected = (int32_t *)(void *)take(file, tokens * n[TOP_K]);
    return a;
}

static void free_answer(answer *a)
{
    free(a->q);
    free(a->index_q);
    free(a->weights);
    free(a->out);
    free(a->selected);
}

// ---- Selections ----

// The score of a position in double, and what its computation in float32 may differ by.
static double score_of(const world *w, const answer *a, size_t query, int64_t position,
                       double *slack)
{
    const size_t *n = w->n;
    double s = 0, size = 0;
    for (size_t h = 0; h < n[INDEX_HEADS]; h++) {
        double dot = 0, dot_size = 0;
        for (size_t d = 0; d < n[INDEX_DIM]; d++) {
            const double term =
                (double)a->index_q[(query * n[INDEX_HEADS] + h) * n[INDEX_DIM] + d] *
                (double)w->index[(size_t)position * n[INDEX_DIM] + d];
            dot += term;
            dot_size += fabs(term);
        }
        const double weight = (double)a->weights[query * n[INDEX_HEADS] + h];
        s += weight * fmax(dot, 0);
        size += fabs(weight) * dot_size;
    }
    *slack = (double)(n[INDEX_DIM] + n[INDEX_HEADS] + 4) * 0x1p-24 * size;
    return s;
}

static bool has(const int64_t *list, int64_t count, int64_t position)
{
    for (int64_t i = 0; i < count; i++)
        if (list[i] == position)
            return true;
    return false;
}

// Both lists have top_k positions, and where they differ the scores are near each other.
static void check_selection(const world *w, const answer *a, size_t query, const int64_t *ours,
                            int64_t count)
{
    const int64_t sees = w->length + (int64_t)query + 1, k = (int64_t)w->n[TOP_K];
    const int32_t *theirs = a->selected + query * w->n[TOP_K];
    assert_int_equal(count, sees < k ? sees : k);
    double slack, least = INFINITY, most_slack = 0;
    for (int64_t i = 0; i < count; i++) {
        least = fmin(least, score_of(w, a, query, ours[i], &slack));
        most_slack = fmax(most_slack, slack);
    }
    for (int64_t i = 0; i < k && theirs[i] >= 0; i++) {
        if (has(ours, count, theirs[i]))
            continue;
        const double score = score_of(w, a, query, theirs[i], &slack);
        assert_true(fabs(score - least) <= 2 * (slack + most_slack));
    }
}

// ---- Results ----

static void check_result(const world *w, const answer *a, size_t query, const int64_t *positions,
                         int64_t count, const double *got, const char *what)
{
    const size_t *n = w->n;
    for (size_t h = 0; h < n[HEADS]; h++) {
        const latent_head head = {.latent = n[LATENT],
                                  .rope = n[ROPE],
                                  .nope = n[NOPE],
                                  .value = n[VALUE],
                                  .key_rows = w->key_rows + h * n[NOPE] * n[LATENT],
                                  .value_rows = w->value_rows + h * n[VALUE] * n[LATENT],
                                  .latents = w->latent,
                                  .ropes = w->rope,
                                  .q = a->q + (query * n[HEADS] + h) * (n[NOPE] + n[ROPE]),
                                  .scale = (double)w->scale};
        const latent_result exact = latent_reference(&head, positions, count);
        for (size_t v = 0; v < n[VALUE]; v++) {
            const double wanted = (double)a->out[(query * n[HEADS] + h) * n[VALUE] + v];
            if (!(fabs(got[h * n[VALUE] + v] - wanted) <= 2 * exact.tolerance))
                fail_msg("%s: query %zu, head %zu, dim %zu: %g instead of %g", what, query, h, v,
                         got[h * n[VALUE] + v], wanted);
        }
        assert_true(exact.tolerance < 1e-3 * exact.value_size); // or nothing would be shown
    }
}

static void attend_materialized(const world *w, const answer *a, const kvern_read *read,
                                const kvern_selection *selection, float *out)
{
    const size_t *n = w->n;
    kvern_queries queries = kvern_queries_default(&w->layer, n[HEADS]);
    kvern_latent_weights weights = kvern_latent_weights_default(&w->layer, n[NOPE], n[VALUE]);
    weights.weights = w->rows;
    queries.q = a->q, queries.out = out;
    queries.q_head_stride = (int64_t)(n[NOPE] + n[ROPE]);
    queries.q_token_stride = (int64_t)n[HEADS] * queries.q_head_stride;
    queries.out_head_stride = (int64_t)n[VALUE];
    queries.out_token_stride = (int64_t)(n[HEADS] * n[VALUE]);
    queries.scale = w->scale;
    queries.selection = selection;
    assert_ok(kvern_read_attend_materialized(read, &queries, &weights));
}

// Absorbs the key weights before and the value weights after, in double.
static void attend_absorbed(const world *w, const answer *a, const kvern_read *read,
                            const kvern_selection *selection, double *out)
{
    const size_t *n = w->n, query = n[LATENT] + n[ROPE], vectors = a->tokens * n[HEADS];
    float *q = malloc(vectors * query * sizeof *q);
    float *context = malloc(vectors * n[LATENT] * sizeof *context);
    assert_true(q && context);
    for (size_t i = 0; i < vectors; i++) {
        const float *from = a->q + i * (n[NOPE] + n[ROPE]);
        const float *rows = w->key_rows + i % n[HEADS] * n[NOPE] * n[LATENT];
        for (size_t d = 0; d < n[LATENT]; d++) {
            double sum = 0;
            for (size_t j = 0; j < n[NOPE]; j++)
                sum += (double)from[j] * (double)rows[j * n[LATENT] + d];
            q[i * query + d] = (float)sum;
        }
        for (size_t d = 0; d < n[ROPE]; d++)
            q[i * query + n[LATENT] + d] = from[n[NOPE] + d];
    }
    kvern_queries queries = kvern_queries_default(&w->layer, n[HEADS]);
    queries.q = q, queries.out = context, queries.scale = w->scale, queries.selection = selection;
    assert_ok(kvern_read_attend(read, &queries));
    for (size_t i = 0; i < vectors; i++) {
        const float *rows = w->value_rows + i % n[HEADS] * n[VALUE] * n[LATENT];
        for (size_t v = 0; v < n[VALUE]; v++) {
            out[i * n[VALUE] + v] = 0;
            for (size_t d = 0; d < n[LATENT]; d++)
                out[i * n[VALUE] + v] +=
                    (double)rows[v * n[LATENT] + d] * (double)context[i * n[LATENT] + d];
        }
    }
    free(q);
    free(context);
}

static kvern_read *append(world *w, const answer *a)
{
    const size_t at = (size_t)w->length;
    kvern_latent_tokens tokens = kvern_latent_tokens_default(&w->layer);
    const int64_t count = (int64_t)a->tokens;
    kvern_read *read;
    tokens.latent = w->latent + at * w->n[LATENT];
    tokens.rope = w->rope + at * w->n[ROPE];
    tokens.index = w->index + at * w->n[INDEX_DIM];
    tokens.counts = &count;
    assert_ok(kvern_cache_append_latent(
        w->cache, count == 1 ? KVERN_PHASE_DECODE : KVERN_PHASE_WINDOW, &tokens, &read));
    return read;
}

// With our own selection, which is theirs but for near ties; those would show as other results, so
// that results are compared where the lists are the same.
static void compare(world *w, const answer *a)
{
    const size_t *n = w->n, floats = a->tokens * n[HEADS] * n[VALUE];
    int64_t positions[MOST_TOKENS * MOST_TOKENS], counted[MOST_TOKENS];
    kvern_read *read = append(w, a);
    kvern_selection selection =
        kvern_selection_default(positions, counted, a->tokens, (int64_t)n[TOP_K]);
    kvern_index_queries ask =
        kvern_index_queries_default(n[INDEX_HEADS], n[INDEX_DIM], (int64_t)n[TOP_K]);
    ask.q = a->index_q, ask.weights = a->weights;
    assert_ok(kvern_read_select(read, &ask, &selection));
    float *made = malloc(floats * sizeof *made);
    double *out = malloc(2 * floats * sizeof *out);
    assert_true(made && out);
    attend_materialized(w, a, read, &selection, made);
    attend_absorbed(w, a, read, &selection, out + floats);
    for (size_t i = 0; i < floats; i++)
        out[i] = (double)made[i];
    const bool dense = a->selected[0] < 0;
    for (size_t i = 0; i < a->tokens; i++) {
        const int64_t *list = positions + i * n[TOP_K];
        const int32_t *theirs = a->selected + i * n[TOP_K];
        bool same = true;
        if (!dense)
            check_selection(w, a, i, list, counted[i]);
        for (int64_t j = 0; !dense && j < counted[i]; j++)
            same = same && theirs[j] == list[j];
        if (!same)
            continue;
        const size_t at = i * n[HEADS] * n[VALUE];
        check_result(w, a, i, list, counted[i], out + at, "materialized");
        check_result(w, a, i, list, counted[i], out + floats + at, "absorbed");
    }
    free(made);
    free(out);
    kvern_read_release(read);
}

static void sparse_attention_answers_like_that_of_mlx_lm(void **state)
{
    (void)state;
    world w = {.length = 0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    open_world(file, &w);
    for (size_t i = 0; i < w.n[APPENDS]; i++) {
        answer a = take_answer(file, &w, w.tokens[i]);
        compare(&w, &a);
        w.length += (int64_t)a.tokens;
        free_answer(&a);
    }
    assert_int_equal(fgetc(file), EOF);
    assert_true(w.length > 2 * (int64_t)w.n[TOP_K]); // most appends had a choice
    fclose(file);
    close_world(&w);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_attention_answers_like_that_of_mlx_lm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
