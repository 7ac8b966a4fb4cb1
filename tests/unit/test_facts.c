// SPDX-License-Identifier: MIT
// What the library says about itself and its objects: versions, statuses, sizes, signatures,
// capabilities, defaults, instruction sets.

#include "tests/support/check.h"
#include "tests/support/feed.h"

#include <kvern/kvern.h>

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void version_is_that_of_the_headers(void **state)
{
    (void)state;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%d.%d.%d", KVERN_VERSION_MAJOR, KVERN_VERSION_MINOR,
             KVERN_VERSION_PATCH);
    assert_string_equal(kvern_version(), wanted);
}

static void every_status_has_a_name_and_a_message(void **state)
{
    (void)state;
    int count = 0;
#define CHECK_STATUS(symbol, value, message)                                                       \
    assert_int_equal(symbol, value);                                                               \
    assert_string_equal(kvern_status_name(symbol), #symbol);                                       \
    assert_string_equal(kvern_status_message(symbol), message);                                    \
    count++;
    KVERN_STATUS_LIST(CHECK_STATUS)
    assert_int_equal(KVERN_OK, 0);
    assert_string_equal(kvern_status_name((kvern_status)count), "KVERN_ERR_?");
    assert_string_equal(kvern_status_message((kvern_status)-1), "unknown status");
}

// ABI: these numbers are compiled into callers.
static void numbers_of_the_interface(void **state)
{
    (void)state;
    assert_int_equal(KVERN_F32, 0);
    assert_int_equal(KVERN_BF16, 1);
    assert_int_equal(KVERN_F16, 2);
    assert_int_equal(KVERN_LAYER_FULL, 0);
    assert_int_equal(KVERN_LAYER_CHUNKED, 4);
    assert_int_equal(KVERN_PHASE_DECODE, 0);
    assert_int_equal(KVERN_PHASE_WINDOW, 1);
    assert_int_equal(KVERN_PHASE_KNOWN, 2);
    assert_int_equal(KVERN_PHASE_RANGES, 3);
    assert_int_equal(KVERN_PHASE_ENCODER, 5);
    assert_int_equal(KVERN_CAN_DECODE, 0);
    assert_int_equal(KVERN_CAN_RECUR, 8);
    assert_int_equal(KVERN_PAGE_POSITIONS, 64);
    assert_int_equal(kvern_type_bytes(KVERN_F32), 4);
    assert_int_equal(kvern_type_bytes(KVERN_BF16), 2);
    assert_int_equal(kvern_type_bytes(KVERN_F16), 2);
    assert_int_equal(kvern_type_bytes((kvern_type)3), 0);
    assert_int_equal(kvern_type_bytes((kvern_type)-1), 0);
}

// ---- Compositions ----

#define LAYERS 3

static kvern_composition *new_composition(void)
{
    kvern_layer layers[LAYERS] = {kvern_layer_default(3, 64), kvern_layer_default(8, 128),
                                  kvern_layer_default(1, 576)};
    layers[1].k_codec = kvern_codec_dense(KVERN_F32);
    layers[1].v_codec = kvern_codec_dense(KVERN_F16);
    layers[2].v_dim = 512;
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, LAYERS, &composition));
    kvern_context_release(context); // the composition keeps it
    return composition;
}

static void signatures_name_the_storage(void **state)
{
    (void)state;
    kvern_composition *c = new_composition();
    assert_string_equal(kvern_composition_signature(c, 0), "full:h3:k64=bf16:v64=bf16");
    assert_string_equal(kvern_composition_signature(c, 1), "full:h8:k128=f32:v128=f16");
    assert_string_equal(kvern_composition_signature(c, 2), "full:h1:k576=bf16:v512=bf16");
    assert_null(kvern_composition_signature(c, LAYERS));
    assert_null(kvern_composition_signature(c, SIZE_MAX));
    kvern_cache *cache;
    assert_ok(kvern_cache_create(c, 1, 1, &cache));
    assert_string_equal(kvern_cache_signature(cache), "full:h8:k128=f32:v128=f16");
    kvern_cache_destroy(cache);
    kvern_composition_release(c);
}

static void plans_are_kept_as_given(void **state)
{
    (void)state;
    kvern_composition *c = new_composition();
    assert_int_equal(kvern_composition_layers(c), LAYERS);
    const kvern_layer *layer = kvern_composition_layer(c, 2);
    assert_int_equal(layer->kv_heads, 1);
    assert_int_equal(layer->k_dim, 576);
    assert_int_equal(layer->v_dim, 512);
    assert_null(kvern_composition_layer(c, LAYERS));
    kvern_state *s;
    assert_ok(kvern_state_create(c, 2, &s));
    kvern_composition_release(c); // the state keeps it
    assert_ptr_equal(kvern_state_composition(s), c);
    assert_int_equal(kvern_state_rows(s), 2);
    assert_ptr_equal(kvern_cache_layer(kvern_state_cache(s, 2)), layer);
    assert_int_equal(kvern_cache_rows(kvern_state_cache(s, 0)), 2);
    assert_null(kvern_state_cache(s, LAYERS));
    assert_int_equal(kvern_state_length(s, 2), -1);
    kvern_state_destroy(s);
}

