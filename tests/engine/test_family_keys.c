// SPDX-License-Identifier: MIT
// What a family's file asks for is honoured or refused by its name: the small models of
// tests/golden/families with one key changed, in both formats.

#include "engine/model/families/model_family.h"
#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/family_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct change {
    const char *name; // of the case
    const char *key;
    const char *value; // JSON; NULL: the key goes
    kvern_status status;
    const char *text; // a part of the error
} change;

static family_case open_case(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/golden/families/%s.json", KVERN_TESTS_DIR, name);
    return family_case_open(path);
}

static void apply(json_t *object, const change *c)
{
    if (!c->value) {
        assert_int_equal(json_object_del(object, c->key), 0);
        return;
    }
    json_t *value = json_loads(c->value, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_int_equal(json_object_set_new(object, c->key, value), 0);
}

static void expect(model_source *source, const change *c)
{
    engine_error error = {KVERN_OK, ""};
    model_facts facts;
    kvern_status status = model_read_facts(source, &facts, &error);
    if (status != c->status || !strstr(error.text, c->text)) {
        fail_msg("%s, %s: \"%s\" (%d) where %d and \"%s\" were expected", c->name, c->key,
                 error.text, (int)status, (int)c->status, c->text);
    }
    model_source_close(source);
}

static void expect_model(const family_case *model, const change *c)
{
    size_t bytes;
    char *config = family_case_config(model);
    void *tensors = family_case_safetensors(model, &bytes);
    model_source *source;
    engine_error error = {KVERN_OK, ""};
    if (model_source_of_safetensors(config, strlen(config), tensors, bytes, &source, &error) !=
        KVERN_OK) {
        fail_msg("%s", error.text);
    }
    expect(source, c);
    free(tensors);
    free(config);
}

static void expect_directory(const change *c)
{
    family_case model = open_case(c->name);
    apply(json_object_get(model.description, "config"), c);
    expect_model(&model, c);
    family_case_close(&model);
}

static void expect_gguf(const change *c)
{
    family_case model = open_case(c->name);
    apply(json_object_get(json_object_get(model.description, "gguf"), "metadata"), c);
    size_t bytes;
    void *file = family_case_gguf(&model, &bytes);
    expect(engine_fixture_source(file, bytes), c);
    free(file);
    family_case_close(&model);
}

#define REFUSED KVERN_ERR_UNSUPPORTED
#define LACKING KVERN_ERR_FORMAT

#define KDA(layers) "{\"num_heads\": 3, \"head_dim\": 16, \"kda_layers\": " layers "}"

#define KIMI_TYPES(first, third)                                                                   \
    "[\"" first "_attention\", \"linear_attention\", \"" third "_attention\", "                    \
    "\"linear_attention\"]"
#define WINDOWS(last)                                                                              \
    "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\", "      \
    "\"sliding_attention\", \"" last "\"]"
#define FULL_ROPE(type, part)                                                                      \
    "{\"full_attention\": {\"rope_type\": \"" type "\", \"partial_rotary_factor\": " part          \
    ", \"rope_theta\": 7.0}, \"sliding_attention\": {\"rope_theta\": 9.0}}"

static const change DIRECTORIES[] = {
    {"gemma4", "num_kv_shared_layers", NULL, LACKING, "num_kv_shared_layers"},
    {"gemma4", "num_kv_shared_layers", "6", LACKING,
     "num_kv_shared_layers must be a number from 0"},
    {"gemma4", "num_kv_shared_layers", "5", LACKING, "layer 1 shares the keys of a layer"},
    {"gemma4", "layer_types", NULL, LACKING, "layer_types"},
    {"gemma4", "layer_types", WINDOWS("full_attention"), KVERN_OK, ""},
    {"gemma4", "layer_types", WINDOWS("sliding_attention"), REFUSED, "layer_types ends with"},
    {"gemma4", "use_double_wide_mlp", NULL, LACKING, "use_double_wide_mlp"},
    {"gemma4", "use_double_wide_mlp", "false", LACKING, "model.layers.3.mlp.gate_proj.weight"},
    {"gemma4", "enable_moe_block", "true", REFUSED, "enable_moe_block"},
    {"gemma4", "use_bidirectional_attention", "\"vision\"", KVERN_OK, ""},
    {"gemma4", "use_bidirectional_attention", "\"all\"", REFUSED, "use_bidirectional_attention"},
    {"gemma4", "vocab_size_per_layer_input", "65", REFUSED, "vocab_size_per_layer_input is 65"},
    {"gemma4", "hidden_size_per_layer_input", NULL, LACKING, "hidden_size_per_layer_input"},
    {"gemma4", "final_logit_softcapping", NULL, LACKING, "final_logit_softcapping"},
    {"gemma4", "final_logit_softcapping", "null", KVERN_OK, ""},
    {"gemma4", "head_dim", NULL, LACKING, "head_dim"},
    {"gemma4", "global_head_dim", NULL, LACKING, "global_head_dim"},
    {"gemma4", "rope_parameters", FULL_ROPE("proportional", "0.25"), KVERN_OK, ""},
    {"gemma4", "rope_parameters", FULL_ROPE("default", "1.0"), KVERN_OK, ""},
    {"gemma4", "rope_parameters", FULL_ROPE("default", "0.25"), REFUSED,
     "rope_parameters.full_attention.rope_type"},
    {"gemma4", "rope_parameters", FULL_ROPE("proportional", "0.01"), LACKING,
     "rope_parameters.full_attention.partial_rotary_factor"},
    {"gemma4", "rope_theta", "700.0", KVERN_OK, ""},
    {"gemma4", "rope_theta", "500.0", LACKING, "rope_theta"},
    {"gemma4-keys", "num_global_key_value_heads", "3", LACKING, "which does not divide"},

    {"llama4", "attention_bias", "true", REFUSED, "attention_bias"},
    {"llama4", "no_rope_layers", "[1, 1, 0]", LACKING, "no_rope_layers must be a list of 4"},
    {"llama4", "no_rope_layers", "null", KVERN_OK, ""},
    {"llama4", "moe_layers", "[0, 1]", REFUSED, "moe_layers"},
    {"llama4", "moe_layers", "[1]", REFUSED, "moe_layers"},
    {"llama4", "moe_layers", "null", KVERN_OK, ""},
    {"llama4", "layer_types",
     "[\"full_attention\", \"chunked_attention\", \"chunked_attention\", \"full_attention\"]",
     REFUSED, "layer_types"},
    {"llama4", "attention_chunk_size", NULL, LACKING, "attention_chunk_size"},
    {"llama4", "attention_chunk_size", "null", KVERN_OK, ""},
    {"llama4", "use_qk_norm", NULL, LACKING, "use_qk_norm"},
    {"llama4", "attn_temperature_tuning", "4", KVERN_OK, ""},
    {"llama4", "attn_temperature_tuning", "\"yes\"", LACKING, "attn_temperature_tuning"},
    {"llama4", "num_experts_per_tok", "6", LACKING, "num_experts_per_tok"},
    {"llama4", "interleave_moe_layer_step", NULL, LACKING, "interleave_moe_layer_step"},
    {"llama4-hf", "intermediate_size", "16", LACKING, "feed_forward"},

    {"llama", "hidden_act", "\"silu\"", KVERN_OK, ""},
    {"llama", "partial_rotary_factor", "0.5", REFUSED, "partial_rotary_factor"},
    {"llama-yarn", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 5.5}", LACKING,
     "rope_scaling.original_max_position_embeddings"},
    {"llama-yarn", "rope_scaling",
     "{\"rope_type\": \"yarn\", \"original_max_position_embeddings\": 200}", LACKING,
     "rope_scaling.factor"},
    {"llama-yarn", "rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 200,"
     " \"long_factor\": [1]}",
     REFUSED, "\"yarn\""},
    {"llama-yarn", "rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 200,"
     " \"new_factor\": 3}",
     REFUSED, "rope_scaling.new_factor"},

    {"qwen2", "use_sliding_window", "true", REFUSED, "use_sliding_window"},
    {"qwen2", "layer_types", "[\"full_attention\", \"full_attention\"]", KVERN_OK, ""},
    {"qwen2", "layer_types", "[\"full_attention\", \"sliding_attention\"]", REFUSED, "layer_types"},
    {"qwen2", "hidden_act", "\"gelu\"", REFUSED, "hidden_act"},
    {"qwen2", "rms_norm_eps", NULL, LACKING, "rms_norm_eps"},
    {"qwen3", "attention_bias", "true", REFUSED, "attention_bias"},
    {"qwen3", "head_dim", NULL, LACKING, "q_proj"},

    {"qwen3next", "partial_rotary_factor", NULL, LACKING, "partial_rotary_factor"},
    {"qwen3next", "linear_num_value_heads", "5", KVERN_ERR_FORMAT, "no multiple of 2 key heads"},
    {"qwen3next", "linear_conv_kernel_dim", "17", KVERN_ERR_FORMAT, "from 1 to 16"},
    {"qwen3next", "linear_value_head_dim", "8", KVERN_ERR_FORMAT, "in_proj_qkvz"},
    {"qwen3next", "linear_key_head_dim", NULL, LACKING, "linear_key_head_dim"},
    {"qwen3next", "attn_output_gate", "false", REFUSED, "attn_output_gate"},
    {"qwen3next", "hidden_act", "\"gelu\"", REFUSED, "hidden_act"},
    {"qwen3next-kinds", "layer_types", "[\"linear_attention\", \"full_attention\"]",
     KVERN_ERR_FORMAT, "layer_types must be a list of 3"},
    {"qwen3next-kinds", "layer_types",
     "[\"linear_attention\", \"sliding_attention\", \"full_attention\"]", KVERN_ERR_FORMAT,
     "layer_types must be a list of 3"},
    {"qwen35", "rope_parameters", "{\"rope_theta\": 700.0, \"rope_type\": \"default\"}", LACKING,
     "partial_rotary_factor"},
    {"qwen35", "attn_output_gate", "false", REFUSED, "attn_output_gate"},
    {"qwen35", "num_experts", "8", REFUSED, "num_experts"},
    {"qwen35moe", "num_experts_per_tok", "6", KVERN_ERR_FORMAT, "num_experts_per_tok"},
    {"qwen35moe", "moe_intermediate_size", "16", KVERN_ERR_FORMAT, "mlp.experts.gate_up_proj"},
    {"glm4-moe", "attention_bias", "false", REFUSED, "_proj.bias"},
    {"glm4-moe-air", "attention_bias", "true", KVERN_ERR_FORMAT, "self_attn.q_proj.bias"},
    {"glm4-moe", "use_qk_norm", NULL, REFUSED, "_norm.weight"},
    {"glm4-moe-air", "use_qk_norm", "true", KVERN_ERR_FORMAT, "self_attn.q_norm.weight"},
    {"glm4-moe", "partial_rotary_factor", NULL, LACKING, "partial_rotary_factor"},
    {"glm4-moe", "rope_theta", NULL, LACKING, "rope_theta"},
    {"glm4-moe", "routed_scaling_factor", NULL, LACKING, "routed_scaling_factor"},
    {"glm4-moe", "n_group", "5", KVERN_ERR_FORMAT, "n_group"},
    {"glm4-moe", "num_experts_per_tok", "1", REFUSED, "num_experts_per_tok"},
    {"glm4-moe", "scoring_func", "\"softmax\"", REFUSED, "scoring_func"},
    {"glm4-moe", "hidden_act", "\"gelu\"", REFUSED, "hidden_act"},
    {"kimi-linear", "mla_use_nope", "false", REFUSED, "mla_use_nope must be true"},
    {"kimi-linear", "mla_use_nope", NULL, REFUSED, "mla_use_nope must be true"},
    {"kimi-linear", "q_lora_rank", "48", REFUSED, "q_lora_rank"},
    {"kimi-linear", "moe_router_activation_func", "\"softmax\"", REFUSED,
     "moe_router_activation_func"},
    {"kimi-linear", "use_grouped_topk", "false", REFUSED, "use_grouped_topk"},
    {"kimi-linear", "moe_layer_freq", "2", REFUSED, "moe_layer_freq"},
    {"kimi-linear", "num_nextn_predict_layers", "1", REFUSED, "num_nextn_predict_layers"},
    {"kimi-linear", "hidden_act", "\"gelu\"", REFUSED, "hidden_act"},
    {"kimi-linear", "gate_lower_bound", "-5.0", REFUSED, "no lower bound"},
    {"kimi-linear", "auto_map", "{\"AutoConfig\": \"a.B\"}", KVERN_OK, ""},
    {"kimi-linear", "rope_scaling", "{\"type\": \"yarn\"}", KVERN_OK, ""},
    {"kimi-linear", "num_experts_per_token", "7", KVERN_ERR_FORMAT, "num_experts_per_token"},
    {"kimi-linear", "kv_lora_rank", NULL, LACKING, "kv_lora_rank"},
    {"kimi-linear", "qk_rope_head_dim", NULL, KVERN_ERR_FORMAT, "self_attn.q_proj.weight"},
    {"kimi-linear", "v_head_dim", NULL, KVERN_ERR_FORMAT, "self_attn.kv_b_proj.weight"},
    {"kimi-linear", "linear_attn_config", NULL, LACKING, "linear_attn_config.num_heads"},
    {"kimi-linear", "linear_attn_config", "{\"num_heads\": 3, \"head_dim\": 16}", KVERN_ERR_FORMAT,
     "kda_layers must be a list of layers from 1 to 4"},
    {"kimi-linear", "linear_attn_config", KDA("[0, 2, 4]"), KVERN_ERR_FORMAT, "kda_layers"},
    {"kimi-linear", "linear_attn_config", KDA("[1, 2, 5]"), KVERN_ERR_FORMAT, "kda_layers"},
    {"kimi-linear", "linear_attn_config", KDA("[1, 2, 4], \"full_attn_layers\": [2]"),
     KVERN_ERR_FORMAT, "layer 2 in one of them"},
    {"kimi-linear", "linear_attn_config", KDA("[1, 2, 4], \"allow_neg_eigval\": true"), REFUSED,
     "linear_attn_config.allow_neg_eigval"},
    {"kimi-linear", "linear_attn_config", KDA("[1, 2, 4], \"gate_lower_bound\": -5.0"), REFUSED,
     "linear_attn_config.gate_lower_bound"}, // a decay with a lower bound
    {"kimi-linear", "linear_attn_config", KDA("[1, 2, 4]"), KVERN_OK, ""},
    {"kimi-linear", "layer_types", KIMI_TYPES("linear", "full"), KVERN_OK, ""},
    {"kimi-linear", "layer_types", KIMI_TYPES("full", "full"), KVERN_ERR_FORMAT,
     "layer_types and kda_layers"},
    {"kimi-linear", "mlp_layer_types", "[\"sparse\", \"sparse\", \"sparse\", \"sparse\"]",
     KVERN_ERR_FORMAT, "mlp_layer_types"},
    {"kimi-linear", "linear_num_heads", "4", KVERN_ERR_FORMAT, "linear_num_heads"},
    {"kimi-linear-5", "layer_types", KIMI_TYPES("sliding", "full"), KVERN_ERR_FORMAT,
     "layer_types must be a list"},
    {"kimi-linear-5", "layer_types", "[\"linear_attention\"]", KVERN_ERR_FORMAT,
     "layer_types must be a list"},
    {"kimi-linear-5", "layer_types", NULL, REFUSED, "mla_use_nope must be true"},
    {"kimi-linear-5", "mla_use_nope", "false", REFUSED, "mla_use_nope must be true"},
    {"kimi-linear-5", "linear_num_heads", NULL, LACKING, "linear_attn_config.num_heads"},
    {"glm-moe-dsa-shared", "indexer_types", "[\"full\", \"full\", \"full\"]", KVERN_ERR_FORMAT,
     "indexer_types must be a list of 4"},
    {"glm-moe-dsa-shared", "indexer_types", "[\"full\", \"half\", \"full\", \"shared\"]",
     KVERN_ERR_FORMAT, "indexer_types must be a list of 4"},
    {"glm-moe-dsa-shared", "indexer_types", "[\"full\", 1, \"full\", \"shared\"]", KVERN_ERR_FORMAT,
     "indexer_types must be a list of 4"},
    {"glm-moe-dsa-shared", "indexer_types", "\"full\"", KVERN_ERR_FORMAT,
     "indexer_types must be a list of 4"},
    {"glm-moe-dsa-shared", "indexer_types", "[\"shared\", \"shared\", \"full\", \"shared\"]",
     KVERN_ERR_FORMAT, "indexer_types: the first layer cannot be shared"},
    {"glm-moe-dsa-shared", "index_topk_freq", "4", KVERN_OK, ""}, // the list counts
    // Other layers are full then, whose tensors the file lacks.
    {"glm-moe-dsa-interval", "index_topk_freq", NULL, LACKING, "layers.2.self_attn.indexer"},
    {"glm-moe-dsa-interval", "index_topk_freq", "2", LACKING, "layers.3.self_attn.indexer"},
    {"glm-moe-dsa-interval", "index_skip_topk_offset", "1", LACKING, "layers.3.self_attn.indexer"},
    {"glm-moe-dsa-interval", "index_skip_topk_offset", "3", LACKING, "layers.2.self_attn.indexer"},
    {"glm-moe-dsa-interval", "index_topk_freq", "0", KVERN_ERR_FORMAT, "index_topk_freq must be"},
    {"glm-moe-dsa-interval", "index_topk_freq", "\"all\"", KVERN_ERR_FORMAT,
     "index_topk_freq must"},
    {"glm-moe-dsa-interval", "index_skip_topk_offset", "0", KVERN_ERR_FORMAT,
     "index_skip_topk_offset must be"},
    {"glm-moe-dsa-interval", "index_topk_pattern", "\"FFSSF\"", KVERN_OK, ""},
    {"glm-moe-dsa-interval", "index_topk_pattern", "\"FFFSF\"", LACKING,
     "layers.2.self_attn.indexer"},
    {"glm-moe-dsa-interval", "index_topk_pattern", "\"FFSS\"", LACKING,
     "index_topk_pattern must be a text of 5 letters"},
    {"glm-moe-dsa-interval", "index_topk_pattern", "\"FFSSf\"", LACKING,
     "index_topk_pattern must be a text of 5 letters"},
    {"glm-moe-dsa-interval", "index_topk_pattern", "[1, 1, 0, 0, 1]", LACKING,
     "index_topk_pattern must be a text of 5 letters"},
    {"glm-moe-dsa-interval", "index_topk_pattern", "\"SFSSF\"", LACKING,
     "the first layer cannot be shared"},
    {"glm-moe-dsa-shared", "index_topk_pattern", "\"FSFS\"", KVERN_OK, ""},
    {"glm-moe-dsa-shared", "index_topk_pattern", "\"FSFF\"", LACKING,
     "index_topk_pattern says something else than indexer_types"},
    {"glm-moe-dsa", "mlp_layer_types", "[\"dense\", \"sparse\"]", KVERN_OK, ""},
    {"glm-moe-dsa", "mlp_layer_types", "[\"sparse\", \"sparse\"]", LACKING,
     "mlp_layer_types says something else"},
    {"glm-moe-dsa", "mlp_layer_types", "[\"dense\"]", LACKING,
     "mlp_layer_types must be a list of 2 types"},
    {"glm-moe-dsa", "mlp_layer_types", "[\"dense\", \"moe\"]", LACKING,
     "mlp_layer_types must be a list of 2 types"},
    {"deepseek-v32", "mlp_layer_types", "[\"dense\", \"sparse\", \"sparse\"]", KVERN_OK, ""},
    {"deepseek-v3", "mlp_layer_types", "[\"dense\", \"sparse\", \"sparse\"]", REFUSED,
     "mlp_layer_types"},
    {"glm-moe-dsa", "layer_types", "[\"indexed_attention\", \"deepseek_sparse_attention\"]",
     KVERN_OK, ""},
    {"glm-moe-dsa", "layer_types", "[\"indexed_attention\", \"full_attention\"]", REFUSED,
     "layer_types is supported with indexed_attention"},
    {"deepseek-v32", "layer_types", "[\"indexed_attention\"]", REFUSED, "layer_types"},
    {"deepseek-v2", "topk_method", "\"group_limited_greedy\"", KVERN_OK, ""},
    {"deepseek-v2", "topk_method", "\"noaux_tc\"", REFUSED, "topk_method is supported with greedy"},
    {"deepseek-v2", "n_group", "null", KVERN_OK, ""},
    {"deepseek-v2-groups", "n_group", "null", LACKING, "lacks the key n_group"},
    {"deepseek-v2", "scoring_func", "\"sigmoid\"", REFUSED, "scoring_func"},
    {"deepseek-v2", "norm_topk_prob", "true", REFUSED, "norm_topk_prob"},
    {"deepseek-v2", "q_lora_rank", "null", LACKING, "q_proj.weight"},
    {"glm-moe-dsa-interval", "index_topk_pattern", "null", KVERN_OK, ""},
    {"glm-moe-dsa-interval", "index_share_for_mtp_iteration", "true", KVERN_OK, ""},
    {"deepseek-v32", "indexer_types", "[\"full\", \"full\", \"full\"]", REFUSED, "indexer_types"},
    {"deepseek-v32", "index_topk_freq", "2", REFUSED, "index_topk_freq"},
    {"deepseek-v3", "index_topk", "24", REFUSED, "index_topk"},
    {"olmo2", "clip_qkv", "8.0", REFUSED, "clip_qkv"},
    {"olmo2", "attention_bias", "true", REFUSED, "attention_bias"},
    {"mistral-window", "sliding_window", NULL, LACKING, "lacks the key sliding_window"},
    {"mistral-window", "sliding_window", "\"no\"", KVERN_ERR_FORMAT, "sliding_window must be"},
    {"mistral", "attention_bias", "true", REFUSED, "attention_bias"},
    {"smollm3-list", "no_rope_layers", "[0, 1, 1]", KVERN_ERR_FORMAT, "no_rope_layers must be"},
    {"smollm3-list", "no_rope_layers", "[0, 2]", KVERN_ERR_FORMAT, "no_rope_layers must be"},
    {"smollm3-list", "no_rope_layers", "1", KVERN_ERR_FORMAT, "no_rope_layers must be"},
    {"smollm3", "use_sliding_window", "true", REFUSED, "use_sliding_window"},

    {"phi3-window", "sliding_window", "0", KVERN_OK, ""},
    {"phi3-window", "sliding_window", "true", KVERN_ERR_FORMAT, "sliding_window"},
    {"phi3-window", "intermediate_size", "95", KVERN_ERR_FORMAT, "mlp.gate_up_proj.weight"},
    {"phi3-window", "num_key_value_heads", "4", KVERN_ERR_FORMAT, "self_attn.qkv_proj.weight"},
    {"phi3-long", "partial_rotary_factor", "1.5", KVERN_ERR_FORMAT, "must be at most 1"},
    {"phi3-long", "partial_rotary_factor", "0.7", KVERN_ERR_FORMAT, "must be even"},
    {"phi3-long", "original_max_position_embeddings", NULL, LACKING,
     "lacks the key original_max_position_embeddings"},
    {"phi3-long", "rope_scaling",
     "{\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1, 1, 1], \"long_factor\": [1, 2]}",
     KVERN_ERR_FORMAT, "rope_scaling.long_factor must be a list of 6 numbers"},
    {"phi3-long", "rope_scaling", "{\"type\": \"linear\", \"factor\": 2, \"long_factor\": [1]}",
     REFUSED, "\"linear\""},

    {"gemma2", "attn_logit_softcapping", "null", LACKING, "attn_logit_softcapping"},
    {"gemma2", "final_logit_softcapping", NULL, LACKING, "final_logit_softcapping"},
    {"gemma2", "query_pre_attn_scalar", NULL, LACKING, "query_pre_attn_scalar"},
    {"gemma2", "sliding_window", "null", LACKING, "sliding_window"},
    {"gemma2", "use_bidirectional_attention", "true", REFUSED, "use_bidirectional_attention"},
    {"gemma2", "hidden_activation", "\"gelu\"", REFUSED, "hidden_activation"},
    {"gemma2", "rope_local_base_freq", "90.0", REFUSED, "rope_local_base_freq"},
    {"gemma3", "sliding_window", NULL, LACKING, "sliding_window"},
    // Where readers have several defaults, none is guessed.
    {"qwen2", "rope_theta", NULL, LACKING, "lacks the key rope_theta"},
    {"qwen3", "rope_theta", NULL, LACKING, "lacks the key rope_theta"},
    {"qwen3moe", "rope_theta", NULL, LACKING, "lacks the key rope_theta"},
    {"qwen3next", "rope_theta", NULL, LACKING, "lacks the key rope_theta"},
    {"qwen35", "rope_parameters", "{\"partial_rotary_factor\": 0.25}", LACKING, "rope_theta"},
    {"qwen2moe", "rope_theta", NULL, LACKING, "lacks the key rope_theta"},
    {"gptoss", "rope_scaling", NULL, LACKING, "lacks the key rope_scaling.rope_type"},
    {"smollm3", "rope_theta", NULL, LACKING, "lacks the key rope_theta"},
    {"glm-moe-dsa", "rope_parameters", "{\"rope_type\": \"default\"}", LACKING, "rope_theta"},
    {"qwen3next", "norm_topk_prob", NULL, LACKING, "lacks the key norm_topk_prob"},
    {"gptoss", "swiglu_alpha", "1.702", KVERN_OK, ""},
    {"gptoss", "swiglu_alpha", "1.7", REFUSED, "swiglu_alpha must be 1.702"},
    {"gptoss", "swiglu_limit", "8", REFUSED, "swiglu_limit must be 7"},
    {"qwen3moe", "num_local_experts", "1", LACKING, "num_local_experts says something else"},
    {"deepseek-v3", "n_group", NULL, LACKING, "lacks the key n_group"},
    {"deepseek-v3", "topk_group", NULL, LACKING, "lacks the key topk_group"},
    {"deepseek-v32", "topk_group", "null", LACKING, "lacks the key topk_group"},
    {"deepseek-v3", "routed_scaling_factor", NULL, LACKING, "lacks the key routed_scaling_factor"},
    {"llama", "rope_scaling", "{\"factor\": 4.0}", LACKING, "but no rope_scaling.rope_type"},
    // Two keys for one thing that differ.
    {"llama", "rope_parameters", "{\"rope_theta\": 701.0}", LACKING,
     "rope_parameters.rope_theta says something else than rope_theta"},
    {"llama", "rope_parameters", "{\"rope_theta\": 700}", KVERN_OK, ""},
    {"llama-linear", "rope_scaling",
     "{\"rope_type\": \"linear\", \"type\": \"llama3\", \"factor\": 3}", LACKING,
     "rope_scaling.type says something else than rope_scaling.rope_type"},
    {"gptoss", "experts_per_token", "1", LACKING,
     "experts_per_token says something else than num_experts_per_tok"},
    {"phi3-long", "rope_parameters", "{\"short_factor\": [1, 2]}", LACKING,
     "rope_parameters.short_factor says something else than rope_scaling.short_factor"},
    {"gemma3", "_sliding_window_pattern", "5", LACKING, "_sliding_window_pattern"},
    // Values that only some readers honour.
    {"deepseek-v3", "rope_scaling",
     "{\"type\": \"linear\", \"factor\": 4.0, \"mscale_all_dim\": 1.0}", REFUSED,
     "rope_scaling.mscale_all_dim"},
    {"deepseek-v3", "rope_scaling",
     "{\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 64,"
     " \"mscale_all_dim\": 1.0}",
     REFUSED, "one of mscale and mscale_all_dim"},
    {"qwen2-yarn", "rope_scaling",
     "{\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 64,"
     " \"mscale\": 0.7}",
     REFUSED, "one of mscale and mscale_all_dim"},
    {"phi3-long", "rope_scaling",
     "{\"type\": \"longrope\", \"factor\": 4.0, \"short_factor\": [1, 1, 1, 1, 1, 1],"
     " \"long_factor\": [1, 1, 1, 1, 1, 1]}",
     LACKING, "longrope factor is 4"},
    {"llama-yarn", "rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 200,"
     " \"truncate\": \"no\"}",
     KVERN_ERR_FORMAT, "rope_scaling.truncate must be true or false"},
    {"gemma3", "query_pre_attn_scalar", NULL, LACKING, "query_pre_attn_scalar"},
    // What the published files of these families have.
    {"deepseek-v3", "auto_map", "{\"AutoConfig\": \"own.Config\"}", KVERN_OK, ""},
    {"deepseek-v3", "num_nextn_predict_layers", "1", KVERN_OK, ""},
    {"deepseek-v3", "num_experts_per_tok", "1", REFUSED, "num_experts_per_tok is 1"},
    {"phi3-long", "auto_map", "{\"AutoConfig\": \"own.Config\"}", KVERN_OK, ""},
    {"llama", "auto_map", "{\"AutoConfig\": \"own.Config\"}", REFUSED, "auto_map"},
};

