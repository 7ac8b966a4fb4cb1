// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_CHECK_H
#define KVERN_TESTS_SUPPORT_CHECK_H

// Checks for cmocka tests of the library. A failed one says which call it was, what it returned,
// and the library's own sentence about it.

#include <kvern/status.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// Fails the test unless `call` returns KVERN_OK, or the status `wanted`.
#define assert_ok(call) check_status(KVERN_OK, (call), #call, __FILE__, __LINE__)
#define assert_status(wanted, call) check_status((wanted), (call), #call, __FILE__, __LINE__)

void check_status(kvern_status wanted, kvern_status got, const char *call, const char *file,
                  int line);

// Fails the test unless two arrays of floats have the same bits. A NaN equals any NaN: payloads are
// not part of the promise. `what` goes into the message.
void check_same_floats(const float *wanted, const float *got, size_t count, const char *what);

// The same for any bytes.
void check_same_bytes(const void *wanted, const void *got, size_t bytes, const char *what);

// The seed of this run: KVERN_TEST_SEED; without it 1, or the clock when KVERN_TEST_LONG is set.
// The first call prints it.
uint64_t check_seed(void);

// Whether KVERN_TEST_LONG asks for the long form of the tests.
int check_is_long(void);

// How often a random test repeats itself: `most` times in its long form; else `usually`, or a third
// of that with a sanitizer, which takes several times as long for each: the whole number is the
// other builds'.
int check_repetitions(int usually, int most);

#endif
