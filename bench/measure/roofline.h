// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_ROOFLINE_H
#define KVERN_BENCH_ROOFLINE_H

// What this machine can do at most: the two limits that a read of the KV cache meets. Measured in
// the same run as whatever is compared with them, on the same threads.

#include <kvern/context.h>
#include <stdbool.h>

typedef struct roofline {
    double bytes_per_s; // reading memory, far larger than any cache that one core owns
    double fma_per_s;   // single-precision fused multiply-adds in registers
} roofline;

// The buffer that the bandwidth is read from; filled by roofline_open so that its pages exist.
typedef struct roofline_buffer {
    float *data;
    size_t bytes;
} roofline_buffer;

// False when there is no memory for it.
bool roofline_open(size_t bytes, roofline_buffer *buffer);
void roofline_close(roofline_buffer *buffer);

// Measures once, a few milliseconds for each limit, with the widest instructions within `features`.
// Call it between the measured runs and keep the medians.
roofline roofline_measure(const roofline_buffer *buffer, const kvern_executor *executor,
                          uint32_t features);

// Measures once the bytes per second, read and written alike, of a loop that changes all numbers of
// the buffer in place: what a pass over a state can reach. Reads alone are no measure for it: a
// processor may write back what it has changed while it reads on.
double roofline_measure_updates(const roofline_buffer *buffer, const kvern_executor *executor,
                                uint32_t features);

// The share of the roofline that a run of `seconds` reached: the larger of the two shares.
double roofline_share(const roofline *limits, double bytes, double fma, double seconds);

// Kernels by instruction set: read all floats of a range (the result depends on all of them);
// multiply each of a range by a factor, in place; and run `rounds` rounds of independent chains of
// fma, which returns how many fma one round is.
typedef float roofline_read_fn(const float *data, size_t count);
typedef void roofline_update_fn(float factor, float *data, size_t count);
typedef size_t roofline_fma_fn(size_t rounds, float *result);
roofline_read_fn roofline_read_plain, roofline_read_avx2, roofline_read_avx512;
roofline_update_fn roofline_update_plain, roofline_update_avx2, roofline_update_avx512;
roofline_fma_fn roofline_fma_plain, roofline_fma_avx2, roofline_fma_avx512;

#endif
