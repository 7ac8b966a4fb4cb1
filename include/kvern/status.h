// SPDX-License-Identifier: MIT
#ifndef KVERN_STATUS_H
#define KVERN_STATUS_H

// Status codes of every fallible call.
//
//     kvern_status status = kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, &read);
//     if (status) // KVERN_OK is 0
//         fprintf(stderr, "%s: %s\n", kvern_status_name(status), kvern_error_detail());
//
// A call that returns anything but KVERN_OK has changed nothing that the caller can observe, unless
// its own comment says otherwise. The code says what kind of failure it was; kvern_error_detail()
// gives one sentence with the numbers and names of this particular failure.
//
// NULL for an object is KVERN_ERR_ARGUMENT, also where a call's list of errors does not repeat it.
// Calls that return no status must not be given it, unless they say that it is allowed.

#include <kvern/export.h>

#ifdef __cplusplus
extern "C" {
#endif

// X(symbol, value, message). Values are part of the ABI: they are never reused or renumbered, and
// a later release may add some, so a switch over them has a default.
//
// What to do about them: ARGUMENT, RANGE and OVERFLOW are mistakes of the program. MEMORY and
// BUDGET pass when something is given back: release reads, trim, reset or drop rows, and try again,
// for nothing has changed. UNSUPPORTED stays as it is for this plan, this file or this machine.
// BUSY passes when the step or round is over, unless the detail says that the cache belongs to a
// state, whose own functions change all layers together. IO, FORMAT and THREADS come from outside.
#define KVERN_STATUS_LIST(X)                                                                       \
    X(KVERN_OK, 0, "success")                                                                      \
    X(KVERN_ERR_ARGUMENT, 1, "an argument is invalid")                                             \
    X(KVERN_ERR_OVERFLOW, 2, "a size does not fit the machine's integers")                         \
    X(KVERN_ERR_MEMORY, 3, "the allocator had no memory")                                          \
    X(KVERN_ERR_BUDGET, 4, "the byte budget would be exceeded")                                    \
    X(KVERN_ERR_UNSUPPORTED, 5, "the capability is absent")                                        \
    X(KVERN_ERR_BUSY, 6, "the object is in a phase that does not permit the call")                 \
    X(KVERN_ERR_RANGE, 7, "an index or count is out of range")                                     \
    X(KVERN_ERR_IO, 8, "the operating system refused an input or output operation")                \
    X(KVERN_ERR_FORMAT, 9, "the file is not what it claims to be")                                 \
    X(KVERN_ERR_THREADS, 10, "threads could not be started")

// What a call returns. KVERN_OK is 0, so `if (status)` asks for a failure.
typedef enum kvern_status {
#define KVERN_STATUS_ENUM(symbol, value, message) symbol = value,
    KVERN_STATUS_LIST(KVERN_STATUS_ENUM)
#undef KVERN_STATUS_ENUM
} kvern_status;

// The general message of a code, a static string in English without a full stop. An unknown code
// gives "unknown status". Never NULL.
KVERN_API const char *kvern_status_message(kvern_status status);

// The name of a code as it is written in C ("KVERN_ERR_BUDGET"); "KVERN_ERR_?" for an unknown one.
KVERN_API const char *kvern_status_name(kvern_status status);

// One sentence about the last call that failed on the calling thread: which argument, which layer,
// how many bytes. It is kept per thread, so contexts shared by threads do not mix their messages,
// and so that a failed kvern_context_create has one too. The string belongs to the library and is
// valid until the next failing call on the same thread. Look at it after a failure only: a call
// that succeeded at its second attempt may have left the sentence of the first. Empty before the
// first failure.
KVERN_API const char *kvern_error_detail(void);

#ifdef __cplusplus
}
#endif

#endif
