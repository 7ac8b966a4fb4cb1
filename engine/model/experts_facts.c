// SPDX-License-Identifier: MIT
#include "engine/model/experts_facts.h"

#include "engine/model/facts_parts.h"
#include "engine/model/router.h"

// Beyond any model; a step's slots then fit 32 bits.
#define MOST_EXPERTS ((uint64_t)1 << 16)

static kvern_status read_counts(facts_reader *reader, model_experts *experts)
{
    kvern_status status = facts_read_size(reader, "expert_count", MOST_EXPERTS, &experts->count);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "expert_used_count", experts->count, &experts->used);
    }
    return status == KVERN_OK ? facts_read_size(reader, "expert_feed_forward_length", FACTS_MAX_DIM,
                                                &experts->feed_forward)
                              : status;
}

// Several shared experts are one that is as wide as all of them.
static kvern_status read_shared(facts_reader *reader, model_experts *experts)
{
    size_t count = 1;
    config_value found = facts_find(reader, "expert_shared_count");
    uint64_t number;
    if (found.kind == CONFIG_ABSENT || (config_size(&found, &number) && number == 0)) {
        count = 0;
    } else {
        kvern_status status = facts_read_size(reader, "expert_shared_count", MOST_EXPERTS, &count);
        if (status != KVERN_OK) {
            return status;
        }
    }
    experts->shared = experts->shared ? experts->shared : count * experts->feed_forward;
    found = facts_find(reader, "expert_shared_feed_forward_length");
    return found.kind == CONFIG_ABSENT
               ? KVERN_OK
               : facts_read_size(reader, "expert_shared_feed_forward_length", FACTS_MAX_DIM,
                                 &experts->shared);
}

static kvern_status read_router(facts_reader *reader, model_experts *experts)
{
    static const char key[] = "expert_gating_func";
    config_value found = facts_find(reader, key);
    uint64_t number = 0;
    bool sigmoid = text_view_is(found.text, "sigmoid");
    bool softmax = text_view_is(found.text, "softmax");
    bool chosen = false;
    if (config_size(&found, &number)) { // 0 is what older files have: the family's own
        softmax = number == 1;
        sigmoid = number == 2;
        chosen = number == 3;
    }
    if (softmax || sigmoid || chosen) {
        experts->router = sigmoid   ? MODEL_ROUTER_SIGMOID
                          : softmax ? MODEL_ROUTER_SOFTMAX
                                    : MODEL_ROUTER_CHOSEN;
    } else if (found.kind != CONFIG_ABSENT && number != 0) {
        return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                           "%s is supported with 1 (softmax), 2 (sigmoid) and 3 (of the chosen)",
                           reader->key);
    } else if (found.kind == CONFIG_TEXT) {
        return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                           "%s is supported with softmax and sigmoid", reader->key);
    }
    kvern_status status = facts_read_flag(reader, "expert_weights_norm", &experts->normalized);
    float scale = 0; // 0 is what some files have for none
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "expert_weights_scale", &scale);
    }
    experts->scale = scale != 0 ? scale : experts->scale != 0 ? experts->scale : 1;
    return status;
}

static kvern_status read_groups(facts_reader *reader, model_experts *experts)
{
    experts->groups = experts->groups ? experts->groups : 1;
    kvern_status status =
        facts_read_size(reader, "expert_group_count", ROUTER_MOST_GROUPS, &experts->groups);
    if (status == KVERN_OK && experts->count % experts->groups != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is %zu, which does not divide %zu experts", reader->key,
                           experts->groups, experts->count);
    }
    experts->used_groups = experts->groups;
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "expert_group_used_count", experts->groups,
                                 &experts->used_groups);
    }
    if (status == KVERN_OK &&
        experts->used > experts->used_groups * (experts->count / experts->groups)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is %zu, whose experts are fewer than the %zu that a token uses",
                           reader->key, experts->used_groups, experts->used);
    }
    return status;
}

static kvern_status read_dense_list(facts_reader *reader, model_facts *facts)
{
    config_value list = facts_find(reader, "dense_layers");
    for (size_t i = 0; i < list.count; i++) {
        config_value element = config_element(&list, i);
        uint64_t layer;
        if (!config_size(&element, &layer) || layer >= facts->layers) {
            return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a list of layers",
                               reader->key);
        }
        facts->layer[layer].experts = false;
    }
    return KVERN_OK;
}

