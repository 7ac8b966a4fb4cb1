// SPDX-License-Identifier: MIT
// The Gemma 3 forward pass against a float64 one, past the window; the same bits however it is
// served; and what its keys mean.

#include "engine/generation/generate.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/naive_gemma3.h"
#include "tests/support/random.h"
#include "tests/support/served_sequence.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_sentencepiece.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 40
#define NOISE_RUNS 6

static void *must_allocate(size_t bytes)
{
    void *block = malloc(bytes);
    assert_non_null(block);
    return block;
}

// ---- Against float64. ----

static naive_gemma3 expected_of(const tiny_gemma3 *model)
{
    return (naive_gemma3){
        .window = model->window,
        .full_every = model->full_every ? model->full_every : 6,
        .window_base = model->window_base != 0 ? model->window_base : 10000,
        .full_base = 1e6,
        .full_factor = model->rope_linear != 0 ? model->rope_linear : 1,
        .embedding_scale = model->width == 64 ? 8 : 16,
        .attention_scale = model->attention_scale != 0 ? (double)model->attention_scale
                                                       : 1 / sqrt((double)model->head_dim),
        .attention_softcap = model->attention_softcap,
        .logit_softcap = model->logit_softcap,
    };
}

// How much the engine rounds: see test_llama.c.
static naive_noise engine_noise(uint32_t type, bool precise)
{
    size_t block, bytes;
    assert_true(element_type_block(type, &block, &bytes));
    return (naive_noise){.input = block == 1 ? 0
                                  : precise  ? 0x1p-16
                                             : 1.0 / 254,
                         .sum = 0x1p-22,
                         .angle = 0x1p-23,
                         .kv = 0x1p-24};
}

static double largest_difference(const double *a, const double *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(a[i] - b[i]));
    }
    return largest;
}

static void engine_logits(const engine_fixture *f, const int32_t *tokens, size_t n, double *out)
{
    float *logits = must_allocate(n * sizeof *logits);
    kvern_state *state = engine_fixture_state(f, 1);
    engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, tokens, &(int64_t){TOKENS}, logits);
    for (size_t i = 0; i < n; i++) {
        out[i] = logits[i];
    }
    kvern_state_destroy(state);
    free(logits);
}

// The engine may be twice as far from the exact logits as a few runs with random roundings are.
static void check_precision(const tiny_gemma3 *model, bool precise)
{
    size_t bytes;
    void *data = tiny_gemma3_build(model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.precise = precise;
    engine_fixture f = engine_fixture_open(&options);
    const naive_gemma3 expected = expected_of(model);
    size_t n = TOKENS * TINY_SP_COUNT;
    int32_t tokens[TOKENS];
    test_random random = test_random_seed(5);
    for (size_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)test_random_below(&random, TINY_SP_COUNT);
    }
    double *exact = must_allocate(n * sizeof *exact);
    double *other = must_allocate(n * sizeof *other);
    naive_gemma3_logits(model_file(f.model), f.facts, &expected, tokens, TOKENS, NULL, exact);
    double allowed = 0;
    double scale = 0;
    naive_noise noise = engine_noise(model->type, precise);
    for (noise.seed = 1; noise.seed <= NOISE_RUNS; noise.seed++) {
        naive_gemma3_logits(model_file(f.model), f.facts, &expected, tokens, TOKENS, &noise, other);
        allowed = fmax(allowed, 2 * largest_difference(exact, other, n));
    }
    for (size_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs(exact[i]));
    }
    engine_logits(&f, tokens, n, other);
    double off = largest_difference(exact, other, n);
    printf("%s: largest logit %.3g, off by %.2g of %.2g allowed\n", element_type_name(model->type),
           scale, off, allowed);
    assert_true(scale > 0.1);
    assert_true(allowed <
                scale / (noise.input > 0x1p-16 ? 8 : 128)); // a bound that means something
    assert_true(off <= allowed);
    free(exact);
    free(other);
    engine_fixture_close(&f);
    free(data);
}