static const change GGUF_FILES[] = {
    {"qwen2", "attention.sliding_window", "100", REFUSED, "qwen2.attention.sliding_window"},
    {"qwen3", "expert_count", "8", REFUSED, "qwen3.expert_count"},
    {"qwen3next", "ssm.inner_size", "97", KVERN_ERR_FORMAT, "no multiple of 6 value heads"},
    {"qwen3next", "ssm.state_size", NULL, LACKING, "qwen3next.ssm.state_size"},
    {"qwen3next", "ssm.dt_b_c_rms", "true", REFUSED, "qwen3next.ssm.dt_b_c_rms"},
    {"qwen3next", "rope.dimension_sections", "[11, 11, 10, 0]", REFUSED,
     "qwen3next.rope.dimension_sections"},
    {"qwen35", "nextn_predict_layers", "1", REFUSED, "qwen35.nextn_predict_layers"},
    {"deepseek-v2", "attention.key_length_mla", "40", KVERN_OK, ""},
    {"deepseek-v2", "attention.value_length", NULL, LACKING, "deepseek2.attention.value_length"},
    {"deepseek-v2", "attention.key_length", "41", LACKING, "attn_q_b.weight"},
    {"qwen35", "ssm.group_count", "4", KVERN_ERR_FORMAT, "no multiple of 4 key heads"},
    {"phi3-long", "rope.scaling.original_context_length", NULL, LACKING,
     "phi3.rope.scaling.original_context_length"},
    {"phi3-long", "rope.scaling.attn_factor", "0.0", KVERN_ERR_FORMAT, "rope.scaling.attn_factor"},
    {"phi3-long", "rope.scaling.type", "\"longrope\"", KVERN_OK, ""},
    {"phi3-long", "rope.scaling.type", "\"yarn\"", REFUSED, "\"yarn\""},
    {"gemma2", "attn_logit_softcapping", NULL, LACKING, "gemma2.attn_logit_softcapping"},
    {"gemma2", "final_logit_softcapping", "0.0", LACKING, "gemma2.final_logit_softcapping"},
    {"gemma2", "attention.sliding_window", NULL, LACKING, "gemma2.attention.sliding_window"},
    {"gemma2", "rope.freq_base_swa", "90.0", REFUSED, "gemma2.rope.freq_base_swa"},
};

