// SPDX-License-Identifier: MIT
#include "engine/sampling/sampler.h"

#include <kvern/math.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct sampler {
    sampler_options options;
    uint64_t random; // state of the generator
    size_t vocabulary;
    candidate *heap; // all candidates: in order of id, or a heap when they are ranked
    size_t heap_count;
    candidate *kept; // the best ones taken from the heap, in order
    size_t kept_count;
    float *weights; // of the kept ones, after temperature
    // Touched, and so taken from the system, only when there are penalties or biases:
    float *adjusted;  // [vocabulary] the logits after them
    uint32_t *counts; // [vocabulary] all zero between calls
};

sampler_options sampler_default_options(void)
{
    return (sampler_options){
        .temperature = 0.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .seed = 0};
}

static kvern_status check_options(const sampler_options *options, engine_error *error)
{
    if (!(options->temperature >= 0.0f && options->temperature < INFINITY))
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "temperature is %g, it must be 0 (greedy) or positive and finite",
                           (double)options->temperature);
    if (!(options->top_p >= 0.0f && options->top_p <= 1.0f))
        return engine_fail(error, KVERN_ERR_ARGUMENT, "top-p is %g, it must be from 0 to 1",
                           (double)options->top_p);
    if (!(options->min_p >= 0.0f && options->min_p <= 1.0f))
        return engine_fail(error, KVERN_ERR_ARGUMENT, "min-p is %g, it must be from 0 to 1",
                           (double)options->min_p);
    return penalties_check(&options->penalties, error);
}

kvern_status sampler_check(const sampler_options *options, size_t vocabulary, engine_error *error)
{
    kvern_status status = check_options(options, error);
    if (status == KVERN_OK)
        status = biases_check(options->biases, options->bias_count, vocabulary, error);
    if (status != KVERN_OK)
        return status;
    if (vocabulary == 0 || vocabulary > INT32_MAX)
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "a vocabulary of %zu tokens cannot be sampled", vocabulary);
    return KVERN_OK;
}

kvern_status sampler_create(const sampler_options *options, size_t vocabulary, sampler **out,
                            engine_error *error)
{
    *out = NULL;
    const kvern_status status = sampler_check(options, vocabulary, error);
    if (status != KVERN_OK)
        return status;
    sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->heap = calloc(vocabulary, sizeof *s->heap);
        s->kept = calloc(vocabulary, sizeof *s->kept);
        s->weights = calloc(vocabulary, sizeof *s->weights);
        s->adjusted = calloc(vocabulary, sizeof *s->adjusted);
        s->counts = calloc(vocabulary, sizeof *s->counts);
    }
    if (!s || !s->heap || !s->kept || !s->weights || !s->adjusted || !s->counts) {
        sampler_destroy(s);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to sample from %zu tokens",
                           vocabulary);
    }
    s->options = *options;
    s->vocabulary = vocabulary;
    sampler_reseed(s, options->seed);
    *out = s;
    return KVERN_OK;
}

void sampler_destroy(sampler *s)
{
    if (!s)
        return;
    free(s->heap);
    free(s->kept);
    free(s->weights);
    free(s->adjusted);
    free(s->counts);
    free(s);
}

void sampler_reseed(sampler *s, uint64_t seed)
{
    s->random = seed;
}

void sampler_follow(sampler *s, const sampler *other)
{
    s->options = other->options;
    s->random = other->random;
}

// SplitMix64 (Steele, Lea, Flood 2014): a counter with an odd step, and a bijective mix of it.
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// Uniform in [0, 1), a multiple of 2^-53.
static double next_uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

// Checks all logits and finds the largest, the lowest id among equals.
static kvern_status find_best(const float *logits, size_t count, size_t *best, engine_error *error)
{
    *best = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return engine_fail(error, KVERN_ERR_ARGUMENT, "the logit of token %zu is %s", i,
                               isnan(logits[i]) ? "not a number" : "infinite");
        if (logits[i] > logits[*best])
            *best = i;
    }
    if (logits[*best] == -INFINITY)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "every token has a probability of zero");
    return KVERN_OK;
}

