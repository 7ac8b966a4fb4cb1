// SPDX-License-Identifier: MIT
#include "engine/model/families/llama.h"

#include "engine/model/attention_layer.h"
#include "engine/model/facts_parts.h"
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

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = facts_read_feed_forward(reader, facts);
    }
    return status == KVERN_OK ? facts_read_rope(reader, facts) : status;
}

static kvern_layer plan_layer(const model_layer_facts *layer)
{
    kvern_layer plan = kvern_layer_default(layer->kv_heads, layer->head_dim);
    plan.v_dim = layer->value_dim;
    return plan;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, model_wishes *list)
{
    llama_layer *layer = object;
    const model_layer_facts *sizes = &facts->layer[index];
    model_wish_norm(list, "attn_norm.weight", facts->width, &layer->attention_norm);
    model_wish_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
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
    .read_facts = read_facts,
    .plan_layer = plan_layer,
    .layer_bytes = sizeof(llama_layer),
    .list_tensors = list_tensors,
    .list_scratch = list_scratch,
    .run_layer = run_layer,
};
