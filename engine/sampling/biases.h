// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_BIASES_H
#define KVERN_ENGINE_BIASES_H

// What is added to the logits of tokens, for samplers (engine/sampling/penalties.h).

#include "engine/sampling/penalties.h"
#include "engine/tokenizer/tokenizer.h"

// Makes the biases of a sampler, free(): those that were given, and with a tokenizer `without_ends`
// also that none of its tokens that end a turn is ever chosen. False: no memory.
bool sampling_biases(const logit_bias *given, size_t given_count, const tokenizer *without_ends,
                     logit_bias **out, size_t *count);

#endif
