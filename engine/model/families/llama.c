// SPDX-License-Identifier: MIT
#include "engine/model/families/llama.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"

#include <stdio.h>

static const key_row KEYS[] = {
    // Rows of q and k in the order of neighbours, which is what every GGUF of the family has.
    {"tensor_data_layout", .rule = KEY_NEUTRAL, .text = "Meta AI original pth"},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table llama_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const key_row HF_KEYS[] = {
    {"attention_bias", .rule = KEY_USED, .canonical = "attention.bias"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table llama_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                        .open = false};
static const hf_names llama_hf = {
    .model_type = "llama",
    .architecture = "llama",
    .keys = {&llama_hf_keys, &hf_common_keys},
};

// A format that says whether there are biases has all of them or none.
static kvern_status check_biases(facts_reader *reader, const model_facts *facts)
{
    static const char *const biases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias",
                                         "attn_output.bias"};
    const size_t count = sizeof biases / sizeof biases[0];
    const weights *source = reader->source;
    const config_value stated = facts_find(reader, "attention.bias");
    const bool wanted = stated.kind == CONFIG_FLAG && stated.flag;
    for (size_t i = 0; source->format->hf_names && i < facts->layers * count; i++) {
        char name[MODEL_NAME_BYTES], shown[2 * MODEL_NAME_BYTES];
        snprintf(name, sizeof name, "blk.%zu.%s", i / count, biases[i % count]);
        if ((weights_find_tensor(source, name) != NULL) != wanted) {
            source->format->tensor_name(source->file, name, shown, sizeof shown);
            return engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s says that there are %sbiases, but there is %s tensor %s",
                               reader->key, wanted ? "" : "no ", wanted ? "no" : "a", shown);
        }
    }
    return KVERN_OK;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_decoder(reader, facts);
    return status == KVERN_OK ? check_biases(reader, facts) : status;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    decoder_layer *layer = object;
    decoder_list_tensors(facts, index, layer, list);
    attention_list_biases(&layer->attention, &facts->layer[index], facts->width, list);
}

const model_family llama_family = {
    .architecture = "llama",
    .rope_style = ENGINE_ROPE_PAIRS,
    .rope_base = 10000,
    .keys = &llama_keys,
    .hf = &llama_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(decoder_layer),
    .list_tensors = list_tensors,
    .list_scratch = decoder_list_scratch,
    .run_layer = decoder_run_silu,
};
