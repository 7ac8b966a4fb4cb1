// SPDX-License-Identifier: MIT
#ifndef KVERN_CPU_H
#define KVERN_CPU_H

// Which instruction sets and how many processors the library uses. They change the speed, never a
// bit of any result: the kernels in plain C are the definition, and all others equal them bit for
// bit.
//
// A kernel may be left out when the library is built; then its bit is not in what a context reports
// (kvern_context_cpu_features), and the next narrower set does the work.

#include <kvern/export.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Feature bits. Each one stands for a group of instructions that the processor has and whose
// registers the operating system saves. No bit set means the plain C kernels. Values are part of
// the ABI; a later release may add bits.
#define KVERN_CPU_AVX2 (UINT32_C(1) << 0)        // AVX2, FMA and F16C
#define KVERN_CPU_AVX512 (UINT32_C(1) << 1)      // AVX-512 F, BW, VL and DQ, besides AVX2
#define KVERN_CPU_AVX_VNNI (UINT32_C(1) << 2)    // 8-bit dot products in 256-bit registers (VEX)
#define KVERN_CPU_AVX512_VNNI (UINT32_C(1) << 3) // 8-bit dot products in 512-bit registers
#define KVERN_CPU_NEON (UINT32_C(1) << 4)        // aarch64 vectors

// What this machine offers and this build of the library has kernels for (a build may leave sets
// out), narrowed by the environment variable KVERN_CPU:
//   plain    no vector kernels at all
//   avx2     AVX2 only
//   avx512   everything on x86 (the default)
// An unknown word, or one that the machine lacks, narrows to what is left: it never adds anything.
// The machine is asked every time; contexts ask once, when they are created.
KVERN_API uint32_t kvern_cpu_features(void);

// The short name of the best kernel set within `features`: "plain", "avx2", "avx512" or "neon", for
// logs and reports. The dot products for engines (VNNI) have no name of their own. Static.
KVERN_API const char *kvern_cpu_name(uint32_t features);

// How many processors the process may use, at least 1: those that it may run on, or, where a
// container is given less time than they have, as many as that time comes to, rounded up (cpu.max
// of its control group, or cpu.cfs_quota_us). The default number of threads. The system is asked
// every time.
KVERN_API uint32_t kvern_cpu_count(void);

#ifdef __cplusplus
}
#endif

#endif
