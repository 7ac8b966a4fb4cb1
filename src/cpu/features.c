// SPDX-License-Identifier: MIT
// Detects instruction sets. AVX needs more than the processor's word: the operating system must
// save the wide registers on a context switch, which XCR0 tells. A program that skips this check
// dies of an illegal instruction under a kernel or hypervisor that masks them.
#include <kvern/cpu.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

// XCR0 bits: SSE and AVX state; opmask, upper ZMM halves and the high ZMM registers.
#define XCR0_AVX UINT64_C(0x06)
#define XCR0_AVX512 UINT64_C(0xe6)

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool has_all(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

static uint32_t detect(void)
{
    uint32_t a, b, c, d, a1, b1, c1, d1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return 0;
    const uint64_t xcr0 = read_xcr0();
    if ((xcr0 & XCR0_AVX) != XCR0_AVX)
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, bit_AVX2))
        return 0;
    uint32_t features = KVERN_CPU_AVX2;
    if (__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) && has_all(a1, 1u << 4))
        features |= KVERN_CPU_AVX_VNNI;
    const uint32_t wide = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((xcr0 & XCR0_AVX512) == XCR0_AVX512 && has_all(b, wide)) {
        features |= KVERN_CPU_AVX512;
        if (has_all(c, 1u << 11))
            features |= KVERN_CPU_AVX512_VNNI;
    }
    return features;
}
#elif defined(__aarch64__)
static uint32_t detect(void)
{
    return KVERN_CPU_NEON; // part of the architecture's baseline
}
#else
static uint32_t detect(void)
{
    return 0;
}
#endif

// What kernels were left out of this build for (CMake option KVERN_ISA).
static uint32_t left_out(void)
{
    uint32_t features = 0;
#ifdef KVERN_WITHOUT_AVX2
    features |= KVERN_CPU_AVX2;
#endif
#ifdef KVERN_WITHOUT_AVX512
    features |= KVERN_CPU_AVX512;
#endif
#ifdef KVERN_WITHOUT_AVXVNNI
    features |= KVERN_CPU_AVX_VNNI;
#endif
#ifdef KVERN_WITHOUT_AVX512VNNI
    features |= KVERN_CPU_AVX512_VNNI;
#endif
#ifdef KVERN_WITHOUT_NEON
    features |= KVERN_CPU_NEON;
#endif
    return features;
}

uint32_t kvern_cpu_features(void)
{
    const uint32_t found = detect() & ~left_out();
    const char *wish = getenv("KVERN_CPU");
    if (!wish)
        return found;
    if (strcmp(wish, "plain") == 0)
        return 0;
    if (strcmp(wish, "avx2") == 0)
        return found & KVERN_CPU_AVX2;
    return found;
}

const char *kvern_cpu_name(uint32_t features)
{
    if (features & KVERN_CPU_AVX512)
        return "avx512";
    if (features & KVERN_CPU_AVX2)
        return "avx2";
    if (features & KVERN_CPU_NEON)
        return "neon";
    return "plain";
}
