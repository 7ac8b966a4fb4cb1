// SPDX-License-Identifier: MIT
#include "engine/model/families/qwen_hybrid.h"

#include "engine/model/delta_layer.h"
#include "engine/model/facts_parts.h"

#define FULL_EVERY 4

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
        status = facts_check_stated(reader, "rope.dimension_part");
    }
    if (status == KVERN_OK) {
        status = facts_read_rope(reader, facts);
    }
    return status == KVERN_OK ? facts_read_delta(reader, FULL_EVERY, facts) : status;
}
