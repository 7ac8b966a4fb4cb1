// SPDX-License-Identifier: MIT
// Mixtures of experts: the router against float64 and on what it must decide alike everywhere, and
// a model whose tokens must not depend on how they are brought together.

#include "engine/model/router.h"
#include "tests/support/check.h"
#include "tests/support/family_case.h"
#include "tests/support/random.h"
#include "tests/support/served_sequence.h"

#include <kvern/cpu.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64

// --- The router

typedef struct choice {
    uint32_t chosen[MOST];
    float weights[MOST];
} choice;

static choice choose(const model_experts *experts, const float *logits, const float *correction)
{
    choice made = {{0}, {0}};
    float scratch[2 * MOST];
    router_choose(experts, kvern_cpu_features(), logits, correction, scratch, made.chosen,
                  made.weights);
    choice plain = {{0}, {0}};
    router_choose(experts, 0, logits, correction, scratch, plain.chosen, plain.weights);
    assert_memory_equal(made.chosen, plain.chosen, sizeof made.chosen);
    for (size_t i = 0; i < MOST; i++) { // of a NaN the sign is not promised
        assert_true(made.weights[i] == plain.weights[i] ||
                    (isnan(made.weights[i]) && isnan(plain.weights[i])));
    }
    return made;
}

static void expect_chosen(const choice *made, size_t count, const uint32_t *chosen)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(made->chosen[i], chosen[i]);
    }
}

static void equal_scores_choose_the_first(void **state)
{
    (void)state;
    model_experts experts = {.count = 6, .used = 3, .groups = 1, .scale = 1, .normalized = true};
    const float equal[6] = {0};
    choice made = choose(&experts, equal, NULL);
    expect_chosen(&made, 3, (uint32_t[]){0, 1, 2});
    assert_true(made.weights[0] == 1.0f / 3);
    const float some[6] = {1, 2, -1, 2, 1, 2};
    experts.used = 4;
    made = choose(&experts, some, NULL);
    expect_chosen(&made, 4, (uint32_t[]){0, 1, 3, 5}); // 0 and not 4
    assert_true(made.weights[0] < made.weights[1] && made.weights[1] == made.weights[3]);
    // A zero is a zero whatever its sign.
    const float zeros[6] = {-0.0f, 0, -1, -1, -1, -1};
    experts.router = MODEL_ROUTER_CHOSEN;
    experts.used = 1;
    made = choose(&experts, zeros, NULL);
    expect_chosen(&made, 1, (uint32_t[]){0});
}

static void what_is_no_number_is_worse_than_everything(void **state)
{
    (void)state;
    model_experts experts = {
        .count = 4, .used = 2, .groups = 1, .scale = 1, .router = MODEL_ROUTER_SIGMOID};
    const float logits[4] = {NAN, -50, NAN, -60};
    choice made = choose(&experts, logits, NULL);
    expect_chosen(&made, 2, (uint32_t[]){1, 3});
    const float none[4] = {NAN, NAN, NAN, NAN};
    made = choose(&experts, none, NULL);
    expect_chosen(&made, 2, (uint32_t[]){0, 1});
    assert_true(isnan(made.weights[0]) && isnan(made.weights[1]));
}

static void a_correction_chooses_and_does_not_weigh(void **state)
{
    (void)state;
    model_experts experts = {
        .count = 4, .used = 2, .groups = 1, .scale = 2.5f, .router = MODEL_ROUTER_SIGMOID};
    const float logits[4] = {2, 1, 0, -1}, correction[4] = {-1, 0, 0, 1};
    choice made = choose(&experts, logits, correction);
    expect_chosen(&made, 2, (uint32_t[]){1, 3});
    assert_float_equal(made.weights[0], 2.5 / (1 + exp(-1)), 1e-6);
    assert_float_equal(made.weights[1], 2.5 / (1 + exp(1)), 1e-6);
    experts.normalized = true;
    made = choose(&experts, logits, correction);
    assert_float_equal(made.weights[0] + made.weights[1], 2.5, 1e-6);
}

