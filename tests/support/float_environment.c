// SPDX-License-Identifier: MIT
#include "tests/support/float_environment.h"

#include <fenv.h>
#include <stdint.h>

static int rounding_of(float_environment wanted)
{
    switch (wanted) {
    case FLOAT_UPWARD:
    case FLOAT_UPWARD_FLUSH:
        return FE_UPWARD;
    case FLOAT_DOWNWARD:
        return FE_DOWNWARD;
    case FLOAT_TOWARD_ZERO:
        return FE_TOWARDZERO;
    default:
        return FE_TONEAREST;
    }
}

static int flushes(float_environment wanted)
{
    return wanted == FLOAT_FLUSH || wanted == FLOAT_UPWARD_FLUSH;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define FLUSH_BITS 0x8040u // flush to zero, denormals are zero

static void set_flush(int on)
{
    _mm_setcsr(on ? _mm_getcsr() | FLUSH_BITS : _mm_getcsr() & ~FLUSH_BITS);
}

static int has_flush(void)
{
    return (_mm_getcsr() & FLUSH_BITS) == FLUSH_BITS;
}
#elif defined(__aarch64__)
#define FLUSH_BITS (UINT64_C(1) << 24)

static uint64_t get_control(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static void set_flush(int on)
{
    const uint64_t control = on ? get_control() | FLUSH_BITS : get_control() & ~FLUSH_BITS;
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

static int has_flush(void)
{
    return (get_control() & FLUSH_BITS) != 0;
}
#else
static void set_flush(int on)
{
    (void)on;
}

static int has_flush(void)
{
    return 0;
}
#endif

void float_environment_set(float_environment wanted)
{
    fesetround(rounding_of(wanted));
    set_flush(flushes(wanted));
}

int float_environment_is(float_environment wanted)
{
    return fegetround() == rounding_of(wanted) && has_flush() == flushes(wanted);
}
