// SPDX-License-Identifier: MIT
// The llama forward pass against a float64 one, which logits a step writes, and what fails without
// changing a state.

#include "tests/support/engine_fixture.h"
#include "tests/support/naive_llama.h"
#include "tests/support/random.h"
#include "tests/support/tiny_llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 40
#define NOISE_RUNS 6

static const uint32_t types[] = {GGUF_TYPE_F32,  GGUF_TYPE_F16,  GGUF_TYPE_BF16, GGUF_TYPE_Q4_0,
                                 GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q8_0,
                                 GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q6_K, GGUF_TYPE_Q2_K,
                                 GGUF_TYPE_Q3_K, GGUF_TYPE_MXFP4};
#define TYPES (sizeof types / sizeof types[0])

static void *must_allocate(size_t bytes)
{
    void *block = malloc(bytes);
    assert_non_null(block);
    return block;
}

static void fill_tokens(size_t vocabulary, size_t count, int32_t *tokens)
{
    test_random random = test_random_seed(vocabulary);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)test_random_below(&random, vocabulary);
    }
}

// ---- Against float64. ----

// How much the engine rounds, in the places that naive_llama disturbs. Activations that meet
// quantized weights of a layer have 8 bits (half a step is a 254th of the largest of their block)
// or, where the model is to be precise, 16 (2^-16 of it). Sums of f32
// have a few roundings of 2^-24 that do not cancel, angles one of the frequency and one of the
// product. bf16 keeps 8 bits.
static naive_noise engine_noise(uint32_t type, bool precise, kvern_type kv)
{
    size_t block, bytes;
    assert_true(element_type_block(type, &block, &bytes));
    return (naive_noise){.input = block == 1 ? 0
                                  : precise  ? 0x1p-16
                                             : 1.0 / 254,
                         .sum = 0x1p-22,
                         .angle = 0x1p-23,
                         .kv = kv == KVERN_BF16  ? 0x1p-9
                               : kv == KVERN_F16 ? 0x1p-12
                                                 : 0x1p-24};
}

static double largest_difference(const double *a, const double *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(a[i] - b[i]));
    }
    return largest;
}

static double largest_value(const double *x, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(x[i]));
    }
    return largest;
}

// The engine may be twice as far from the exact logits as a few runs with random roundings are.
static void check_precision(const tiny_llama *model, bool precise, kvern_type kv)
{
    size_t bytes;
    void *data = tiny_llama_build(model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.kv = kv;
    options.precise = precise;
    engine_fixture f = engine_fixture_open(&options);
    size_t n = TOKENS * model->vocabulary;
    int32_t tokens[TOKENS];
    fill_tokens(model->vocabulary, TOKENS, tokens);
    double *exact = must_allocate(n * sizeof *exact);
    double *other = must_allocate(n * sizeof *other);
    float *logits = must_allocate(n * sizeof *logits);

    naive_llama_logits(model_file(f.model), f.facts, tokens, TOKENS, NULL, exact);
    double allowed = 0;
    naive_noise noise = engine_noise(model->type, precise, kv);
    for (noise.seed = 1; noise.seed <= NOISE_RUNS; noise.seed++) {
        naive_llama_logits(model_file(f.model), f.facts, tokens, TOKENS, &noise, other);
        allowed = fmax(allowed, 2 * largest_difference(exact, other, n));
    }
    kvern_state *state = engine_fixture_state(&f, 1);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, tokens, &(int64_t){TOKENS}, logits);
    for (size_t i = 0; i < n; i++) {
        other[i] = logits[i];
    }
    double off = largest_difference(exact, other, n);
    double scale = largest_value(exact, n);
    printf("%s: largest logit %.3g, off by %.2g of %.2g allowed\n", element_type_name(model->type),
           scale, off, allowed);
    assert_true(scale > 0.1);
    // A bound that means something: random weights make more of a rounding than trained ones.
    assert_true(allowed < scale / (kv == KVERN_BF16 || noise.input > 0x1p-16 ? 8 : 256));
    assert_true(off <= allowed);

    kvern_state_destroy(state);
    free(logits);
    free(other);
    free(exact);
    engine_fixture_close(&f);
    free(data);
}

