// SPDX-License-Identifier: MIT
// Every key that a published config.json has is taken, or refused for a reason that is given here.
// A model is a small one of tests/golden/families with such a config: the sizes are the small
// model's, all other keys and values are as they were published.

#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/family_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct published {
    const char *model;
    const char *name;    // of the case
    const char *keys;    // JSON; keys that the case has, too, keep the case's values
    const char *refused; // a part of the error; NULL: it is taken
} published;

#define YARN                                                                                       \
    "\"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0,"     \
    " \"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"},"
#define DEEPSEEK(architecture)                                                                     \
    "\"architectures\": [\"" architecture "\"], \"attention_bias\": false,"                        \
    " \"attention_dropout\": 0.0,"                                                                 \
    " \"auto_map\": {\"AutoConfig\": \"configuration_deepseek.Config\","                           \
    " \"AutoModel\": \"modeling_deepseek.Model\","                                                 \
    " \"AutoModelForCausalLM\": \"modeling_deepseek.ForCausalLM\"},"                               \
    " \"bos_token_id\": 0, \"eos_token_id\": 1, \"ep_size\": 1, \"first_k_dense_replace\": 3,"     \
    " \"hidden_act\": \"silu\", \"hidden_size\": 7168, \"initializer_range\": 0.02,"               \
    " \"intermediate_size\": 18432, \"kv_lora_rank\": 512, \"max_position_embeddings\": 163840,"   \
    " \"moe_intermediate_size\": 2048, \"moe_layer_freq\": 1, \"n_group\": 8,"                     \
    " \"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true,"               \
    " \"num_attention_heads\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61,"        \
    " \"num_key_value_heads\": 128, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128,"             \
    " \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-06, " YARN " \"rope_theta\": 10000,"          \
    " \"routed_scaling_factor\": 2.5, \"tie_word_embeddings\": false, \"topk_group\": 4,"          \
    " \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.33.1\", \"use_cache\": true,"   \
    " \"v_head_dim\": 128, \"vocab_size\": 129280"
#define V3                                                                                         \
    "\"num_nextn_predict_layers\": 1, \"scoring_func\": \"sigmoid\", \"topk_method\": "            \
    "\"noaux_tc\""
#define V32 "\"index_head_dim\": 128, \"index_n_heads\": 64, \"index_topk\": 2048, " V3
// As the weights of V3 are published, with 8 bits and a scale for each square of 128 x 128.
#define FP8                                                                                        \
    "\"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\","             \
    " \"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}"
#define GLM                                                                                        \
    "\"architectures\": [\"GlmMoeDsaForCausalLM\"], \"attention_bias\": false,"                    \
    " \"attention_dropout\": 0.0, \"dtype\": \"bfloat16\","                                        \
    " \"eos_token_id\": [154820, 154827, 154829], \"ep_size\": 1, \"first_k_dense_replace\": 3,"   \
    " \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 6144,"                          \
    " \"index_head_dim\": 128, \"index_n_heads\": 32, \"index_topk\": 2048,"                       \
    " \"indexer_rope_interleave\": true, \"initializer_range\": 0.02,"                             \
    " \"intermediate_size\": 12288, \"kv_lora_rank\": 512, \"max_position_embeddings\": 202752,"   \
    " \"moe_intermediate_size\": 2048, \"moe_layer_freq\": 1, \"n_group\": 1,"                     \
    " \"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true,"               \
    " \"num_attention_heads\": 64, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 78,"         \
    " \"num_key_value_heads\": 64, \"num_nextn_predict_layers\": 1, \"pad_token_id\": 154820,"     \
    " \"pretraining_tp\": 1, \"q_lora_rank\": 2048, \"qk_head_dim\": 256,"                         \
    " \"qk_nope_head_dim\": 192, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-05,"               \
    " \"rope_interleave\": true,"                                                                  \
    " \"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": \"default\"},"                 \
    " \"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\","                              \
    " \"tie_word_embeddings\": false, \"topk_group\": 1, \"topk_method\": \"noaux_tc\","           \
    " \"transformers_version\": \"5.0.2.dev0\", \"use_cache\": true, \"v_head_dim\": 256,"         \
    " \"vocab_size\": 154880"
#define GLM45                                                                                      \
    "\"architectures\": [\"Glm4MoeForCausalLM\"], \"attention_dropout\": 0.0,"                     \
    " \"eos_token_id\": [151329, 151336, 151338], \"initializer_range\": 0.02,"                    \
    " \"pad_token_id\": 151329, \"torch_dtype\": \"bfloat16\","                                    \
    " \"transformers_version\": \"4.54.0\", \"use_cache\": true"
