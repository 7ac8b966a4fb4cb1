// SPDX-License-Identifier: MIT
#include "server/worker/logprobs.h"

#include <kvern/math.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

// log of the sum of all exp(logit - most), plus most.
static double log_sum(const float *logits, size_t vocabulary)
{
    float most = logits[0];
    double sum = 0;
    for (size_t i = 1; i < vocabulary; i++) {
        most = logits[i] > most ? logits[i] : most;
    }
    for (size_t i = 0; i < vocabulary; i++) {
        sum += (double)kvern_exp(logits[i] - most);
    }
    return log(sum) + (double)most;
}

// The most likely tokens, by insertion: there are few of them. Of equal ones the lower number.
static void find_top(const float *logits, size_t vocabulary, token_logprob *top, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < vocabulary && count > 0; i++) {
        if (found == count && logits[i] <= top[count - 1].logprob) {
            continue;
        }
        size_t at = found < count ? found++ : count - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--) {
            top[at] = top[at - 1];
        }
        top[at] = (token_logprob){(int32_t)i, logits[i]};
    }
}

static kvern_status grow(token_logprobs *list)
{
    const size_t capacity = list->capacity ? 2 * list->capacity : 16;
    token_logprob *entries = realloc(list->entries, capacity * (1 + list->top) * sizeof *entries);
    if (!entries) {
        return KVERN_ERR_MEMORY;
    }
    list->entries = entries;
    list->capacity = capacity;
    return KVERN_OK;
}

kvern_status token_logprobs_add(token_logprobs *list, int32_t token, const float *logits,
                                size_t vocabulary)
{
    if (list->count == list->capacity && grow(list) != KVERN_OK) {
        return KVERN_ERR_MEMORY;
    }
    const double sum = log_sum(logits, vocabulary);
    token_logprob *entry = list->entries + list->count++ * (1 + list->top);
    entry[0] = (token_logprob){token, logits[token]};
    find_top(logits, vocabulary, entry + 1, list->top);
    for (size_t i = 0; i <= list->top; i++) {
        entry[i].logprob = (float)((double)entry[i].logprob - sum);
    }
    return KVERN_OK;
}

bool token_logprobs_take(token_logprobs *list, size_t most, token_logprobs *out)
{
    const size_t each = 1 + list->top;
    if (list->count <= most) {
        *out = *list;
        *list = (token_logprobs){.top = list->top};
        return true;
    }
    *out = (token_logprobs){.entries = malloc(most * each * sizeof *out->entries),
                            .count = most,
                            .capacity = most,
                            .top = list->top};
    if (!out->entries) {
        return false;
    }
    list->count -= most;
    memcpy(out->entries, list->entries, most * each * sizeof *out->entries);
    memmove(list->entries, list->entries + most * each, list->count * each * sizeof *out->entries);
    return true;
}

void token_logprobs_free(token_logprobs *list)
{
    free(list->entries);
    *list = (token_logprobs){.top = list->top};
}