static void check_against_float64(const tiny_llama *model, kvern_type kv)
{
    check_precision(model, true, kv);
    check_precision(model, false, kv);
}

static void logits_are_near_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < TYPES; i++) {
        tiny_llama model = tiny_llama_default(types[i]);
        check_against_float64(&model, KVERN_F32);
    }
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    check_against_float64(&model, KVERN_BF16);
    check_against_float64(&model, KVERN_F16);
}

static void other_shapes_are_near_float64(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    model.separate_output = true;
    check_against_float64(&model, KVERN_F32);
    model.rope_factors = true;
    check_against_float64(&model, KVERN_F32);
    model.biases = true;
    check_against_float64(&model, KVERN_F32);
    model.biases = false;
    model.rope_factors = false;
    model.rope_linear = 2.5f;
    model.width = 72;
    model.heads = 3;
    model.kv_heads = 1;
    model.head_dim = 40;
    model.feed_forward = 100;
    check_against_float64(&model, KVERN_F32);
}

// Layers with other heads and another inner width than the rest.
static void layers_may_differ(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q8_0);
    model.layers = 3;
    model.last_heads = 6;
    model.last_kv_heads = 3;
    model.last_feed_forward = 64;
    check_against_float64(&model, KVERN_F32);
    model = tiny_llama_default(GGUF_TYPE_F32);
    model.last_kv_heads = 4;
    check_against_float64(&model, KVERN_BF16);
}

// ---- Which logits a step writes. ----

static void logits_are_written_where_they_are_wanted(void **unused)
{
    (void)unused;
    enum { VOCABULARY = 100 };
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q8_0);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    engine_fixture f = engine_fixture_open(&options);
    int32_t tokens[9];
    fill_tokens(VOCABULARY, 9, tokens);
    const int64_t counts[] = {4, 0, 5};
    const int64_t some[] = {1, 0, 3};
    static float all[9][VOCABULARY], last[3][VOCABULARY], few[5][VOCABULARY];
    memset(last, 0x55, sizeof last);
    memset(few, 0x55, sizeof few);
    float untouched;
    memset(&untouched, 0x55, sizeof untouched);

    kvern_state *state = engine_fixture_state(&f, 3);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, tokens, counts, all[0]);
    kvern_state_destroy(state);

    engine_error error;
    model_step step = {
        .phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = counts, .logits = last[0]};
    state = engine_fixture_state(&f, 3);
    assert_int_equal(model_forward(f.model, f.workspace, state, &step, &error), KVERN_OK);
    kvern_state_destroy(state);
    assert_memory_equal(last[0], all[3], sizeof last[0]);
    assert_memory_equal(last[1], all[8], sizeof last[1]);
    assert_memory_equal(&last[2][0], &untouched, sizeof untouched);

    step.logits = few[0];
    step.logits_counts = some;
    state = engine_fixture_state(&f, 3);
    assert_int_equal(model_forward(f.model, f.workspace, state, &step, &error), KVERN_OK);
    assert_memory_equal(few[0], all[3], sizeof few[0]);
    assert_memory_equal(few[1], all[6], 3 * sizeof few[1]);
    assert_memory_equal(&few[4][0], &untouched, sizeof untouched);
    assert_int_equal(kvern_state_length(state, 0), 4);
    assert_int_equal(kvern_state_length(state, 1), 0);
    assert_int_equal(kvern_state_length(state, 2), 5);

    step.logits = NULL;
    assert_int_equal(model_forward(f.model, f.workspace, state, &step, &error), KVERN_OK);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    free(data);
}

// ---- Failures leave the state as it was. ----

// After every refused or failed call the row still has its length, and the next token the same
// logits as if nothing had happened.
typedef struct witness {
    engine_fixture *f;
    kvern_state *state;
    float *expected; // logits of token 7 at the end of the row
    int64_t length;
} witness;

