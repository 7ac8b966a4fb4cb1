// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SANITIZER_H
#define KVERN_TESTS_SUPPORT_SANITIZER_H

// Whether this build has a sanitizer: they replace calls of the system, need all of the address
// space, and take their time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

#endif
