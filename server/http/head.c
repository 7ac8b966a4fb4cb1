// SPDX-License-Identifier: MIT
#include "server/http/head.h"

#include <string.h>
#include <strings.h>

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
