// SPDX-License-Identifier: MIT
#include "server/worker/measures.h"

const double histogram_bounds[HISTOGRAM_BUCKETS] = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25,   0.5,     1,      2.5,   5,      10,    30,   60,    150,  600};

void histogram_add(histogram *h, double seconds)
{
    size_t i = 0;
    while (i < HISTOGRAM_BUCKETS && seconds > histogram_bounds[i]) {
        i++;
    }
    h->counts[i]++;
    h->count++;
    h->sum += seconds;
}

static void count_tokens(measures *m, const schedule_result *result)
{
    m->prompt_tokens += result->prompt_tokens;
    m->cached_tokens += result->shared_tokens;
    m->generated_tokens += result->generated_tokens;
}

void measures_end(measures *m, const schedule_result *result, double seconds)
{
    count_tokens(m, result);
    if (result->status != KVERN_OK) {
        m->failed++;
        return;
    }
    m->ends[result->reason]++;
    histogram_add(&m->queue, result->queue_seconds);
    histogram_add(&m->prompt, result->prompt_seconds);
    histogram_add(&m->decode, result->decode_seconds);
    histogram_add(&m->request, seconds);
}