static void test_directories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof DIRECTORIES / sizeof DIRECTORIES[0]; i++) {
        expect_directory(&DIRECTORIES[i]);
    }
}

static void test_gguf_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GGUF_FILES / sizeof GGUF_FILES[0]; i++) {
        expect_gguf(&GGUF_FILES[i]);
    }
}

// Which layers of a case have an indexer: "1001".
static void expect_indexed(const char *name, const char *key, const char *value, const char *layers)
{
    size_t bytes;
    family_case model = open_case(name);
    apply(json_object_get(model.description, "config"), &(change){.key = key, .value = value});
    char *config = family_case_config(&model);
    void *tensors = family_case_safetensors(&model, &bytes);
    model_source *source;
    model_facts facts;
    engine_error error = {KVERN_OK, ""};
    assert_int_equal(
        model_source_of_safetensors(config, strlen(config), tensors, bytes, &source, &error),
        KVERN_OK);
    assert_int_equal(model_read_facts(source, &facts, &error), KVERN_OK);
    assert_int_equal(facts.layers, strlen(layers));
    for (size_t i = 0; i < facts.layers; i++) {
        const kvern_layer plan = facts.family->plan_layer(&facts, i);
        assert_int_equal(facts.layer[i].indexed, layers[i] == '1');
        assert_int_equal(plan.index_dim, layers[i] == '1' ? facts.latent.index_dim : 0);
    }
    model_source_close(source);
    free(tensors);
    free(config);
    family_case_close(&model);
}

