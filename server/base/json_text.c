// SPDX-License-Identifier: MIT
#include "server/base/json_text.h"

#include "engine/base/utf8.h"

// Reals have as many digits as tell any float from the next.
#define REAL_DIGITS 9

json_t *server_json_text(const char *data, size_t size)
{
    text_buffer text = TEXT_BUFFER_INIT;
    utf8_stream stream = {0};
    json_t *value = NULL;
    if (utf8_stream_push(&stream, data, size, &text) == KVERN_OK &&
        utf8_stream_flush(&stream, &text) == KVERN_OK) {
        value = json_stringn_nocheck(text.data ? text.data : "", text.size);
    }
    text_buffer_free(&text);
    return value;
}

static int append(const char *data, size_t size, void *user)
{
    return text_buffer_append(user, data, size) == KVERN_OK ? 0 : -1;
}

bool server_json_write(json_t *value, text_buffer *out)
{
    const int failed =
        value
            ? json_dump_callback(value, append, out,
                                 JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS))
            : -1;
    json_decref(value);
    return failed == 0;
}