#define GEMMA4                                                                                     \
    "\"architectures\": [\"Gemma4ForCausalLM\"], \"attention_dropout\": 0.0,"                      \
    " \"bos_token_id\": 2, \"dtype\": \"bfloat16\", \"eos_token_id\": 1,"                          \
    " \"expert_intermediate_size\": null, \"initializer_range\": 0.02,"                            \
    " \"num_experts\": null, \"num_global_key_value_heads\": null, \"pad_token_id\": 0,"           \
    " \"top_k_experts\": null, \"transformers_version\": \"5.5.0\","                               \
    " \"use_bidirectional_attention\": null, \"use_cache\": true"
#define LLAMA4                                                                                     \
    "\"_attn_implementation_autoset\": true, \"attention_dropout\": 0.0, \"bos_token_id\": "       \
    "200000,"                                                                                      \
    " \"cache_implementation\": \"hybrid\", \"eos_token_id\": [200001, 200007, 200008],"           \
    " \"attn_scale\": 0.1, \"floor_scale\": 8192, \"for_llm_compression\": false,"                 \
    " \"initializer_range\": 0.02, \"output_router_logits\": false, \"pad_token_id\": 200018,"     \
    " \"router_aux_loss_coef\": 0.001, \"router_jitter_noise\": 0.0,"                              \
    " \"torch_dtype\": \"bfloat16\", \"use_cache\": true"
#define QWEN3                                                                                      \
    "\"attention_bias\": false, \"attention_dropout\": 0.0, \"bos_token_id\": 151643,"             \
    " \"decoder_sparse_step\": 1, \"eos_token_id\": 151645, \"head_dim\": 128,"                    \
    " \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"initializer_range\": 0.02,"               \
    " \"intermediate_size\": 6144, \"max_position_embeddings\": 40960, \"mlp_only_layers\": [],"   \
    " \"moe_intermediate_size\": 768, \"norm_topk_prob\": true, \"num_attention_heads\": 32,"      \
    " \"num_experts\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 48,"                \
    " \"num_key_value_heads\": 4, \"output_router_logits\": false, \"rms_norm_eps\": 1e-06,"       \
    " \"rope_scaling\": null, \"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.001,"         \
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\","                              \
    " \"transformers_version\": \"4.51.0\", \"use_cache\": true, \"use_sliding_window\": false,"   \
    " \"vocab_size\": 151936, "
#define LINEAR                                                                                     \
    "\"full_attention_interval\": 4, \"linear_conv_kernel_dim\": 4,"                               \
    " \"linear_key_head_dim\": 128, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32," \
    " \"linear_value_head_dim\": 128, \"shared_expert_intermediate_size\": 512"
#define QWEN35                                                                                     \
    "\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"], \"image_token_id\": 248056,"     \
    " \"text_config\": {\"attention_bias\": false, \"attention_dropout\": 0.0,"                    \
    " \"attn_output_gate\": true, \"bos_token_id\": 248044, \"dtype\": \"bfloat16\","              \
    " \"eos_token_id\": 248044, \"hidden_act\": \"silu\", \"initializer_range\": 0.02,"            \
    " \"mamba_ssm_dtype\": \"float32\", \"mtp_num_hidden_layers\": 1,"                             \
    " \"mtp_use_dedicated_embeddings\": false, \"output_router_logits\": false,"                   \
    " \"pad_token_id\": null, \"router_aux_loss_coef\": 0.001,"                                    \
    " \"use_cache\": true, \"mlp_only_layers\": []}, " LINEAR ","                                  \
    " \"tie_word_embeddings\": false, \"transformers_version\": \"4.57.0.dev0\","                  \
    " \"video_token_id\": 248057, \"vision_start_token_id\": 248053,"                              \
    " \"vision_end_token_id\": 248054, \"vision_config\": {\"depth\": 27, \"hidden_size\": 1152}"