// Layers without an indexer keep no index keys.
static void test_shared_indexers(void **state)
{
    (void)state;
    expect_indexed("glm-moe-dsa-shared", "index_topk_freq", "2", "1010"); // the list counts
    expect_indexed("glm-moe-dsa-interval", "index_topk_freq", "3", "11001");
    expect_indexed("deepseek-v32", "index_topk", "8", "111");
}

// A tensor more in a directory whose config.json says that some layers guess.
static void expect_tensor(const char *tensor, kvern_status status, const char *text)
{
    const change c = {"deepseek-v3", tensor, NULL, status, text}; // of three layers
    family_case model = open_case(c.name);
    json_t *entry = json_loads("[[8, 8], 1.0, 0.0]", 0, NULL);
    json_t *config = json_object_get(model.description, "config");
    assert_int_equal(json_object_set_new(config, "num_nextn_predict_layers", json_integer(2)), 0);
    assert_int_equal(
        json_object_set_new(json_object_get(model.description, "tensors"), tensor, entry), 0);
    expect_model(&model, &c);
    family_case_close(&model);
}

static void test_tensors(void **state)
{
    (void)state;
    // Guesses at further tokens.
    expect_tensor("mtp.fc.weight", KVERN_OK, "");
    expect_tensor("model.layers.3.eh_proj.weight", KVERN_OK, "");
    expect_tensor("model.layers.4.self_attn.q_a_proj.weight", KVERN_OK, "");

    expect_tensor("model.layers.2.eh_proj.weight", REFUSED, "layers.2.eh_proj.weight");
    expect_tensor("model.layers.5.eh_proj.weight", REFUSED, "layers.5.eh_proj.weight");
    expect_tensor("model.layers.3", REFUSED, "model.layers.3");
    expect_tensor("model.layers..eh_proj", REFUSED, "model.layers..eh_proj");
    expect_tensor("model.layers.18446744073709551619.eh_proj", REFUSED, "eh_proj");
    expect_tensor("model.mtp.fc.weight", REFUSED, "model.mtp.fc.weight");
    expect_tensor("visual.fc.weight", REFUSED, "visual.fc.weight");
}

