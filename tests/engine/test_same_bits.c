// SPDX-License-Identifier: MIT
// Same bits for whole-model logits: one window of N tokens = N decodes = any split into chunks = a
// batch with other rows = after a trim = any number of threads = any instruction set. All by
// memcmp, on small random models of every tensor type, and on a real one when KVERN_TEST_MODEL
// names its file.

#include "tests/support/engine_fixture.h"
#include "tests/support/random.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY_TOKENS 150 // more than two pages of positions
#define WIDE_TOKENS 70  // more than one, for wide models
#define POOL_STEPS 12
#define REAL_TOKENS 40
#define REAL_PLAIN_TOKENS 6 // the plain kernels take their time

static const uint32_t types[] = {GGUF_TYPE_F32,  GGUF_TYPE_F16,  GGUF_TYPE_BF16, GGUF_TYPE_Q4_0,
                                 GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q8_0,
                                 GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q6_K};
#define TYPES (sizeof types / sizeof types[0])

// A sequence and the logits that every way of serving it must give.
typedef struct sequence {
    const int32_t *tokens;
    size_t count;
    const float *logits; // [count, vocabulary]
    size_t vocabulary;
} sequence;

static void fill_tokens(test_random *random, size_t vocabulary, size_t count, int32_t *tokens)
{
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)test_random_below(random, vocabulary);
    }
}

static float *room(size_t count, size_t vocabulary)
{
    float *logits = malloc(count * vocabulary * sizeof *logits);
    assert_non_null(logits);
    return logits;
}

static void assert_bits(const sequence *expected, size_t from, size_t count, const float *logits,
                        const char *way)
{
    size_t bytes = count * expected->vocabulary * sizeof *logits;
    if (memcmp(expected->logits + from * expected->vocabulary, logits, bytes) != 0) {
        fail_msg("other bits: %s, tokens %zu to %zu", way, from, from + count - 1);
    }
}

// Serves part of a row in chunks of at most `most` tokens: all of that size, or random sizes.
static void serve(const engine_fixture *f, kvern_state *state, kvern_phase phase,
                  const sequence *expected, size_t most, test_random *random, const char *way)
{
    float *logits = room(most, f->facts->vocabulary);
    size_t at = (size_t)kvern_state_length(state, 0);
    while (at < expected->count) {
        size_t chunk = random ? 1 + test_random_below(random, most) : most;
        chunk = chunk < expected->count - at ? chunk : expected->count - at;
        engine_fixture_forward(f, state, phase, expected->tokens + at, &(int64_t){(int64_t)chunk},
                               logits);
        assert_bits(expected, at, chunk, logits, way);
        at += chunk;
    }
    free(logits);
}

static void serve_fresh(const engine_fixture *f, kvern_phase phase, const sequence *expected,
                        size_t most, test_random *random, const char *way)
{
    kvern_state *state = engine_fixture_state(f, 1);
    serve(f, state, phase, expected, most, random, way);
    kvern_state_destroy(state);
}

static void serve_after_trim(const engine_fixture *f, const sequence *expected)
{
    kvern_state *state = engine_fixture_state(f, 1);
    serve(f, state, KVERN_PHASE_WINDOW, expected, expected->count, NULL, "window");
    size_t dropped = expected->count * 2 / 3;
    assert_int_equal(kvern_state_trim(state, 0, (int64_t)dropped), KVERN_OK);
    serve(f, state, KVERN_PHASE_WINDOW, expected, 17, NULL, "after a trim");
    kvern_state_destroy(state);
}

// The sequence in row 1 of three, each row going its own pace.
static void serve_in_batch(const engine_fixture *f, const sequence *expected, test_random *random)
{
    enum { ROWS = 3, MOST = 20 };
    size_t vocabulary = f->facts->vocabulary;
    kvern_state *state = engine_fixture_state(f, ROWS);
    float *logits = room(ROWS * MOST, vocabulary);
    int32_t tokens[ROWS * MOST];
    size_t at = 0;
    while (at < expected->count) {
        int64_t counts[ROWS];
        for (size_t r = 0; r < ROWS; r++) {
            counts[r] = (int64_t)test_random_below(random, MOST + 1);
        }
        if ((size_t)counts[1] > expected->count - at) {
            counts[1] = (int64_t)(expected->count - at);
        }
        fill_tokens(random, vocabulary, ROWS * MOST, tokens);
        memcpy(tokens + counts[0], expected->tokens + at, (size_t)counts[1] * sizeof *tokens);
        engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, tokens, counts, logits);
        assert_bits(expected, at, (size_t)counts[1], logits + (size_t)counts[0] * vocabulary,
                    "beside other rows");
        at += (size_t)counts[1];
    }
    free(logits);
    kvern_state_destroy(state);
}

