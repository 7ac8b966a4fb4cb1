// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ROPE_FACTS_H
#define KVERN_ENGINE_ROPE_FACTS_H

// What a file says about rotary positions: a part of engine/model/facts_parts.h.

#include "engine/model/model_facts_reader.h"

// Fills rope->scaling and all that follows from it, for a rope whose base and dim are there.
// Errors: KVERN_ERR_UNSUPPORTED (a kind of scaling that is not computed), KVERN_ERR_FORMAT.
KVERN_CHECK kvern_status facts_read_rope_scaling(facts_reader *reader, const model_facts *facts,
                                                 model_rope *rope);

// 0.1 * multiplier * ln(factor) + 1, and 1 for a factor of at most 1: by how much yarn makes
// vectors longer.
double facts_yarn_magnitude(double factor, double multiplier);

#endif
