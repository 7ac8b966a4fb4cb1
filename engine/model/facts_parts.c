// SPDX-License-Identifier: MIT
#include "engine/model/facts_parts.h"

#include <math.h>
#include <string.h>

// A number of every layer.
typedef size_t layer_sizes[MODEL_MAX_LAYERS];

static kvern_status check_sharing(const facts_reader *reader, size_t heads, size_t kv_heads)
{
    return heads % kv_heads == 0
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_FORMAT,
                             "%zu query heads cannot share %zu key/value heads evenly", heads,
                             kv_heads);
}

static kvern_status read_counts(facts_reader *reader, model_facts *facts)
{
    size_t count = facts->layers;
    layer_sizes heads = {0}, kv_heads;
    kvern_status status =
        facts_read_sizes(reader, "attention.head_count", FACTS_MAX_DIM, count, heads);
    if (status != KVERN_OK) {
        return status;
    }
    memcpy(kv_heads, heads, sizeof heads);
    status =
        facts_read_sizes(reader, "attention.head_count_kv", KVERN_MAX_KV_HEADS, count, kv_heads);
    for (size_t i = 0; i < count && status == KVERN_OK; i++) {
        facts->layer[i].heads = (uint32_t)heads[i];
        facts->layer[i].kv_heads = (uint32_t)kv_heads[i];
        facts->heads = heads[i] > facts->heads ? heads[i] : facts->heads;
        status = check_sharing(reader, heads[i], kv_heads[i]);
    }
    return status;
}

static bool same_heads(const model_facts *facts)
{
    bool same = true;
    for (size_t i = 1; i < facts->layers; i++) {
        same = same && facts->layer[i].heads == facts->layer[0].heads;
    }
    return same;
}

kvern_status facts_read_heads(facts_reader *reader, model_facts *facts)
{
    size_t value_dim;
    kvern_status status = read_counts(reader, facts);
    if (status != KVERN_OK) {
        return status;
    }
    // 0 when absurd, or when layers differ: then the key is required.
    size_t head_dim = same_heads(facts) ? facts->width / facts->heads : 0;
    status = facts_read_size(reader, "attention.key_length", KVERN_MAX_HEAD_DIM, &head_dim);
    if (status != KVERN_OK) {
        return status;
    }
    value_dim = head_dim;
    facts->attention_scale = 1 / sqrtf((float)head_dim);
    status = facts_read_size(reader, "attention.value_length", KVERN_MAX_HEAD_DIM, &value_dim);
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].head_dim = (uint32_t)head_dim;
        facts->layer[i].value_dim = (uint32_t)value_dim;
    }
    return status;
}

kvern_status facts_read_feed_forward(facts_reader *reader, model_facts *facts)
{
    layer_sizes inner = {0};
    kvern_status status =
        facts_read_sizes(reader, "feed_forward_length", FACTS_MAX_DIM, facts->layers, inner);
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].feed_forward = (uint32_t)inner[i];
    }
    return status;
}

// The factor by which positions are divided, or 0. rope.scale_linear is what files of 2023 call it.
static kvern_status read_rope_factor(facts_reader *reader, float *factor)
{
    float older = 0;
    kvern_status status = facts_read_optional(reader, "rope.scale_linear", &older);
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "rope.scaling.factor", factor);
    }
    if (status == KVERN_OK && older != 0 && *factor != 0 && older != *factor) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s is %g, but rope.scale_linear is %g",
                           reader->key, (double)*factor, (double)older);
    }
    *factor = *factor != 0 ? *factor : older;
    return status;
}

// A factor without a type scales linearly.
static kvern_status read_rope_type(facts_reader *reader, float factor, text_view *type)
{
    bool scaled = factor != 0 && factor != 1;
    config_value found = facts_find(reader, "rope.scaling.type");
    if (found.kind != CONFIG_ABSENT && found.kind != CONFIG_TEXT) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a text", reader->key);
    }
    *type = text_view_of(scaled ? "linear" : "none");
    if (found.kind == CONFIG_TEXT) {
        bool none = reader->source->format->hf_names && text_view_is(found.text, "default");
        *type = none ? text_view_of("none") : found.text;
    }
    if (scaled && text_view_is(*type, "none")) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is none, but there is a factor of %g", reader->key, (double)factor);
    }
    return KVERN_OK;
}

// The numbers that Hugging Face states where GGUF has a tensor.
static kvern_status read_llama3(facts_reader *reader, float factor, model_rope *rope)
{
    model_llama3 *llama3 = &rope->llama3;
    rope->scaling = MODEL_ROPE_LLAMA3;
    llama3->factor = factor;
    kvern_status status = KVERN_OK;
    if (factor == 0) {
        status = facts_read_positive(reader, "rope.scaling.factor", &llama3->factor);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.low_freq_factor", &llama3->low);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.high_freq_factor", &llama3->high);
    }
    if (status == KVERN_OK && llama3->high <= llama3->low) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s is not above that of low ones",
                           reader->key);
    }
    return status == KVERN_OK ? facts_read_positive(reader, "rope.scaling.original_context_length",
                                                    &llama3->original)
                              : status;
}

static kvern_status read_rope_scaling(facts_reader *reader, model_rope *rope)
{
    float factor = 0;
    text_view type = {"", 0};
    bool factors = weights_find_tensor(reader->source, "rope_freqs.weight") != NULL;
    kvern_status status = read_rope_factor(reader, &factor);
    if (status == KVERN_OK) {
        status = read_rope_type(reader, factor, &type);
    }
    if (status != KVERN_OK) {
        return status;
    }
    rope->factor = 1;
    if (text_view_is(type, "linear") && !factors) {
        rope->scaling = MODEL_ROPE_LINEAR;
        rope->factor = factor;
        return factor != 0 ? KVERN_OK
                           : facts_read_positive(reader, "rope.scaling.factor", &rope->factor);
    }
    if (factors && (text_view_is(type, "none") || text_view_is(type, "llama3"))) {
        rope->scaling = MODEL_ROPE_LLAMA3;
        return KVERN_OK;
    }
    if (text_view_is(type, "llama3") && reader->source->format->hf_names) {
        return read_llama3(reader, factor, rope);
    }
    if (text_view_is(type, "none")) {
        rope->scaling = MODEL_ROPE_PLAIN;
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "rope scaling \"%.*s\" %s a rope_freqs.weight tensor is not supported; "
                       "supported are none and linear without the tensor, and llama3 with it",
                       text_view_shown(type, 40), type.data, factors ? "with" : "without");
}

kvern_status facts_read_rope(facts_reader *reader, model_facts *facts)
{
    size_t most = facts->layer[0].head_dim;
    model_rope *rope = &facts->rope[0];
    for (size_t i = 1; i < facts->layers; i++) {
        most = facts->layer[i].head_dim < most ? facts->layer[i].head_dim : most;
    }
    *rope = (model_rope){.base = 10000, .dim = most, .factor = 1};
    facts->ropes = 1;
    kvern_status status = facts_read_positive(reader, "rope.freq_base", &rope->base);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "rope.dimension_count", most, &rope->dim);
    }
    if (status != KVERN_OK) {
        return status;
    }
    if (rope->dim % 2 != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be even", reader->key);
    }
    return read_rope_scaling(reader, rope);
}

kvern_status facts_read_decoder(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = facts_read_feed_forward(reader, facts);
    }
    return status == KVERN_OK ? facts_read_rope(reader, facts) : status;
}