static void check_against_float64(const tiny_gemma3 *model)
{
    check_precision(model, true);
    check_precision(model, false);
}

static void logits_are_near_float64(void **state)
{
    (void)state;
    static const uint32_t types[] = {GGUF_TYPE_F32, GGUF_TYPE_Q5_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_K,
                                     GGUF_TYPE_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_gemma3 model = tiny_gemma3_default(types[i]);
        check_against_float64(&model);
    }
}

static void keys_mean_what_they_say(void **state)
{
    (void)state;
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_F32);
    model.full_every = 2;
    model.window = 5;
    check_against_float64(&model);
    model.window_list = true;
    model.full_every = 3;
    model.window_base = 500;
    check_against_float64(&model);
    model.attention_scale = 0.4f;
    model.attention_softcap = 3;
    model.logit_softcap = 2;
    model.rope_linear = 4;
    check_against_float64(&model);
    model.full_every = 1; // no layer with a window
    check_against_float64(&model);
}

// ---- Same bits. ----

static void served_in_every_way(void **state)
{
    (void)state;
    static const uint32_t sets[] = {UINT32_MAX, KVERN_CPU_AVX2, 0};
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_Q5_0);
    model.attention_softcap = 20;
    model.logit_softcap = 30;
    size_t bytes;
    void *data = tiny_gemma3_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.kv = KVERN_BF16;
    served_sequence s = served_sequence_create(&options, 150, TINY_SP_COUNT, 3);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        options.context.cpu_features = kvern_cpu_features() & sets[i];
        engine_fixture f = engine_fixture_open(&options);
        serve_window(&f, &s);
        serve_decodes(&f, &s);
        serve_chunks(&f, &s, 1);
        serve_random_chunks(&f, &s, 60, 7);
        serve_in_batch(&f, &s, 4);
        engine_fixture_close(&f);
    }
    served_sequence_free(&s);
    free(data);
}

// ---- Generation. ----

typedef struct reply {
    int32_t tokens[16];
    size_t count;
    atomic_bool cancel;
} reply;

static void take_token(void *user, int32_t token)
{
    reply *r = user;
    r->tokens[r->count++ % 16] = token;
}

static void cancel_late(void *user, size_t done, size_t total)
{
    (void)total;
    atomic_store(&((reply *)user)->cancel, done >= 160);
}

// Two prompts and their replies; with `disturb` a long prompt between them that is cancelled when
// the windows have dropped what was there before.
static reply reply_to_two(const engine_fixture *f, bool disturb)
{
    reply r = {0};
    int32_t tokens[200];
    sampler *greedy;
    generator *g;
    engine_error error = {0};
    const sampler_options sampling = sampler_default_options();
    const generator_options options = {.chunk = 8};
    for (size_t i = 0; i < 200; i++) {
        tokens[i] = (int32_t)(TINY_SP_BYTE + i * 7 % 256);
    }
    assert_int_equal(sampler_create(&sampling, TINY_SP_COUNT, &greedy, &error), KVERN_OK);
    assert_int_equal(generator_create(f->model, f->composition, &options, &g, &error), KVERN_OK);
    generate_request request = {.tokens = tokens,
                                .count = 40,
                                .max_tokens = 4,
                                .sampler = greedy,
                                .cancel = &r.cancel,
                                .user = &r,
                                .on_token = take_token};
    generate_result result;
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_OK);
    if (disturb) {
        const int64_t before = generator_length(g);
        request.count = 200;
        request.on_prompt = cancel_late;
        assert_int_equal(generator_run(g, &request, &result, &error), KVERN_OK);
        assert_int_equal(result.reason, GENERATE_CANCELLED);
        assert_int_equal(generator_length(g), before);
        atomic_store(&r.cancel, false);
        request.on_prompt = NULL;
    }
    request.count = 30;
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_OK);
    generator_destroy(g);
    sampler_destroy(greedy);
    return r;
}