// Two of three groups: with a correction by the sum of their two best, without by the best one. An
// expert of a group that is left out is not chosen, though ranks of others are negative.
static void groups_are_chosen_first(void **state)
{
    (void)state;
    model_experts experts = {.count = 6, .used = 4, .groups = 3, .used_groups = 2, .scale = 1};
    experts.router = MODEL_ROUTER_CHOSEN; // ranks are logits
    const float logits[6] = {5, -9, 3, 3, 4, 1};
    const float zero[6] = {0};
    choice made = choose(&experts, logits, zero); // sums -4, 6, 5
    expect_chosen(&made, 4, (uint32_t[]){2, 3, 4, 5});
    made = choose(&experts, logits, NULL); // best ones 5, 3, 4
    expect_chosen(&made, 4, (uint32_t[]){0, 1, 4, 5});
}

static double naive_score(const model_experts *experts, const float *logits, size_t i)
{
    double sum = 0;
    for (size_t k = 0; k < experts->count; k++) {
        sum += exp((double)logits[k]);
    }
    return experts->router == MODEL_ROUTER_SOFTMAX   ? exp((double)logits[i]) / sum
           : experts->router == MODEL_ROUTER_SIGMOID ? 1 / (1 + exp(-(double)logits[i]))
                                                     : logits[i];
}

static void check_weights(const model_experts *experts, const float *logits, const choice *made)
{
    double weights[MOST], sum = 0;
    for (size_t i = 0; i < experts->used; i++) {
        const double score = naive_score(experts, logits, made->chosen[i]);
        weights[i] = experts->router == MODEL_ROUTER_CHOSEN ? exp(score) : score;
        sum += weights[i];
    }
    const bool divided = experts->normalized || experts->router == MODEL_ROUTER_CHOSEN;
    for (size_t i = 0; i < experts->used; i++) {
        const double exact = weights[i] * experts->scale / (divided ? sum : 1);
        assert_true(fabs(made->weights[i] - exact) <= 1e-5 * exact);
    }
}

// Nobody who was left out has a better score than one who was chosen.
static void check_choice(const model_experts *experts, const float *logits, const choice *made)
{
    size_t at = 0;
    double worst = INFINITY;
    for (size_t i = 0; i < experts->used; i++) {
        assert_true(i == 0 || made->chosen[i] > made->chosen[i - 1]);
        worst = fmin(worst, logits[made->chosen[i]]);
    }
    for (size_t i = 0; i < experts->count; i++) {
        if (at < experts->used && made->chosen[at] == i) {
            at++;
        } else {
            assert_true(logits[i] <= worst);
        }
    }
}

static void routers_are_near_float64(void **state)
{
    (void)state;
    test_random random = test_random_seed(1);
    for (size_t run = 0; run < 300; run++) {
        model_experts experts = {.count = 1 + test_random_below(&random, MOST),
                                 .groups = 1,
                                 .scale = run % 2 ? 1 : 2.5f,
                                 .normalized = run % 4 < 2,
                                 .router = (model_router_kind)(run % 3)};
        experts.used = 1 + test_random_below(&random, experts.count);
        float logits[MOST];
        for (size_t i = 0; i < experts.count; i++) {
            logits[i] = 6 * test_random_signed(&random);
        }
        const choice made = choose(&experts, logits, NULL);
        check_choice(&experts, logits, &made);
        check_weights(&experts, logits, &made);
    }
}

// --- A model

typedef struct loaded {
    family_case c;
    char *config;
    void *tensors;
    size_t bytes;
} loaded;

static loaded load(const char *name)
{
    char path[512];
    loaded l;
    snprintf(path, sizeof path, KVERN_TESTS_DIR "/golden/families/%s.json", name);
    l.c = family_case_open(path);
    l.config = family_case_config(&l.c);
    l.tensors = family_case_safetensors(&l.c, &l.bytes);
    return l;
}

static void unload(loaded *l)
{
    family_case_close(&l->c);
    free(l->config);
    free(l->tensors);
}

