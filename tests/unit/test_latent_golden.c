// SPDX-License-Identifier: MIT
// Absorbed reads of latents against mlx-lm's attention of DeepSeek V3 in float32, two rows, append
// by append: the results of the golden file, or of another one of its kind that is named as the
// argument (tests/golden/latent). And, for other storages, against the definition in double over
// what is stored.

#include "tests/support/check.h"
#include "tests/support/golden_file.h"
#include "tests/support/latent_reference.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>

static const char *path = KVERN_TESTS_DIR "/golden/latent/latent.bin";

enum { SEED, HEADS, LATENT, ROPE, NOPE, VALUE, ROWS, APPENDS, NUMBERS };

#define MOST_ROWS 2
#define MOST_APPENDS 16
#define MOST_TOKENS 160 // of a row

// One row: what mlx-lm stored of all its positions, asked, and answered.
typedef struct sequence {
    float *latent, *rope, *q, *out;
    float *stored_latent, *stored_rope; // by the layer
} sequence;

typedef struct world {
    size_t n[NUMBERS];
    float scale;
    float *key_rows, *value_rows; // [heads][nope or value][latent]
    int64_t counts[MOST_APPENDS][MOST_ROWS];
    sequence rows[MOST_ROWS];
} world;

static float *new_numbers(size_t count)
{
    float *x = malloc((count + 1) * sizeof *x);
    assert_non_null(x);
    return x;
}

static void take_row(FILE *file, const world *w, size_t r, size_t at, size_t tokens)
{
    const size_t *n = w->n, q = n[HEADS] * (n[NOPE] + n[ROPE]), out = n[HEADS] * n[VALUE];
    const sequence *row = &w->rows[r];
    assert_true(at + tokens <= MOST_TOKENS);
    golden_file_take(file, row->latent + at * n[LATENT], tokens * n[LATENT] * sizeof(float));
    golden_file_take(file, row->rope + at * n[ROPE], tokens * n[ROPE] * sizeof(float));
    golden_file_take(file, row->q + at * q, tokens * q * sizeof(float));
    golden_file_take(file, row->out + at * out, tokens * out * sizeof(float));
}

static void open_world(world *w)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t i = 0; i < NUMBERS; i++)
        w->n[i] = (size_t)golden_file_number(file);
    const size_t *n = w->n;
    assert_true(n[ROWS] <= MOST_ROWS && n[APPENDS] <= MOST_APPENDS);
    golden_file_take(file, &w->scale, sizeof w->scale);
    w->key_rows = new_numbers(n[HEADS] * n[NOPE] * n[LATENT]);
    w->value_rows = new_numbers(n[HEADS] * n[VALUE] * n[LATENT]);
    golden_file_take(file, w->key_rows, n[HEADS] * n[NOPE] * n[LATENT] * sizeof(float));
    golden_file_take(file, w->value_rows, n[HEADS] * n[VALUE] * n[LATENT] * sizeof(float));
    for (size_t a = 0; a < n[APPENDS]; a++) {
        for (size_t r = 0; r < n[ROWS]; r++)
            w->counts[a][r] = golden_file_number(file);
    }
    for (size_t r = 0; r < n[ROWS]; r++)
        w->rows[r] = (sequence){new_numbers(MOST_TOKENS * n[LATENT]),
                                new_numbers(MOST_TOKENS * n[ROPE]),
                                new_numbers(MOST_TOKENS * n[HEADS] * (n[NOPE] + n[ROPE])),
                                new_numbers(MOST_TOKENS * n[HEADS] * n[VALUE]),
                                new_numbers(MOST_TOKENS * n[LATENT]),
                                new_numbers(MOST_TOKENS * n[ROPE])};
    size_t at[MOST_ROWS] = {0};
    for (size_t a = 0; a < n[APPENDS]; a++) {
        for (size_t r = 0; r < n[ROWS]; at[r] += (size_t)w->counts[a][r], r++)
            take_row(file, w, r, at[r], (size_t)w->counts[a][r]);
    }
    fclose(file);
}

static void close_world(world *w)
{
    for (size_t r = 0; r < w->n[ROWS]; r++) {
        const sequence *row = &w->rows[r];
        free(row->latent), free(row->rope), free(row->q), free(row->out);
        free(row->stored_latent), free(row->stored_rope);
    }
    free(w->key_rows);
    free(w->value_rows);
}

// ---- Serving ----

// The query of a head, absorbed in double.
static void absorb(const world *w, const float *q, size_t head, float *to)
{
    const size_t *n = w->n;
    const float *rows = w->key_rows + head * n[NOPE] * n[LATENT];
    for (size_t d = 0; d < n[LATENT]; d++) {
        double sum = 0;
        for (size_t j = 0; j < n[NOPE]; j++)
            sum += (double)q[j] * (double)rows[j * n[LATENT] + d];
        to[d] = (float)sum;
    }
    for (size_t d = 0; d < n[ROPE]; d++)
        to[n[LATENT] + d] = q[n[NOPE] + d];
}

