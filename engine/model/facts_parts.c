// SPDX-License-Identifier: MIT
#include "engine/model/facts_parts.h"

#include "engine/model/families/model_family.h"
#include "engine/model/rope_facts.h"

#include <math.h>
#include <string.h>

// Of a file that does not say it.
#define GGUF_ROPE_BASE 10000

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

// How many of the dimensions of a head rotate: GGUF counts them, config.json states which part they
// are.
static kvern_status read_rope_dim(facts_reader *reader, model_rope *rope)
{
    float part = 1;
    const size_t most = rope->dim;
    kvern_status status = facts_read_positive(reader, "rope.dimension_part", &part);
    if (status == KVERN_OK) {
        rope->dim = part < 1 ? (size_t)((double)most * part) : most;
        status = part > 1 || rope->dim == 0
                     ? engine_fail(reader->error, KVERN_ERR_FORMAT,
                                   "%s must be at most 1, and some of a head", reader->key)
                     : facts_read_size(reader, "rope.dimension_count", most, &rope->dim);
    }
    if (status == KVERN_OK && rope->dim % 2 != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s: the dimensions that rotate must be even", reader->key);
    }
    return status;
}

kvern_status facts_read_rope(facts_reader *reader, model_facts *facts)
{
    size_t most = facts->layer[0].head_dim;
    model_rope *rope = &facts->rope[0];
    for (size_t i = 1; i < facts->layers; i++) {
        most = facts->layer[i].head_dim < most ? facts->layer[i].head_dim : most;
    }
    const bool hf = reader->source->format->hf_names;
    *rope = (model_rope){.base = hf ? facts->family->rope_base : GGUF_ROPE_BASE,
                         .dim = most,
                         .factor = 1,
                         .magnitude = 1};
    facts->ropes = 1;
    kvern_status status = facts_read_positive(reader, "rope.freq_base", &rope->base);
    if (status == KVERN_OK) {
        status = read_rope_dim(reader, rope);
    }
    return status == KVERN_OK ? facts_read_rope_scaling(reader, facts, rope) : status;
}

kvern_status facts_read_common_window(facts_reader *reader, model_facts *facts)
{
    size_t window = facts->context_length;
    uint64_t stated = 0;
    config_value found = facts_find(reader, "attention.sliding_window");
    if (found.kind == CONFIG_ABSENT || (config_size(&found, &stated) && stated == 0)) {
        return KVERN_OK;
    }
    kvern_status status =
        facts_read_size(reader, "attention.sliding_window", FACTS_MAX_COUNT, &window);
    for (size_t i = 0; i < facts->layers && window < facts->context_length; i++) {
        facts->layer[i].kind = MODEL_LAYER_WINDOW;
        facts->layer[i].window = (uint32_t)window;
    }
    return status;
}

kvern_status facts_read_decoder(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = facts_read_feed_forward(reader, facts);
    }
    return status == KVERN_OK ? facts_read_rope(reader, facts) : status;
}
