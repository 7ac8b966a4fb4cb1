// SPDX-License-Identifier: MIT
// The caller's floating-point environment (rounding mode, flushed subnormals) changes no result and
// is left as it was, on the calling thread and on the executor's.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/float_environment.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 1100 // two spans: results are merged
#define QUERIES 6   // the last ones: arithmetic with subnormal numbers is slow
#define HEADS 2
#define DIM 40

// Keys, values and queries that are partly subnormal, with products that are.
static void shrink(float *x, size_t count, float factor)
{
    for (size_t i = 0; i < count; i += 3)
        x[i] *= factor;
}

static const int64_t query_count = QUERIES, first_query = TOKENS - QUERIES;
static const float sink_logits[HEADS] = {0.5f, -2};

static void make_tokens(const kvern_cache *cache, feed *f)
{
    *f = feed_create(cache, &(uint64_t){1}, &(int64_t){TOKENS}, HEADS);
    shrink(f->k, TOKENS * DIM, 1e-40f);
    shrink(f->v, TOKENS * DIM, 1e-39f);
    shrink(f->q, TOKENS * HEADS * DIM, 1e-38f);
    f->queries.counts = &query_count;
    f->queries.first = f->queries.q_start = &first_query;
    f->queries.softcap = 20;
    f->queries.sinks = sink_logits;
}

// Values that only exist below the normal numbers: V is subnormal altogether.
static void make_small_tokens(const kvern_cache *cache, feed *f)
{
    make_tokens(cache, f);
    for (size_t i = 0; i < TOKENS * DIM; i++)
        f->v[i] = ldexpf(f->v[i], -130);
}

typedef void maker(const kvern_cache *cache, feed *f);

static float *exported_values(const kvern_cache *cache)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t each = TOKENS * layer->kv_heads * layer->k_dim;
    float *values = malloc(2 * each * sizeof *values);
    assert_non_null(values);
    assert_ok(kvern_cache_export(cache, 0, 0, TOKENS, values, values + each));
    return values;
}

// Everything from creation to attending, in an environment; the inputs are made outside of it.
static float *results_in(float_environment environment, kvern_executor executor, uint32_t features,
                         kvern_type stored, maker *make)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_layer layer = kvern_layer_default(1, DIM);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    feed f;
    options.executor = executor;
    options.cpu_features = features;
    layer.k_codec = layer.v_codec = kvern_codec_dense(stored);
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    make(cache, &f);
    float_environment_set(environment);
    kvern_status append = feed_append(cache, KVERN_PHASE_WINDOW, &f, &read);
    const int kept = float_environment_is(environment);
    kvern_status attend = kvern_read_attend(read, &f.queries);
    const int kept_still = float_environment_is(environment);
    float_environment_set(FLOAT_DEFAULT);
    assert_ok(append);
    assert_ok(attend);
    assert_true(kept && kept_still);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
    float *out = f.out;
    f.out = NULL;
    feed_destroy(&f);
    return out;
}

static void compare(kvern_executor executor, uint32_t features, kvern_type stored, maker *make)
{
    float *wanted = results_in(FLOAT_DEFAULT, executor_backwards(1), 0, stored, make);
    for (int e = FLOAT_DEFAULT; e < FLOAT_ENVIRONMENTS; e++) {
        float *got = results_in((float_environment)e, executor, features, stored, make);
        check_same_bytes(wanted, got, QUERIES * HEADS * DIM * sizeof *got,
                         "in another environment");
        free(got);
    }
    free(wanted);
}

static void results_do_not_depend_on_the_callers_environment(void **state)
{
    (void)state;
    const kernel_variants variants = kernel_variants_here();
    for (size_t v = 0; v < variants.count; v++) {
        for (int type = 0; type < 3; type++)
            compare(executor_backwards(1), variants.features[v], (kvern_type)type, make_tokens);
    }
}

static void subnormal_values_survive(void **state)
{
    (void)state;
    const kernel_variants variants = kernel_variants_here();
    float *out = results_in(FLOAT_FLUSH, executor_backwards(1), 0, KVERN_F32, make_small_tokens);
    int subnormal = 0;
    for (size_t i = 0; i < QUERIES * HEADS * DIM; i++)
        subnormal += fpclassify(out[i]) == FP_SUBNORMAL;
    assert_true(subnormal > 100); // the test would find flushing
    free(out);
    for (size_t v = 0; v < variants.count; v++)
        compare(executor_backwards(2), variants.features[v], KVERN_F32, make_small_tokens);
}

static void results_do_not_depend_on_the_executors_environment(void **state)
{
    (void)state;
    const kernel_variants variants = kernel_variants_here();
    const uint32_t best = variants.features[variants.count - 1];
    compare(executor_odd_environment(4), best, KVERN_F32, make_tokens);
    compare(executor_odd_environment(3), best, KVERN_BF16, make_small_tokens);
}

// The default scale of 1/sqrt(dim) is rounded to nearest, whatever the caller rounds to.
#define WIDE_DIM 64 // for groups of 64

