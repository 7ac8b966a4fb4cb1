// SPDX-License-Identifier: MIT
#include "engine/sampling/penalties.h"

#include <math.h>

kvern_status penalties_check(const penalty_options *options, engine_error *error)
{
    if (!(options->repeat >= 0.0f && options->repeat < INFINITY)) {
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "the repeat penalty is %g, it must be positive and finite",
                           (double)options->repeat);
    }
    if (!isfinite(options->presence)) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "the presence penalty is %g",
                           (double)options->presence);
    }
    if (!isfinite(options->frequency)) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "the frequency penalty is %g",
                           (double)options->frequency);
    }
    return KVERN_OK;
}

kvern_status biases_check(const logit_bias *biases, size_t count, size_t vocabulary,
                          engine_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (biases[i].token < 0 || (size_t)biases[i].token >= vocabulary) {
            return engine_fail(error, KVERN_ERR_ARGUMENT,
                               "token %d has a bias, and the vocabulary has %zu tokens",
                               (int)biases[i].token, vocabulary);
        }
        if (isnan(biases[i].bias) || biases[i].bias == INFINITY) {
            return engine_fail(error, KVERN_ERR_ARGUMENT, "the bias of token %d is %g",
                               (int)biases[i].token, (double)biases[i].bias);
        }
    }
    return KVERN_OK;
}

static float repeat_of(const penalty_options *options)
{
    return options->repeat == 0.0f ? 1.0f : options->repeat;
}

bool penalties_active(const penalty_options *options)
{
    const bool neutral =
        repeat_of(options) == 1.0f && options->presence == 0.0f && options->frequency == 0.0f;
    return !neutral && options->window > 0;
}

static float penalized(const penalty_options *options, float logit, uint32_t occurrences)
{
    const float repeat = repeat_of(options);
    logit = logit > 0.0f ? logit / repeat : logit * repeat;
    logit = logit - (float)occurrences * options->frequency;
    return logit - options->presence;
}

static int32_t token_at(const sampled_sequence *q, size_t at)
{
    return at < q->count ? q->tokens[at] : q->guesses[at - q->count];
}

void penalties_apply(const penalty_options *options, const sampled_sequence *sequence,
                     uint32_t *counts, float *logits)
{
    const size_t length = sequence->count + sequence->guess_count;
    const size_t first = length > options->window ? length - options->window : 0;
    if (!penalties_active(options)) {
        return;
    }
    for (size_t i = first; i < length; i++) {
        counts[token_at(sequence, i)]++;
    }
    for (size_t i = first; i < length; i++) {
        const int32_t token = token_at(sequence, i);
        if (counts[token] > 0) { // once for each token
            logits[token] = penalized(options, logits[token], counts[token]);
            counts[token] = 0;
        }
    }
}

void biases_apply(const logit_bias *biases, size_t count, float *logits)
{
    for (size_t i = 0; i < count; i++) {
        logits[biases[i].token] += biases[i].bias;
    }
}
