// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen_hybrid.h"

#include "engine/model/delta_layer.h"
#include "engine/model/facts_parts.h"

#define FULL_EVERY 4

// Of a config that does not say how much of a head rotates, readers think differently.
static kvern_status check_rope_part(facts_reader *reader)
{
    return !reader->source->format->hf_names ||
                   facts_find(reader, "rope.dimension_part").kind != CONFIG_ABSENT
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                             reader->key);
}

// The gate of an attention layer is as wide as its values.
static kvern_status check_value_dim(facts_reader *reader, const model_facts *facts)
{
    return facts_require(reader, "attention.value_length", facts->layer[0].head_dim);
}

kvern_status qwen_hybrid_read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = check_value_dim(reader, facts);
    }
    if (status == KVERN_OK) {
        status = check_rope_part(reader);
    }
    if (status == KVERN_OK) {
        status = facts_read_rope(reader, facts);
    }
    return status == KVERN_OK ? facts_read_delta(reader, FULL_EVERY, facts) : status;
}
