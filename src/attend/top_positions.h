// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_TOP_POSITIONS_H
#define KVERN_ATTEND_TOP_POSITIONS_H

// The positions with the largest order keys (index_score.h), in time that grows with their number
// alone: the threshold is found digit by digit, and nothing is sorted.

#include <stddef.h>
#include <stdint.h>

// Writes the `wanted` (1 to `count`) positions of keys[0 .. count - 1] that come first when they
// are ranked by key, larger ones first, and by position where keys are equal. They are written in
// ascending order.
void kvern_top_positions(const uint32_t *keys, int64_t count, int64_t wanted, int64_t *positions);

#endif
