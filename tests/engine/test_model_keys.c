// SPDX-License-Identifier: MIT
// A model file is honoured or refused: every key that changes the numbers is used, has a value that
// changes nothing, or is refused by its name.

#include "tests/support/engine_fixture.h"
#include "tests/support/real_model.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 24
#define VOCABULARY 100

// A key that a test adds to a tiny model.
typedef enum kind { TEXT, NUMBER, WHOLE, FLAG, ZEROS, ONES, FLAGS } kind;
typedef struct added {
    const char *key;
    kind kind;
    float number;
    const char *text;
} added;

static void add_key(gguf_builder *builder, const added *a)
{
    const int32_t numbers[] = {a->kind == ONES, 0, 0, 0};
    const bool flags[] = {true, false};
    switch (a->kind) {
    case TEXT:
        gguf_builder_string(builder, a->key, a->text);
        break;
    case NUMBER:
        gguf_builder_f32(builder, a->key, a->number);
        break;
    case WHOLE:
        gguf_builder_u32(builder, a->key, (uint32_t)a->number);
        break;
    case FLAG:
        gguf_builder_bool(builder, a->key, a->number != 0);
        break;
    case FLAGS:
        gguf_builder_array(builder, a->key, GGUF_BOOL, flags, 2);
        break;
    default:
        gguf_builder_array(builder, a->key, GGUF_INT32, numbers, 4);
    }
}

static gguf_builder *llama_with(bool factors, const added *keys, size_t count)
{
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    model.rope_factors = factors;
    gguf_builder *builder = gguf_builder_create();
    tiny_llama_add(&model, builder);
    for (size_t i = 0; i < count && keys[i].key; i++) {
        add_key(builder, &keys[i]);
    }
    return builder;
}

static gguf_builder *gemma3_with(const added *key)
{
    tiny_gemma3 model = tiny_gemma3_default(GGUF_TYPE_F32);
    gguf_builder *builder = gguf_builder_create();
    tiny_gemma3_add(&model, builder);
    add_key(builder, key);
    return builder;
}

// What model_read_facts says of a file; releases the builder.
static kvern_status read_facts(gguf_builder *builder, model_facts *facts, engine_error *error)
{
    size_t bytes;
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    model_source *source = engine_fixture_source(data, bytes);
    kvern_status status = model_read_facts(source, facts, error);
    model_source_close(source);
    free(data);
    return status;
}

static void expect(gguf_builder *builder, kvern_status status, const char *text)
{
    engine_error error = {KVERN_OK, ""};
    model_facts facts;
    if (read_facts(builder, &facts, &error) != status || !strstr(error.text, text)) {
        fail_msg("\"%s\" (%d) where %d and \"%s\" were expected", error.text, (int)error.status,
                 (int)status, text);
    }
}

// ---- Keys that are honoured give the right logits. ----

// Logits of a llama model of one row; releases the builder.
static void run(gguf_builder *builder, float logits[TOKENS * VOCABULARY])
{
    size_t bytes;
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    engine_fixture f = engine_fixture_open(&options);
    int32_t tokens[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 37 % VOCABULARY;
    }
    kvern_state *state = engine_fixture_state(&f, 1);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, tokens, &(int64_t){TOKENS}, logits);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    free(data);
}

// test_llama compares linear scaling by type and factor with float64; the older and the shorter
// ways to say it are the same bits.
static void linear_scaling_is_one_whatever_it_is_called(void **state)
{
    (void)state;
    static float right[TOKENS * VOCABULARY], other[TOKENS * VOCABULARY];
    static const added said[][2] = {
        {{"llama.rope.scale_linear", NUMBER, 4, NULL}},
        {{"llama.rope.scaling.factor", NUMBER, 4, NULL}},
        {{"llama.rope.scale_linear", NUMBER, 4, NULL},
         {"llama.rope.scaling.factor", NUMBER, 4, NULL}},
        {{"llama.rope.scale_linear", NUMBER, 4, NULL},
         {"llama.rope.scaling.type", TEXT, 0, "linear"}},
    };
    const added plain[] = {{"llama.rope.scaling.type", TEXT, 0, "linear"},
                           {"llama.rope.scaling.factor", NUMBER, 4, NULL}};
    run(llama_with(false, plain, 2), right);
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        run(llama_with(false, said[i], 2), other);
        assert_memory_equal(other, right, sizeof right);
    }
    run(llama_with(false, NULL, 0), other);
    assert_memory_not_equal(other, right, sizeof right);
}

