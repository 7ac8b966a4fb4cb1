// SPDX-License-Identifier: MIT
// What a file says about the gated delta rule: engine/model/delta_layer.h.
#include "engine/model/delta_layer.h"

#include <stdio.h>

// Beyond any model; the products of four such numbers fit 64 bits.
#define MOST_HEADS ((uint64_t)KVERN_MAX_KV_HEADS)

// GGUF states the width of all value heads together, config.json that of one.
static kvern_status read_value_dim(facts_reader *reader, model_delta *delta)
{
    size_t all = 0;
    if (reader->source->format->hf_names) {
        return facts_read_size(reader, "ssm.value_dim", KVERN_MAX_HEAD_DIM, &delta->value_dim);
    }
    kvern_status status =
        facts_read_size(reader, "ssm.inner_size", MOST_HEADS * KVERN_MAX_HEAD_DIM, &all);
    delta->value_dim = all / delta->value_heads;
    return status != KVERN_OK || all % delta->value_heads == 0
               ? status
               : engine_fail(reader->error, KVERN_ERR_FORMAT,
                             "%s is %zu, which is no multiple of %zu value heads", reader->key, all,
                             delta->value_heads);
}

static kvern_status read_sizes(facts_reader *reader, model_delta *delta)
{
    kvern_status status = facts_read_size(reader, "ssm.group_count", MOST_HEADS, &delta->key_heads);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "ssm.time_step_rank", MOST_HEADS, &delta->value_heads);
    }
    if (status == KVERN_OK && delta->value_heads % delta->key_heads != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is %zu, which is no multiple of %zu key heads", reader->key,
                           delta->value_heads, delta->key_heads);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "ssm.state_size", KVERN_MAX_HEAD_DIM, &delta->key_dim);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "ssm.conv_kernel", KVERN_MAX_CONV_KERNEL, &delta->taps);
    }
    return status == KVERN_OK ? read_value_dim(reader, delta) : status;
}

static kvern_status read_list(const facts_reader *reader, const config_value *list,
                              model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        text_view kind = config_element(list, i).text;
        bool linear = text_view_is(kind, "linear_attention");
        right = linear || text_view_is(kind, "full_attention");
        facts->layer[i].kind = linear ? MODEL_LAYER_DELTA : MODEL_LAYER_FULL;
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a list of %zu kinds, linear_attention or full_attention",
                               reader->key, facts->layers);
}

static kvern_status read_layers(facts_reader *reader, size_t full_every, model_facts *facts)
{
    kvern_status status =
        facts_read_size(reader, "full_attention_interval", FACTS_MAX_COUNT, &full_every);
    config_value list = facts_find(reader, "layer_kinds");
    if (status == KVERN_OK && list.kind != CONFIG_ABSENT) {
        return read_list(reader, &list, facts);
    }
    for (size_t i = 0; i < facts->layers; i++) {
        bool full = (i + 1) % full_every == 0;
        facts->layer[i].kind = full ? MODEL_LAYER_FULL : MODEL_LAYER_DELTA;
    }
    return status;
}

kvern_status facts_read_delta(facts_reader *reader, size_t full_every, model_facts *facts)
{
    const weights *source = reader->source;
    model_delta *delta = &facts->delta;
    kvern_status status = read_sizes(reader, delta);
    if (status == KVERN_OK) {
        status = read_layers(reader, full_every, facts);
    }
    for (size_t i = 0; i < facts->layers && !delta->fused_inputs && !delta->fused_gates; i++) {
        char inputs[64], gates[64];
        snprintf(inputs, sizeof inputs, "blk.%zu.ssm_in.weight", i);
        snprintf(gates, sizeof gates, "blk.%zu.ssm_ba.weight", i);
        delta->fused_inputs = weights_find_tensor(source, inputs) != NULL;
        delta->fused_gates = weights_find_tensor(source, gates) != NULL;
    }
    delta->decays = !source->format->hf_names;
    return status;
}
