// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_DOUBLE_LOG_H
#define KVERN_MATH_DOUBLE_LOG_H

// Logarithms in double for the functions that make tables. Double arithmetic with fma in a stated
// order is as much the same everywhere as float arithmetic is, and leaves so many bits to spare
// that the one rounding to float at the end decides the error.

#include <math.h>
#include <stdint.h>
#include <string.h>

// x = m * 2^e with sqrt(1/2) <= m < sqrt(2); x positive and normal.
static inline double kvern_split_double_(double x, int *e)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcdu;
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int64_t exponent = (int64_t)(bits - root_half) >> 52;
    bits -= (uint64_t)exponent << 52;
    memcpy(&x, &bits, sizeof(x));
    *e = (int)exponent;
    return x;
}

// log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2), with a relative error below 2^-50. It is 2 atanh(s)
// with s = f / (2 + f), and atanh(s) = s + s u P(u), u = s^2. P: tools/minimax.py, relative error
// 2^-52.2.
static inline double kvern_log_near_one_(double f)
{
    double s = f / (2.0 + f);
    double u = s * s;
    double p = fma(0x1.587594f8a91dap-4, u, 0x1.732c51e591835p-4);
    p = fma(p, u, 0x1.c72276998188ap-4);
    p = fma(p, u, 0x1.2492417a9761ap-3);
    p = fma(p, u, 0x1.999999a28e974p-3);
    p = fma(p, u, 0x1.555555555397ap-2);
    s = s + s;
    return fma(p, s * u, s);
}

#endif
