// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_CLOCK_H
#define KVERN_BENCH_CLOCK_H

// Wall-clock time and order statistics of repeated measurements.

#include <stddef.h>

// Seconds since some fixed moment; never goes backwards.
double clock_seconds(void);

// Waits until threads that look out for more work have gone to sleep, so that they take no
// processor from what is measured next.
void clock_rest(void);

// Sorts `samples` and returns the value below which the share `quantile` (0 to 1) of them lies.
double clock_quantile(double *samples, size_t count, double quantile);

// Of timed runs: the median and the quartiles.
typedef struct quartiles {
    double median, low, high;
} quartiles;

// Sorts `samples`.
quartiles clock_quartiles(double *samples, size_t count);

#endif
