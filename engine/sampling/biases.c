// SPDX-License-Identifier: MIT
#include "engine/sampling/biases.h"

#include <math.h>
#include <stdlib.h>

static size_t count_ends(const tokenizer *tokens)
{
    size_t count = 0;
    for (size_t t = 0; t < tokenizer_size(tokens); t++) {
        count += tokenizer_is_end(tokens, (int32_t)t);
    }
    return count;
}

bool sampling_biases(const logit_bias *given, size_t given_count, const tokenizer *without_ends,
                     logit_bias **out, size_t *count)
{
    const size_t ends = without_ends ? count_ends(without_ends) : 0;
    *count = 0;
    *out = calloc(given_count + ends + 1, sizeof **out);
    if (!*out) {
        return false;
    }
    for (size_t i = 0; i < given_count; i++) {
        (*out)[(*count)++] = given[i];
    }
    for (size_t t = 0; ends > 0 && t < tokenizer_size(without_ends); t++) {
        if (tokenizer_is_end(without_ends, (int32_t)t)) {
            (*out)[(*count)++] = (logit_bias){(int32_t)t, -INFINITY};
        }
    }
    return true;
}
