// SPDX-License-Identifier: MIT
// What is done with every key of the files beside a tokenizer.json.
#include "engine/tokenizer/tokenizer_files_internal.h"

#define USED(key, reason)                                                                          \
    {                                                                                              \
        .name = key, .rule = KEY_USED, .why = reason                                               \
    }
#define REMARK(key, reason)                                                                        \
    {                                                                                              \
        .name = key, .rule = KEY_WITHOUT_EFFECT, .why = reason                                     \
    }
#define NEUTRAL(key, values, reason)                                                               \
    {                                                                                              \
        .name = key, .rule = KEY_NEUTRAL, .neutral = values, .why = reason                         \
    }
#define TABLE(rows)                                                                                \
    {                                                                                              \
        "", rows, sizeof rows / sizeof rows[0], .open = false                                      \
    }

#define SENSES "texts only"
#define DECODING "an answer is what its tokens stand for"
#define OPTIONS "a recommendation; the options decide"

static const key_row CONFIG[] = {
    USED("bos_token*", NULL),
    USED("eos_token*", "ends an answer"),
    USED("unk_token*", NULL),
    USED("pad_token*", NULL),
    USED("add_bos_token", "a text begins with the beginning token"),
    USED("added_tokens_decoder*", "must agree with tokenizer.json"),
    USED("chat_template*", "how a conversation is written"),
    USED("add_prefix_space", "must agree with tokenizer.json"),
    NEUTRAL("add_eos_token", KEY_ZERO | KEY_NULL, "no text ends so"),
    NEUTRAL("split_special_tokens", KEY_ZERO | KEY_NULL, NULL),
    NEUTRAL("do_lower_case", KEY_ZERO | KEY_NULL, NULL),
    NEUTRAL("remove_space", KEY_ZERO | KEY_NULL, NULL),
    NEUTRAL("keep_accents", KEY_TRUE | KEY_NULL, NULL),
    NEUTRAL("fix_mistral_regex", KEY_ZERO | KEY_NULL, "tokenizer.json has the words"),
    REMARK("additional_special_tokens*", "tokenizer.json has them"),
    REMARK("extra_special_tokens*", "tokenizer.json has them"),
    REMARK("model_specific_special_tokens*", "tokenizer.json has them"),
    REMARK("auto_map*", "tokenizer.json is read"),
    REMARK("backend", "tokenizer.json is read"),
    REMARK("clean_up_tokenization_spaces", DECODING),
    REMARK("spaces_between_special_tokens", DECODING),
    REMARK("errors", DECODING),
    REMARK("cls_token*", "no text has one"),
    REMARK("mask_token*", "no text has one"),
    REMARK("sep_token*", "no text has one"),
    REMARK("bos_token_id", "tokenizer.json has the ids"),
    REMARK("eos_token_id", "tokenizer.json has the ids"),
    REMARK("pad_token_id", "tokenizer.json has the ids"),
    REMARK("unk_token_id", "tokenizer.json has the ids"),
    REMARK("from_slow", "tokenizer.json is read"),
    REMARK("is_local", NULL),
    REMARK("legacy", "tokenizer.json is read"),
    REMARK("local_files_only", NULL),
    REMARK("max_length", "texts are not cut"),
    REMARK("model_input_names", NULL),
    REMARK("model_max_length", "the model has a context"),
    REMARK("name_or_path", NULL),
    REMARK("_commit_hash", NULL),
    REMARK("pad_to_multiple_of", "texts are not padded"),
    REMARK("pad_token_type_id", "texts are not padded"),
    REMARK("padding*", "texts are not padded"),
    REMARK("processor_class", NULL),
    REMARK("response_schema*", "answers are not parsed"),
    REMARK("sp_model_kwargs*", "tokenizer.json is read"),
    REMARK("special_tokens_map_file", NULL),
    REMARK("stride", "texts are not cut"),
    REMARK("tokenizer_class", "tokenizer.json is read"),
    REMARK("tokenizer_file", NULL),
    REMARK("tool_parser_type", "answers are not parsed"),
    REMARK("truncation*", "texts are not cut"),
    REMARK("use_default_system_prompt", "the chat template decides"),
    REMARK("use_fast", "tokenizer.json is read"),
    REMARK("vocab_size", "tokenizer.json has the tokens"),
    REMARK("vocab_file", "tokenizer.json is read"),
    REMARK("merges_file", "tokenizer.json is read"),
    REMARK("image_token*", SENSES),
    REMARK("audio_token*", SENSES),
    REMARK("video_token*", SENSES),
    REMARK("vision_*", SENSES),
    REMARK("boi_token*", SENSES),
    REMARK("eoi_token*", SENSES),
    REMARK("boa_token*", SENSES),
    REMARK("eoa_token*", SENSES),
    REMARK("image_seq_len", SENSES),
};
const key_table tokenizer_config_keys = TABLE(CONFIG);

