// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_STRICT_H
#define KVERN_MATH_STRICT_H

// Every file that computes includes this, most of them through half.h, a lanes header or fpenv.h: a
// compiler that may reassociate sums, or forget infinities and NaN, gives other bits than
// docs/arithmetic.md. A project that builds these sources with flags of its own shall hear of it.

#include <float.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "Kvern's results are defined bit by bit: build it without -ffast-math and its parts"
#endif

// 0: every type in itself; 16: the same, for machines that have _Float16 (-march=native).
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "float expressions must be evaluated in float (on 32-bit x86: -mfpmath=sse -msse2)"
#endif

#endif