static void bytes_are_whole_pages(void **state)
{
    (void)state;
    static const uint64_t per_token[LAYERS] = {3 * (64 + 64) * 2, 8 * (128 * 4 + 128 * 2),
                                               (576 + 512) * 2};
    kvern_composition *c = new_composition();
    uint64_t all = 0;
    for (size_t l = 0; l < LAYERS; l++) {
        assert_int_equal(kvern_composition_layer_bytes_per_token(c, l), per_token[l]);
        all += per_token[l];
    }
    assert_int_equal(kvern_composition_layer_bytes_per_token(c, LAYERS), 0);
    assert_int_equal(kvern_composition_layer_bytes_per_token(c, KVERN_MAX_LAYERS), 0);
    assert_int_equal(kvern_composition_bytes_per_token(c), all);
    assert_int_equal(kvern_composition_row_bytes(c, 0), 0);
    assert_int_equal(kvern_composition_row_bytes(c, 1), 64 * all);
    assert_int_equal(kvern_composition_row_bytes(c, 64), 64 * all);
    assert_int_equal(kvern_composition_row_bytes(c, 65), 128 * all);
    assert_int_equal(kvern_composition_row_bytes(c, UINT64_C(1) << 40), all << 40);
    assert_true(kvern_composition_row_bytes(c, UINT64_MAX) == UINT64_MAX);
    assert_true(kvern_composition_row_bytes(c, UINT64_C(1) << 60) == UINT64_MAX);
    kvern_composition_release(c);
}

// What is said beforehand is what a cache then holds.
static void row_bytes_are_what_rows_hold(void **state)
{
    (void)state;
    kvern_composition *c = new_composition();
    kvern_state *s;
    const int64_t counts[2] = {65, 1};
    const uint64_t sequences[2] = {1, 2};
    assert_ok(kvern_state_create(c, 2, &s));
    assert_int_equal(kvern_state_bytes(s), 0);
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < LAYERS; l++) {
        feed f = feed_create(kvern_state_cache(s, l), sequences, counts, 24);
        assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
    assert_int_equal(kvern_state_bytes(s),
                     kvern_composition_row_bytes(c, 65) + kvern_composition_row_bytes(c, 1));
    kvern_state_destroy(s);
    kvern_composition_release(c);
}

static void capabilities_are_those_that_work(void **state)
{
    (void)state;
    kvern_composition *c = new_composition();
    kvern_cache *cache;
    assert_ok(kvern_cache_create(c, 0, 1, &cache));
    for (int i = -1; i < 12; i++) {
        const kvern_capability capability = (kvern_capability)i;
        const bool present = capability == KVERN_CAN_DECODE || capability == KVERN_CAN_WINDOW ||
                             capability == KVERN_CAN_KNOWN || capability == KVERN_CAN_TRIM ||
                             capability == KVERN_CAN_FORK ||
                             capability == KVERN_CAN_BIDIRECTIONAL || capability == KVERN_CAN_BLOCK;
        assert_int_equal(kvern_composition_can(c, 0, capability), present);
        assert_int_equal(kvern_cache_can(cache, capability), present);
        assert_false(kvern_composition_can(c, LAYERS, capability));
    }
    kvern_cache_destroy(cache);
    kvern_composition_release(c);
}

static void facts_of_chunks(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_chunked(2, 64, 8192);
    kvern_context *context;
    kvern_composition *c;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &c));
    assert_string_equal(kvern_composition_signature(c, 0), "chunk8192+64:h2:k64=bf16:v64=bf16");
    assert_int_equal(kvern_composition_layer(c, 0)->chunk, 8192);
    assert_true(kvern_composition_can(c, 0, KVERN_CAN_WINDOW));
    assert_true(kvern_composition_can(c, 0, KVERN_CAN_FORK));
    assert_false(kvern_composition_can(c, 0, KVERN_CAN_TRIM));
    const uint64_t page = 64 * kvern_composition_bytes_per_token(c);
    assert_int_equal(kvern_composition_row_bytes(c, 65), 2 * page);
    // A chunk, the slack and a round: whole pages, for chunks begin where pages do.
    assert_int_equal(kvern_composition_row_bytes(c, 100000), (8192 + 2 * 64) / 64 * page);
    kvern_composition_release(c);
    kvern_context_release(context);
}

// ---- Defaults ----

