// SPDX-License-Identifier: MIT
// Recurrent layers: one window equals decodes, chunks, batches, any number of threads, any kernels,
// later calls and forks, by memcmp, in results and in what rows hold.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/recur_feed.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define TOKENS 70

typedef struct wanted {
    kvern_layer layer;
    bed *bed; // plain kernels, one thread, token by token
    float *y;
    size_t width; // floats per token
} wanted;

static kvern_layer layers[4];

static int set_up(void **state)
{
    (void)state;
    layers[0] = kvern_layer_delta(2, 4, 64, 72, 4);
    layers[1] = kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 3, 3, 40, 32, 2);
    layers[2] = kvern_layer_ssd(1, 6, 48, 64, 3);
    layers[3] = kvern_layer_delta(1, 3, 8, 8, 0);
    return 0;
}

static bed *plain_bed(kvern_layer layer)
{
    bed *b = bed_create(layer, 1);
    kvern_cache_destroy(b->cache);
    kvern_composition_release(b->composition);
    kvern_context_release(b->context);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&b->books);
    options.threads = 1;
    options.cpu_features = 0;
    assert_ok(kvern_context_create(&options, &b->context));
    assert_ok(kvern_composition_create(b->context, &layer, 1, &b->composition));
    assert_ok(kvern_cache_create(b->composition, 0, 1, &b->cache));
    return b;
}

static wanted decode_all(kvern_layer layer)
{
    wanted w = {layer, plain_bed(layer), NULL, layer.value_heads * layer.v_dim};
    w.y = new_floats(TOKENS * w.width, 0);
    for (size_t t = 0; t < TOKENS; t++)
        recur_one(w.bed->cache, KVERN_PHASE_DECODE, 1, 1, w.y + t * w.width);
    return w;
}

static void end(wanted *w)
{
    bed_destroy(w->bed);
    free(w->y);
}

// The sequence in chunks, in any phase, on the bed's cache.
static void expect_chunks(const wanted *w, bed *b, int64_t most, uint64_t seed, const char *what)
{
    test_random random = test_random_seed(seed);
    float *y = new_floats(TOKENS * w->width, 0);
    for (int64_t at = 0; at < TOKENS;) {
        int64_t count = 1 + (int64_t)test_random_below(&random, (uint64_t)most);
        if (count > TOKENS - at)
            count = TOKENS - at;
        const kvern_phase phase =
            test_random_below(&random, 2) ? KVERN_PHASE_WINDOW : KVERN_PHASE_KNOWN;
        recur_one(b->cache, count == 1 ? KVERN_PHASE_DECODE : phase, 1, count,
                  y + (size_t)at * w->width);
        at += count;
    }
    check_same_floats(w->y, y, TOKENS * w->width, what);
    recur_expect_row(w->bed->cache, 0, b->cache, 0, what);
    free(y);
}

static void windows_and_chunks_equal_decodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        wanted w = decode_all(layers[i]);
        for (int64_t most = 1; most <= 128; most *= 2) {
            bed *b = bed_create(layers[i], 1);
            expect_chunks(&w, b, most == 128 ? TOKENS * 1000 : most, (uint64_t)most, "chunks");
            bed_destroy(b);
        }
        end(&w);
    }
}

static void any_kernels_and_threads(void **state)
{
    (void)state;
    const kernel_variants variants = kernel_variants_here();
    for (size_t i = 0; i < 4; i++) {
        wanted w = decode_all(layers[i]);
        for (size_t v = 0; v < variants.count; v++) {
            for (size_t threads = 1; threads <= 9; threads += 4) {
                kvern_context_options options = kvern_context_options_default();
                bed *b = bed_create(layers[i], 1);
                kvern_cache_destroy(b->cache);
                kvern_composition_release(b->composition);
                kvern_context_release(b->context);
                options.allocator = ledger_allocator(&b->books);
                options.cpu_features = variants.features[v];
                options.executor = threads == 5 ? executor_threads(4) : executor_shuffled(threads);
                assert_ok(kvern_context_create(&options, &b->context));
                assert_ok(kvern_composition_create(b->context, &layers[i], 1, &b->composition));
                assert_ok(kvern_cache_create(b->composition, 0, 1, &b->cache));
                expect_chunks(&w, b, TOKENS, threads + v, "other kernels and threads");
                bed_destroy(b);
            }
        }
        end(&w);
    }
}

// Rows of other lengths beside it, some of which get nothing.
static void rows_of_a_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        wanted w = decode_all(layers[i]);
        for (size_t row = 0; row < 3; row++) {
            bed *b = bed_on(layers[i], 3, executor_shuffled(4));
            for (int64_t at = 0; at < TOKENS; at += 10) {
                int64_t counts[3] = {at % 3 * 4, at % 4, at % 7};
                size_t before = 0;
                counts[row] = 10;
                for (size_t r = 0; r < row; r++)
                    before += (size_t)counts[r];
                float *y = new_floats((size_t)(counts[0] + counts[1] + counts[2]) * w.width, 0);
                recur_run(b->cache, KVERN_PHASE_WINDOW,
                          (uint64_t[]){row ? 7 : 1, row == 1 ? 1 : 8, row == 2 ? 1 : 9}, counts, y);
                check_same_floats(w.y + (size_t)at * w.width, y + before * w.width, 10 * w.width,
                                  "a row of a batch");
                free(y);
            }
            recur_expect_row(w.bed->cache, 0, b->cache, row, "a row of a batch");
            bed_destroy(b);
        }
        end(&w);
    }
}

// A fork goes on as the row would have, whichever writes first; the row is not touched.
static void forks_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        wanted w = decode_all(layers[i]);
        bed *b = bed_create(layers[i], 1);
        kvern_cache *forks[2];
        recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 30, NULL);
        for (size_t f = 0; f < 2; f++)
            assert_ok(kvern_cache_fork(b->cache, (size_t[]){0}, 1, &forks[f]));
        recur_one(forks[0], KVERN_PHASE_WINDOW, 1, TOKENS - 30, NULL);
        recur_one(b->cache, KVERN_PHASE_WINDOW, 2, 5, NULL);
        recur_one(forks[1], KVERN_PHASE_WINDOW, 1, 1, NULL);
        recur_one(forks[1], KVERN_PHASE_WINDOW, 1, TOKENS - 31, NULL);
        recur_expect_row(w.bed->cache, 0, forks[0], 0, "a fork");
        recur_expect_row(w.bed->cache, 0, forks[1], 0, "a fork of a row that went on");
        for (size_t f = 0; f < 2; f++)
            kvern_cache_destroy(forks[f]);
        bed_destroy(b);
        end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_and_chunks_equal_decodes),
        cmocka_unit_test(any_kernels_and_threads),
        cmocka_unit_test(rows_of_a_batch),
        cmocka_unit_test(forks_go_on),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