static void expect_unchanged(const witness *w)
{
    float *logits = must_allocate(w->f->facts->vocabulary * sizeof *logits);
    assert_int_equal(kvern_state_length(w->state, 0), w->length);
    engine_fixture_forward(w->f, w->state, KVERN_PHASE_DECODE, (int32_t[]){7}, &(int64_t){1},
                           logits);
    assert_memory_equal(logits, w->expected, w->f->facts->vocabulary * sizeof *logits);
    assert_int_equal(kvern_state_trim(w->state, 0, 1), KVERN_OK);
    free(logits);
}

static void expect_failure(const witness *w, const model_step *step, kvern_status status,
                           const char *text)
{
    engine_error error = {KVERN_OK, ""};
    assert_int_equal(model_forward(w->f->model, w->f->workspace, w->state, step, &error), status);
    assert_int_equal(error.status, status);
    if (!strstr(error.text, text)) {
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    }
    expect_unchanged(w);
}

static witness make_witness(engine_fixture *f, kvern_state *state)
{
    witness w = {.f = f, .state = state, .length = 3};
    w.expected = must_allocate(f->facts->vocabulary * sizeof *w.expected);
    float *logits = must_allocate(4 * f->facts->vocabulary * sizeof *logits);
    engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, (int32_t[]){5, 6, 5, 7}, &(int64_t){4},
                           logits);
    memcpy(w.expected, logits + 3 * f->facts->vocabulary,
           f->facts->vocabulary * sizeof *w.expected);
    assert_int_equal(kvern_state_trim(state, 0, 1), KVERN_OK);
    free(logits);
    return w;
}

static void wrong_calls_are_refused(void **unused)
{
    (void)unused;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.max_tokens = 8;
    options.max_rows = 1;
    engine_fixture f = engine_fixture_open(&options);
    kvern_state *state = engine_fixture_state(&f, 1);
    witness w = make_witness(&f, state);
    int32_t tokens[9] = {1, 2, 100};
    model_step step = {.phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = &(int64_t){3}};
    expect_failure(&w, &step, KVERN_ERR_RANGE, "token 100 at index 2");
    tokens[2] = -1;
    expect_failure(&w, &step, KVERN_ERR_RANGE, "token -1");
    tokens[2] = 3;
    step.counts = &(int64_t){9};
    expect_failure(&w, &step, KVERN_ERR_RANGE, "room for 8");
    step.counts = &(int64_t){-1};
    expect_failure(&w, &step, KVERN_ERR_RANGE, "-1 tokens");
    step.counts = &(int64_t){2};
    step.phase = KVERN_PHASE_DECODE;
    expect_failure(&w, &step, KVERN_ERR_RANGE, "beginning a step");
    step.phase = KVERN_PHASE_WINDOW;
    step.logits = w.expected;
    step.logits_counts = &(int64_t){3};
    expect_failure(&w, &step, KVERN_ERR_RANGE, "logits of 3 tokens");

    kvern_state *two = engine_fixture_state(&f, 2);
    engine_error error;
    step = (model_step){.phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = (int64_t[2]){1}};
    assert_int_equal(model_forward(f.model, f.workspace, two, &step, &error), KVERN_ERR_RANGE);
    kvern_state_destroy(two);

    free(w.expected);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    free(data);
}

static void another_geometry_is_refused(void **unused)
{
    (void)unused;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    engine_fixture f = engine_fixture_open(&options);
    kvern_layer layers[2] = {kvern_layer_default(2, 16), kvern_layer_default(2, 24)};
    kvern_composition *composition;
    kvern_state *state;
    engine_error error;
    assert_int_equal(kvern_composition_create(f.context, layers, 2, &composition), KVERN_OK);
    assert_int_equal(kvern_state_create(composition, 1, &state), KVERN_OK);
    model_step step = {
        .phase = KVERN_PHASE_WINDOW, .tokens = (int32_t[]){1}, .counts = &(int64_t){1}};
    assert_int_equal(model_forward(f.model, f.workspace, state, &step, &error), KVERN_ERR_ARGUMENT);
    assert_int_equal(kvern_state_length(state, 0), 0);
    kvern_state_destroy(state);
    kvern_composition_release(composition);
    engine_fixture_close(&f);
    free(data);
}

