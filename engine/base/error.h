// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ERROR_H
#define KVERN_ENGINE_ERROR_H

// How the engine reports failures: a kvern_status for the program to act on, and a sentence for the
// person who reads it. The caller owns the engine_error; a NULL pointer is allowed everywhere and
// drops the text.

#include <kvern/status.h>

typedef struct engine_error {
    kvern_status status;
    char text[512]; // one sentence without a full stop, always terminated, cut when too long
} engine_error;

// Fills *error and returns `status`: a failing function can end with `return engine_fail(...)`.
KVERN_CHECK kvern_status engine_fail(engine_error *error, kvern_status status, const char *format,
                                     ...) __attribute__((format(printf, 3, 4)));

// The same for a failed call of the library: takes the text of kvern_error_detail(), after `what`
// (for example "appending to layer 3").
KVERN_CHECK kvern_status engine_fail_kvern(engine_error *error, kvern_status status,
                                           const char *what);

#endif
