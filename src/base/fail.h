// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_FAIL_H
#define KVERN_BASE_FAIL_H

#include <kvern/status.h>

// Keeps the sentence for kvern_error_detail() of this thread and returns `status`, so that a
// failing function ends with `return kvern_fail(...)`.
KVERN_CHECK kvern_status kvern_fail(kvern_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