static void defaults(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_default(3, 64);
    assert_int_equal(layer.size, sizeof layer);
    assert_int_equal(layer.kv_heads, 3);
    assert_int_equal(layer.k_dim, 64);
    assert_int_equal(layer.v_dim, 64);
    assert_int_equal(layer.k_codec.kind, KVERN_CODEC_BF16);
    assert_int_equal(layer.v_codec.kind, KVERN_CODEC_BF16);
    const kvern_tokens tokens = kvern_tokens_default(&layer);
    assert_int_equal(tokens.size, sizeof tokens);
    assert_int_equal(tokens.k_type, KVERN_F32);
    assert_int_equal(tokens.k_token_stride, 192);
    assert_int_equal(tokens.v_head_stride, 64);
    const kvern_queries queries = kvern_queries_default(&layer, 9);
    assert_int_equal(queries.size, sizeof queries);
    assert_int_equal(queries.q_token_stride, 576);
    assert_int_equal(queries.out_head_stride, 64);
    assert_true(queries.scale == 0.125f);
    assert_true(queries.softcap == 0);
    assert_null(queries.sinks);
    assert_null(queries.counts);
    const kvern_context_options options = kvern_context_options_default();
    assert_int_equal(options.size, sizeof options);
    assert_int_equal(options.budget_bytes, 0);
    assert_true(options.cpu_features == UINT32_MAX);
}

// By default as many threads as the process may use; one is the calling thread alone.
static void default_executor(void **state)
{
    (void)state;
    kvern_context *context;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    kvern_context_options options = kvern_context_options_default();
    for (size_t threads = 0; threads < 4; threads++) {
        options.threads = threads;
        kvern_status status = kvern_context_create(&options, &context);
        if (status == KVERN_ERR_UNSUPPORTED && threads > 1)
            continue; // a build without a thread pool
        assert_ok(status);
        const size_t got = kvern_context_executor(context).threads;
        assert_true(got == threads ||
                    (threads == 0 && (got == (size_t)CPU_COUNT(&set) || got == 1)));
        kvern_context_release(context);
    }
}

static void count_task(void *arg, size_t index)
{
    _Atomic int *counts = arg;
    counts[index]++;
}

// The executor that engines borrow runs every index once.
static void borrowed_executor(void **state)
{
    (void)state;
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    const kvern_executor executor = kvern_context_executor(context);
    static _Atomic int counts[1000];
    executor.run(executor.user, 1000, count_task, (void *)counts);
    executor.run(executor.user, 0, count_task, (void *)counts);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(counts[i], 1);
    kvern_context_release(context);
}

// ---- Instruction sets ----

static void names_of_kernel_sets(void **state)
{
    (void)state;
    assert_string_equal(kvern_cpu_name(0), "plain");
    assert_string_equal(kvern_cpu_name(KVERN_CPU_AVX2), "avx2");
    assert_string_equal(kvern_cpu_name(KVERN_CPU_AVX2 | KVERN_CPU_AVX512), "avx512");
    assert_string_equal(kvern_cpu_name(KVERN_CPU_NEON), "neon");
    assert_string_equal(kvern_cpu_name(KVERN_CPU_AVX_VNNI), "plain");
}

static uint32_t features_with(const char *wish)
{
    if (wish)
        setenv("KVERN_CPU", wish, 1);
    else
        unsetenv("KVERN_CPU");
    return kvern_cpu_features();
}

static void the_environment_only_narrows(void **state)
{
    (void)state;
    const char *was = getenv("KVERN_CPU");
    char *kept = was ? strdup(was) : NULL;
    const uint32_t all = features_with(NULL);
    assert_int_equal(features_with("plain"), 0);
    assert_int_equal(features_with("avx2"), all & KVERN_CPU_AVX2);
    assert_int_equal(features_with("avx512"), all);
    assert_int_equal(features_with("warp drive"), all);
    assert_int_equal(features_with(""), all);
    features_with(kept);
    free(kept);
}

static void contexts_narrow_further(void **state)
{
    (void)state;
    kvern_context *context;
    kvern_context_options options = kvern_context_options_default();
    const uint32_t masks[] = {0, KVERN_CPU_AVX2, KVERN_CPU_AVX512, UINT32_MAX};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        options.cpu_features = masks[i];
        assert_ok(kvern_context_create(&options, &context));
        assert_int_equal(kvern_context_cpu_features(context), kvern_cpu_features() & masks[i]);
        kvern_context_release(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_is_that_of_the_headers),
        cmocka_unit_test(every_status_has_a_name_and_a_message),
        cmocka_unit_test(numbers_of_the_interface),
        cmocka_unit_test(signatures_name_the_storage),
        cmocka_unit_test(facts_of_chunks),
        cmocka_unit_test(plans_are_kept_as_given),
        cmocka_unit_test(bytes_are_whole_pages),
        cmocka_unit_test(row_bytes_are_what_rows_hold),
        cmocka_unit_test(capabilities_are_those_that_work),
        cmocka_unit_test(defaults),
        cmocka_unit_test(default_executor),
        cmocka_unit_test(borrowed_executor),
        cmocka_unit_test(names_of_kernel_sets),
        cmocka_unit_test(the_environment_only_narrows),
        cmocka_unit_test(contexts_narrow_further),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
