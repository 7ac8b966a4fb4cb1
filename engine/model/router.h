// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ROUTER_H
#define KVERN_ENGINE_ROUTER_H

// Which experts a token uses, and how much each counts. A choice is a function of the token's
// logits alone.
//
//   score     softmax of the logits, their sigmoid, or (CHOSEN, INPUT) the logits themselves
//   rank      score + correction
//   groups    each is ranked by the sum of its two best ranks (by the best one where there is no
//             correction); the best `used_groups` count
//   chosen    the `used` experts of best rank. Of equal ones that with the lower number is better;
//             a NaN is worse than everything.
//   weight    the score; CHOSEN: a softmax over the chosen; INPUT: the sigmoid of each. Divided by
//   their sum where it is
//             normalized, and times `scale`.
//
// docs/engine.md has the order of the operations.

#include "engine/model/model.h"

// Most groups of experts; facts_read_experts refuses more.
#define ROUTER_MOST_GROUPS 64

// Chooses by logits[count] and correction[count] (NULL: none). `chosen` and
// `weights` have room for experts->used; chosen experts ascend. scratch[2 * count].
void router_choose(const model_experts *experts, uint32_t features, const float *logits,
                   const float *correction, float *scratch, uint32_t *chosen, float *weights);

#endif