// attention_bias is about the biases of all layers and projections.
static void test_biases(void **state)
{
    (void)state;
    static const char bias[] = "model.layers.1.self_attn.o_proj.bias";
    family_case model = open_case("llama");
    json_t *entry = json_loads("[[8], 1.0, 0.0]", 0, NULL);
    assert_int_equal(
        json_object_set_new(json_object_get(model.description, "tensors"), bias, entry), 0);
    expect_model(&model, &(change){"llama", bias, NULL, LACKING, "but there is a tensor model."});
    family_case_close(&model);

    model = open_case("llama-yarn");
    assert_int_equal(json_object_del(json_object_get(model.description, "tensors"), bias), 0);
    expect_model(&model, &(change){"llama-yarn", bias, NULL, LACKING, "but there is no tensor"});
    family_case_close(&model);
}

// A key that nobody has heard of, in a file of every family that the changes above speak of.
static void test_unknown_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof DIRECTORIES / sizeof DIRECTORIES[0]; i++) {
        expect_directory(&(change){DIRECTORIES[i].name, "unheard_of", "1", REFUSED, "unheard_of"});
    }
    for (size_t i = 0; i < sizeof GGUF_FILES / sizeof GGUF_FILES[0]; i++) {
        expect_gguf(&(change){GGUF_FILES[i].name, "unheard_of", "1", REFUSED, ".unheard_of"});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directories),     cmocka_unit_test(test_gguf_files),
        cmocka_unit_test(test_shared_indexers), cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_biases),          cmocka_unit_test(test_unknown_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