static void a_budget_that_is_too_small_fails_cleanly(void **unused)
{
    (void)unused;
    enum { MANY = 10000 };
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.max_tokens = MANY;
    options.context.budget_bytes = 3 << 20; // an arena; 10000 positions need 5 MB
    engine_fixture f = engine_fixture_open(&options);
    kvern_state *state = engine_fixture_state(&f, 1);
    witness w = make_witness(&f, state);
    static int32_t tokens[MANY];
    fill_tokens(model.vocabulary, MANY, tokens);
    model_step step = {.phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = &(int64_t){MANY}};
    expect_failure(&w, &step, KVERN_ERR_BUDGET, "beginning a step");
    free(w.expected);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    free(data);
}

// An allocator that fails from one call on.
typedef struct failing_allocator {
    long left; // calls that still succeed; negative: all
} failing_allocator;

static void *failing_allocate(void *user, size_t bytes, size_t alignment)
{
    failing_allocator *allocator = user;
    if (allocator->left == 0) {
        return NULL;
    }
    allocator->left -= allocator->left > 0 ? 1 : 0;
    void *block = NULL;
    return posix_memalign(&block, alignment < 16 ? 16 : alignment, bytes) == 0 ? block : NULL;
}

static void failing_release(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    free(block);
}

// Every allocation of a forward pass fails once, with the row and its logits unharmed.
static void every_failed_allocation_is_survived(void **unused)
{
    (void)unused;
    enum { MANY = 200 };
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    failing_allocator allocator = {.left = -1};
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.context.allocator = (kvern_allocator){
        .user = &allocator, .allocate = failing_allocate, .release = failing_release};
    int32_t tokens[MANY];
    fill_tokens(model.vocabulary, MANY, tokens);
    model_step step = {.phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = &(int64_t){MANY}};
    long failures = 0;
    for (kvern_status status = KVERN_ERR_MEMORY; status != KVERN_OK; failures++) {
        allocator.left = -1;
        engine_fixture f = engine_fixture_open(&options);
        kvern_state *state = engine_fixture_state(&f, 1);
        witness w = make_witness(&f, state);
        engine_error error;
        allocator.left = failures;
        status = model_forward(f.model, f.workspace, state, &step, &error);
        allocator.left = -1;
        if (status == KVERN_OK) {
            assert_int_equal(kvern_state_length(state, 0), w.length + MANY);
        } else {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            expect_unchanged(&w);
        }
        free(w.expected);
        kvern_state_destroy(state);
        engine_fixture_close(&f);
    }
    printf("%ld allocations failed in turn\n", failures - 1);
    assert_true(failures > 1);
    free(data);
}

// Once room is reserved, a decoded token takes nothing from the allocator.
static void decoding_allocates_nothing(void **unused)
{
    (void)unused;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    engine_fixture f = engine_fixture_open(&options);
    kvern_state *state = engine_fixture_state(&f, 1);
    float *logits = must_allocate(model.vocabulary * sizeof *logits);
    assert_int_equal(kvern_state_reserve(state, 0, 200, model.heads), KVERN_OK);
    uint64_t first = 0;
    for (int i = 0; i < 200; i++) {
        engine_fixture_forward(&f, state, KVERN_PHASE_DECODE, (int32_t[]){i % 100}, &(int64_t){1},
                               logits);
        kvern_memory memory = {.size = sizeof memory};
        assert_int_equal(kvern_context_memory(f.context, &memory), KVERN_OK);
        first = i == 0 ? memory.allocations : first;
        assert_int_equal(memory.allocations, first);
    }
    free(logits);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_near_float64),
        cmocka_unit_test(other_shapes_are_near_float64),
        cmocka_unit_test(layers_may_differ),
        cmocka_unit_test(logits_are_written_where_they_are_wanted),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(another_geometry_is_refused),
        cmocka_unit_test(a_budget_that_is_too_small_fails_cleanly),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(decoding_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
