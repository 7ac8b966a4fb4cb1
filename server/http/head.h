// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_HEAD_H
#define KVERN_SERVER_HEAD_H

// What the head of a request must be like, whatever the request is about.

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

// Why a request is refused; static.
typedef struct http_fault {
    unsigned status;
    const char *code, *message; // code NULL: none
} http_fault;

// What is known of a request's first line, by pointers into the head as it came.
typedef struct http_line {
    const char *method, *version;
    const char *target; // up to a byte of zero, which may be the end of the target or not
    size_t target_bytes;
} http_line;

// Why nobody may believe that a head means to others (a proxy) what it means here: where its body
// ends, whom it is for, who sends it. NULL: it is sound. (libmicrohttpd
// itself refuses a Content-Length that is no number, before anybody sees the request.)
const http_fault *http_head_fault(struct MHD_Connection *connection, const http_line *line);

// Decodes %XX in place, but for %00: nothing has a zero byte in its name. Returns the bytes.
size_t http_unescape(char *text);

// Whether a Host (without or with any port) is a name of this machine for itself: localhost,
// 127.0.0.1, [::1], or `own`, a name or a number as in --host.
bool http_is_local(const char *host, const char *own);

#endif
