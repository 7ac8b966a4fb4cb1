// SPDX-License-Identifier: MIT
// Facts of model files, and files that are refused with a sentence that names the fault.

#include "engine/model/model.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static kvern_context *make_context(void)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = 1;
    kvern_context *context;
    assert_int_equal(kvern_context_create(&options, &context), KVERN_OK);
    return context;
}

// Loads what a builder holds.
static kvern_status load(const gguf_builder *builder, engine_error *error)
{
    size_t bytes;
    void *data = gguf_builder_finish(builder, &bytes);
    kvern_context *context = make_context();
    model_source *source = engine_fixture_source(data, bytes);
    model *model;
    kvern_status status = model_load(source, NULL, context, NULL, NULL, &model, error);
    if (status == KVERN_OK) {
        model_close(model);
    } else {
        assert_null(model);
        model_source_close(source);
    }
    kvern_context_release(context);
    free(data);
    return status;
}

static void expect_refusal(const gguf_builder *builder, kvern_status status, const char *text)
{
    engine_error error = {KVERN_OK, ""};
    assert_int_equal(load(builder, &error), status);
    if (!strstr(error.text, text)) {
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    }
}

static void facts_are_those_of_the_file(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    model.byte_tokenizer = true;
    model.vocabulary = 300;
    model.rope_linear = 4;
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    model_facts facts;
    engine_error error;
    model_source *source = engine_fixture_source(data, bytes);
    assert_int_equal(model_read_facts(source, &facts, &error), KVERN_OK);
    assert_memory_equal(facts.architecture.data, "llama", facts.architecture.size);
    assert_memory_equal(facts.name.data, "tiny", facts.name.size);
    assert_memory_equal(facts.tokenizer.data, "gpt2", facts.tokenizer.size);
    assert_int_equal(facts.layers, 2);
    assert_int_equal(facts.width, 64);
    assert_int_equal(facts.layer[1].heads, 4);
    assert_int_equal(facts.layer[1].kv_heads, 2);
    assert_int_equal(facts.layer[1].head_dim, 16);
    assert_int_equal(facts.layer[1].value_dim, 16);
    assert_int_equal(facts.layer[1].feed_forward, 96);
    assert_int_equal(facts.vocabulary, 300);
    assert_int_equal(facts.context_length, 512);
    assert_int_equal(facts.rope[0].dim, 16);
    assert_int_equal(facts.rope[0].scaling, MODEL_ROPE_LINEAR);
    assert_true(facts.rope[0].factor == 4);
    assert_true(facts.rope[0].base == 10000);
    assert_true(facts.norm_epsilon == 1e-5f);
    assert_true(facts.tied_output);
    assert_int_equal(facts.file_bytes, bytes);
    assert_int_equal(facts.types, 2);
    assert_int_equal(facts.type[0].type, GGUF_TYPE_Q4_1);
    assert_int_equal(facts.type[0].tensors, 15);
    assert_int_equal(facts.type[1].type, GGUF_TYPE_F32);
    assert_int_equal(facts.type[1].tensors, 5);
    assert_int_equal(facts.type[1].bytes, 5 * 64 * 4);
    assert_int_equal(facts.tensor_bytes, facts.type[0].bytes + facts.type[1].bytes);
    size_t matrices = 300 * 64 + 2 * (4 * 16 + 2 * 2 * 16 + 4 * 16 + 3 * 96) * 64;
    assert_int_equal(facts.parameters, matrices + 5 * 64);
    assert_int_equal(facts.type[0].bytes, matrices / 32 * 20);
    model_source_close(source);
    free(data);
}

