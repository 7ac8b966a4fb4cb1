// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_DENSE_DENSE_NEON_H
#define KVERN_CODEC_DENSE_DENSE_NEON_H

// Thirty-two registers: a strip takes four of them.
#include "src/math/lanes_neon.h"

#define DENSE_MOST 4
#define DENSE_BY_WEIGHT 0
#define DENSE_WIDE(r) ((r) == 1 ? 4 : (r) == 2 ? 2 : 1)
#define DENSE_MANY 8
#define DENSE_KEPT_MOST 6
#define DENSE_KEPT_STRIPS 1

#endif
