// SPDX-License-Identifier: MIT
#include "engine/model/router.h"

#include <kvern/math.h>
#include <math.h>
#include <string.h>

// What is added to a sum of sigmoids before it divides them: they may all be zero.
#define ROUTER_SMALLEST_SUM 1e-20f

// exp(x - the largest) of n values; returns their sum, ascending.
static float exponentials(uint32_t features, size_t n, const float *x, float *y)
{
    float most = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) {
        most = x[i] > most ? x[i] : most;
    }
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] - most;
    }
    kvern_exp_array(features, n, y, y);
    for (size_t i = 0; i < n; i++) {
        sum += y[i];
    }
    return sum;
}

static void divide(size_t n, float *x, float by)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] / by;
    }
}

static void score(const model_experts *experts, uint32_t features, const float *logits,
                  float *scores)
{
    const size_t n = experts->count;
    if (experts->router == MODEL_ROUTER_SOFTMAX) {
        divide(n, scores, exponentials(features, n, logits, scores));
    } else if (experts->router == MODEL_ROUTER_SIGMOID) {
        kvern_sigmoid_array(features, n, logits, scores);
    } else {
        memcpy(scores, logits, n * sizeof *scores);
    }
}

// What cannot be chosen is minus infinity, as a NaN is.
static float usable(float rank)
{
    return isnan(rank) ? -INFINITY : rank;
}

static float group_rank(const float *ranks, size_t n, bool of_two)
{
    float best = -INFINITY, second = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (ranks[i] > best) {
            second = best;
            best = ranks[i];
        } else if (ranks[i] > second) {
            second = ranks[i];
        }
    }
    return of_two && n > 1 ? usable(best + second) : best;
}

// The best of n ranks that is not taken yet, the first one of equals.
static size_t best_of(const float *ranks, const bool *taken, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (!taken[i] && (best == n || ranks[i] > ranks[best])) {
            best = i;
        }
    }
    return best;
}

// Makes the ranks of all but the best groups minus infinity.
static void keep_groups(const model_experts *experts, bool corrected, float *ranks)
{
    float group_ranks[ROUTER_MOST_GROUPS];
    bool kept[ROUTER_MOST_GROUPS] = {false};
    const size_t groups = experts->groups, n = experts->count / groups;
    for (size_t g = 0; g < groups; g++) {
        group_ranks[g] = group_rank(ranks + g * n, n, corrected);
    }
    for (size_t i = 0; i < experts->used_groups; i++) {
        kept[best_of(group_ranks, kept, groups)] = true;
    }
    for (size_t i = 0; i < experts->count; i++) {
        ranks[i] = kept[i / n] ? ranks[i] : -INFINITY;
    }
}

// Whether expert a comes before expert b.
static bool better(const float *ranks, size_t a, size_t b)
{
    return ranks[a] > ranks[b] || (ranks[a] == ranks[b] && a < b);
}

// The best `used` experts, best first, by insertion: most experts are worse than all that are held.
static void choose(const model_experts *experts, const float *ranks, uint32_t *chosen)
{
    size_t held = 0;
    for (size_t e = 0; e < experts->count; e++) {
        if (held == experts->used && !better(ranks, e, chosen[held - 1])) {
            continue;
        }
        size_t at = held < experts->used ? held++ : held - 1;
        for (; at > 0 && better(ranks, e, chosen[at - 1]); at--) {
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = (uint32_t)e;
    }
}

static void sort_ascending(size_t n, uint32_t *chosen)
{
    for (size_t i = 1; i < n; i++) {
        const uint32_t expert = chosen[i];
        size_t at = i;
        for (; at > 0 && chosen[at - 1] > expert; at--) {
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = expert;
    }
}

static void weigh(const model_experts *experts, uint32_t features, float *weights)
{
    const size_t n = experts->used;
    if (experts->router == MODEL_ROUTER_CHOSEN) {
        divide(n, weights, exponentials(features, n, weights, weights));
    } else if (experts->router == MODEL_ROUTER_INPUT) {
        kvern_sigmoid_array(features, n, weights, weights);
    }
    if (experts->normalized) {
        float sum = 0;
        for (size_t i = 0; i < n; i++) {
            sum += weights[i];
        }
        divide(n, weights,
               experts->router == MODEL_ROUTER_SIGMOID ? sum + ROUTER_SMALLEST_SUM : sum);
    }
    for (size_t i = 0; i < n; i++) {
        weights[i] = weights[i] * experts->scale;
    }
}

void router_choose(const model_experts *experts, uint32_t features, const float *logits,
                   const float *correction, float *scratch, uint32_t *chosen, float *weights)
{
    float *scores = scratch, *ranks = scratch + experts->count;
    score(experts, features, logits, scores);
    for (size_t i = 0; i < experts->count; i++) {
        ranks[i] = usable(correction ? scores[i] + correction[i] : scores[i]);
    }
    if (experts->groups > 1) {
        keep_groups(experts, correction != NULL, ranks);
    }
    choose(experts, ranks, chosen);
    sort_ascending(experts->used, chosen);
    for (size_t i = 0; i < experts->used; i++) {
        weights[i] = scores[chosen[i]];
    }
    weigh(experts, features, weights);
}
