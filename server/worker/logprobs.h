// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_LOGPROBS_H
#define KVERN_SERVER_LOGPROBS_H

// Log probabilities of sampled tokens and of the most likely ones beside them: of the model's own
// distribution, before temperature, filters, penalties and biases.

#include <kvern/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOGPROBS_MOST_TOP 20

typedef struct token_logprob {
    int32_t token;
    float logprob;
} token_logprob;

// A list of sampled tokens: for each, itself and then `top` others, most likely first. All zero is
// an empty one.
typedef struct token_logprobs {
    token_logprob *entries; // [count][1 + top]
    size_t count, capacity; // in tokens
    size_t top;
} token_logprobs;

// Appends a token with the logits that it was sampled from. On failure (KVERN_ERR_MEMORY) nothing
// changed.
KVERN_CHECK kvern_status token_logprobs_add(token_logprobs *list, int32_t token,
                                            const float *logits, size_t vocabulary);

// *out becomes the first tokens of the list, `most` at most, and the list what is behind them. All
// of them take no memory. False: there was none, and nothing changed.
bool token_logprobs_take(token_logprobs *list, size_t most, token_logprobs *out);

void token_logprobs_free(token_logprobs *list);

#endif
