// SPDX-License-Identifier: MIT
#include "engine/base/utf8.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" // U+FFFD
#define REPLACEMENT_BYTES 3

// What a first byte promises: the length of the character, and the range of its second byte, which
// is where overlong forms, surrogates and values above U+10FFFF are excluded. Later bytes are 80 to
// BF.
typedef struct lead {
    unsigned char length; // 0: no character begins so
    unsigned char low, high;
} lead;

static lead lead_of(unsigned char byte)
{
    if (byte < 0x80)
        return (lead){1, 0, 0};
    if (byte < 0xc2 || byte > 0xf4)
        return (lead){0, 0, 0};
    if (byte < 0xe0)
        return (lead){2, 0x80, 0xbf};
    if (byte < 0xf0)
        return (lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    return (lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
}

utf8_kind utf8_next(const char *data, size_t size, size_t *length)
{
    const unsigned char *bytes = (const unsigned char *)data;
    lead expect = lead_of(bytes[0]);
    *length = 1;
    if (expect.length == 0)
        return UTF8_INVALID;
    while (*length < expect.length) {
        if (*length == size)
            return UTF8_INCOMPLETE;
        if (bytes[*length] < expect.low || bytes[*length] > expect.high)
            return UTF8_INVALID;
        expect.low = 0x80;
        expect.high = 0xbf;
        (*length)++;
    }
    return UTF8_VALID;
}

// The room was reserved before.
static void put(text_buffer *out, const char *data, size_t size)
{
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

// Completes or rejects the pending beginning of a character. Returns how many bytes of `data` it
// took.
static size_t finish_pending(utf8_stream *stream, const char *data, size_t size, text_buffer *out)
{
    size_t used = 0;
    while (stream->count > 0 && used < size) {
        size_t length;
        stream->pending[stream->count] = data[used];
        switch (utf8_next(stream->pending, stream->count + 1, &length)) {
        case UTF8_INCOMPLETE:
            stream->count++;
            used++;
            break;
        case UTF8_VALID:
            put(out, stream->pending, length);
            stream->count = 0;
            used++;
            break;
        case UTF8_INVALID: // the new byte does not belong to it: it is looked at again
            put(out, REPLACEMENT, REPLACEMENT_BYTES);
            stream->count = 0;
            break;
        }
    }
    return used;
}

kvern_status utf8_stream_push(utf8_stream *stream, const char *data, size_t size, text_buffer *out)
{
    if (size > SIZE_MAX / REPLACEMENT_BYTES - sizeof stream->pending)
        return KVERN_ERR_OVERFLOW;
    const size_t most = (size + stream->count) * REPLACEMENT_BYTES;
    const kvern_status status = text_buffer_reserve(out, most);
    if (status != KVERN_OK)
        return status;
    size_t at = finish_pending(stream, data, size, out);
    while (at < size) {
        size_t length;
        const utf8_kind kind = utf8_next(data + at, size - at, &length);
        if (kind == UTF8_VALID) {
            put(out, data + at, length);
        } else if (kind == UTF8_INVALID) {
            put(out, REPLACEMENT, REPLACEMENT_BYTES);
        } else {
            memcpy(stream->pending, data + at, length);
            stream->count = length;
        }
        at += length;
    }
    return KVERN_OK;
}

kvern_status utf8_stream_flush(utf8_stream *stream, text_buffer *out)
{
    if (stream->count == 0)
        return KVERN_OK;
    const kvern_status status = text_buffer_append(out, REPLACEMENT, REPLACEMENT_BYTES);
    if (status == KVERN_OK)
        stream->count = 0;
    return status;
}
