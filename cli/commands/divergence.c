// SPDX-License-Identifier: MIT
#include "cli/commands/divergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t largest_of(const float *logits, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

// ln of the sum of exp(logits), `top` being the largest one.
static double log_sum(const float *logits, size_t count, float top)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)expf(logits[i] - top);
    }
    return (double)top + log(sum);
}

// sum p ln(p / q), where a and b are ln of the sums that make probabilities of p and q.
static double relative_entropy(const float *p, double a, const float *q, double b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const double log_p = (double)p[i] - a;
        sum += (double)expf((float)log_p) * (log_p - ((double)q[i] - b));
    }
    return sum < 0 ? 0 : sum; // rounding: it is never negative
}

static kvern_status make_room(divergence *d, engine_error *error)
{
    if (d->count < d->capacity) {
        return KVERN_OK;
    }
    const size_t capacity = d->capacity ? 2 * d->capacity : 1024;
    float *all = realloc(d->all, capacity * sizeof *all);
    if (!all) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu positions", capacity);
    }
    d->all = all;
    d->capacity = capacity;
    return KVERN_OK;
}

kvern_status divergence_add(divergence *d, const float *reference, const float *candidate,
                            size_t vocabulary, int32_t next, engine_error *error)
{
    kvern_status status = make_room(d, error);
    if (status != KVERN_OK) {
        return status;
    }
    const size_t top = largest_of(candidate, vocabulary);
    const double total = log_sum(candidate, vocabulary, candidate[top]);
    double kl = 0;
    bool same = true;
    if (candidate != reference) {
        const size_t wanted = largest_of(reference, vocabulary);
        const double wanted_total = log_sum(reference, vocabulary, reference[wanted]);
        kl = relative_entropy(reference, wanted_total, candidate, total, vocabulary);
        same = wanted == top;
    }
    d->loss += total - (double)candidate[next];
    d->all[d->count++] = (float)kl;
    d->sum += kl;
    d->largest = kl > d->largest ? kl : d->largest;
    d->same_top += same;
    return KVERN_OK;
}

double divergence_perplexity(const divergence *d)
{
    return d->count ? exp(d->loss / (double)d->count) : 0;
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double divergence_quantile(divergence *d, double q)
{
    if (d->count == 0) {
        return 0;
    }
    qsort(d->all, d->count, sizeof *d->all, compare);
    const size_t rank = (size_t)ceil(q * (double)d->count);
    return (double)d->all[rank > 0 ? rank - 1 : 0];
}

void divergence_free(divergence *d)
{
    free(d->all);
    memset(d, 0, sizeof *d);
}