static void the_plan_has_the_geometry(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    model_facts facts;
    engine_error error;
    model_source *source = engine_fixture_source(data, bytes);
    assert_int_equal(model_read_facts(source, &facts, &error), KVERN_OK);
    kvern_context *context = make_context();
    kvern_composition *plan;
    kvern_storage storage = kvern_storage_default();
    storage.v = kvern_codec_dense(KVERN_F32);
    assert_int_equal(model_composition(&facts, context, &storage, &plan, &error), KVERN_OK);
    assert_int_equal(kvern_composition_layers(plan), 2);
    assert_int_equal(kvern_composition_bytes_per_token(plan), 2 * 2 * 16 * (2 + 4));
    kvern_composition_release(plan);
    storage.k = kvern_codec_affine(4, 64); // the head dim is 16
    assert_int_equal(model_composition(&facts, context, &storage, &plan, &error),
                     KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "layer 0"));
    assert_null(plan);
    assert_int_equal(model_composition(&facts, context, NULL, &plan, &error), KVERN_OK);
    assert_int_equal(kvern_composition_bytes_per_token(plan), 2 * 2 * 16 * (2 + 2));
    kvern_composition_release(plan);
    kvern_context_release(context);
    model_source_close(source);
    free(data);
}

// Progress ends at the bytes of all tensors.
static void add_progress(void *user, uint64_t done, uint64_t total)
{
    uint64_t *seen = user;
    assert_true(done > seen[0] && done <= total);
    seen[0] = done;
    seen[1] = total;
}

static void loading_reports_progress(void **state)
{
    (void)state;
    tiny_llama options = tiny_llama_default(GGUF_TYPE_Q8_0);
    size_t bytes;
    void *data = tiny_llama_build(&options, &bytes);
    engine_error error;
    model_source *source = engine_fixture_source(data, bytes);
    kvern_context *context = make_context();
    uint64_t seen[2] = {0, 0};
    model *model;
    assert_int_equal(model_load(source, NULL, context, add_progress, seen, &model, &error),
                     KVERN_OK);
    assert_int_equal(seen[0], seen[1]);
    assert_int_equal(seen[1], model_get_facts(model)->tensor_bytes);
    assert_true(model_weight_bytes(model) >= model_get_facts(model)->type[0].bytes);
    model_close(model);
    kvern_context_release(context);
    free(data);
}

// A value that a test puts in place of a file's own: the builder takes keys in any order, but each
// only once, so these models are written by hand.
typedef struct fault {
    const char *key;
    bool absent;
    uint32_t value;
    kvern_status status;
    const char *text;
} fault;

static const fault faults[] = {
    {"llama.block_count", true, 0, KVERN_ERR_FORMAT, "lacks the key llama.block_count"},
    {"llama.block_count", false, 0, KVERN_ERR_FORMAT, "llama.block_count must be"},
    {"llama.block_count", false, 5000, KVERN_ERR_FORMAT, "llama.block_count must be"},
    {"llama.block_count", false, 3, KVERN_ERR_FORMAT, "lacks the tensor blk.2.attn_norm.weight"},
    {"llama.block_count", false, 1, KVERN_ERR_UNSUPPORTED, "blk.1."},
    {"llama.embedding_length", true, 0, KVERN_ERR_FORMAT, "lacks the key"},
    {"llama.embedding_length", false, 96, KVERN_ERR_FORMAT, "token_embd.weight is 64 x 100"},
    {"llama.embedding_length", false, 1u << 21, KVERN_ERR_FORMAT, "embedding_length must be"},
    {"llama.feed_forward_length", true, 0, KVERN_ERR_FORMAT, "lacks the key"},
    {"llama.feed_forward_length", false, 128, KVERN_ERR_FORMAT, "ffn_gate.weight is 64 x 96"},
    {"llama.context_length", true, 0, KVERN_ERR_FORMAT, "lacks the key"},
    {"llama.attention.head_count", true, 0, KVERN_ERR_FORMAT, "lacks the key"},
    {"llama.attention.head_count", false, 5, KVERN_ERR_FORMAT, "5 query heads"},
    {"llama.attention.head_count", false, 6, KVERN_ERR_FORMAT, "attn_q.weight is 64 x 64"},
    {"llama.attention.head_count_kv", false, 1, KVERN_ERR_FORMAT, "attn_k.weight is 64 x 32"},
    {"llama.attention.key_length", false, 600, KVERN_ERR_FORMAT, "key_length must be"},
    {"llama.attention.key_length", false, 32, KVERN_ERR_FORMAT, "attn_q.weight"},
    {"llama.attention.value_length", false, 8, KVERN_ERR_FORMAT, "attn_v.weight"},
    {"llama.attention.layer_norm_rms_epsilon", true, 0, KVERN_ERR_FORMAT, "lacks the key"},
    {"llama.attention.layer_norm_rms_epsilon", false, 0, KVERN_ERR_FORMAT, "above 0"},
    {"llama.rope.freq_base", false, 0, KVERN_ERR_FORMAT, "above 0"},
    {"llama.rope.dimension_count", false, 7, KVERN_ERR_FORMAT, "must be even"},
    {"llama.rope.dimension_count", false, 18, KVERN_ERR_FORMAT, "from 1 to 16"},
    {"llama.vocab_size", false, 99, KVERN_ERR_FORMAT, "100 rows"},
    {"llama.expert_count", false, 8, KVERN_ERR_UNSUPPORTED, "llama.expert_count"},
    {"llama.attention.sliding_window", false, 64, KVERN_ERR_UNSUPPORTED, "sliding_window"},
    {"llama.expert_count", false, 0, KVERN_OK, ""},
    {"llama.attention.value_length", false, 16, KVERN_OK, ""},
    {"llama.rope.dimension_count", false, 8, KVERN_OK, ""},
    {"llama.vocab_size", false, 100, KVERN_OK, ""},
};