static engine_fixture open_model(const loaded *l, size_t threads, uint32_t features,
                                 size_t max_tokens)
{
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    engine_error error = {KVERN_OK, ""};
    options.context.threads = threads;
    options.context.cpu_features = features;
    options.max_tokens = max_tokens;
    if (model_source_of_safetensors(l->config, strlen(l->config), l->tensors, l->bytes,
                                    &options.source, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return engine_fixture_open(&options);
}

// All tokens of a case in steps of `chunk`; free().
static float *serve(const loaded *l, size_t threads, uint32_t features, size_t chunk,
                    size_t max_tokens)
{
    engine_fixture f = open_model(l, threads, features, max_tokens);
    float *logits = calloc(l->c.count * l->c.vocabulary, sizeof *logits);
    assert_non_null(logits);
    kvern_state *state = engine_fixture_state(&f, 1);
    for (size_t at = 0; at < l->c.count; at += chunk) {
        const size_t left = l->c.count - at;
        const int64_t count = (int64_t)(left < chunk ? left : chunk);
        engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, l->c.tokens + at, &count,
                               logits + at * l->c.vocabulary);
    }
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    return logits;
}

// 150 tokens of three experts are 450 slots, which is more than one wave of 256; with a workspace
// for many tokens they are one. One token has one slot at each of three experts.
static void check_ways(const char *name)
{
    static const struct {
        size_t threads, chunk, max_tokens;
        uint32_t features;
    } ways[] = {{1, 150, 512, UINT32_MAX},
                {1, 1, 1, UINT32_MAX},
                {2, 150, 150, UINT32_MAX},
                {2, 37, 64, UINT32_MAX},
                {3, 1, 600, UINT32_MAX},
                {1, 150, 150, 0},
                {2, 64, 64, 0}};
    loaded l = load(name);
    const size_t bytes = l.c.count * l.c.vocabulary * sizeof(float);
    float *expected = serve(&l, 1, kvern_cpu_features(), 150, 150);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        float *logits = serve(&l, ways[i].threads, ways[i].features & kvern_cpu_features(),
                              ways[i].chunk, ways[i].max_tokens);
        assert_memory_equal(logits, expected, bytes);
        free(logits);
    }
    free(expected);
    unload(&l);
}

static void tokens_do_not_depend_on_steps_waves_or_threads(void **state)
{
    (void)state;
    check_ways("qwen3moe");
}

// Experts between clamped values, with biases.
static void nor_do_those_of_gpt_oss(void **state)
{
    (void)state;
    check_ways("gptoss");
}

// Groups and shared experts, and a matrix for each head.
static void nor_do_those_of_latents(void **state)
{
    (void)state;
    check_ways("deepseek-v3");
    check_ways("deepseek-v32");
}

// Facts of the model with one member of its config.json replaced.
static kvern_status read_changed(const loaded *l, const char *member, const char *value,
                                 engine_error *error)
{
    json_error_t fault;
    json_t *config = json_loads(l->config, 0, NULL);
    assert_non_null(config);
    assert_int_equal(
        json_object_set_new(config, member, json_loads(value, JSON_DECODE_ANY, &fault)), 0);
    char *text = json_dumps(config, 0);
    static model_facts facts;
    model_source *source;
    *error = (engine_error){KVERN_OK, ""};
    assert_int_equal(
        model_source_of_safetensors(text, strlen(text), l->tensors, l->bytes, &source, error),
        KVERN_OK);
    kvern_status status = model_read_facts(source, &facts, error);
    model_source_close(source);
    free(text);
    json_decref(config);
    return status;
}

typedef struct refusal {
    const char *member, *value, *sentence;
    kvern_status status;
} refusal;

static void expect_refusals(const char *name, const refusal *cases, size_t count)
{
    loaded l = load(name);
    engine_error error;
    assert_int_equal(read_changed(&l, "hidden_act", "\"silu\"", &error), KVERN_OK);
    for (size_t i = 0; i < count; i++) {
        const kvern_status status = read_changed(&l, cases[i].member, cases[i].value, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].sentence)) {
            fail_msg("%s: \"%s\" (%d) does not say \"%s\"", cases[i].member, error.text,
                     (int)status, cases[i].sentence);
        }
    }
    unload(&l);
}