static void serve_all_ways(const engine_fixture *f, const sequence *expected)
{
    test_random random = test_random_seed(7);
    serve_fresh(f, KVERN_PHASE_WINDOW, expected, expected->count, NULL, "one window");
    serve_fresh(f, KVERN_PHASE_DECODE, expected, 1, NULL, "decodes");
    serve_fresh(f, KVERN_PHASE_KNOWN, expected, 9, NULL, "known spans");
    serve_fresh(f, KVERN_PHASE_WINDOW, expected, 1, NULL, "windows of one");
    serve_fresh(f, KVERN_PHASE_WINDOW, expected, 60, &random, "a random split");
    serve_after_trim(f, expected);
    serve_in_batch(f, expected, &random);
}

// The same with few steps: where there are more threads than idle processors, each step of a pool
// waits for the system's scheduler.
static void serve_some_ways(const engine_fixture *f, const sequence *expected)
{
    test_random random = test_random_seed(7);
    sequence beginning = *expected;
    beginning.count = POOL_STEPS;
    serve_fresh(f, KVERN_PHASE_WINDOW, expected, expected->count, NULL, "one window");
    serve_fresh(f, KVERN_PHASE_DECODE, &beginning, 1, NULL, "decodes");
    serve_in_batch(f, expected, &random);
}

// The logits of one window on one thread with all that the machine has.
static float *reference(const engine_fixture_options *options, const int32_t *tokens, size_t count,
                        size_t *vocabulary)
{
    engine_fixture f = engine_fixture_open(options);
    kvern_state *state = engine_fixture_state(&f, 1);
    *vocabulary = f.facts->vocabulary;
    float *logits = room(count, *vocabulary);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, tokens, &(int64_t){(int64_t)count},
                           logits);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    return logits;
}

typedef void check_function(const engine_fixture *f, const sequence *expected);

// Every instruction set of this machine, on one thread.
static void on_every_instruction_set(engine_fixture_options options, const sequence *expected,
                                     check_function *check)
{
    static const uint32_t sets[] = {UINT32_MAX, KVERN_CPU_AVX2 | KVERN_CPU_AVX512,
                                    KVERN_CPU_AVX2 | KVERN_CPU_AVX_VNNI, KVERN_CPU_AVX2, 0};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        options.context.cpu_features = sets[i];
        engine_fixture f = engine_fixture_open(&options);
        check(&f, expected);
        engine_fixture_close(&f);
    }
}

