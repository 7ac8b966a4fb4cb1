// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ROPE_H
#define KVERN_ENGINE_ROPE_H

// Rotary position tables: the cosines and sines of a token's position, computed once per step and
// used by every layer and head.
//
// Pair i of a head is its elements 2i and 2i + 1, or i and i + dim / 2: the style of a family. For
// pair i of a head of which `dim` dimensions rotate, in f32 with one rounding per operation:
//     frequency[i] = pow(base, -2i / dim) / divisor[i]     without divisors: not divided
//     angle        = (position / scale) * frequency[i]     scale: 1 without linear scaling
// and the table holds cos(angle) * magnitude and sin(angle) * magnitude, by the library's own pow,
// cos and sin, which give the same bits everywhere.

#include <kvern/status.h>

#include <stddef.h>
#include <stdint.h>

typedef enum engine_rope_style {
    ENGINE_ROPE_PAIRS, // neighbours
    ENGINE_ROPE_HALVES // the first and the second half of the rotating dimensions
} engine_rope_style;

typedef struct engine_rope {
    engine_rope_style style;
    size_t dim; // even; 0: nothing rotates
    float scale;
    float magnitude;
    float *frequency; // [dim / 2], owned
} engine_rope;

// Makes the frequencies of a rope whose style, dim, scale and magnitude are set. `divisors` are
// dim / 2 positive numbers, or NULL. On failure nothing is owned. Errors: KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status engine_rope_create(engine_rope *rope, float base, const float *divisors);
void engine_rope_destroy(engine_rope *rope); // of a zeroed rope: nothing

// Elements of one row of a table.
size_t engine_rope_row(const engine_rope *rope);

// Fills one row, for one position. Pairs: dim cosines (each twice), then dim sines (each twice, the
// even ones negated), as engine_ops.rotate_pairs reads them. Halves: dim / 2 cosines, then dim / 2
// sines, as engine_ops.rotate_halves reads them.
void engine_rope_fill(const engine_rope *rope, int64_t position, float *row);

#endif