// One result, from what a read gave, against mlx-lm's (`exactly`) and the definition.
static void check_result(const world *w, size_t r, int64_t position, size_t head,
                         const float *context, bool exactly)
{
    const size_t *n = w->n, vector = (size_t)position * n[HEADS] + head;
    const sequence *row = &w->rows[r];
    const latent_head what = {.latent = n[LATENT],
                              .rope = n[ROPE],
                              .nope = n[NOPE],
                              .value = n[VALUE],
                              .key_rows = w->key_rows + head * n[NOPE] * n[LATENT],
                              .value_rows = w->value_rows + head * n[VALUE] * n[LATENT],
                              .latents = row->stored_latent,
                              .ropes = row->stored_rope,
                              .q = row->q + vector * (n[NOPE] + n[ROPE]),
                              .scale = (double)w->scale};
    const latent_result exact = latent_reference(&what, NULL, position + 1);
    for (size_t v = 0; v < n[VALUE]; v++) {
        double got = 0;
        for (size_t d = 0; d < n[LATENT]; d++)
            got += (double)what.value_rows[v * n[LATENT] + d] * (double)context[d];
        const double theirs = (double)row->out[vector * n[VALUE] + v];
        if (!(fabs(got - exact.out[v]) <= exact.tolerance) ||
            (exactly && !(fabs(got - theirs) <= 2 * exact.tolerance)))
            fail_msg("row %zu, position %lld, head %zu, dim %zu: %g, mlx-lm %g, exactly %g +- %g",
                     r, (long long)position, head, v, got, theirs, exact.out[v], exact.tolerance);
    }
    assert_true(exact.tolerance < 1e-3 * exact.value_size); // or nothing would be shown
}

static kvern_status append(const world *w, kvern_cache *cache, size_t a, const int64_t *at,
                           kvern_read **read)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t *n = w->n;
    kvern_latent_tokens t = kvern_latent_tokens_default(layer);
    float *latent = new_numbers(MOST_ROWS * MOST_TOKENS * n[LATENT]), *to = latent;
    float *rope = new_numbers(MOST_ROWS * MOST_TOKENS * n[ROPE]), *to_rope = rope;
    for (size_t r = 0; r < n[ROWS]; r++) {
        const size_t count = (size_t)w->counts[a][r], from = (size_t)at[r];
        for (size_t i = 0; i < count * n[LATENT]; i++)
            *to++ = w->rows[r].latent[from * n[LATENT] + i];
        for (size_t i = 0; i < count * n[ROPE]; i++)
            *to_rope++ = w->rows[r].rope[from * n[ROPE] + i];
    }
    t.latent = latent;
    t.rope = rope;
    t.counts = w->counts[a];
    const kvern_status status = kvern_cache_append_latent(cache, KVERN_PHASE_WINDOW, &t, read);
    free(latent);
    free(rope);
    return status;
}

static void check_read(world *w, const kvern_layer *layer, const kvern_read *read, size_t a,
                       const int64_t *at, bool exactly)
{
    const size_t *n = w->n, query = n[LATENT] + n[ROPE];
    float *q = new_numbers(MOST_ROWS * MOST_TOKENS * n[HEADS] * query), *to = q;
    float *out = new_numbers(MOST_ROWS * MOST_TOKENS * n[HEADS] * n[LATENT]), *got = out;
    for (size_t r = 0; r < n[ROWS]; r++) {
        for (size_t i = 0; i < (size_t)w->counts[a][r] * n[HEADS]; i++, to += query)
            absorb(w, w->rows[r].q + ((size_t)at[r] * n[HEADS] + i) * (n[NOPE] + n[ROPE]),
                   i % n[HEADS], to);
        assert_ok(kvern_read_export_latent(read, r, 0, kvern_read_length(read, r),
                                           w->rows[r].stored_latent, w->rows[r].stored_rope, NULL));
    }
    kvern_queries queries = kvern_queries_default(layer, n[HEADS]);
    queries.q = q;
    queries.out = out;
    queries.scale = w->scale;
    assert_ok(kvern_read_attend(read, &queries));
    for (size_t r = 0; r < n[ROWS]; r++) {
        for (size_t i = 0; i < (size_t)w->counts[a][r] * n[HEADS]; i++, got += n[LATENT])
            check_result(w, r, at[r] + (int64_t)(i / n[HEADS]), i % n[HEADS], got, exactly);
    }
    free(q);
    free(out);
}

static void check_storage(world *w, kvern_codec latent, kvern_codec rope, bool exactly)
{
    kvern_layer layer = kvern_layer_latent(w->n[LATENT], w->n[ROPE], 0);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    int64_t at[MOST_ROWS] = {0};
    layer.latent_codec = latent;
    layer.rope_codec = rope;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, w->n[ROWS], &cache));
    for (size_t a = 0; a < w->n[APPENDS]; a++) {
        kvern_read *read;
        assert_ok(append(w, cache, a, at, &read));
        check_read(w, &layer, read, a, at, exactly);
        kvern_read_release(read);
        for (size_t r = 0; r < w->n[ROWS]; r++)
            at[r] += w->counts[a][r];
    }
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void results_are_those_of_mlx_lm(void **state)
{
    (void)state;
    world w = {0};
    open_world(&w);
    const kvern_codec f32 = kvern_codec_dense(KVERN_F32), bf16 = kvern_codec_dense(KVERN_BF16);
    check_storage(&w, f32, f32, true);
    check_storage(&w, bf16, bf16, false);
    check_storage(&w, kvern_codec_dense(KVERN_F16), f32, false);
    check_storage(&w, kvern_codec_affine(8, 64), bf16, false);
    check_storage(&w, kvern_codec_affine(4, 32), f32, false);
    close_world(&w);
}

int main(int count, char **arguments)
{
    if (count > 1)
        path = arguments[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_mlx_lm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
