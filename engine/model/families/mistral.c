// SPDX-License-Identifier: MIT
#include "engine/model/families/mistral.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

static const key_row HF_KEYS[] = {
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table mistral_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                          .open = false};
static const hf_names mistral_hf = {
    .model_type = "mistral",
    .architecture = "mistral",
    .keys = {&mistral_hf_keys, &hf_common_keys},
};

// A null is no window. What a file means that does not have the key depends on its reader.
static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    if (!facts_states(reader, "attention.sliding_window")) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                           reader->key);
    }
    kvern_status status = facts_read_decoder(reader, facts);
    return status == KVERN_OK ? facts_read_common_window(reader, facts) : status;
}

const model_family mistral_family = {
    .architecture = "mistral",
    .rope_style = ENGINE_ROPE_PAIRS,
    .rope_base = 10000,
    .hf = &mistral_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = decoder_list_tensors,
    .list_scratch = decoder_list_scratch,
    .run_layer = decoder_run_silu,
};
