// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_FPENV_H
#define KVERN_MATH_FPENV_H

// Reassociated sums and contracted products have other bits, and NaN would be taken for a number.
#ifdef __FAST_MATH__
#error "Kvern cannot be compiled with -ffast-math: docs/arithmetic.md defines each rounding"
#endif

// The floating-point environment that the arithmetic of this library is defined in: rounding to
// nearest even, subnormal numbers kept on input and output, no exception trapped. A caller may have
// another one (a program that is linked with -ffast-math starts with subnormals flushed to zero),
// so every entry point that computes brackets its work:
//
//     kvern_fp_saved saved = kvern_fp_enter();
//     ... loads, kernels, stores ...
//     kvern_fp_leave(saved);
//
// The environment belongs to a thread: work handed to another thread needs its own pair there.
// Both calls are barriers for memory, but the compiler does not know that arithmetic depends on
// them: it may move an operation on values that are in registers already (parameters passed by
// value, a result). Let the arithmetic read its operands from memory, or be in a function that is
// not inlined, or pin the values with kvern_fp_pin. The sticky exception flags are unspecified
// after the pair.

#include "src/math/strict.h"

#include <stdint.h>

// Keeps the computation of *x before this point, and what is computed from it after.
static inline void kvern_fp_pin(float *x)
{
    __asm__ volatile("" : "+m"(*x) : : "memory");
}

#if defined(__x86_64__) || defined(__i386__)

typedef uint32_t kvern_fp_saved; // MXCSR as the caller had it

#define KVERN_FP_CONTROL 0xffc0u // flush, rounding, exception masks and denormals-are-zero
#define KVERN_FP_WANTED 0x1f80u  // nearest, nothing flushed, every exception masked

static inline void kvern_fp_write_(uint32_t value)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(value) : "memory");
}

static inline kvern_fp_saved kvern_fp_enter(void)
{
    uint32_t saved;
    __asm__ volatile("stmxcsr %0" : "=m"(saved) : : "memory");
    if ((saved & KVERN_FP_CONTROL) != KVERN_FP_WANTED) {
        kvern_fp_write_((saved & ~KVERN_FP_CONTROL) | KVERN_FP_WANTED);
    }
    return saved;
}

static inline void kvern_fp_leave(kvern_fp_saved saved)
{
    if ((saved & KVERN_FP_CONTROL) != KVERN_FP_WANTED) {
        kvern_fp_write_(saved);
    }
    __asm__ volatile("" : : : "memory");
}

#elif defined(__aarch64__)

typedef uint64_t kvern_fp_saved; // FPCR as the caller had it; all its bits clear is what we want

static inline void kvern_fp_write_(uint64_t value)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory");
}

static inline kvern_fp_saved kvern_fp_enter(void)
{
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved) : : "memory");
    if (saved != 0) {
        kvern_fp_write_(0);
    }
    return saved;
}

static inline void kvern_fp_leave(kvern_fp_saved saved)
{
    if (saved != 0) {
        kvern_fp_write_(saved);
    }
    __asm__ volatile("" : : : "memory");
}

#else

// Elsewhere the C library's default environment has these properties.
#include <fenv.h>

typedef fenv_t kvern_fp_saved;

static inline kvern_fp_saved kvern_fp_enter(void)
{
    fenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    __asm__ volatile("" : : : "memory");
    return saved;
}

static inline void kvern_fp_leave(kvern_fp_saved saved)
{
    __asm__ volatile("" : : : "memory");
    fesetenv(&saved);
}

#endif

#endif