static bool better(candidate a, candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static bool worse(candidate a, candidate b)
{
    return better(b, a);
}

// Restores a heap below `at`: what is `first` is nearer to the root.
static inline void sift_down(candidate *heap, size_t count, size_t at,
                             bool (*first)(candidate, candidate))
{
    const candidate moving = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && first(heap[child + 1], heap[child]))
            child++;
        if (!first(heap[child], moving))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static void make_heap(candidate *heap, size_t count, bool (*first)(candidate, candidate))
{
    for (size_t i = count / 2; i-- > 0;)
        sift_down(heap, count, i, first);
}

// Moves the best remaining candidate to the end of the kept ones.
static void take_best(sampler *s)
{
    s->kept[s->kept_count++] = s->heap[0];
    s->heap[0] = s->heap[--s->heap_count];
    if (s->heap_count > 0)
        sift_down(s->heap, s->heap_count, 0, better);
}

// The candidates, or with top-k the best k of them: of a large vocabulary hardly any then meets
// more than one comparison.
static void collect(sampler *s, const float *logits)
{
    const size_t most = s->options.top_k > 0 ? s->options.top_k : SIZE_MAX;
    s->heap_count = s->kept_count = 0;
    for (size_t i = 0; i < s->vocabulary; i++) {
        const candidate c = {logits[i], (int32_t)i};
        if (c.logit == -INFINITY)
            continue;
        if (s->heap_count < most) {
            s->heap[s->heap_count++] = c;
            if (s->heap_count == most)
                make_heap(s->heap, most, worse);
        } else if (better(c, s->heap[0])) {
            s->heap[0] = c;
            sift_down(s->heap, most, 0, worse);
        }
    }
}

// Probability relative to the best token's, before temperature.
static float likelihood(candidate c, float max)
{
    return kvern_exp(c.logit - max);
}

static double sum_likelihood(const candidate *candidates, size_t count, float max)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += (double)likelihood(candidates[i], max);
    return sum;
}

// Top-k and top-p. Only as many candidates leave the heap as are kept: sorting a whole vocabulary
// takes milliseconds, which is as long as a small model needs for its token.
static void keep_most_likely(sampler *s, float max)
{
    const bool use_top_k = s->options.top_k > 0;
    const size_t limit = s->heap_count;
    double total = sum_likelihood(s->heap, use_top_k ? 0 : s->heap_count, max);
    make_heap(s->heap, s->heap_count, better);
    while (use_top_k && s->kept_count < limit)
        take_best(s);
    if (use_top_k)
        total = sum_likelihood(s->kept, s->kept_count, max);
    const double target = (double)s->options.top_p * total;
    double sum = 0.0;
    size_t keep = 0;
    while (keep < limit && (keep == 0 || s->options.top_p >= 1.0f || sum < target)) {
        if (keep == s->kept_count)
            take_best(s);
        sum += (double)likelihood(s->kept[keep++], max);
    }
    s->kept_count = keep;
}

static void keep_all(sampler *s)
{
    candidate *all = s->heap;
    s->heap = s->kept;
    s->kept = all;
    s->kept_count = s->heap_count;
}

// Min-p. The best token has likelihood 1 and always stays.
static void drop_unlikely(sampler *s, float max)
{
    size_t keep = 0;
    for (size_t i = 0; i < s->kept_count; i++)
        if (likelihood(s->kept[i], max) >= s->options.min_p)
            s->kept[keep++] = s->kept[i];
    s->kept_count = keep;
}

// The first candidate whose running sum of weights exceeds a random part of the total. Rounding can
// make that part the total itself: then the last candidate of any weight is taken.
static int32_t draw(sampler *s, float max)
{
    double total = 0.0;
    for (size_t i = 0; i < s->kept_count; i++) {
        s->weights[i] = kvern_exp((s->kept[i].logit - max) / s->options.temperature);
        total += (double)s->weights[i];
    }
    const double target = next_uniform(&s->random) * total;
    double sum = 0.0;
    size_t chosen = 0;
    for (size_t i = 0; i < s->kept_count && sum <= target; i++) {
        sum += (double)s->weights[i];
        if (s->weights[i] > 0.0f)
            chosen = i;
    }
    return s->kept[chosen].id;
}

// The logits after biases and penalties; without any, those that were passed in.
static const float *adjust(sampler *s, const float *logits, const sampled_sequence *sequence)
{
    const sampler_options *options = &s->options;
    if (options->bias_count == 0 && !penalties_active(&options->penalties))
        return logits;
    memcpy(s->adjusted, logits, s->vocabulary * sizeof *logits);
    biases_apply(options->biases, options->bias_count, s->adjusted);
    if (sequence)
        penalties_apply(&options->penalties, sequence, s->counts, s->adjusted);
    return s->adjusted;
}

kvern_status sampler_next(sampler *s, const float *logits, const sampled_sequence *sequence,
                          int32_t *token, engine_error *error)
{
    size_t best;
    logits = adjust(s, logits, sequence);
    const kvern_status status = find_best(logits, s->vocabulary, &best, error);
    if (status != KVERN_OK)
        return status;
    if (s->options.temperature == 0.0f) {
        *token = (int32_t)best;
        return KVERN_OK;
    }
    const float max = logits[best];
    collect(s, logits);
    if (s->options.top_k > 0 || s->options.top_p < 1.0f)
        keep_most_likely(s, max);
    else
        keep_all(s);
    if (s->options.min_p > 0.0f)
        drop_unlikely(s, max);
    *token = draw(s, max);
    return KVERN_OK;
}
