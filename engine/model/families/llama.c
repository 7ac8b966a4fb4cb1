// SPDX-License-Identifier: MIT
#include "engine/model/families/llama.h"

#include "engine/model/attention_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/feed_forward_layer.h"

#include <kvern/math.h>

typedef struct llama_layer {
    attention_layer attention;
    feed_forward_layer feed_forward;
    float *attention_norm;    // [width]
    float *feed_forward_norm; // [width]
} llama_layer;

static const key_row KEYS[] = {
    // Rows of q and k in the order of neighbours, which is what every GGUF of the family has.
    {"tensor_data_layout", .rule = KEY_NEUTRAL, .text = "Meta AI original pth"},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table llama_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const hf_tensor_name HF_TENSORS[] = {
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"attention_bias", .rule = KEY_USED, .canonical = "attention.bias"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
};
static const key_table llama_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                        .open = false};
static const hf_names llama_hf = {
    .model_type = "llama",
    .architecture = "llama",
    .tensors = HF_TENSORS,
    .keys = {&llama_hf_keys, &hf_common_keys},
};

// A format that says whether there are biases must have them or not.
static kvern_status check_biases(facts_reader *reader)
{
    config_value stated = facts_find(reader, "attention.bias");
    bool has = weights_find_tensor(reader->source, "blk.0.attn_q.bias") != NULL;
    bool wanted = stated.kind == CONFIG_FLAG && stated.flag;
    return !reader->source->format->hf_names || has == wanted
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_FORMAT,
                             "%s says that there are %sbiases, but the tensors do not", reader->key,
                             wanted ? "" : "no ");
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = facts_read_feed_forward(reader, facts);
    }
    if (status == KVERN_OK) {
        status = check_biases(reader);
    }
    return status == KVERN_OK ? facts_read_rope(reader, facts) : status;
}

static kvern_layer plan_layer(const model_layer_facts *layer)
{
    kvern_layer plan = kvern_layer_default(layer->kv_heads, layer->head_dim);
    plan.v_dim = layer->value_dim;
    return plan;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    llama_layer *layer = object;
    const model_layer_facts *sizes = &facts->layer[index];
    tensor_spec_norm(list, "attn_norm.weight", facts->width, &layer->attention_norm);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
    attention_list_tensors(&layer->attention, sizes, facts->width, list);
    attention_list_biases(&layer->attention, sizes, facts->width, list);
    feed_forward_list_tensors(&layer->feed_forward, sizes, facts->width, list);
}

static void list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    attention_list_scratch(&facts->layer[index], list);
    feed_forward_list_scratch(&facts->layer[index], list);
}

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const llama_layer *layer = object;
    float *x = pass->workspace->array[SCRATCH_X];
    kvern_status status =
        attention_project(&layer->attention, pass, index, layer->attention_norm, error);
    if (status == KVERN_OK) {
        status = attention_run(&layer->attention, pass, index, x, true, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    return feed_forward_run(&layer->feed_forward, pass, layer->feed_forward_norm, kvern_silu_array,
                            x, true, error);
}

const model_family llama_family = {
    .architecture = "llama",
    .rope_style = ENGINE_ROPE_PAIRS,
    .keys = &llama_keys,
    .hf = &llama_hf,
    .read_facts = read_facts,
    .plan_layer = plan_layer,
    .layer_bytes = sizeof(llama_layer),
    .list_tensors = list_tensors,
    .list_scratch = list_scratch,
    .run_layer = run_layer,
};
