// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_EXPERTS_FACTS_H
#define KVERN_ENGINE_EXPERTS_FACTS_H

// What a file says about experts, for model_family.read_facts.

#include "engine/model/model_facts_reader.h"

// Reads facts->experts: how many there are and are used, their width, the router's score, groups
// and scale, and the shared expert. What is in facts->experts already holds for a file that does
// not say; a count, a width that is 0 is required. Every layer has experts, but for the first
// `leading_dense_block_count`, those that are listed as `dense_layers`, and those that a step
// passes over (`interleave_moe_layer_step`), which have a feed-forward network.
KVERN_CHECK kvern_status facts_read_experts(facts_reader *reader, model_facts *facts);

// The same of models that are routed as DeepSeek V3 is. In a config.json scores are sigmoids and
// weights are normalized; it must say the groups and the scale, and readers agree on two experts
// for a token or more.
KVERN_CHECK kvern_status facts_read_corrected_experts(facts_reader *reader, model_facts *facts);

#endif
