// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SAMPLER_H
#define KVERN_ENGINE_SAMPLER_H

// Choosing the next token from logits.
//
// The order of the stages is fixed: biases, penalties (engine/sampling/penalties.h), top-k, top-p,
// min-p, then temperature. So the filters look at the distribution as the model gives it, less what
// repeats, and temperature only shapes what they left. Candidates are ordered by logit, equal
// logits by the lower token id; everything is computed in one stated order with the library's own
// exp and an own random generator. The same logits, tokens, options and number of earlier draws
// give the same token on every machine.

#include "engine/base/error.h"
#include "engine/sampling/penalties.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sampler sampler;

typedef struct sampler_options {
    // 0: greedy, the filters and the seed have no effect; otherwise positive and finite.
    float temperature;
    uint32_t top_k; // keep the k most likely; 0: off
    // Keep the smallest set of most likely tokens that reaches this probability; 1: off.
    float top_p;
    float min_p; // keep tokens with at least this part of the largest probability; 0: off
    uint64_t seed;
    penalty_options penalties;
    const logit_bias *biases; // borrowed as long as the sampler, and those that follow it, are used
    size_t bias_count;
} sampler_options;

// temperature 0, the filters, penalties and biases off, seed 0.
sampler_options sampler_default_options(void);

// Whether a sampler of these options can be made: KVERN_ERR_ARGUMENT names the one that is out of
// its range.
KVERN_CHECK kvern_status sampler_check(const sampler_options *options, size_t vocabulary,
                                       engine_error *error);

// `vocabulary` is the number of logits of every call. Takes all memory that the sampler will need.
// On failure *out is NULL: KVERN_ERR_ARGUMENT names the option that is out of its range,
// KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status sampler_create(const sampler_options *options, size_t vocabulary,
                                        sampler **out, engine_error *error);

// NULL is allowed.
void sampler_destroy(sampler *s);

// Chooses the token behind a sequence, which penalties look at; NULL stands for an empty one.
// logits[vocabulary] are read only. Negative infinity means "never"; KVERN_ERR_ARGUMENT for a NaN,
// a positive infinity, or when no token is left (*token and the generator are then unchanged).
// Allocates nothing. At least one candidate always survives the filters. Greedy draws no random
// number; otherwise each success draws exactly one.
KVERN_CHECK kvern_status sampler_next(sampler *s, const float *logits,
                                      const sampled_sequence *sequence, int32_t *token,
                                      engine_error *error);

// Starts the random sequence again.
void sampler_reseed(sampler *s, uint64_t seed);

// Makes a sampler of the same vocabulary choose as `other` would from now on: its options and its
// next random numbers. Allocates nothing.
void sampler_follow(sampler *s, const sampler *other);

#endif
