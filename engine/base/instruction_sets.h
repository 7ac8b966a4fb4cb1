// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_INSTRUCTION_SETS_H
#define KVERN_ENGINE_INSTRUCTION_SETS_H

// Which files of kernels (*_avx2.c and so on) are in this build: those of the architecture, but for
// what the CMake option KVERN_ISA leaves out. kvern_cpu_features never names one that is absent.

#ifdef __x86_64__
#ifndef KVERN_WITHOUT_AVX2
#define ENGINE_HAS_AVX2
#endif
#ifndef KVERN_WITHOUT_AVXVNNI
#define ENGINE_HAS_AVXVNNI
#endif
#ifndef KVERN_WITHOUT_AVX512
#define ENGINE_HAS_AVX512
#endif
#ifndef KVERN_WITHOUT_AVX512VNNI
#define ENGINE_HAS_AVX512VNNI
#endif
#endif

#if defined(__aarch64__) && !defined(KVERN_WITHOUT_NEON)
#define ENGINE_HAS_NEON
#endif

#endif
