// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_MEASURES_H
#define KVERN_SERVER_MEASURES_H

// What the server has done since it began, in numbers. They are the worker's; others get copies.

#include "engine/generation/schedule.h"

#define HISTOGRAM_BUCKETS 20

// Of seconds, with the same buckets for all: from a tenth of a millisecond to some minutes.
typedef struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS + 1]; // the last one: above all bounds
    double sum;
    uint64_t count;
} histogram;

// Upper bounds of the buckets.
extern const double histogram_bounds[HISTOGRAM_BUCKETS];

void histogram_add(histogram *h, double seconds);

typedef struct measures {
    histogram first_token; // from the arrival of a request
    histogram inter_token;
    histogram queue;                       // from the submission to the first forward pass
    histogram prompt;                      // from there to the first token
    histogram decode;                      // from there to the end
    histogram request;                     // from the arrival to the end
    uint64_t ends[GENERATE_CANCELLED + 1]; // requests that ended, by generate_reason
    uint64_t failed;                       // the others
    uint64_t prompt_tokens, cached_tokens, generated_tokens; // of requests that ended
} measures;

// A request has ended, `seconds` after it arrived.
void measures_end(measures *m, const schedule_result *result, double seconds);

#endif
