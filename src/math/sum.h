// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_SUM_H
#define KVERN_MATH_SUM_H

// The canonical tree over 16 values: the one place where the library adds lanes of a vector to each
// other. Lane i meets lane i + 8, then i + 4, then i + 2, then i + 1. lanes_sum_each
// and lanes_largest_each of the lanes headers give the same bits.

static inline float kvern_sum16(const float v[16])
{
    float r[8];
    for (int i = 0; i < 8; i++) {
        r[i] = v[i] + v[i + 8];
    }
    for (int step = 4; step > 0; step /= 2) {
        for (int i = 0; i < step; i++) {
            r[i] = r[i] + r[i + step];
        }
    }
    return r[0];
}

// a > b ? a : b: b when they are equal or one of them is NaN, like the instruction of x86.
static inline float kvern_larger(float a, float b)
{
    return a > b ? a : b;
}

// The largest of 16 by the same tree. With a NaN among them the result depends on its place, but
// equally in every kernel.
static inline float kvern_largest16(const float v[16])
{
    float r[8];
    for (int i = 0; i < 8; i++) {
        r[i] = kvern_larger(v[i], v[i + 8]);
    }
    for (int step = 4; step > 0; step /= 2) {
        for (int i = 0; i < step; i++) {
            r[i] = kvern_larger(r[i], r[i + step]);
        }
    }
    return r[0];
}

#endif