static void a_cancelled_prompt_leaves_windows_as_they_were(void **state)
{
    (void)state;
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_F32);
    size_t bytes;
    void *data = tiny_gemma3_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    engine_fixture f = engine_fixture_open(&options);
    const reply undisturbed = reply_to_two(&f, false);
    const reply disturbed = reply_to_two(&f, true);
    assert_true(undisturbed.count >= 2);
    assert_int_equal(disturbed.count, undisturbed.count);
    assert_memory_equal(disturbed.tokens, undisturbed.tokens, sizeof disturbed.tokens);
    engine_fixture_close(&f);
    free(data);
}

// ---- Facts. ----

// Reads the facts of a model with one more key, or of the model as it is (key NULL).
static kvern_status read_facts(const tiny_gemma3 *model, const char *key, uint32_t value,
                               model_facts *facts, engine_error *error)
{
    size_t bytes;
    gguf_builder *builder = gguf_builder_create();
    tiny_gemma3_add(model, builder);
    if (key) {
        gguf_builder_u32(builder, key, value);
    }
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    model_source *source = engine_fixture_source(data, bytes);
    kvern_status status = model_read_facts(source, facts, error);
    model_source_close(source);
    free(data);
    return status;
}

static void windows_of_the_layers(void **state)
{
    (void)state;
    engine_error error = {0};
    model_facts facts;
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_F32);
    assert_int_equal(read_facts(&model, NULL, 0, &facts, &error), KVERN_OK);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(facts.layer[i].window, i == 5 ? 0 : 12);
    }
    model.window = 0;
    assert_int_equal(read_facts(&model, NULL, 0, &facts, &error), KVERN_OK);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(facts.layer[i].window, 0);
    }
}

// The plan of the cache follows them, and a state of another plan is refused.
static void the_plan_has_the_windows(void **state)
{
    (void)state;
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_F32);
    size_t bytes;
    void *data = tiny_gemma3_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    engine_fixture f = engine_fixture_open(&options);
    kvern_layer layers[7];
    for (size_t i = 0; i < 7; i++) {
        const kvern_layer *plan = kvern_composition_layer(f.composition, i);
        assert_int_equal(plan->kind, i == 5 ? KVERN_LAYER_FULL : KVERN_LAYER_WINDOW);
        assert_int_equal(plan->window, i == 5 ? 0 : 12);
        layers[i] = kvern_layer_default(plan->kv_heads, plan->k_dim);
    }
    kvern_composition *full;
    kvern_state *other;
    assert_int_equal(kvern_composition_create(f.context, layers, 7, &full), KVERN_OK);
    assert_int_equal(kvern_state_create(full, 1, &other), KVERN_OK);
    engine_error error = {0};
    const model_step step = {
        .phase = KVERN_PHASE_WINDOW, .tokens = (int32_t[]){1}, .counts = (int64_t[]){1}};
    assert_int_equal(model_forward(f.model, f.workspace, other, &step, &error), KVERN_ERR_ARGUMENT);
    kvern_state_destroy(other);
    kvern_composition_release(full);
    engine_fixture_close(&f);
    free(data);
}

static void bad_keys_are_named(void **state)
{
    (void)state;
    engine_error error = {0};
    model_facts facts;
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_F32);
    assert_int_equal(
        read_facts(&model, "gemma3.attention.sliding_window_pattern", 0, &facts, &error),
        KVERN_ERR_FORMAT);
    assert_non_null(strstr(error.text, "sliding_window_pattern"));
    assert_int_equal(read_facts(&model, "gemma3.expert_count", 4, &facts, &error),
                     KVERN_ERR_UNSUPPORTED);
    model.attention_scale = -1;
    assert_int_equal(read_facts(&model, NULL, 0, &facts, &error), KVERN_ERR_FORMAT);
    assert_non_null(strstr(error.text, "attention.scale"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_near_float64),
        cmocka_unit_test(keys_mean_what_they_say),
        cmocka_unit_test(served_in_every_way),
        cmocka_unit_test(windows_of_the_layers),
        cmocka_unit_test(the_plan_has_the_windows),
        cmocka_unit_test(bad_keys_are_named),
        cmocka_unit_test(a_cancelled_prompt_leaves_windows_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