// What each layer has: "dense" or "sparse". Some readers follow this list, and others the number of
// leading layers, so that both must say the same.
static kvern_status read_types(facts_reader *reader, model_facts *facts)
{
    const bool counted = facts_find(reader, "leading_dense_block_count").kind != CONFIG_ABSENT;
    config_value list = facts_find(reader, "feed_forward_types");
    if (list.kind == CONFIG_ABSENT) {
        return KVERN_OK;
    }
    bool right = list.count == facts->layers, same = true;
    for (size_t i = 0; i < facts->layers && right; i++) {
        text_view type = config_element(&list, i).text;
        const bool sparse = text_view_is(type, "sparse");
        right = sparse || text_view_is(type, "dense");
        same = same && sparse == facts->layer[i].experts;
        facts->layer[i].experts = sparse;
    }
    if (!right) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s must be a list of %zu types, dense or sparse", reader->key,
                           facts->layers);
    }
    return same || !counted
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_FORMAT,
                             "%s says something else than the number of leading dense layers",
                             reader->key);
}

static kvern_status read_layers(facts_reader *reader, model_facts *facts)
{
    size_t step = 1, dense = 0;
    config_value leading = facts_find(reader, "leading_dense_block_count");
    uint64_t number = 0;
    if (leading.kind != CONFIG_ABSENT &&
        (!config_size(&leading, &number) || number > facts->layers)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a number of layers",
                           reader->key);
    }
    dense = (size_t)number;
    kvern_status status =
        facts_read_size(reader, "interleave_moe_layer_step", MODEL_MAX_LAYERS, &step);
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].experts = i >= dense && (i + 1) % step == 0;
    }
    if (status == KVERN_OK) {
        status = read_dense_list(reader, facts);
    }
    return status == KVERN_OK ? read_types(reader, facts) : status;
}

// Of the layers without experts; a file of a model that has none need not say it.
static kvern_status read_feed_forward(facts_reader *reader, model_facts *facts)
{
    bool all = true;
    for (size_t i = 0; i < facts->layers; i++) {
        all = all && facts->layer[i].experts;
    }
    kvern_status status = all ? KVERN_OK : facts_read_feed_forward(reader, facts);
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].feed_forward = facts->layer[i].experts ? 0 : facts->layer[i].feed_forward;
    }
    return status;
}

kvern_status facts_read_experts(facts_reader *reader, model_facts *facts)
{
    model_experts *experts = &facts->experts;
    kvern_status status = read_counts(reader, experts);
    if (status == KVERN_OK) {
        status = read_shared(reader, experts);
    }
    if (status == KVERN_OK) {
        status = read_router(reader, experts);
    }
    if (status == KVERN_OK) {
        status = read_groups(reader, experts);
    }
    if (status == KVERN_OK) {
        status = read_layers(reader, facts);
    }
    return status == KVERN_OK ? read_feed_forward(reader, facts) : status;
}

// Of a config.json that does not say how experts are chosen and weighed readers think differently.
static kvern_status check_router(facts_reader *reader)
{
    static const char *const keys[] = {"expert_weights_scale", "expert_group_count",
                                       "expert_group_used_count"};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == KVERN_OK; i++) {
        status = facts_check_stated(reader, keys[i]);
    }
    return status;
}

// The weight of an only expert, divided by the sum of weights, is 1; some readers divide and others
// do not.
static kvern_status check_single_expert(facts_reader *reader, const model_facts *facts)
{
    if (facts->experts.used != 1 || !facts->experts.normalized) {
        return KVERN_OK;
    }
    facts_find(reader, "expert_used_count");
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "%s is 1: readers differ on the weight of an only expert", reader->key);
}

kvern_status facts_read_corrected_experts(facts_reader *reader, model_facts *facts)
{
    const bool hf = reader->source->format->hf_names;
    kvern_status status = check_router(reader);
    facts->experts.router = hf ? MODEL_ROUTER_SIGMOID : MODEL_ROUTER_SOFTMAX;
    facts->experts.normalized = hf;
    if (status == KVERN_OK) {
        status = facts_read_experts(reader, facts);
    }
    return status == KVERN_OK ? check_single_expert(reader, facts) : status;
}
