// SPDX-License-Identifier: MIT
// Long appends are stored, and rows converted, on all threads of the executor, in whatever order it
// runs the tasks: what is stored has the bits that one thread stores. Short ones stay where they
// are. ThreadSanitizer runs this program.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/sanitizer.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KV_HEADS 4
#define HEADS 8
#define DIM 128
#define ROWS 3
#define STEPS 4

static const uint64_t sequences[ROWS] = {71, 72, 73};
static const int64_t counts[STEPS][ROWS] = {{130, 0, 57}, {1, 70, 64}, {1, 1, 1}, {40, 200, 0}};

// ---- An executor that counts ----

typedef struct counted {
    kvern_executor inner;
    _Atomic size_t runs, tasks;
} counted;

static void run_counted(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    counted *c = user;
    atomic_fetch_add(&c->runs, 1);
    atomic_fetch_add(&c->tasks, tasks);
    c->inner.run(c->inner.user, tasks, task, arg);
}

static void append_only(kvern_cache *cache, const int64_t *tokens)
{
    feed f = feed_create(cache, sequences, tokens, HEADS);
    assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, NULL));
    feed_destroy(&f);
}

static void long_appends_use_the_executor(void **state)
{
    (void)state;
    counted c = {.inner = executor_shuffled(4)};
    kvern_layer layer = kvern_layer_default(KV_HEADS, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 64);
    layer.start = 1000;
    bed *b = bed_on(layer, ROWS, (kvern_executor){.user = &c, .run = run_counted, .threads = 4});
    append_only(b->cache, (int64_t[ROWS]){1, 1, 1});
    assert_int_equal(c.runs, 0); // a token is stored before another thread has woken
    append_only(b->cache, (int64_t[ROWS]){400, 0, 300});
    assert_int_equal(c.runs, 1);
    assert_true(c.tasks >= 4);
    append_only(b->cache, (int64_t[ROWS]){598, 998, 0});
    assert_int_equal(c.runs, 2);
    append_only(b->cache, (int64_t[ROWS]){1, 1, 1}); // two of them reach their start
    assert_true(kvern_cache_converted(b->cache, 0) && kvern_cache_converted(b->cache, 1));
    assert_int_equal(c.runs, 3);
    append_only(b->cache, (int64_t[ROWS]){1, 1, 1});
    assert_int_equal(c.runs, 3);
    bed_destroy(b);
}

// ---- The same bits ----

// Results of all steps, one after the other, and what the rows store in the end.
static float *results(kvern_layer layer, kvern_executor executor, size_t *floats)
{
    bed *b = bed_on(layer, ROWS, executor);
    size_t tokens = 0, stored = 0;
    for (size_t s = 0; s < STEPS; s++) {
        for (size_t r = 0; r < ROWS; r++)
            tokens += (size_t)counts[s][r];
    }
    *floats = tokens * (HEADS + 2 * KV_HEADS) * DIM;
    float *out = new_floats(*floats, NAN), *at = out;
    for (size_t s = 0; s < STEPS; s++) {
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts[s], HEADS, at);
        for (size_t r = 0; r < ROWS; r++)
            at += (size_t)counts[s][r] * HEADS * DIM;
    }
    for (size_t r = 0; r < ROWS; r++) {
        const int64_t length = kvern_cache_length(b->cache, r);
        const int64_t count = length - layer_first_seen(&layer, length - 1);
        stored = (size_t)count * KV_HEADS * DIM;
        assert_ok(kvern_cache_export(b->cache, r, length - count, count, at, at + stored));
        at += 2 * stored;
    }
    bed_destroy(b);
    return out;
}

static void check_executors(kvern_layer layer, const char *name)
{
    const kvern_executor others[] = {
        executor_threads(4),
        executor_shuffled(7),
        executor_backwards(3),
        executor_odd_environment(4),
    };
    // Sanitizers take long, and what they find is in the first ones.
    const size_t count = HAS_SANITIZER && !check_is_long() ? 2 : sizeof others / sizeof others[0];
    size_t floats;
    float *wanted = results(layer, executor_backwards(1), &floats);
    for (size_t i = 0; i < count; i++) {
        float *got = results(layer, others[i], &floats);
        check_same_bytes(wanted, got, floats * sizeof *got, name);
        free(got);
    }
    free(wanted);
}

static void every_executor_stores_the_same(void **state)
{
    (void)state;
    for_every_storage(check_executors, KV_HEADS, DIM, 90);
}

// ---- Conversions of many layers ----

#define LAYERS 6

static kvern_state *converted_state(kvern_executor executor, kvern_context **context)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_layer layers[LAYERS];
    kvern_composition *composition;
    kvern_state *s;
    options.executor = executor;
    for (size_t l = 0; l < LAYERS; l++) {
        layers[l] =
            l % 2 ? kvern_layer_window(KV_HEADS, DIM, 150) : kvern_layer_default(KV_HEADS, DIM);
        layers[l].k_codec = layers[l].v_codec = kvern_codec_affine(4 + 2 * (uint32_t)(l % 3), 64);
        layers[l].start = 100;
    }
    assert_ok(kvern_context_create(&options, context));
    assert_ok(kvern_composition_create(*context, layers, LAYERS, &composition));
    assert_ok(kvern_state_create(composition, ROWS, &s));
    kvern_composition_release(composition);
    for (size_t step = 0; step < STEPS; step++) {
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts[step]));
        for (size_t l = 0; l < LAYERS; l++) {
            feed f = feed_create(kvern_state_cache(s, l), sequences, counts[step], HEADS);
            assert_ok(feed_step_append(s, l, &f, NULL));
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(s));
    }
    return s;
}

static void expect_same_rows(const kvern_cache *wanted, const kvern_cache *got)
{
    for (size_t r = 0; r < ROWS; r++) {
        const int64_t length = kvern_cache_length(wanted, r);
        const int64_t count = length < 150 ? length : 150;
        const size_t floats = 2 * (size_t)count * KV_HEADS * DIM;
        float *a = new_floats(floats, 0), *b = new_floats(floats, 0);
        assert_int_equal(kvern_cache_converted(wanted, r), kvern_cache_converted(got, r));
        assert_ok(kvern_cache_export(wanted, r, length - count, count, a, a + floats / 2));
        assert_ok(kvern_cache_export(got, r, length - count, count, b, b + floats / 2));
        check_same_bytes(a, b, floats * sizeof *a, "a converted row");
        free(a);
        free(b);
    }
}

static void layers_are_converted_together(void **state)
{
    (void)state;
    counted c = {.inner = executor_threads(4)};
    kvern_context *one, *many;
    kvern_state *wanted = converted_state(executor_backwards(1), &one);
    kvern_state *got =
        converted_state((kvern_executor){.user = &c, .run = run_counted, .threads = 4}, &many);
    assert_true(c.runs > 0);
    for (size_t l = 0; l < LAYERS; l++)
        expect_same_rows(kvern_state_cache(wanted, l), kvern_state_cache(got, l));
    kvern_state_destroy(wanted);
    kvern_state_destroy(got);
    kvern_context_release(one);
    kvern_context_release(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_appends_use_the_executor),
        cmocka_unit_test(every_executor_stores_the_same),
        cmocka_unit_test(layers_are_converted_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
