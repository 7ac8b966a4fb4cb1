// SPDX-License-Identifier: MIT
// URLs of servers: redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], unix:PATH.
#include "src/store/remote/wire.h"

#include "src/base/fail.h"

#include <string.h>

#define PORT 6379
#define SCHEME "redis://"
#define SECURE "rediss://"
#define SOCKET "unix:"

static kvern_status refuse(const char *what)
{
    return kvern_fail(KVERN_ERR_ARGUMENT, "the URL of a store: %s", what);
}

// Copies a part of the URL.
static kvern_status take(const char *from, size_t bytes, char to[KVERN_REMOTE_NAME_BYTES])
{
    if (bytes >= KVERN_REMOTE_NAME_BYTES)
        return refuse("a part is too long");
    memcpy(to, from, bytes);
    to[bytes] = '\0';
    return KVERN_OK;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Copies a part in which bytes may be %XX.
static kvern_status take_decoded(const char *from, const char *end,
                                 char to[KVERN_REMOTE_NAME_BYTES])
{
    size_t count = 0;
    for (; from < end; from++) {
        int byte = (unsigned char)*from;
        if (byte == '%') {
            const int high = end - from > 2 ? digit_of(from[1]) : -1;
            const int low = high >= 0 ? digit_of(from[2]) : -1;
            if (low < 0 || high + low == 0)
                return refuse("behind a percent sign are no two digits of a byte, not 0");
            byte = 16 * high + low;
            from += 2;
        }
        if (count + 1 == KVERN_REMOTE_NAME_BYTES)
            return refuse("a part is too long");
        to[count++] = (char)byte;
    }
    to[count] = '\0';
    return KVERN_OK;
}

// A number of one to five digits, up to the end of the part.
static bool read_number(const char *from, const char *end, int *out)
{
    int number = 0;
    if (from == end || end - from > 5)
        return false;
    for (; from < end; from++) {
        if (*from < '0' || *from > '9')
            return false;
        number = 10 * number + (*from - '0');
    }
    *out = number;
    return true;
}

static kvern_status read_user(const char *from, const char *end, kvern_remote_address *out)
{
    const char *colon = memchr(from, ':', (size_t)(end - from));
    if (!colon || colon + 1 == end)
        return refuse("before '@' is not USER:PASSWORD");
    kvern_status status = take_decoded(from, colon, out->user);
    return status ? status : take_decoded(colon + 1, end, out->password);
}

static kvern_status read_host(const char *from, const char *end, kvern_remote_address *out)
{
    const bool brackets = from < end && *from == '[';
    const char *close = brackets ? memchr(from, ']', (size_t)(end - from)) : NULL;
    if (brackets && !close)
        return refuse("a bracket without its other half");
    const char *behind = brackets ? close + 1 : memchr(from, ':', (size_t)(end - from));
    const char *begin = brackets ? from + 1 : from;
    const char *stop = brackets ? close : behind ? behind : end;
    if (!behind)
        behind = end;
    if (begin == stop)
        return refuse("no host");
    for (const char *at = begin; at < stop; at++) {
        if ((unsigned char)*at <= ' ' || strchr("%@\\,;<>\"[]{}|^`", *at))
            return refuse("a character that no host has");
    }
    out->port = PORT;
    if (behind < end && (*behind != ':' || !read_number(behind + 1, end, &out->port) ||
                         out->port == 0 || out->port > 65535))
        return refuse("behind the host is no port");
    return take(begin, (size_t)(stop - begin), out->host);
}

kvern_status kvern_remote_address_read(const char *url, kvern_remote_address *out)
{
    *out = (kvern_remote_address){.port = 0};
    if (strncmp(url, SOCKET, strlen(SOCKET)) == 0 && url[strlen(SOCKET)])
        return take(url + strlen(SOCKET), strlen(url + strlen(SOCKET)), out->host);
    out->is_secure = strncmp(url, SECURE, strlen(SECURE)) == 0;
    if (!out->is_secure && strncmp(url, SCHEME, strlen(SCHEME)) != 0)
        return refuse("it does not begin with redis://, rediss:// or unix:");
    if (url[strcspn(url, "?#")])
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "the URL of a store: '?' and '#' have no meaning in it");
    const char *at = url + strlen(out->is_secure ? SECURE : SCHEME);
    const char *end = at + strcspn(at, "/");
    const char *user_end = memchr(at, '@', (size_t)(end - at));
    kvern_status status = user_end ? read_user(at, user_end, out) : KVERN_OK;
    if (!status)
        status = read_host(user_end ? user_end + 1 : at, end, out);
    if (!status && *end && end[1] && !read_number(end + 1, end + strlen(end), &out->database))
        status = refuse("behind the slash is no number of a database");
    return status;
}
