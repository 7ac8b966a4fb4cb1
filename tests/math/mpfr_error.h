// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_MATH_MPFR_ERROR_H
#define KVERN_TESTS_MATH_MPFR_ERROR_H

// Errors of float functions in ulp of the true value, which MPFR gives.

#include "tests/math/inputs.h"

#include <math.h>
#include <mpfr.h>
#include <stddef.h>

// Enough for the true value to be wrong by less than 2^-40 ulp.
#define TRUTH_BITS 66

// |got - truth| in units of the distance of the floats around the truth.
static inline double ulp_error(float got, mpfr_t truth)
{
    if (mpfr_nan_p(truth) || !isfinite(got)) {
        bool same = mpfr_nan_p(truth) ? isnan(got) : (double)got == mpfr_get_d(truth, MPFR_RNDN);
        return same ? 0.0 : INFINITY;
    }
    if (mpfr_zero_p(truth)) {
        return got == 0.0f ? 0.0 : INFINITY;
    }
    long exponent = (long)mpfr_get_exp(truth);
    int ulp = (int)(exponent < -125 ? -149 : exponent - 24);
    static __thread mpfr_t difference;
    static __thread bool ready = false;
    if (!ready) {
        mpfr_init2(difference, TRUTH_BITS);
        ready = true;
    }
    mpfr_sub_d(difference, truth, got, MPFR_RNDN);
    return ldexp(fabs(mpfr_get_d(difference, MPFR_RNDN)), -ulp);
}

typedef struct {
    float (*function)(float);
    void (*truth)(mpfr_t result, const mpfr_t x);
    double (*bound)(float x); // in ulp
    double worst;             // the largest error seen, and where
    float worst_at;
} error_check;

static inline void check_one(error_check *check, float value, mpfr_t x, mpfr_t y)
{
    mpfr_set_flt(x, value, MPFR_RNDN);
    check->truth(y, x);
    double error = ulp_error(check->function(value), y);
    if (error > check->worst) {
        check->worst = error;
        check->worst_at = value;
    }
    if (!(error <= check->bound(value))) {
        fail_msg("%a gave %a: %g ulp, bound %g", value, check->function(value), error,
                 check->bound(value));
    }
}

// Every stride-th float from `low` to `high`, which have the same sign, and both ends.
static inline void check_range(error_check *check, float low, float high, uint32_t stride)
{
    mpfr_t x, y;
    mpfr_init2(x, 24);
    mpfr_init2(y, TRUTH_BITS);
    uint32_t a = kvern_bits_from_f32(low), b = kvern_bits_from_f32(high);
    uint32_t first = a < b ? a : b, last = a < b ? b : a;
    for (uint64_t bits = first; bits <= last; bits += stride) {
        check_one(check, kvern_f32_from_bits((uint32_t)bits), x, y);
    }
    check_one(check, kvern_f32_from_bits(last), x, y);
    mpfr_clear(x);
    mpfr_clear(y);
}

// From zero to `limit`, with its sign. Below 2^-26, where the functions are constant or linear to
// all bits of a float, always a sample: a quarter of all floats is there.
static inline void check_up_to(error_check *check, float limit, uint32_t stride)
{
    float tiny = copysignf(0x1p-26f, limit);
    check_range(check, copysignf(0.0f, limit), tiny, 10007);
    check_range(check, tiny, limit, stride);
}

#endif