static size_t common_divisor(size_t a, size_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

// An executor that claims to have threads, which decides how work is split, and runs the tasks in
// a random order on the calling thread.
static void run_shuffled(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    size_t step = 1 + test_random_below(user, tasks);
    while (common_divisor(step, tasks) != 1) {
        step++;
    }
    for (size_t i = 0, at = 0; i < tasks; i++, at = (at + step) % tasks) {
        task(arg, at);
    }
}

static void on_every_split(engine_fixture_options options, const sequence *expected,
                           check_function *check)
{
    test_random random = test_random_seed(5);
    for (size_t threads = 2; threads <= 8; threads += 3) {
        options.context.executor = (kvern_executor){&random, run_shuffled, threads};
        engine_fixture f = engine_fixture_open(&options);
        check(&f, expected);
        engine_fixture_close(&f);
    }
}

static void on_pools_of_threads(engine_fixture_options options, const sequence *expected,
                                check_function *check)
{
    for (size_t threads = 2; threads <= 3; threads++) {
        options.context.threads = threads;
        engine_fixture f = engine_fixture_open(&options);
        check(&f, expected);
        engine_fixture_close(&f);
    }
}

static void check_tiny(const tiny_llama *model, kvern_type kv)
{
    size_t bytes;
    void *file = tiny_llama_build(model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    options.kv = kv;
    int32_t tokens[TINY_TOKENS];
    size_t count = model->width > 128 ? WIDE_TOKENS : TINY_TOKENS;
    test_random random = test_random_seed(model->type);
    fill_tokens(&random, model->vocabulary, count, tokens);
    sequence expected = {.tokens = tokens, .count = count};
    float *logits = reference(&options, tokens, count, &expected.vocabulary);
    expected.logits = logits;
    on_every_instruction_set(options, &expected, serve_all_ways);
    on_every_split(options, &expected, serve_all_ways);
    if (model->type == GGUF_TYPE_F16 || model->type == GGUF_TYPE_Q4_1) {
        on_pools_of_threads(options, &expected, serve_some_ways);
    }
    free(logits);
    free(file);
}

static void tiny_models_of_every_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < TYPES; i++) {
        tiny_llama model = tiny_llama_default(types[i]);
        check_tiny(&model, KVERN_BF16);
    }
}

static void tiny_models_of_other_shapes(void **state)
{
    (void)state;
    tiny_llama odd = tiny_llama_default(GGUF_TYPE_F16);
    odd.width = 72;
    odd.heads = 3;
    odd.kv_heads = 1;
    odd.head_dim = 24;
    odd.feed_forward = 100;
    odd.separate_output = true;
    odd.rope_factors = true;
    check_tiny(&odd, KVERN_F32);
    tiny_llama wide = tiny_llama_default(GGUF_TYPE_Q8_0);
    wide.heads = 8;
    wide.kv_heads = 8;
    wide.head_dim = 32; // wider than the residual stream
    wide.rope_linear = 4;
    check_tiny(&wide, KVERN_F16);
}

// Logits that do not depend on their tokens would pass everything above.
static void different_tokens_give_different_logits(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes, vocabulary;
    void *file = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    float *one = reference(&options, (int32_t[]){1, 2, 3}, 3, &vocabulary);
    float *other = reference(&options, (int32_t[]){4, 2, 3}, 3, &vocabulary);
    for (size_t t = 0; t < 3; t++) {
        size_t at = t * vocabulary;
        assert_memory_not_equal(one + at, other + at, vocabulary * sizeof *one);
    }
    free(one);
    free(other);
    free(file);
}

static void check_real(const engine_fixture *f, const sequence *expected)
{
    test_random random = test_random_seed(11);
    sequence part = *expected;
    if (kvern_context_cpu_features(f->context) == 0) {
        part.count = REAL_PLAIN_TOKENS;
    }
    serve_fresh(f, KVERN_PHASE_WINDOW, &part, part.count, NULL, "one window");
    serve_fresh(f, KVERN_PHASE_DECODE, &part, 1, NULL, "decodes");
    serve_fresh(f, KVERN_PHASE_WINDOW, &part, 13, &random, "a random split");
}

static void a_real_model(void **state)
{
    (void)state;
    const char *path = getenv("KVERN_TEST_MODEL");
    if (!path) {
        printf("not run: KVERN_TEST_MODEL names no model file\n");
        skip();
    }
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    options.path = path;
    options.kv = KVERN_BF16;
    int32_t tokens[REAL_TOKENS];
    test_random random = test_random_seed(3);
    fill_tokens(&random, 20000, REAL_TOKENS, tokens);
    sequence expected = {.tokens = tokens, .count = REAL_TOKENS};
    float *logits = reference(&options, tokens, REAL_TOKENS, &expected.vocabulary);
    expected.logits = logits;
    on_every_instruction_set(options, &expected, check_real);
    on_every_split(options, &expected, check_real);
    on_pools_of_threads(options, &expected, check_real);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models_of_every_type),
        cmocka_unit_test(tiny_models_of_other_shapes),
        cmocka_unit_test(different_tokens_give_different_logits),
        cmocka_unit_test(a_real_model),
    };
    printf("instruction sets of this machine: %s at most\n", kvern_cpu_name(kvern_cpu_features()));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