#define KIMI                                                                                       \
    "\"architectures\": [\"KimiLinearForCausalLM\"],"                                              \
    " \"auto_map\": {\"AutoConfig\": \"configuration_kimi.KimiLinearConfig\","                     \
    " \"AutoModel\": \"modeling_kimi.KimiLinearModel\","                                           \
    " \"AutoModelForCausalLM\": \"modeling_kimi.KimiLinearForCausalLM\"},"                         \
    " \"bos_token_id\": 163584, \"dtype\": \"bfloat16\", \"eos_token_id\": 163586,"                \
    " \"first_k_dense_replace\": 1, \"head_dim\": 72, \"hidden_act\": \"silu\","                   \
    " \"hidden_size\": 2304, \"initializer_range\": 0.02, \"intermediate_size\": 9216,"            \
    " \"kv_lora_rank\": 512, \"mla_use_nope\": true, \"model_max_length\": 1048576,"               \
    " \"moe_intermediate_size\": 1024, \"moe_layer_freq\": 1, \"moe_renormalize\": true,"          \
    " \"moe_router_activation_func\": \"sigmoid\", \"num_attention_heads\": 32,"                   \
    " \"num_expert_group\": 1, \"num_experts\": 256, \"num_experts_per_token\": 8,"                \
    " \"num_hidden_layers\": 27, \"num_key_value_heads\": 32, \"num_nextn_predict_layers\": 0,"    \
    " \"num_shared_experts\": 1, \"pad_token_id\": 163839, \"q_lora_rank\": null,"                 \
    " \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-05,"               \
    " \"rope_scaling\": null, \"rope_theta\": 10000.0, \"routed_scaling_factor\": 2.446,"          \
    " \"tie_word_embeddings\": false, \"topk_group\": 1, \"transformers_version\": \"4.56.1\","    \
    " \"use_cache\": true, \"use_grouped_topk\": true, \"v_head_dim\": 128,"                       \
    " \"vocab_size\": 163840"
#define GPT_OSS                                                                                    \
    "\"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": true,"                        \
    " \"attention_dropout\": 0.0, \"eos_token_id\": 200002, \"experts_per_token\": 4,"             \
    " \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2880,"                          \
    " \"initial_context_length\": 4096, \"initializer_range\": 0.02,"                              \
    " \"intermediate_size\": 2880, \"max_position_embeddings\": 131072,"                           \
    " \"num_attention_heads\": 64, \"num_experts_per_tok\": 4, \"num_hidden_layers\": 24,"         \
    " \"num_key_value_heads\": 8, \"num_local_experts\": 32, \"output_router_logits\": false,"     \
    " \"pad_token_id\": 199999, \"rms_norm_eps\": 1e-05,"                                          \
    " \"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0,"               \
    " \"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\","                        \
    " \"truncate\": false}, \"rope_theta\": 150000, \"router_aux_loss_coef\": 0.9,"                \
    " \"sliding_window\": 128, \"swiglu_limit\": 7.0, \"tie_word_embeddings\": false,"             \
    " \"transformers_version\": \"4.55.0.dev0\", \"use_cache\": true, \"vocab_size\": 201088"
#define MXFP4                                                                                      \
    "\"quantization_config\": {\"modules_to_not_convert\": [\"model.layers.*.self_attn\","         \
    " \"model.layers.*.mlp.router\", \"model.embed_tokens\", \"lm_head\"],"                        \
    " \"quant_method\": \"mxfp4\"}"
// What Transformers 5 writes besides.
#define TRANSFORMERS5                                                                              \
    "\"return_dict\": true, \"output_hidden_states\": false, \"dtype\": \"bfloat16\","             \
    " \"chunk_size_feed_forward\": 0, \"is_encoder_decoder\": false,"                              \
    " \"id2label\": {\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"},"                                     \
    " \"label2id\": {\"LABEL_0\": 0, \"LABEL_1\": 1}, \"problem_type\": null,"                     \
    " \"initializer_range\": 0.02, \"use_cache\": true, \"pad_token_id\": null,"                   \
    " \"bos_token_id\": 0, \"eos_token_id\": 1, \"attention_bias\": false,"                        \
    " \"attention_dropout\": 0.0, \"output_router_logits\": false, \"_name_or_path\": \"\","       \
    " \"output_attentions\": false, \"architectures\": null, "
#define LATENT5 TRANSFORMERS5 "\"mlp_bias\": false, \"head_dim\": 64, \"qk_head_dim\": 192"

