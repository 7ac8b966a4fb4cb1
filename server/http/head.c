// SPDX-License-Identifier: MIT
#include "server/http/head.h"

#include <string.h>
#include <strings.h>

// ---- Framing (RFC 9112) ----

// Each of them may be there once.
enum { LENGTH, ENCODING, HOST, AUTHORIZATION, SINGLE };
static const char *const SINGLES[SINGLE] = {MHD_HTTP_HEADER_CONTENT_LENGTH,
                                            MHD_HTTP_HEADER_TRANSFER_ENCODING, MHD_HTTP_HEADER_HOST,
                                            MHD_HTTP_HEADER_AUTHORIZATION};

static const http_fault NAME = {400, "invalid_http", "a header's name has bytes that no name has"};
static const http_fault VALUE = {400, "invalid_http", "a header's value has control characters"};
static const http_fault TWICE = {
    400, "invalid_http",
    "Content-Length, Transfer-Encoding, Host or Authorization is there more than once"};
static const http_fault BOTH = {400, "invalid_http",
                                "Content-Length and Transfer-Encoding are there together"};
static const http_fault UNKNOWN_ENCODING = {501, "unsupported",
                                            "Transfer-Encoding is not \"chunked\""};
static const http_fault OLD_ENCODING = {400, "invalid_http", "HTTP/1.0 has no Transfer-Encoding"};
static const http_fault NO_HOST = {400, "invalid_http", "the request has no Host"};

typedef struct head_look {
    const char *values[SINGLE];
    const http_fault *fault;
} head_look;

static bool is_token(const char *name, size_t bytes)
{
    static const char MARKS[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < bytes; i++) {
        const char c = name[i], low = (char)(c | 0x20);
        if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') &&
            (c == '\0' || !strchr(MARKS, c))) {
            return false;
        }
    }
    return bytes > 0;
}

static bool is_text(const char *value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static enum MHD_Result look_at_header(void *user, enum MHD_ValueKind kind, const char *name,
                                      size_t name_bytes, const char *value, size_t value_bytes)
{
    head_look *look = user;
    (void)kind;
    if (!is_token(name, name_bytes)) {
        look->fault = &NAME;
    } else if (value && !is_text(value, value_bytes)) {
        look->fault = &VALUE;
    }
    for (size_t i = 0; i < SINGLE && !look->fault; i++) {
        if (strcasecmp(name, SINGLES[i]) == 0) {
            look->fault = look->values[i] ? &TWICE : NULL;
            look->values[i] = value ? value : "";
        }
    }
    return look->fault ? MHD_NO : MHD_YES;
}

static const http_fault *body_fault(const char *length, const char *encoding, bool old)
{
    if (length && encoding) {
        return &BOTH;
    }
    if (encoding && old) {
        return &OLD_ENCODING;
    }
    return encoding && strcasecmp(encoding, "chunked") != 0 ? &UNKNOWN_ENCODING : NULL;
}

const http_fault *http_head_fault(struct MHD_Connection *connection, const char *version)
{
    const bool old = strcmp(version, MHD_HTTP_VERSION_1_1) != 0;
    head_look look = {0};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look_at_header, &look);
    if (look.fault) {
        return look.fault;
    }
    return !look.values[HOST] && !old ? &NO_HOST
                                      : body_fault(look.values[LENGTH], look.values[ENCODING], old);
}

// ---- Host ----

// The bytes of the name in a Host; its port, if it has one, is behind it.
static size_t name_bytes(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    return end ? (size_t)(end + 1 - host) : strcspn(host, ":");
}

static bool is_port(const char *text)
{
    return text[0] == '\0' || (text[0] == ':' && text[1 + strspn(text + 1, "0123456789")] == '\0');
}

static bool is_name(const char *name, size_t bytes, const char *wanted)
{
    return strlen(wanted) == bytes && strncasecmp(name, wanted, bytes) == 0;
}

bool http_is_local(const char *host, const char *own)
{
    const size_t bytes = name_bytes(host);
    if (!is_port(host + bytes)) {
        return false;
    }
    // An IPv6 address is given to --host without its brackets.
    const bool bare = bytes > 2 && host[0] == '[' && is_name(host + 1, bytes - 2, own);
    return bare || is_name(host, bytes, "localhost") || is_name(host, bytes, "127.0.0.1") ||
           is_name(host, bytes, "[::1]") || is_name(host, bytes, own);
}
