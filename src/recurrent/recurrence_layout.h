// SPDX-License-Identifier: MIT
#ifndef KVERN_RECURRENT_RECURRENCE_LAYOUT_H
#define KVERN_RECURRENT_RECURRENCE_LAYOUT_H

// Sizes in floats that the public part of the contract (recurrence.h) is made of.

#include "src/recurrent/recurrence.h"

// What a token has in all heads: of keys (as many of queries), of values.
size_t kvern_recurrence_keys_floats(const kvern_recurrence_shape *shape);
size_t kvern_recurrence_values_floats(const kvern_recurrence_shape *shape);

// Decays of one value head per token.
size_t kvern_recurrence_decay_floats(const kvern_recurrence_shape *shape);

// S of one value head, and where in a state it begins.
size_t kvern_recurrence_head_floats(const kvern_recurrence_shape *shape);
size_t kvern_recurrence_head_offset(const kvern_recurrence_shape *shape, size_t head);

// The inputs of channel 0 that the taps of token t meet: rows[0 .. taps - 1], the newest last. The
// tail is [taps - 1][channels].
void kvern_find_taps(size_t taps, size_t channels, const float *tail, const float *x,
                     size_t x_stride, size_t t, const float **rows);

// The tail after `count` more tokens.
void kvern_move_tail(size_t taps, size_t channels, float *tail, size_t count, const float *x,
                     size_t x_stride);

#endif
