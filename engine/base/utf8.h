// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_UTF8_H
#define KVERN_ENGINE_UTF8_H

// UTF-8: classifying bytes, and a stream that never shows half a character.
//
// Tokens of a byte-level vocabulary may end inside a character, so the pieces of a generation must
// not be printed one by one. Valid means RFC 3629: no overlong forms, no surrogates, nothing above
// U+10FFFF.

#include "engine/base/text_buffer.h"

typedef enum utf8_kind {
    UTF8_VALID,     // one whole character
    UTF8_INVALID,   // bytes that no continuation can make valid
    UTF8_INCOMPLETE // a correct beginning that ends with the input
} utf8_kind;

// Classifies the start of `data` (at least one byte) and sets *length to the bytes it covers: the
// whole character; or the longest prefix of a character that the faulty sequence has (at least 1),
// which is what one replacement character stands for; or all bytes of the incomplete beginning.
utf8_kind utf8_next(const char *data, size_t size, size_t *length);

// A stream holds back at most three bytes. Start with zeroes. It owns no memory.
typedef struct utf8_stream {
    char pending[4];
    size_t count;
} utf8_stream;

// Appends to `out` all whole characters that are known after these bytes; faulty bytes come out as
// U+FFFD, one for each longest prefix of a character. On failure (KVERN_ERR_MEMORY,
// KVERN_ERR_OVERFLOW) the stream and `out` are unchanged.
KVERN_CHECK kvern_status utf8_stream_push(utf8_stream *stream, const char *data, size_t size,
                                          text_buffer *out);

// The text ends here: an unfinished character comes out as one U+FFFD. Same failures.
KVERN_CHECK kvern_status utf8_stream_flush(utf8_stream *stream, text_buffer *out);

#endif
