// SPDX-License-Identifier: MIT
#include "cli/io/text.h"

#include "engine/base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static kvern_status read_stream(FILE *stream, text_buffer *text)
{
    char block[16384];
    size_t bytes;
    while ((bytes = fread(block, 1, sizeof block, stream)) > 0) {
        kvern_status status = text_buffer_append(text, block, bytes);
        if (status != KVERN_OK) {
            return status;
        }
    }
    return ferror(stream) ? KVERN_ERR_IO : KVERN_OK;
}

kvern_status text_read_file(const char *path, text_buffer *text, engine_error *error)
{
    bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    size_t before = text->size;
    FILE *stream = standard ? stdin : fopen(path, "rb");
    if (!stream) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", name, strerror(errno));
    }
    kvern_status status = read_stream(stream, text);
    int reason = errno;
    if (!standard) {
        fclose(stream);
    }
    if (status != KVERN_OK) {
        text->size = before;
        return engine_fail(error, status, "%s: %s", name,
                           status == KVERN_ERR_IO ? strerror(reason)
                                                  : kvern_status_message(status));
    }
    return KVERN_OK;
}

kvern_status text_append_utf8(text_buffer *text, const char *data, size_t size)
{
    size_t before = text->size;
    utf8_stream stream = {0};
    kvern_status status = utf8_stream_push(&stream, data, size, text);
    if (status == KVERN_OK) {
        status = utf8_stream_flush(&stream, text);
    }
    if (status != KVERN_OK) {
        text->size = before;
    }
    return status;
}

static bool needs_escape(unsigned char byte)
{
    return byte < 0x20 || byte == 0x7f || byte == '\\';
}

// Writes the escape of one byte and returns its length.
static size_t write_escape(unsigned char byte, char escape[5])
{
    static const char NAMED[] = "\\\\\nn\rr\tt";
    for (size_t i = 0; NAMED[i]; i += 2) {
        if (byte == (unsigned char)NAMED[i]) {
            escape[0] = '\\';
            escape[1] = NAMED[i + 1];
            return 2;
        }
    }
    return (size_t)snprintf(escape, 5, "\\x%02x", byte);
}

// Appends the escapes of every byte of a stretch.
static kvern_status append_escapes(text_buffer *text, const char *data, size_t size)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < size && status == KVERN_OK; i++) {
        char escape[5];
        size_t length = write_escape((unsigned char)data[i], escape);
        status = text_buffer_append(text, escape, length);
    }
    return status;
}

kvern_status text_append_escaped(text_buffer *text, const char *data, size_t size)
{
    size_t before = text->size;
    kvern_status status = KVERN_OK;
    while (size > 0 && status == KVERN_OK) {
        size_t length;
        bool plain =
            utf8_next(data, size, &length) == UTF8_VALID && !needs_escape((unsigned char)data[0]);
        status =
            plain ? text_buffer_append(text, data, length) : append_escapes(text, data, length);
        data += length;
        size -= length;
    }
    if (status != KVERN_OK) {
        text->size = before;
    }
    return status;
}

// Bytes of the control character that `data` begins with; 0: it begins with none.
static size_t control_bytes(const char *data, size_t size)
{
    const unsigned char first = (unsigned char)data[0];
    if (first == 0xc2 && size > 1 && (unsigned char)data[1] < 0xa0) {
        return 2;
    }
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ? 1 : 0;
}

kvern_status text_append_printable(text_buffer *text, const char *data, size_t size)
{
    kvern_status status = KVERN_OK;
    while (size > 0 && status == KVERN_OK) {
        size_t plain = 0, control = 0;
        while (plain < size && (control = control_bytes(data + plain, size - plain)) == 0) {
            plain++;
        }
        status = text_buffer_append(text, data, plain);
        if (status == KVERN_OK && control > 0) {
            status = text_buffer_append(text, "\xef\xbf\xbd", 3);
        }
        data += plain + control;
        size -= plain + control;
    }
    return status;
}
