// SPDX-License-Identifier: MIT
#include "tests/support/rounding.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

// A binary floating-point format: bits of the significand, the leading one included, and the
// exponents of its smallest and largest normal numbers.
typedef struct format {
    int digits, least, most;
} format;

static format format_of(kvern_type type)
{
    switch (type) {
    case KVERN_BF16:
        return (format){8, -126, 127};
    case KVERN_F16:
        return (format){11, -14, 15};
    default:
        return (format){24, -126, 127};
    }
}

// The distance of the values of the format around x.
static double spacing(format f, double x)
{
    const int exponent = x == 0 ? f.least : ilogb(x);
    return ldexp(1, (exponent < f.least ? f.least : exponent) - f.digits + 1);
}

float rounded(kvern_type type, float x)
{
    const format f = format_of(type);
    if (type == KVERN_F32 || !isfinite(x) || x == 0)
        return x;
    const double step = spacing(f, x);
    const double y = nearbyint(x / step) * step; // the default mode is to nearest, ties to even
    return fabs(y) >= ldexp(1, f.most + 1) ? copysignf(INFINITY, x) : (float)y;
}

double rounding_error(kvern_type type, double x)
{
    return isfinite(x) ? spacing(format_of(type), x) / 2 : 0;
}

float element_get(kvern_type type, const void *tensor, size_t at)
{
    const char *element = (const char *)tensor + at * kvern_type_bytes(type);
    float x;
    uint16_t half;
    if (type == KVERN_F32) {
        memcpy(&x, element, sizeof x);
        return x;
    }
    memcpy(&half, element, sizeof half);
    const int sign = half >> 15 ? -1 : 1;
    const int fraction_bits = format_of(type).digits - 1;
    const int fraction = half & ((1 << fraction_bits) - 1);
    const int exponent = (half & 0x7fff) >> fraction_bits;
    const int top = 0x7fff >> fraction_bits;
    if (exponent == top)
        return fraction ? NAN : (float)sign * INFINITY;
    const int whole = exponent ? fraction | 1 << fraction_bits : fraction;
    const int shift = (exponent ? exponent : 1) - top / 2 - fraction_bits;
    return copysignf((float)ldexp(whole, shift), (float)sign);
}

// The pattern of a value that `type` has exactly.
static uint16_t pattern_of(kvern_type type, float x)
{
    const format f = format_of(type);
    const int fraction_bits = f.digits - 1;
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const uint16_t infinite = (uint16_t)(0x7fff >> fraction_bits << fraction_bits);
    if (isnan(x))
        return (uint16_t)(sign | infinite | 1 << (fraction_bits - 1));
    if (isinf(x))
        return sign | infinite;
    if (x == 0)
        return sign;
    const int exponent = ilogb(x) < f.least ? f.least : ilogb(x);
    const int whole = (int)ldexp(fabs((double)x), fraction_bits - exponent);
    const int biased = whole >> fraction_bits ? exponent - f.least + 1 : 0;
    return (uint16_t)(sign | biased << fraction_bits | (whole & ((1 << fraction_bits) - 1)));
}

void element_set(kvern_type type, void *tensor, size_t at, float x)
{
    char *element = (char *)tensor + at * kvern_type_bytes(type);
    if (type == KVERN_F32) {
        memcpy(element, &x, sizeof x);
        return;
    }
    const uint16_t half = pattern_of(type, rounded(type, x));
    memcpy(element, &half, sizeof half);
}