static const key_row SPECIAL[] = {
    USED("bos_token*", NULL),
    USED("eos_token*", "ends an answer"),
    USED("unk_token*", NULL),
    USED("pad_token*", NULL),
    REMARK("additional_special_tokens*", "tokenizer.json has them"),
    REMARK("extra_special_tokens*", "tokenizer.json has them"),
    REMARK("cls_token*", "no text has one"),
    REMARK("mask_token*", "no text has one"),
    REMARK("sep_token*", "no text has one"),
    REMARK("image_token*", SENSES),
    REMARK("audio_token*", SENSES),
    REMARK("video_token*", SENSES),
    REMARK("vision_*", SENSES),
    REMARK("boi_token*", SENSES),
    REMARK("eoi_token*", SENSES),
    REMARK("boa_token*", SENSES),
    REMARK("eoa_token*", SENSES),
};
const key_table special_tokens_keys = TABLE(SPECIAL);

static const key_row GENERATION[] = {
    USED("eos_token_id", "ends an answer"),
    REMARK("bos_token_id", "texts are not made from nothing"),
    REMARK("pad_token_id", "texts are not padded"),
    REMARK("decoder_start_token_id", "texts are not made from nothing"),
    NEUTRAL("suppress_tokens", KEY_NULL | KEY_ZERO, "every token may be sampled"),
    NEUTRAL("begin_suppress_tokens", KEY_NULL | KEY_ZERO, "every token may be sampled"),
    NEUTRAL("bad_words_ids", KEY_NULL | KEY_ZERO, "every token may be sampled"),
    NEUTRAL("force_words_ids", KEY_NULL | KEY_ZERO, "no token is forced"),
    NEUTRAL("forced_bos_token_id", KEY_NULL, "no token is forced"),
    NEUTRAL("forced_eos_token_id", KEY_NULL, "no token is forced"),
    NEUTRAL("forced_decoder_ids", KEY_NULL, "no token is forced"),
    NEUTRAL("sequence_bias", KEY_NULL, "no bias"),
    REMARK("assistant_*", OPTIONS),
    REMARK("cache_*", OPTIONS),
    REMARK("constraints", OPTIONS),
    REMARK("dola_layers", OPTIONS),
    REMARK("diversity_penalty", OPTIONS),
    REMARK("do_sample", OPTIONS),
    REMARK("early_stopping", OPTIONS),
    REMARK("encoder_*", OPTIONS),
    REMARK("epsilon_cutoff", OPTIONS),
    REMARK("eta_cutoff", OPTIONS),
    REMARK("exponential_decay_length_penalty", OPTIONS),
    REMARK("guidance_scale", OPTIONS),
    REMARK("is_assistant", OPTIONS),
    REMARK("length_penalty", OPTIONS),
    REMARK("low_memory", OPTIONS),
    REMARK("max_*", OPTIONS),
    REMARK("min_*", OPTIONS),
    REMARK("no_repeat_ngram_size", OPTIONS),
    REMARK("num_*", OPTIONS),
    REMARK("output_*", OPTIONS),
    REMARK("penalty_alpha", OPTIONS),
    REMARK("prompt_lookup_num_tokens", OPTIONS),
    REMARK("remove_invalid_values", OPTIONS),
    REMARK("renormalize_logits", OPTIONS),
    REMARK("repetition_penalty", OPTIONS),
    REMARK("return_dict_in_generate", OPTIONS),
    REMARK("stop_strings", OPTIONS),
    REMARK("temperature", OPTIONS),
    REMARK("token_healing", OPTIONS),
    REMARK("top_*", OPTIONS),
    REMARK("trust_remote_code", "tokenizer.json is read"),
    REMARK("transformers_version", NULL),
    REMARK("transformers.js_config*", NULL),
    REMARK("typical_p", OPTIONS),
    REMARK("use_cache", OPTIONS),
    REMARK("watermarking_config*", OPTIONS),
    REMARK("chat_format", "the chat template decides"),
    REMARK("_from_model_config", NULL),
    REMARK("_commit_hash", NULL),
};
const key_table generation_config_keys = TABLE(GENERATION);
