// SPDX-License-Identifier: MIT
#include "bench/measure/clock.h"

#include <stdlib.h>
#include <time.h>

double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void clock_rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double clock_quantile(double *samples, size_t count, double quantile)
{
    if (count == 0)
        return 0;
    qsort(samples, count, sizeof samples[0], compare);
    const double at = quantile * (double)(count - 1);
    const size_t low = (size_t)at;
    const double part = at - (double)low;
    const double next = low + 1 < count ? samples[low + 1] : samples[low];
    return samples[low] + part * (next - samples[low]);
}

quartiles clock_quartiles(double *samples, size_t count)
{
    return (quartiles){clock_quantile(samples, count, 0.5), clock_quantile(samples, count, 0.25),
                       clock_quantile(samples, count, 0.75)};
}
