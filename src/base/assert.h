// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_ASSERT_H
#define KVERN_BASE_ASSERT_H

// Invariants, stated where they hold. They are for readers, and for the builds that check them: the
// debug build and every build with a sanitizer. In all others the condition is not evaluated, and
// the library never ends the process. What a caller can get wrong is no invariant: it is an error.

#ifdef KVERN_ASSERTS
#undef NDEBUG
#include <assert.h>
#define KVERN_ASSERT(condition) assert(condition)
#else
#define KVERN_ASSERT(condition) ((void)sizeof(!(condition)))
#endif

#endif
