// SPDX-License-Identifier: MIT
#include "server/base/api_error.h"

#include "server/base/json_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void api_error_set(api_error *error, unsigned http, const char *type, const char *code,
                   const char *param, const char *format, ...)
{
    va_list arguments;
    *error = (api_error){.http = http, .type = type, .code = code};
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
}

// The first word in quotes, if it is a key of the request.
static void find_param(const char *message, const json_t *request, char param[64])
{
    const char *begin = strchr(message, '"');
    const size_t bytes = begin ? strcspn(begin + 1, "\"") : 0;
    param[0] = 0;
    if (bytes == 0 || bytes >= 64) {
        return;
    }
    snprintf(param, 64, "%.*s", (int)bytes, begin + 1);
    if (!json_object_get(request, param)) {
        param[0] = 0;
    }
}

static const char *code_of(kvern_status status)
{
    switch (status) {
    case KVERN_ERR_UNSUPPORTED:
        return "unsupported";
    case KVERN_ERR_RANGE:
        return "context_length_exceeded";
    case KVERN_ERR_BUDGET:
        return "memory_exceeded";
    default:
        return NULL;
    }
}

void api_error_refuse(api_error *error, const engine_error *refusal, const json_t *request)
{
    char param[64];
    if (refusal->status == KVERN_ERR_MEMORY || refusal->status == KVERN_ERR_OVERFLOW) {
        api_error_fail(error, refusal->status, refusal->text);
        return;
    }
    find_param(refusal->text, request, param);
    api_error_set(error, 400, API_INVALID, code_of(refusal->status), param, "%s", refusal->text);
}

void api_error_fail(api_error *error, kvern_status status, const char *message)
{
    const bool memory = status == KVERN_ERR_MEMORY || status == KVERN_ERR_BUDGET;
    api_error_set(error, memory ? 503 : 500, API_SERVER, memory ? "out_of_memory" : "failed", NULL,
                  "%s", message);
}

static json_t *text_or_null(const char *text)
{
    return text && text[0] ? server_json_text(text, strlen(text)) : json_null();
}

json_t *api_error_json(const api_error *error)
{
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message",
                     server_json_text(error->message, strlen(error->message)), "type", error->type,
                     "param", text_or_null(error->param), "code", text_or_null(error->code));
}
