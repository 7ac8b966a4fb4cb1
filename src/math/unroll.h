// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_UNROLL_H
#define KVERN_MATH_UNROLL_H

// Before a loop over registers, with a constant count of at most 16: it must vanish, since an array
// that is indexed by a variable would live in memory.
#ifdef __clang__
#define KVERN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KVERN_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