// What a row of bf16 holds after it was converted to q4, everything in an environment.
static float *converted_in(float_environment environment, bool adopted)
{
    kvern_layer layer = kvern_layer_default(1, WIDE_DIM);
    kvern_context *context;
    kvern_composition *composition, *plain;
    kvern_cache *cache, *from;
    feed f;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &plain));
    layer.k_codec = kvern_codec_affine(4, 64);
    layer.v_codec = layer.k_codec;
    layer.start = TOKENS;
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    assert_ok(kvern_cache_create(plain, 0, 1, &from));
    f = feed_create(cache, &(uint64_t){1}, &(int64_t){TOKENS}, HEADS);
    float_environment_set(environment);
    kvern_status status = feed_append(adopted ? from : cache, KVERN_PHASE_WINDOW, &f, NULL);
    if (!status && adopted)
        status = kvern_cache_adopt(cache, 0, from, 0);
    const bool converted = kvern_cache_converted(cache, 0);
    float *values = exported_values(cache);
    const int kept = float_environment_is(environment);
    float_environment_set(FLOAT_DEFAULT);
    assert_ok(status);
    assert_true(converted && kept);
    kvern_cache_destroy(from);
    kvern_cache_destroy(cache);
    kvern_composition_release(plain);
    kvern_composition_release(composition);
    kvern_context_release(context);
    feed_destroy(&f);
    return values;
}

static void conversions_and_exports_do_not_depend_on_the_environment(void **state)
{
    (void)state;
    float *wanted = converted_in(FLOAT_DEFAULT, false);
    for (int e = FLOAT_DEFAULT; e < FLOAT_ENVIRONMENTS; e++) {
        for (int adopted = 0; adopted < 2; adopted++) {
            float *got = converted_in((float_environment)e, adopted);
            check_same_bytes(wanted, got, 2 * TOKENS * WIDE_DIM * sizeof *got,
                             adopted ? "adopted" : "appended");
            free(got);
        }
    }
    free(wanted);
}

static void default_scales_do_not_depend_on_the_environment(void **state)
{
    (void)state;
    for (size_t dim = 8; dim <= KVERN_MAX_HEAD_DIM; dim += 8) {
        const kvern_layer layer = kvern_layer_default(1, dim);
        const float wanted = kvern_queries_default(&layer, 1).scale;
        assert_true(fabs((double)wanted - 1 / sqrt((double)dim)) <=
                    2.01 * 0x1p-24 * (double)wanted);
        for (int e = FLOAT_DEFAULT; e < FLOAT_ENVIRONMENTS; e++) {
            float_environment_set((float_environment)e);
            const float got = kvern_queries_default(&layer, 1).scale;
            const int kept = float_environment_is((float_environment)e);
            float_environment_set(FLOAT_DEFAULT);
            assert_true(kept);
            assert_true(wanted == got);
        }
    }
}

#if defined(__x86_64__)
#define TRAPS (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW)

// Appends and attends with traps on; the values overflow f16, and some are infinite.
static void append_and_attend_with_traps(kvern_type stored)
{
    kvern_layer layer = kvern_layer_default(1, DIM);
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    options.threads = 1;
    layer.k_codec = layer.v_codec = kvern_codec_dense(stored);
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    feed f;
    make_tokens(cache, &f);
    f.k[5] = f.v[7] = INFINITY;
    f.k[8] = f.v[9] = 1e30f;
    f.q[first_query * HEADS * DIM + 11] = 3e38f;
    feenableexcept(TRAPS);
    kvern_status append = kvern_cache_append(cache, KVERN_PHASE_WINDOW, &f.tokens, &read);
    kvern_status attend = kvern_read_attend(read, &f.queries);
    const int kept = fegetexcept() == TRAPS;
    fedisableexcept(FE_ALL_EXCEPT);
    assert_ok(append);
    assert_ok(attend);
    assert_true(kept);
    feed_destroy(&f);
    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
}
#endif

// A caller that traps on floating-point exceptions: none of ours reaches it.
static void nothing_traps(void **state)
{
    (void)state;
#if defined(__x86_64__)
    const kvern_layer layer = kvern_layer_default(1, DIM);
    feenableexcept(TRAPS);
    const float scale = kvern_queries_default(&layer, 1).scale;
    fedisableexcept(FE_ALL_EXCEPT);
    assert_true(scale > 0);
    append_and_attend_with_traps(KVERN_F32);
    append_and_attend_with_traps(KVERN_BF16);
    append_and_attend_with_traps(KVERN_F16);
#else
    print_message("not run: only x86 can trap here\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_the_callers_environment),
        cmocka_unit_test(subnormal_values_survive),
        cmocka_unit_test(results_do_not_depend_on_the_executors_environment),
        cmocka_unit_test(conversions_and_exports_do_not_depend_on_the_environment),
        cmocka_unit_test(default_scales_do_not_depend_on_the_environment),
        cmocka_unit_test(nothing_traps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
