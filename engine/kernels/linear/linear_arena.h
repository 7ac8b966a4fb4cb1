// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LINEAR_ARENA_H
#define KVERN_ENGINE_LINEAR_ARENA_H

#include "engine/kernels/linear/linear.h"

#define LINEAR_ARENA_ALIGNMENT 64

// The next `bytes` bytes of the arena (a multiple of the alignment), all zero; NULL when it is
// full.
unsigned char *linear_arena_take(linear_arena *arena, size_t bytes);

#endif
