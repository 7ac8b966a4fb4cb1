// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_DIVERGENCE_H
#define KVERN_CLI_DIVERGENCE_H

// How far one model's predictions are from another's, and from the text: sums over positions.

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct divergence {
    double loss;     // sum of -ln p(next token)
    size_t count;    // positions
    double sum;      // of the KL divergences, in nats
    double largest;  // of them
    size_t same_top; // positions with the same most likely token
    float *all;      // every KL divergence, for quantiles
    size_t capacity;
} divergence;

// Adds one position: the logits of the reference and of the candidate (the same pointer for the
// reference itself) over `vocabulary` tokens, and the token that followed in the text.
KVERN_CHECK kvern_status divergence_add(divergence *d, const float *reference,
                                        const float *candidate, size_t vocabulary, int32_t next,
                                        engine_error *error);

// exp(mean loss)
double divergence_perplexity(const divergence *d);

// The KL divergence that a share `q` (0 to 1) of the positions do not exceed. Sorts d->all.
double divergence_quantile(divergence *d, double q);

void divergence_free(divergence *d);

#endif