static const published MODELS[] = {
    {"DeepSeek-V2-Lite", "deepseek-v2-groups",
     DEEPSEEK("DeepseekV2ForCausalLM") ", \"aux_loss_alpha\": 0.001, \"seq_aux\": true,"
                                       " \"pretraining_tp\": 1",
     NULL},
    {"DeepSeek-V3", "deepseek-v3", DEEPSEEK("DeepseekV3ForCausalLM") ", " V3, NULL},
    {"DeepSeek-V3 as its weights are", "deepseek-v3",
     DEEPSEEK("DeepseekV3ForCausalLM") ", " V3 ", " FP8, "quantization_config.quant_method"},
    {"DeepSeek-V3.2-Exp", "deepseek-v32", DEEPSEEK("DeepseekV32ForCausalLM") ", " V32, NULL},
    {"GLM-5", "glm-moe-dsa", GLM, NULL},
    {"GLM-5.2", "glm-moe-dsa-shared",
     GLM ", \"index_topk_freq\": 4, \"index_skip_topk_offset\": 3, \"index_topk_pattern\": null,"
         " \"index_share_for_mtp_iteration\": true",
     NULL},
    {"GLM-4.5", "glm4-moe", GLM45, NULL},
    {"GLM-4.5 of Transformers", "glm4-moe",
     TRANSFORMERS5 "\"num_mtp_layers\": 1, \"rope_parameters\": {\"rope_theta\": 700.0,"
                   " \"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}",
     NULL},
    {"Qwen3-30B-A3B", "qwen3moe",
     QWEN3 "\"architectures\": [\"Qwen3MoeForCausalLM\"], \"max_window_layers\": 48,"
           " \"sliding_window\": null",
     NULL},
    {"Qwen3-Next-80B-A3B", "qwen3next",
     QWEN3
     "\"architectures\": [\"Qwen3NextForCausalLM\"], \"partial_rotary_factor\": 0.25, " LINEAR,
     NULL},
    {"Qwen3.5-35B-A3B", "qwen35moe", QWEN35, NULL},
    {"Kimi-Linear-48B-A3B", "kimi-linear", KIMI, NULL},
    {"Kimi Linear of Transformers", "kimi-linear-5", TRANSFORMERS5 "\"pretraining_tp\": 1", NULL},
    {"gpt-oss-20b", "gptoss", GPT_OSS, NULL},
    // The small model has no blocks; engine/safetensors_blocks has one that does.
    {"gpt-oss-20b as its weights are", "gptoss", GPT_OSS ", " MXFP4, "quantization_config"},
    {"DeepSeek-V2 of Transformers", "deepseek-v2", LATENT5, NULL},
    {"DeepSeek-V3 of Transformers", "deepseek-v3",
     LATENT5 ", \"rope_interleave\": true, \"pretraining_tp\": 1", NULL},
    {"DeepSeek-V3.2 of Transformers", "deepseek-v32",
     LATENT5
     ", \"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\"],"
     " \"layer_types\": [\"indexed_attention\", \"indexed_attention\", \"indexed_attention\"]",
     NULL},
    {"Gemma 4", "gemma4", GEMMA4, NULL},
    {"Gemma 4 of texts and images", "gemma4",
     GEMMA4 ", \"vision_config\": {\"hidden_size\": 768}, \"vision_soft_tokens_per_image\": 280,"
            " \"audio_config\": {\"hidden_size\": 1024}, \"boa_token_id\": 256000,"
            " \"eoa_token_id\": 258883, \"boi_token_id\": 255999, \"eoi_token_id\": 258882,"
            " \"image_token_id\": 258880, \"audio_token_id\": 258881, \"video_token_id\": 258884",
     NULL},
    {"Llama 4", "llama4-hf", LLAMA4, NULL},
    {"Llama 4 of texts and images", "llama4",
     LLAMA4 ", \"vision_config\": {\"hidden_size\": 1408}, \"boi_token_index\": 200080,"
            " \"eoi_token_index\": 200081, \"image_token_index\": 200092",
     NULL},
    {"Llama 4 in 8 bits", "llama4",
     LLAMA4 ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\"}",
     "quantization_config.quant_method"},
    {"GLM-5 of Transformers", "glm-moe-dsa",
     LATENT5 ", \"mlp_layer_types\": [\"dense\", \"sparse\"], \"indexer_types\": [\"full\","
             " \"full\"], \"layer_types\": [\"indexed_attention\", \"indexed_attention\"]",
     NULL},
};

static void check_model(const published *p)
{
    char path[1024], text[8192];
    size_t bytes;
    snprintf(path, sizeof path, "%s/golden/families/%s.json", KVERN_TESTS_DIR, p->name);
    family_case model = family_case_open(path);
    assert_true(snprintf(text, sizeof text, "{%s}", p->keys) < (int)sizeof text);
    json_error_t problem;
    json_t *keys = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    if (!keys) {
        fail_msg("%s: %s at %d", p->model, problem.text, problem.position);
    }
    json_t *config = json_object_get(model.description, "config");
    assert_int_equal(json_object_update_missing(config, keys), 0);
    json_decref(keys);

    char *made = family_case_config(&model);
    void *tensors = family_case_safetensors(&model, &bytes);
    model_source *source = NULL;
    model_facts facts;
    engine_error error = {KVERN_OK, ""};
    kvern_status status =
        model_source_of_safetensors(made, strlen(made), tensors, bytes, &source, &error);
    if (status == KVERN_OK) {
        status = model_read_facts(source, &facts, &error);
    }
    if (p->refused ? status == KVERN_OK || !strstr(error.text, p->refused) : status != KVERN_OK) {
        fail_msg("%s: \"%s\"", p->model, error.text);
    }
    model_source_close(source);
    free(tensors);
    free(made);
    family_case_close(&model);
}

static void published_keys_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++) {
        check_model(&MODELS[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_keys_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
