// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_NAIVE_RECURRENCE_H
#define KVERN_BENCH_NAIVE_RECURRENCE_H

// A recurrent layer as one would write it down: loops over tokens, heads, values and key channels,
// with the C library's functions. What ours is compared with, in results and in time.

#include <kvern/composition.h>
#include <kvern/recurrent.h>

// Takes `count` packed tokens through value heads first_head to first_head + heads - 1 of a row
// whose convolution saw nothing before. s is [value_heads][v_dim][k_dim]; scratch has
// naive_recurrence_scratch floats.
void naive_recurrence(const kvern_layer *layer, const kvern_recur_tokens *tokens, size_t count,
                      size_t first_head, size_t heads, float *s, float *scratch);
size_t naive_recurrence_scratch(const kvern_layer *layer);

#endif
