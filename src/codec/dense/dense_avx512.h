// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_DENSE_DENSE_AVX512_H
#define KVERN_CODEC_DENSE_DENSE_AVX512_H

// Thirty-two registers, one per strip. Widening runs beside fma on units of its own on most
// processors, so that sharing it pays only for more vectors than a tile holds.
#include "src/math/lanes_avx512.h"

#define DENSE_MOST 8
#define DENSE_BY_WEIGHT 1
#define DENSE_WIDE(r) ((r) <= 4 ? 4 : 2)
#define DENSE_MANY 64
#define DENSE_KEPT_MOST 12
#define DENSE_KEPT_STRIPS 2

#endif