// The metadata of tiny_llama_default(F32), but for one key.
static void add_faulty_metadata(gguf_builder *builder, const fault *fault)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"llama.block_count", 2},           {"llama.context_length", 512},
        {"llama.embedding_length", 64},     {"llama.feed_forward_length", 96},
        {"llama.attention.head_count", 4},  {"llama.attention.head_count_kv", 2},
        {"llama.attention.key_length", 16}, {"llama.attention.layer_norm_rms_epsilon", 1},
    };
    gguf_builder_string(builder, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(numbers[i].key, fault->key) != 0) {
            gguf_builder_u32(builder, numbers[i].key, numbers[i].value);
        }
    }
    if (!fault->absent) {
        gguf_builder_u32(builder, fault->key, fault->value);
    }
}

static void faulty_metadata_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        gguf_builder *builder = gguf_builder_create();
        tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
        add_faulty_metadata(builder, &faults[i]);
        tiny_llama_add_tensors(&model, builder);
        expect_refusal(builder, faults[i].status, faults[i].text);
        gguf_builder_destroy(builder);
    }
}

static void other_architectures_are_refused_by_name(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    expect_refusal(builder, KVERN_ERR_FORMAT, "general.architecture");
    gguf_builder_string(builder, "general.architecture", "mamba");
    expect_refusal(builder, KVERN_ERR_UNSUPPORTED, "\"mamba\" is not supported; supported: llama");
    gguf_builder_destroy(builder);
}

static gguf_builder *builder_with(const tiny_llama *options)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_llama_add(options, builder);
    return builder;
}

