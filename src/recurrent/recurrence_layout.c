// SPDX-License-Identifier: MIT
// Sizes of what recurrent layers keep, and the layout of a state.
#include "src/recurrent/recurrence_layout.h"

#include "src/base/assert.h"
#include "src/recurrent/recurrence_kernels.h"

#include <string.h>

#define BLOCK KVERN_RECURRENCE_BLOCK

// ---- Sizes ----

size_t kvern_recurrence_keys_floats(const kvern_recurrence_shape *shape)
{
    return shape->key_heads * shape->k_dim;
}

size_t kvern_recurrence_values_floats(const kvern_recurrence_shape *shape)
{
    return shape->value_heads * shape->v_dim;
}

size_t kvern_recurrence_decay_floats(const kvern_recurrence_shape *shape)
{
    return shape->rule == KVERN_RULE_DELTA_CHANNELS ? shape->k_dim : 1;
}

size_t kvern_recurrence_head_floats(const kvern_recurrence_shape *shape)
{
    return (shape->v_dim + BLOCK - 1) / BLOCK * BLOCK * shape->k_dim;
}

size_t kvern_recurrence_channels(const kvern_recurrence_shape *shape)
{
    return 2 * kvern_recurrence_keys_floats(shape) + kvern_recurrence_values_floats(shape);
}

size_t kvern_recurrence_a_floats(const kvern_recurrence_shape *shape)
{
    return shape->value_heads * kvern_recurrence_decay_floats(shape);
}

size_t kvern_recurrence_b_floats(const kvern_recurrence_shape *shape)
{
    return shape->rule == KVERN_RULE_SSD ? 0 : shape->value_heads;
}

size_t kvern_recurrence_tail_floats(const kvern_recurrence_shape *shape)
{
    return shape->taps ? (shape->taps - 1) * kvern_recurrence_channels(shape) : 0;
}

size_t kvern_recurrence_s_offset(const kvern_recurrence_shape *shape)
{
    return (kvern_recurrence_tail_floats(shape) + 15) / 16 * 16;
}

size_t kvern_recurrence_state_floats(const kvern_recurrence_shape *shape)
{
    return kvern_recurrence_s_offset(shape) +
           shape->value_heads * kvern_recurrence_head_floats(shape);
}

// ---- The layout of S ----

size_t kvern_recurrence_head_offset(const kvern_recurrence_shape *shape, size_t head)
{
    return kvern_recurrence_s_offset(shape) + head * kvern_recurrence_head_floats(shape);
}

// Where the element of value e and key channel i of a head is.
static size_t element_at(const kvern_recurrence_shape *shape, size_t head, size_t e, size_t i)
{
    return kvern_recurrence_head_offset(shape, head) + (e / BLOCK * shape->k_dim + i) * BLOCK +
           e % BLOCK;
}

void kvern_recurrence_export_s(const kvern_recurrence_shape *shape, const float *state, float *s)
{
    for (size_t head = 0; head < shape->value_heads; head++) {
        for (size_t e = 0; e < shape->v_dim; e++) {
            for (size_t i = 0; i < shape->k_dim; i++)
                *s++ = state[element_at(shape, head, e, i)];
        }
    }
}

void kvern_recurrence_import_s(const kvern_recurrence_shape *shape, const float *s, float *state)
{
    memset(state + kvern_recurrence_s_offset(shape), 0,
           shape->value_heads * kvern_recurrence_head_floats(shape) * sizeof(float));
    for (size_t head = 0; head < shape->value_heads; head++) {
        for (size_t e = 0; e < shape->v_dim; e++) {
            for (size_t i = 0; i < shape->k_dim; i++)
                state[element_at(shape, head, e, i)] = *s++;
        }
    }
}

// ---- Convolutions ----

void kvern_find_taps(size_t taps, size_t channels, const float *tail, const float *x,
                     size_t x_stride, size_t t, const float **rows)
{
    KVERN_ASSERT(taps > 0 && taps <= KVERN_MAX_CONV_KERNEL);
    for (size_t j = 0; j < taps; j++) {
        const size_t at = t + j; // in the tail and the tokens as one sequence
        rows[j] = at < taps - 1 ? tail + at * channels : x + (at - (taps - 1)) * x_stride;
    }
}

void kvern_move_tail(size_t taps, size_t channels, float *tail, size_t count, const float *x,
                     size_t x_stride)
{
    const size_t rows = taps ? taps - 1 : 0;
    const size_t kept = count < rows ? rows - count : 0;
    if (kept)
        memmove(tail, tail + (rows - kept) * channels, kept * channels * sizeof(float));
    for (size_t r = kept; r < rows; r++)
        memcpy(tail + r * channels, x + (count + r - rows) * x_stride, channels * sizeof(float));
}

void kvern_recurrence_move_tail(const kvern_recurrence_shape *shape, float *state, size_t count,
                                const float *x, size_t x_stride)
{
    kvern_move_tail(shape->taps, kvern_recurrence_channels(shape), state, count, x, x_stride);
}