static void facts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"num_experts", "0", "num_experts must be a whole number from 1", KVERN_ERR_FORMAT},
        {"num_experts", "8", "the model needs 64 x 8", KVERN_ERR_FORMAT},
        {"num_experts_per_tok", "10", "num_experts_per_tok must be a whole number from 1 to 9",
         KVERN_ERR_FORMAT},
        {"moe_intermediate_size", "33", "switch_mlp", KVERN_ERR_FORMAT},
        {"norm_topk_prob", "\"yes\"", "norm_topk_prob must be true or false", KVERN_ERR_FORMAT},
        {"mlp_only_layers", "[2]", "mlp_only_layers must be a list of layers", KVERN_ERR_FORMAT},
        {"mlp_only_layers", "[1]", "lacks the tensor model.layers.1.mlp.gate_proj.weight",
         KVERN_ERR_FORMAT},
        {"decoder_sparse_step", "2", "lacks the tensor model.layers.0.mlp.gate_proj.weight",
         KVERN_ERR_FORMAT},
        {"n_group", "2", "n_group", KVERN_ERR_UNSUPPORTED},
        {"n_shared_experts", "1", "n_shared_experts", KVERN_ERR_UNSUPPORTED},
    };
    expect_refusals("qwen3moe", cases, sizeof cases / sizeof cases[0]);
}

static void facts_of_latents_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"kv_lora_rank", "2048", "kv_lora_rank must be a whole number from 1 to 1024",
         KVERN_ERR_FORMAT},
        {"kv_lora_rank", "64", "kv_a_proj_with_mqa", KVERN_ERR_FORMAT},
        {"q_lora_rank", "null", "an indexer needs a q_lora_rank", KVERN_ERR_FORMAT},
        {"qk_nope_head_dim", "16", "q_b_proj.weight", KVERN_ERR_FORMAT},
        {"n_group", "5", "n_group is 5, which does not divide 12 experts", KVERN_ERR_FORMAT},
        {"topk_group", "0", "topk_group must be", KVERN_ERR_FORMAT},
        {"n_group", "65", "n_group must be a whole number from 1 to 64", KVERN_ERR_FORMAT},
        {"index_head_dim", "8", "heads of 16 dims to rotate", KVERN_ERR_FORMAT},
        {"index_topk", "0", "index_topk must be", KVERN_ERR_FORMAT},
        {"index_n_heads", "9", "indexer.wq_b.weight", KVERN_ERR_FORMAT},
        {"scoring_func", "\"softmax\"", "scoring_func", KVERN_ERR_UNSUPPORTED},
        {"topk_method", "\"greedy\"", "topk_method", KVERN_ERR_UNSUPPORTED},
        {"moe_layer_freq", "2", "moe_layer_freq", KVERN_ERR_UNSUPPORTED},
        {"attention_bias", "true", "attention_bias", KVERN_ERR_UNSUPPORTED},
        {"indexer_types", "[\"full\", \"shared\"]", "indexer_types", KVERN_ERR_UNSUPPORTED},
        {"quantization_config", "{\"quant_method\": \"fp8\"}", "quantization_config",
         KVERN_ERR_UNSUPPORTED},
    };
    expect_refusals("deepseek-v32", cases, sizeof cases / sizeof cases[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_scores_choose_the_first),
        cmocka_unit_test(what_is_no_number_is_worse_than_everything),
        cmocka_unit_test(a_correction_chooses_and_does_not_weigh),
        cmocka_unit_test(groups_are_chosen_first),
        cmocka_unit_test(routers_are_near_float64),
        cmocka_unit_test(tokens_do_not_depend_on_steps_waves_or_threads),
        cmocka_unit_test(nor_do_those_of_gpt_oss),
        cmocka_unit_test(nor_do_those_of_latents),
        cmocka_unit_test(facts_that_cannot_be_are_refused),
        cmocka_unit_test(facts_of_latents_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
