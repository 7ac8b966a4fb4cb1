// SPDX-License-Identifier: MIT
// The keys of a config.json that families share.
#include "engine/model/families/model_keys.h"

#define USED(key, engine)                                                                          \
    {                                                                                              \
        .name = key, .rule = KEY_USED, .canonical = engine                                         \
    }
#define REMARK(key)                                                                                \
    {                                                                                              \
        .name = key, .rule = KEY_WITHOUT_EFFECT                                                    \
    }
#define NEUTRAL(key, values)                                                                       \
    {                                                                                              \
        .name = key, .rule = KEY_NEUTRAL, .neutral = values                                        \
    }

static const key_row COMMON[] = {
    {"model_type", .rule = KEY_USED, .why = "names the family"},
    USED("num_hidden_layers", "block_count"),
    USED("hidden_size", "embedding_length"),
    USED("intermediate_size", "feed_forward_length"),
    USED("max_position_embeddings", "context_length"),
    USED("num_attention_heads", "attention.head_count"),
    USED("num_key_value_heads", "attention.head_count_kv"),
    USED("head_dim", "attention.key_length"),
    USED("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    USED("vocab_size", "vocab_size"),
    USED("tie_word_embeddings", "tied_output"),
    USED("rope_theta", "rope.freq_base"),
    USED("rope_parameters.rope_theta", "rope.freq_base"),
    USED("rope_scaling.rope_type", "rope.scaling.type"),
    USED("rope_scaling.type", "rope.scaling.type"),
    USED("rope_parameters.rope_type", "rope.scaling.type"),
    USED("rope_scaling.factor", "rope.scaling.factor"),
    USED("rope_parameters.factor", "rope.scaling.factor"),

    USED("rope_scaling.low_freq_factor", "rope.scaling.low_freq_factor"),
    USED("rope_parameters.low_freq_factor", "rope.scaling.low_freq_factor"),
    USED("rope_scaling.high_freq_factor", "rope.scaling.high_freq_factor"),
    USED("rope_parameters.high_freq_factor", "rope.scaling.high_freq_factor"),
    USED("rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"),
    USED("rope_parameters.original_max_position_embeddings",
         "rope.scaling.original_context_length"),

    NEUTRAL("rope_scaling", KEY_NULL),
    NEUTRAL("rope_parameters", KEY_NULL),
    NEUTRAL("partial_rotary_factor", KEY_ONE | KEY_NULL),
    NEUTRAL("rope_interleaved", KEY_ZERO),
    NEUTRAL("attention_bias", KEY_ZERO),
    NEUTRAL("mlp_bias", KEY_ZERO),
    NEUTRAL("pretraining_tp", KEY_ONE),
    NEUTRAL("sliding_window", KEY_ZERO | KEY_NULL),
    NEUTRAL("use_sliding_window", KEY_ZERO),
    NEUTRAL("use_bidirectional_attention", KEY_ZERO | KEY_NULL),
    NEUTRAL("is_encoder_decoder", KEY_ZERO),
    NEUTRAL("add_cross_attention", KEY_ZERO),
    NEUTRAL("is_decoder", KEY_ZERO | KEY_TRUE),
    NEUTRAL("tie_encoder_decoder", KEY_ZERO),
    NEUTRAL("pruned_heads", KEY_NULL),
    {"layer_types", .rule = KEY_NEUTRAL, .text = "full_attention", .why = "all layers are full"},
    {"quantization*", .rule = KEY_REFUSED, .why = "quantized safetensors are not read"},
    {"auto_map*", .rule = KEY_REFUSED, .why = "it comes with code of its own"},

    {"vision_config*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only: it is not run"},
    {"audio_config*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only: it is not run"},
    {"image_token*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"video_token*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"audio_token*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"vision_start_token_id", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"vision_end_token_id", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"boi_token_i*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"eoi_token_i*", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"mm_tokens_per_image", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"spatial_merge_size", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"vision_feature_layer", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"multimodal_projector_bias", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},
    {"projector_hidden_act", .rule = KEY_WITHOUT_EFFECT, .why = "texts only"},

    REMARK("_name_or_path"),
    REMARK("_attn_implementation_autoset"),
    REMARK("architectures"),
    REMARK("attn_implementation"),
    REMARK("attention_dropout"),
    REMARK("bos_token_id"),
    REMARK("cache_implementation"),
    REMARK("chunk_size_feed_forward"),
    REMARK("dtype"),
    REMARK("eos_token_id"),
    REMARK("finetuning_task"),
    REMARK("hidden_dropout"),
    REMARK("id2label*"),
    REMARK("initializer_range"),
    REMARK("is_llama_config"),
    REMARK("label2id*"),
    REMARK("max_window_layers"),
    REMARK("output_attentions"),
    REMARK("output_hidden_states"),
    REMARK("pad_token_id"),
    REMARK("prefix"),
    REMARK("problem_type"),
    REMARK("return_dict"),
    REMARK("sep_token_id"),
    REMARK("task_specific_params"),
    REMARK("tokenizer_class"),
    REMARK("torch_dtype"),
    REMARK("torchscript"),
    REMARK("transformers.js_config*"),
    REMARK("transformers_version"),
    REMARK("unsloth_fixed"),
    REMARK("unsloth_version"),
    REMARK("use_cache"),
};
const key_table hf_common_keys = {"", COMMON, sizeof COMMON / sizeof COMMON[0], .open = false};
