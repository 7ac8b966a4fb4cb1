// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_H
#define KVERN_MATH_H

// Float functions whose bits are the same on every processor. kvern.h does not include this header:
// it is for engines, and nothing of the cache needs it.
//
// The C library picks variants of its functions by processor at run time, and they differ in the
// last bit. These are the ones that the library itself computes with, for engines that want their
// own activations and rotary tables to be as reproducible. docs/math.md defines each of them so
// that another implementation can give the same bits; the errors stated there are tested against
// MPFR. One ulp is the distance of the two floats around the true value.
//
// All of them give the same bits whatever the caller's rounding mode and denormal flags are, and
// leave these as they were. A NaN gives a NaN; its payload is not part of the promise.

#include <kvern/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- One value. ----
//
// For what is computed once: rotary tables, a scale, a gate. In loops over tensors use the arrays
// below, which give the same bits and take a fraction of the time.

// At most 1 ulp. Exactly +0 for x < -87 (true values below 1.7e-38), +infinity for x > 88.72283.
KVERN_API float kvern_exp(float x);

// At most 1.5 ulp. Odd; exactly +-1 from about +-9.01 on.
KVERN_API float kvern_tanh(float x);

// 1 / (1 + exp(-x)). At most 1.5 ulp for x >= 0, 2.5 ulp for -87 <= x < 0; exactly +0 for x < -87.
KVERN_API float kvern_sigmoid(float x);

// log(1 + exp(x)). At most 2.5 ulp for x >= 0, 3 ulp for -87 <= x < 0; exactly +0 for x < -87, x
// itself from about 17 on.
KVERN_API float kvern_softplus(float x);

// log(1 + x). At most 0.50001 ulp. -infinity for -1, NaN below.
KVERN_API float kvern_log1p(float x);

// x in radians, any finite float. At most 0.50001 ulp. NaN for an infinity.
KVERN_API float kvern_sin(float x);
KVERN_API float kvern_cos(float x);

// base to the power of exponent. At most 0.50001 ulp. The special cases are those of C's powf.
KVERN_API float kvern_pow(float base, float exponent);

// ---- Arrays. ----
//
//     const uint32_t features = kvern_context_cpu_features(context);
//     kvern_silu_array(features, n, gate, gate);
//     for (size_t i = 0; i < n; i++)
//         gate[i] *= up[i];
//
// y[i] = f(x[i]) for i < n, bit for bit what the function of one value gives. `features` says which
// kernels may run: a subset of kvern_cpu_features() (a bit that the machine lacks is an illegal
// instruction), 0 for plain C; the result does not depend on it. y may be x; otherwise they must
// not overlap. No alignment is needed beyond the element's. n may be 0.

KVERN_API void kvern_exp_array(uint32_t features, size_t n, const float *x, float *y);
KVERN_API void kvern_tanh_array(uint32_t features, size_t n, const float *x, float *y);
KVERN_API void kvern_sigmoid_array(uint32_t features, size_t n, const float *x, float *y);

// x * sigmoid(x). At most 3.5 ulp for x >= -87, exactly -0 below; NaN for -infinity.
KVERN_API void kvern_silu_array(uint32_t features, size_t n, const float *x, float *y);

// GELU in its tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), computed as x *
// sigmoid(z) with z = 2 sqrt(2/pi) x (1 + 0.044715 x^2), which is the same function without its
// cancellation. At most 3 ulp for x >= 0 and 4 + 3 |z| ulp for x < 0; -0 where z < -87 (x below
// about -9.9); NaN for -infinity.
KVERN_API void kvern_gelu_array(uint32_t features, size_t n, const float *x, float *y);

KVERN_API void kvern_softplus_array(uint32_t features, size_t n, const float *x, float *y);

// Between float and the 16-bit types, as bit patterns: to nearest, ties to even; overflow gives
// infinity; subnormal numbers are kept. A NaN keeps its sign and the upper bits of its fraction and
// becomes quiet (bf16 to float keeps it as it is). x and y must not overlap.
KVERN_API void kvern_f32_to_bf16_array(uint32_t features, size_t n, const float *x, uint16_t *y);
KVERN_API void kvern_bf16_to_f32_array(uint32_t features, size_t n, const uint16_t *x, float *y);
KVERN_API void kvern_f32_to_f16_array(uint32_t features, size_t n, const float *x, uint16_t *y);
KVERN_API void kvern_f16_to_f32_array(uint32_t features, size_t n, const uint16_t *x, float *y);

#ifdef __cplusplus
}
#endif

#endif
