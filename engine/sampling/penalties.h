// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_PENALTIES_H
#define KVERN_ENGINE_PENALTIES_H

// What changes logits before a token is chosen from them: a bias for single tokens, then penalties
// for tokens that the text has already.
//
// The penalties are those of the usual names. For a token that occurs n > 0 times among the newest
// `window` tokens of a sequence, its prompt included:
//
//   repeat      a logit above 0 is divided by it, any other one multiplied: 1.1 makes it rarer
//   frequency   n times this is subtracted
//   presence    this is subtracted, however often the token occurs
//
// in this order, each operation rounded once to f32. They are a function of the tokens that are
// passed in and of nothing else, so that drafts cannot change what the model chooses.

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Of penalty_options: all tokens of the sequence.
#define PENALTY_WINDOW_ALL SIZE_MAX

// All zero changes nothing.
typedef struct penalty_options {
    float repeat;    // above 0; 1: off, and 0 stands for 1
    float presence;  // 0: off
    float frequency; // 0: off
    size_t window;   // how many of the newest tokens count; 0: none
} penalty_options;

// Added to the logit of a token; negative infinity forbids it.
typedef struct logit_bias {
    int32_t token;
    float bias;
} logit_bias;

// KVERN_ERR_ARGUMENT names the option that is out of its range: none may be NaN or infinite.
KVERN_CHECK kvern_status penalties_check(const penalty_options *options, engine_error *error);

// KVERN_ERR_ARGUMENT for a token outside the vocabulary, a bias that is NaN or positive infinity.
KVERN_CHECK kvern_status biases_check(const logit_bias *biases, size_t count, size_t vocabulary,
                                      engine_error *error);

// The tokens that a token is chosen behind: of a sequence, and of a guess at how it goes on. All of
// them are in the vocabulary.
typedef struct sampled_sequence {
    const int32_t *tokens;
    size_t count;
    const int32_t *guesses;
    size_t guess_count;
} sampled_sequence;

// Whether they change any logit of a sequence of tokens.
bool penalties_active(const penalty_options *options);

// Changes the logits of what occurs in a sequence. counts[vocabulary] is all zero before and after.
void penalties_apply(const penalty_options *options, const sampled_sequence *sequence,
                     uint32_t *counts, float *logits);

void biases_apply(const logit_bias *biases, size_t count, float *logits);

#endif
