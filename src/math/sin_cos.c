// SPDX-License-Identifier: MIT
// Sine and cosine in double, rounded to float once: at most 0.50001 ulp for every finite float.
//
// x = k pi/2 + r with |r| <= pi/4 and a little; the quadrant k mod 4 chooses between the two
// polynomials and the sign. No float but zero is so close to a multiple of pi/2 that r would lose
// its accuracy: for all floats |r| > 2^-32.

#include "src/base/assert.h"
#include "src/math/fpenv.h"

#include <kvern/math.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#define HALF_PI_HIGH 0x1.921fb54442d18p+0
#define HALF_PI_LOW 0x1.1a62633145c07p-54
#define TWO_OVER_PI 0x1.45f306dc9c883p-1

// |x| >= 2^31: the product of the significand and those 96 bits of 2/pi that matter. Bits of a
// higher weight only add multiples of four quadrants; the ones below change r by less than 2^-69.
static int reduce_huge(float x, double *r)
{
    static const uint32_t two_over_pi[7] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                            0xdb629599, 0x3c439041, 0xfe5163ab};
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint64_t significand = (bits & 0x7fffff) | 0x800000;
    int power = (int)(bits >> 23 & 0xff) - 150; // |x| = significand * 2^power, 8 <= power <= 104
    int first = power - 2;                      // the bit of 2/pi whose product has the weight 2
    KVERN_ASSERT(power >= 8 && power <= 104);
    const uint32_t *word = two_over_pi + first / 32;
    int shift = first % 32;
    uint64_t upper = (uint64_t)word[0] << 32 | word[1];
    uint64_t lower = (uint64_t)word[2] << 32 | word[3];
    uint64_t window = shift ? upper << shift | lower >> (64 - shift) : upper;
    uint64_t rest = lower << shift >> 32;
    // In units of 2^-62 quadrants, modulo four quadrants.
    uint64_t product = significand * window + (significand * rest >> 32);
    uint64_t quadrant = (product + (UINT64_C(1) << 61)) >> 62;
    int64_t fraction = (int64_t)(product - (quadrant << 62));
    *r = (double)fraction * 0x1p-62 * HALF_PI_HIGH;
    if (bits >> 31) {
        *r = -*r;
        return (int)(-quadrant & 3);
    }
    return (int)(quadrant & 3);
}

// Returns the quadrant, 0 to 3. NaN and infinity give r = NaN.
static int reduce(float x, double *r)
{
    if (!isfinite(x)) {
        *r = NAN;
        return 0;
    }
    if (fabsf(x) >= 0x1p31f) {
        return reduce_huge(x, r);
    }
    double k = rint(x * TWO_OVER_PI);
    // The first step is exact: both terms are multiples of 2^-52 and their difference is below 1.
    double high = fma(-k, HALF_PI_HIGH, x);
    *r = fma(-k, HALF_PI_LOW, high);
    return (int)((int64_t)k & 3);
}

// r + r u P(u), u = r^2. P: tools/minimax.py, relative error of the sine 2^-56.4.
static double sine(double r)
{
    double u = r * r;
    double p = fma(0x1.5d8fd1899f7a9p-33, u, -0x1.ae5e5a910efc4p-26);
    p = fma(p, u, 0x1.71de3567d2aaap-19);
    p = fma(p, u, -0x1.a01a019bfdee1p-13);
    p = fma(p, u, 0x1.111111110f7d0p-7);
    p = fma(p, u, -0x1.5555555555548p-3);
    return fma(p, r * u, r);
}

// 1 - u/2 + u^2 P(u), u = r^2. P: tools/minimax.py, relative error of the cosine 2^-53.2.
static double cosine(double r)
{
    double u = r * r;
    double p = fma(0x1.1bbe8db378962p-29, u, -0x1.27e00b8fa4f4bp-22);
    p = fma(p, u, 0x1.a019fa5ff958ap-16);
    p = fma(p, u, -0x1.6c16c167210fbp-10);
    p = fma(p, u, 0x1.5555555552ddbp-5);
    return fma(p, u * u, fma(-0.5, u, 1.0));
}

// The sine of x + ahead * pi/2.
static float sine_ahead(float x, int ahead)
{
    double r;
    int quadrant = reduce(x, &r) + ahead;
    KVERN_ASSERT(!(fabs(r) > 0.79)); // pi/4 and a little, or NaN
    double y = quadrant & 1 ? cosine(r) : sine(r);
    return (float)(quadrant & 2 ? -y : y);
}

float kvern_sin(float x)
{
    kvern_fp_saved saved = kvern_fp_enter();
    kvern_fp_pin(&x);
    float y = x == 0.0f ? x : sine_ahead(x, 0); // -0 stays -0
    kvern_fp_pin(&y);
    kvern_fp_leave(saved);
    return y;
}

float kvern_cos(float x)
{
    kvern_fp_saved saved = kvern_fp_enter();
    kvern_fp_pin(&x);
    float y = sine_ahead(x, 1);
    kvern_fp_pin(&y);
    kvern_fp_leave(saved);
    return y;
}
