// SPDX-License-Identifier: MIT
#include "engine/base/error.h"

#include <stdarg.h>
#include <stdio.h>

kvern_status engine_fail(engine_error *error, kvern_status status, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
        error->status = status;
    }
    return status;
}

kvern_status engine_fail_kvern(engine_error *error, kvern_status status, const char *what)
{
    const char *detail = kvern_error_detail();
    return engine_fail(error, status, "%s: %s", what,
                       detail[0] ? detail : kvern_status_message(status));
}
