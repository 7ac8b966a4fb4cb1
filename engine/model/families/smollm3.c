// SPDX-License-Identifier: MIT
#include "engine/model/families/smollm3.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

// Every fourth layer does not rotate, unless the file says otherwise.
#define SMOLLM3_PLAIN_EVERY 4

enum { ROTATING_ROPE = 0, NO_ROPE = 1 };

static const key_row HF_KEYS[] = {
    {"no_rope_layers", .rule = KEY_USED, .canonical = "rope.layers"},
    {"no_rope_layer_interval", .rule = KEY_USED, .canonical = "rope.layer_interval"},
    {"use_sliding_window", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO},
    {"sliding_window", .rule = KEY_WITHOUT_EFFECT, .why = "use_sliding_window must be false"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table smollm3_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                          .open = false};
static const hf_names smollm3_hf = {
    .model_type = "smollm3",
    .architecture = "smollm3",
    .keys = {&smollm3_hf_keys, &hf_common_keys},
};

// A list with a 1 for every layer that rotates.
static kvern_status read_list(const facts_reader *reader, const config_value *list,
                              model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        uint64_t rotates = 0;
        config_value element = config_element(list, i);
        right = config_size(&element, &rotates) && rotates <= 1;
        facts->layer[i].rope = rotates ? ROTATING_ROPE : NO_ROPE;
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a list of %zu times 0 or 1", reader->key, facts->layers);
}

static kvern_status read_rotating_layers(facts_reader *reader, model_facts *facts)
{
    size_t interval = SMOLLM3_PLAIN_EVERY;
    kvern_status status =
        facts_read_size(reader, "rope.layer_interval", FACTS_MAX_COUNT, &interval);
    config_value list = facts_find(reader, "rope.layers");
    if (status != KVERN_OK || list.kind != CONFIG_ABSENT) {
        return status == KVERN_OK ? read_list(reader, &list, facts) : status;
    }
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].rope = (i + 1) % interval != 0 ? ROTATING_ROPE : NO_ROPE;
    }
    return KVERN_OK;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_decoder(reader, facts);
    facts->rope[NO_ROPE] = (model_rope){.base = 1, .dim = 0, .factor = 1, .magnitude = 1};
    facts->ropes = 2;
    return status == KVERN_OK ? read_rotating_layers(reader, facts) : status;
}

const model_family smollm3_family = {
    .architecture = "smollm3",
    .rope_style = ENGINE_ROPE_PAIRS,
    .hf = &smollm3_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = decoder_list_tensors,
    .list_scratch = decoder_list_scratch,
    .run_layer = decoder_run_silu,
};
