// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_API_ERROR_H
#define KVERN_SERVER_API_ERROR_H

// Errors as clients of OpenAI's interface expect them:
//     {"error": {"message": "...", "type": "...", "param": "...", "code": "..."}}

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct api_error {
    unsigned http;    // the status; 0: no error
    const char *type; // static
    const char *code; // static; NULL: null
    char param[64];   // the key of the request that it is about; "": null
    char message[512];
    unsigned retry_seconds; // of a Retry-After; 0: none
    const char *allow;      // of an Allow, static; NULL: none
} api_error;

// Fills *error; `param` may be NULL.
void api_error_set(api_error *error, unsigned http, const char *type, const char *code,
                   const char *param, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

// What is wrong with a request, as the engine says it: the key that a sentence names first, in
// quotes, is its `param`.
void api_error_refuse(api_error *error, const engine_error *refusal, const json_t *request);

// An answer that failed while it was made.
void api_error_fail(api_error *error, kvern_status status, const char *message);

// A new reference; NULL: no memory.
json_t *api_error_json(const api_error *error);

#define API_INVALID "invalid_request_error"
#define API_SERVER "server_error"

#endif
