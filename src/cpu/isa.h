// SPDX-License-Identifier: MIT
#ifndef KVERN_CPU_ISA_H
#define KVERN_CPU_ISA_H

// The instruction sets that the library's kernels are written for, and which of them this build
// has: those of the architecture, but for what the CMake option KVERN_ISA leaves out, by defining
// KVERN_WITHOUT_<SET>. A family of kernels has one table, indexed by kvern_isa:
//
//     #define ENTER(set, SET) [KVERN_ISA_##SET] = &kvern_family_##set,
//     static const kvern_family *const families[] = {ENTER(plain, PLAIN) KVERN_VECTOR_ISAS(ENTER)};
//     ... families[kvern_isa_of(features)] ...

#include <kvern/cpu.h>

typedef enum kvern_isa {
    KVERN_ISA_PLAIN, // C for any processor: the definition of every kernel
    KVERN_ISA_AVX2,
    KVERN_ISA_AVX512,
    KVERN_ISA_NEON
} kvern_isa;

#if defined(__x86_64__) && !defined(KVERN_WITHOUT_AVX512)
#define KVERN_IF_AVX512_(X) X(avx512, AVX512)
#else
#define KVERN_IF_AVX512_(X)
#endif
#if defined(__x86_64__) && !defined(KVERN_WITHOUT_AVX2)
#define KVERN_IF_AVX2_(X) X(avx2, AVX2)
#else
#define KVERN_IF_AVX2_(X)
#endif
#if defined(__aarch64__) && !defined(KVERN_WITHOUT_NEON)
#define KVERN_IF_NEON_(X) X(neon, NEON)
#else
#define KVERN_IF_NEON_(X)
#endif

// X(set, SET) for the sets of this build besides plain C, the best one first.
#define KVERN_VECTOR_ISAS(X) KVERN_IF_AVX512_(X) KVERN_IF_AVX2_(X) KVERN_IF_NEON_(X)

// The best set of this build within `features`, bits of kvern/cpu.h.
static inline kvern_isa kvern_isa_of(uint32_t features)
{
#define KVERN_ISA_FOUND_(set, SET)                                                                 \
    if (features & KVERN_CPU_##SET)                                                                \
        return KVERN_ISA_##SET;
    KVERN_VECTOR_ISAS(KVERN_ISA_FOUND_)
#undef KVERN_ISA_FOUND_
    (void)features;
    return KVERN_ISA_PLAIN;
}

#endif