static void rope_scaling_is_supported_or_refused(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    gguf_builder *builder = builder_with(&model);
    gguf_builder_string(builder, "llama.rope.scaling.type", "dynamic");
    expect_refusal(builder, KVERN_ERR_UNSUPPORTED, "\"dynamic\" without");
    gguf_builder_destroy(builder);

    builder = builder_with(&model);
    gguf_builder_string(builder, "llama.rope.scaling.type", "longrope");
    expect_refusal(builder, KVERN_ERR_UNSUPPORTED, "longrope with its factors");
    gguf_builder_destroy(builder);

    model.rope_factors = true;
    builder = builder_with(&model);
    expect_refusal(builder, KVERN_OK, "");
    gguf_builder_string(builder, "llama.rope.scaling.type", "linear");
    expect_refusal(builder, KVERN_ERR_UNSUPPORTED, "\"linear\" with a rope_freqs.weight");
    gguf_builder_destroy(builder);

    model.rope_factors = false;
    builder = builder_with(&model);
    gguf_builder_string(builder, "llama.rope.scaling.type", "linear");
    expect_refusal(builder, KVERN_ERR_FORMAT, "lacks the key llama.rope.scaling.factor");
    gguf_builder_destroy(builder);

    builder = builder_with(&model);
    float factors[8] = {1, 1, 1, 0, 1, 1, 1, 1};
    gguf_builder_tensor(builder, "rope_freqs.weight", GGUF_TYPE_F32, 1, (uint64_t[]){8}, factors,
                        sizeof factors);
    expect_refusal(builder, KVERN_ERR_FORMAT, "rope_freqs.weight must hold numbers above 0");
    gguf_builder_destroy(builder);
}

// A model with yarn and one number more.
static void expect_yarn(const char *key, float value, kvern_status status, const char *text)
{
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    gguf_builder *builder = builder_with(&model);
    gguf_builder_string(builder, "llama.rope.scaling.type", "yarn");
    gguf_builder_f32(builder, key, value);
    if (strcmp(key, "llama.rope.scaling.factor") != 0) {
        gguf_builder_f32(builder, "llama.rope.scaling.factor", 4);
    }
    expect_refusal(builder, status, text);
    gguf_builder_destroy(builder);
}

static void yarn_is_whole_or_refused(void **state)
{
    (void)state;
    expect_yarn("llama.rope.scaling.yarn_ext_factor", 1, KVERN_OK, "");
    expect_yarn("llama.rope.scaling.yarn_ext_factor", -1, KVERN_OK, "");
    expect_yarn("llama.rope.scaling.yarn_ext_factor", 0.5f, KVERN_ERR_UNSUPPORTED,
                "yarn_ext_factor is supported only with the value 1");
    expect_yarn("llama.rope.scaling.yarn_beta_fast", 1, KVERN_ERR_FORMAT,
                "llama.rope.scaling.yarn_beta_fast is not above");
    expect_yarn("llama.rope.scaling.yarn_beta_slow", 0, KVERN_ERR_FORMAT,
                "llama.rope.scaling.yarn_beta_slow must be a number above 0");
    expect_yarn("llama.rope.scaling.original_context_length", 0, KVERN_ERR_FORMAT,
                "original_context_length must be a number above 0");
    expect_yarn("llama.rope.scaling.factor", 0, KVERN_ERR_FORMAT,
                "llama.rope.scaling.factor must be a number above 0");
    expect_yarn("llama.rope.scaling.yarn_log_multiplier", 0.1f, KVERN_ERR_UNSUPPORTED,
                "yarn_log_multiplier");

    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    gguf_builder *builder = builder_with(&model);
    gguf_builder_f32(builder, "llama.rope.scaling.yarn_ext_factor", 1);
    expect_refusal(builder, KVERN_ERR_UNSUPPORTED,
                   "yarn_ext_factor is supported only with the value 0");
    gguf_builder_destroy(builder);
}

static void unknown_tensors_are_refused_by_name(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    gguf_builder *builder = builder_with(&model);
    float bias[96] = {0};
    gguf_builder_tensor(builder, "blk.1.ffn_up.bias", GGUF_TYPE_F32, 1, (uint64_t[]){96}, bias,
                        sizeof bias);
    expect_refusal(builder, KVERN_ERR_UNSUPPORTED, "blk.1.ffn_up.bias");
    gguf_builder_destroy(builder);
}

static void biases_have_the_shape_of_their_matrix(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    gguf_builder *builder = builder_with(&model);
    float bias[64] = {0};
    gguf_builder_tensor(builder, "blk.1.attn_k.bias", GGUF_TYPE_F32, 1, (uint64_t[]){64}, bias,
                        sizeof bias);
    expect_refusal(builder, KVERN_ERR_FORMAT, "blk.1.attn_k.bias is 64, but the model needs 32");
    gguf_builder_destroy(builder);
}