static void neutral_scaling_changes_nothing(void **state)
{
    (void)state;
    static float right[TOKENS * VOCABULARY], other[TOKENS * VOCABULARY];
    static const added neutral[][2] = {
        {{"llama.rope.scale_linear", NUMBER, 1, NULL}},
        {{"llama.rope.scaling.factor", NUMBER, 0, NULL}},
        {{"llama.rope.scaling.type", TEXT, 0, "none"},
         {"llama.rope.scaling.factor", NUMBER, 1, NULL}},
        {{"llama.embedding_scale", NUMBER, 1, NULL}, {"llama.attention.causal", FLAG, 1, NULL}},
    };
    run(llama_with(false, NULL, 0), right);
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) {
        run(llama_with(false, neutral[i], 2), other);
        assert_memory_equal(other, right, sizeof right);
    }
}

static void scaling_that_contradicts_itself_is_refused(void **state)
{
    (void)state;
    static const struct {
        bool factors;
        added keys[2];
        kvern_status status;
        const char *text;
    } cases[] = {
        {true,
         {{"llama.rope.scaling.factor", NUMBER, 4, NULL}},
         KVERN_ERR_UNSUPPORTED,
         "\"linear\" with a rope_freqs.weight"},
        {true,
         {{"llama.rope.scale_linear", NUMBER, 4, NULL}},
         KVERN_ERR_UNSUPPORTED,
         "\"linear\" with a rope_freqs.weight"},
        {true, {{"llama.rope.scaling.factor", NUMBER, 1, NULL}}, KVERN_OK, ""},
        {true,
         {{"llama.rope.scaling.type", TEXT, 0, "llama3"},
          {"llama.rope.scaling.factor", NUMBER, 8, NULL}},
         KVERN_OK,
         ""},
        {false, {{"llama.rope.scaling.type", WHOLE, 1, NULL}}, KVERN_ERR_FORMAT, "must be a text"},
        {false,
         {{"llama.rope.scaling.type", TEXT, 0, "none"},
          {"llama.rope.scaling.factor", NUMBER, 4, NULL}},
         KVERN_ERR_FORMAT,
         "factor of 4"},
        {false,
         {{"llama.rope.scale_linear", NUMBER, 2, NULL},
          {"llama.rope.scaling.factor", NUMBER, 4, NULL}},
         KVERN_ERR_FORMAT,
         "rope.scale_linear is 2"},
        {false, {{"llama.rope.scaling.factor", NUMBER, -4, NULL}}, KVERN_ERR_FORMAT, "above 0"},
        {false, {{"llama.rope.scaling.factor", TEXT, 0, "4"}}, KVERN_ERR_FORMAT, "above 0"},
        {false,
         {{"llama.rope.scaling.type", TEXT, 0, "longrope"}},
         KVERN_ERR_UNSUPPORTED,
         "\"longrope\" without"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(llama_with(cases[i].factors, cases[i].keys, 2), cases[i].status, cases[i].text);
    }
}

// The same keys in the other family.
static void gemma3_scales_linearly_without_a_type(void **state)
{
    (void)state;
    engine_error error;
    model_facts facts;
    const char *keys[] = {"gemma3.rope.scaling.factor", "gemma3.rope.scale_linear"};
    for (size_t i = 0; i < 2; i++) {
        const added key = {keys[i], NUMBER, 8, NULL};
        assert_int_equal(read_facts(gemma3_with(&key), &facts, &error), KVERN_OK);
        assert_int_equal(facts.rope[0].scaling, MODEL_ROPE_LINEAR);
        assert_true(facts.rope[0].factor == 8);
    }
}

// ---- Keys that change what is not computed. ----

typedef struct verdict_case {
    added key;
    kvern_status status; // KVERN_OK or KVERN_ERR_UNSUPPORTED, by the key's name
} verdict_case;

#define REFUSED KVERN_ERR_UNSUPPORTED

static const verdict_case llama_cases[] = {
    {{"llama.attention.causal", FLAG, 0, NULL}, REFUSED},
    {{"llama.attention.causal", FLAG, 1, NULL}, KVERN_OK},
    {{"llama.attention.causal", WHOLE, 1, NULL}, REFUSED}, // no flag
    {{"llama.attention.max_alibi_bias", NUMBER, 8, NULL}, REFUSED},
    {{"llama.attention.max_alibi_bias", NUMBER, 0, NULL}, KVERN_OK},
    {{"llama.attention.temperature_scale", NUMBER, 0.1f, NULL}, REFUSED},
    {{"llama.attention.temperature_length", WHOLE, 8192, NULL}, REFUSED},
    {{"llama.attention.key_length_swa", WHOLE, 16, NULL}, REFUSED},
    {{"llama.attention.value_length_swa", WHOLE, 16, NULL}, REFUSED},
    {{"llama.rope.dimension_count_swa", WHOLE, 16, NULL}, REFUSED},
    {{"llama.attention.shared_kv_layers", WHOLE, 1, NULL}, REFUSED},
    {{"llama.attention.shared_kv_layers", WHOLE, 0, NULL}, KVERN_OK},
    {{"llama.rope.dimension_sections", ONES, 0, NULL}, REFUSED},
    {{"llama.rope.dimension_sections", ZEROS, 0, NULL}, KVERN_OK},
    {{"llama.embedding_scale", NUMBER, 12, NULL}, REFUSED},
    {{"llama.embedding_scale", NUMBER, 1, NULL}, KVERN_OK},
    {{"llama.residual_scale", NUMBER, 0.22f, NULL}, REFUSED},
    {{"llama.residual_scale", NUMBER, 1, NULL}, KVERN_OK},
    {{"llama.logit_scale", NUMBER, 8, NULL}, REFUSED},
    {{"llama.logit_scale", WHOLE, 1, NULL}, KVERN_OK},
    {{"llama.attention.scale", NUMBER, 0.5f, NULL}, REFUSED},
    {{"llama.attention.output_scale", NUMBER, 0.5f, NULL}, REFUSED},
    {{"llama.attention.value_scale", NUMBER, 0.5f, NULL}, REFUSED},
    {{"llama.attention.clamp_kqv", NUMBER, 8, NULL}, REFUSED},
    {{"llama.attention.sliding_window", WHOLE, 64, NULL}, REFUSED},
    {{"llama.attn_logit_softcapping", NUMBER, 50, NULL}, REFUSED},
    {{"llama.final_logit_softcapping", NUMBER, 30, NULL}, REFUSED},
    {{"llama.final_logit_softcapping", NUMBER, 0, NULL}, KVERN_OK},
    {{"llama.use_parallel_residual", FLAG, 1, NULL}, REFUSED},
    {{"llama.use_parallel_residual", FLAG, 0, NULL}, KVERN_OK},
    {{"llama.expert_count", WHOLE, 8, NULL}, REFUSED},
    {{"llama.expert_count", WHOLE, 0, NULL}, KVERN_OK},
    {{"llama.expert_used_count", WHOLE, 2, NULL}, REFUSED},
    {{"llama.rope.scaling.attn_factor", NUMBER, 1.2f, NULL}, KVERN_OK},
    {{"llama.rope.scaling.alpha", NUMBER, 1.2f, NULL}, REFUSED},
    {{"llama.rope.scaling.attn_factor", NUMBER, 1, NULL}, KVERN_OK},
    {{"llama.rope.scaling.yarn_log_multiplier", NUMBER, 0.1f, NULL}, REFUSED},
    {{"llama.rope.scaling.original_context_length", WHOLE, 8192, NULL}, KVERN_OK},
    {{"llama.tensor_data_layout", TEXT, 0, "Meta AI original pth"}, KVERN_OK},
    {{"llama.tensor_data_layout", TEXT, 0, "another one"}, REFUSED},
    {{"llama.hidden_activation", TEXT, 0, "silu"}, KVERN_OK},
    {{"llama.hidden_activation", TEXT, 0, "gelu"}, REFUSED},
    {{"llama.ssm.state_size", WHOLE, 16, NULL}, REFUSED},
    {{"llama.something_new", NUMBER, 0, NULL}, REFUSED},
    {{"general.type", TEXT, 0, "model"}, KVERN_OK},
    {{"general.type", TEXT, 0, "adapter"}, REFUSED},
    {{"general.quantization_version", WHOLE, 2, NULL}, KVERN_OK},
    {{"general.quantization_version", WHOLE, 1, NULL}, REFUSED},
    {{"general.base_model.0.name", TEXT, 0, "x"}, KVERN_OK},
    {{"adapter.type", TEXT, 0, "lora"}, REFUSED},
    {{"quantize.imatrix.file", TEXT, 0, "x"}, KVERN_OK},
    {{"somebody.quantized_by", TEXT, 0, "x"}, KVERN_OK},
    {{"split.strange", WHOLE, 0, NULL}, REFUSED},
};

static void keys_of_llama_are_honoured_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof llama_cases / sizeof llama_cases[0]; i++) {
        const verdict_case *c = &llama_cases[i];
        expect(llama_with(false, &c->key, 1), c->status, c->status ? c->key.key : "");
    }
}

