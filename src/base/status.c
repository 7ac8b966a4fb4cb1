// SPDX-License-Identifier: MIT
#include "src/base/fail.h"

#include <kvern/kvern.h>
#include <stdarg.h>
#include <stdio.h>

// Room for two signatures of any layers and a sentence around them.
static _Thread_local char detail[512];

kvern_status kvern_fail(kvern_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    return status;
}

const char *kvern_error_detail(void)
{
    return detail;
}

const char *kvern_status_message(kvern_status status)
{
    switch (status) {
#define STATUS_MESSAGE(symbol, value, message)                                                     \
    case symbol:                                                                                   \
        return message;
        KVERN_STATUS_LIST(STATUS_MESSAGE)
#undef STATUS_MESSAGE
    }
    return "unknown status";
}

const char *kvern_status_name(kvern_status status)
{
    switch (status) {
#define STATUS_NAME(symbol, value, message)                                                        \
    case symbol:                                                                                   \
        return #symbol;
        KVERN_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "KVERN_ERR_?";
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *kvern_version(void)
{
    return TEXT(KVERN_VERSION_MAJOR) "." TEXT(KVERN_VERSION_MINOR) "." TEXT(KVERN_VERSION_PATCH);
}