// Lists have a number for each layer.
static void lists_of_layers_are_checked(void **state)
{
    (void)state;
    static const struct {
        uint32_t count, numbers[3];
        const char *text;
    } cases[] = {
        {1, {2}, "head_count_kv lists 1 numbers, but the model has 2 layers"},
        {3, {2, 2, 2}, "lists 3 numbers"},
        {2, {2, 0}, "head_count_kv must be whole numbers"},
        {2, {2, 3}, "4 query heads cannot share 3"},
        {2, {2, 1}, "blk.1.attn_k.weight is 64 x 32, but the model needs 64 x 16"},
    };
    static const fault absent = {"llama.attention.head_count_kv", true, 0, KVERN_OK, ""};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_builder *builder = gguf_builder_create();
        tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
        add_faulty_metadata(builder, &absent);
        gguf_builder_array(builder, "llama.attention.head_count_kv", GGUF_UINT32, cases[i].numbers,
                           cases[i].count);
        tiny_llama_add_tensors(&model, builder);
        expect_refusal(builder, KVERN_ERR_FORMAT, cases[i].text);
        gguf_builder_destroy(builder);
    }
}

// What a command that loads nothing is told.
static void facts_of_a_file_without_a_tensor_fail(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    tiny_llama_add(&model, builder);
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    const char name[] = "blk.1.attn_v.weight";
    for (size_t i = 0; i + sizeof name <= bytes; i++) {
        if (memcmp(data + i, name, sizeof name - 1) == 0) {
            data[i + 13] = 'x';
        }
    }
    model_facts facts;
    engine_error error;
    model_source *source = engine_fixture_source(data, bytes);
    assert_int_equal(model_read_facts(source, &facts, &error), KVERN_ERR_FORMAT);
    assert_non_null(strstr(error.text, "lacks the tensor blk.1.attn_v.weight"));
    model_source_close(source);
    free(data);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    kvern_context *context = make_context();
    engine_error error = {KVERN_OK, ""};
    model *model;
    assert_int_equal(model_open("/no/such/model.gguf", context, NULL, NULL, &model, &error),
                     KVERN_ERR_IO);
    assert_null(model);
    assert_non_null(strstr(error.text, "/no/such/model.gguf"));
    kvern_context_release(context);
}

static void workspaces_are_checked(void **state)
{
    (void)state;
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    size_t bytes;
    void *data = tiny_llama_build(&options, &bytes);
    engine_error error;
    model *model;
    model_workspace *workspace;
    model_source *source = engine_fixture_source(data, bytes);
    kvern_context *context = make_context();
    assert_int_equal(model_load(source, NULL, context, NULL, NULL, &model, &error), KVERN_OK);
    assert_int_equal(model_workspace_create(model, 0, 1, &workspace, &error), KVERN_ERR_ARGUMENT);
    assert_int_equal(model_workspace_create(model, 1, 0, &workspace, &error), KVERN_ERR_ARGUMENT);
    assert_int_equal(model_workspace_create(model, SIZE_MAX / 8, 1, &workspace, &error),
                     KVERN_ERR_OVERFLOW);
    assert_null(workspace);
    model_close(model);
    kvern_context_release(context);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_those_of_the_file),
        cmocka_unit_test(the_plan_has_the_geometry),
        cmocka_unit_test(loading_reports_progress),
        cmocka_unit_test(faulty_metadata_is_refused_by_name),
        cmocka_unit_test(other_architectures_are_refused_by_name),
        cmocka_unit_test(rope_scaling_is_supported_or_refused),
        cmocka_unit_test(yarn_is_whole_or_refused),
        cmocka_unit_test(unknown_tensors_are_refused_by_name),
        cmocka_unit_test(biases_have_the_shape_of_their_matrix),
        cmocka_unit_test(lists_of_layers_are_checked),
        cmocka_unit_test(facts_of_a_file_without_a_tensor_fail),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(workspaces_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