static void keys_of_gemma3_are_honoured_or_refused(void **state)
{
    (void)state;
    static const verdict_case cases[] = {
        {{"gemma3.attention.causal", FLAG, 0, NULL}, REFUSED},
        {{"gemma3.attention.max_alibi_bias", NUMBER, 8, NULL}, REFUSED},
        {{"gemma3.attention.key_length_swa", WHOLE, 16, NULL}, KVERN_OK},
        {{"gemma3.attention.key_length_swa", WHOLE, 8, NULL}, REFUSED},
        {{"gemma3.attention.value_length_swa", WHOLE, 8, NULL}, REFUSED},
        {{"gemma3.rope.dimension_count_swa", WHOLE, 16, NULL}, KVERN_OK},
        {{"gemma3.rope.dimension_count_swa", WHOLE, 8, NULL}, REFUSED},
        {{"gemma3.attention.shared_kv_layers", WHOLE, 2, NULL}, REFUSED},
        {{"gemma3.embedding_scale", NUMBER, 2, NULL}, REFUSED},
        {{"gemma3.something_new", FLAGS, 0, NULL}, REFUSED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(gemma3_with(&cases[i].key), cases[i].status,
               cases[i].status ? cases[i].key.key : "");
    }
}

// ---- Verdicts. ----

static void verdicts_are_told(void **state)
{
    (void)state;
    const added keys[] = {{"llama.logit_scale", NUMBER, 2, NULL}, {"llama.new", FLAG, 0, NULL}};
    gguf_builder *builder = llama_with(false, keys, 2);
    size_t bytes;
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    model_source *source = engine_fixture_source(data, bytes);
    size_t count = gguf_entry_count(model_source_gguf(source));
    model_key key;
    assert_true(model_judge_key(source, 0, &key));
    assert_true(text_view_is(key.name, "general.architecture"));
    assert_int_equal(key.verdict, KEY_IS_USED);
    assert_true(model_judge_key(source, count - 2, &key));
    assert_int_equal(key.verdict, KEY_IS_REFUSED);
    assert_true(model_judge_key(source, count - 1, &key));
    assert_int_equal(key.verdict, KEY_IS_UNKNOWN);
    assert_false(model_judge_key(source, count, &key));
    model_source_close(source);
    free(data);
}

static void keys_of_a_real_file_are_known(const char *path)
{
    model_source *source;
    engine_error error;
    assert_int_equal(model_source_open(path, &source, &error), KVERN_OK);
    model_key key;
    size_t i = 0;
    for (; model_judge_key(source, i, &key); i++) {
        if (key.verdict >= KEY_IS_REFUSED) {
            fail_msg("%.*s is %s", (int)key.name.size, key.name.data,
                     key_verdict_name(key.verdict));
        }
    }
    assert_int_equal(i, gguf_entry_count(model_source_gguf(source)));
    model_source_close(source);
}

static void keys_of_smollm2_are_known(void **state)
{
    (void)state;
    keys_of_a_real_file_are_known(real_model_path("KVERN_TEST_MODEL"));
}

static void keys_of_gemma3_270m_are_known(void **state)
{
    (void)state;
    keys_of_a_real_file_are_known(real_model_path("KVERN_TEST_GEMMA3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_scaling_is_one_whatever_it_is_called),
        cmocka_unit_test(neutral_scaling_changes_nothing),
        cmocka_unit_test(scaling_that_contradicts_itself_is_refused),
        cmocka_unit_test(gemma3_scales_linearly_without_a_type),
        cmocka_unit_test(keys_of_llama_are_honoured_or_refused),
        cmocka_unit_test(keys_of_gemma3_are_honoured_or_refused),
        cmocka_unit_test(verdicts_are_told),
        cmocka_unit_test(keys_of_smollm2_are_known),
        cmocka_unit_test(keys_of_gemma3_270m_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
