// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_OVERHEAD_H
#define KVERN_BENCH_OVERHEAD_H

// What the calls around the arithmetic cost, in nanoseconds: appends, steps, forks, trims, rows
// that come and go, rounds and reservations of a composition.

#include <kvern/kvern.h>

typedef struct overhead_run overhead_run;

// One thing that is timed. A sample is the time of one operation, the mean of many; `what` says
// whether it is given per layer.
typedef struct overhead_item {
    const char *name; // a word, for programs
    const char *what;
    kvern_status (*sample)(overhead_run *run, double *nanoseconds);
} overhead_item;

extern const overhead_item OVERHEAD_ITEMS[];
extern const size_t OVERHEAD_COUNT;

// Prepares samples on rows of `positions` positions, with `query_heads` query heads. The
// composition must outlive the run. On failure *out is NULL.
KVERN_CHECK kvern_status overhead_open(kvern_composition *composition, size_t query_heads,
                                       int64_t positions, overhead_run **out);
void overhead_close(overhead_run *run);

#endif
