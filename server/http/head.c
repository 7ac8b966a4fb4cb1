// SPDX-License-Identifier: MIT
#include "server/http/head.h"

#include <stdint.h>
#include <stdlib.h>
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
static const http_fault LINES = {400, "invalid_http",
                                 "the head has a zero byte, a folded line or one without a name"};
static const http_fault NO_HOST = {400, "invalid_http", "the request has no Host"};

typedef struct head_look {
    const char *values[SINGLE];
    const char *end; // of what was looked at; NULL: nobody knows how the head lies in memory
    const http_fault *fault;
} head_look;

// ---- What libmicrohttpd leaves out ----

// Up to 0.9.76 it takes lines apart where they lie, and has a value end at its first zero byte,
// joins folded lines, and passes over lines without a name. Each leaves a gap: in a sound head, the
// next name is behind the one or two bytes of the line's end. Later ones refuse all that.
static bool lies_as_it_came(void)
{
    return strncmp(MHD_get_version(), "0.9.", 4) == 0 && atoi(MHD_get_version() + 4) < 77;
}

static bool is_gap(const char *end, const char *next, ptrdiff_t least, ptrdiff_t most)
{
    return next - end >= least && next - end <= most;
}

// Blanks in front of the value are all that may be between it and its name.
static bool follows(const char *name, size_t name_bytes, const char *value)
{
    const char *at = name + name_bytes + 1; // behind the colon
    while (at < value && (*at == ' ' || *at == '\t')) {
        at++;
    }
    return at == value;
}

static bool has_target(const http_line *line)
{
    return !lies_as_it_came() || line->version == line->target + line->target_bytes + 1;
}

// Whether what was looked at last is followed by the end of the head.
static bool has_end(struct MHD_Connection *connection, const http_line *line, const char *end)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return !end || !info || is_gap(end, line->method + info->header_size, 2, 4);
}

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
    if (look->end &&
        (!is_gap(look->end, name, 1, 2) || !value || !follows(name, name_bytes, value))) {
        look->fault = &LINES;
    } else if (!is_token(name, name_bytes)) {
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
    look->end = look->end ? value + value_bytes : NULL;
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

const http_fault *http_head_fault(struct MHD_Connection *connection, const http_line *line)
{
    const bool old = strcmp(line->version, MHD_HTTP_VERSION_1_1) != 0;
    head_look look = {.end = lies_as_it_came() ? line->version + strlen(line->version) : NULL};
    if (!has_target(line)) {
        return &LINES;
    }
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look_at_header, &look);
    if (look.fault) {
        return look.fault;
    }
    if (!has_end(connection, line, look.end)) {
        return &LINES;
    }
    return !look.values[HOST] && !old ? &NO_HOST
                                      : body_fault(look.values[LENGTH], look.values[ENCODING], old);
}

// ---- Paths ----

static int digit_of(char c)
{
    static const char DIGITS[] = "0123456789abcdef";
    const char *found = c ? strchr(DIGITS, c | (c >= 'A' && c <= 'F' ? 0x20 : 0)) : NULL;
    return found ? (int)(found - DIGITS) : -1;
}

size_t http_unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        const int high = *at == '%' ? digit_of(at[1]) : -1, low = high >= 0 ? digit_of(at[2]) : -1;
        const bool coded = low >= 0 && (high > 0 || low > 0);
        *to = coded ? (char)(16 * high + low) : *at;
        at += coded ? 3 : 1;
    }
    *to = 0;
    return (size_t)(to - text);
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
