// SPDX-License-Identifier: MIT
#include "engine/base/little_endian.h"
#include "engine/gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_NAME_BYTES 80
#define SHOWN_PATH_BYTES 200

// "metadata entry 3 'general.name': ", or nothing in the header.
static void describe_item(const gguf_cursor *cursor, char *text, size_t size)
{
    text[0] = '\0';
    if (!cursor->item_kind) {
        return;
    }
    gguf_string name = cursor->item_name;
    int shown = name.size < SHOWN_NAME_BYTES ? (int)name.size : SHOWN_NAME_BYTES;
    if (shown) {
        snprintf(text, size, "%s %zu '%.*s': ", cursor->item_kind, cursor->item_index, shown,
                 name.data);
    } else {
        snprintf(text, size, "%s %zu: ", cursor->item_kind, cursor->item_index);
    }
}

kvern_status gguf_fail(const gguf_cursor *cursor, kvern_status status, size_t at,
                       const char *format, ...)
{
    char item[160];
    char message[256];
    describe_item(cursor, item, sizeof item);
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);

    // The end of a long path says more than its beginning, and the fault must not be cut off.
    const char *path = cursor->file_name;
    size_t length = strlen(path);
    if (length > SHOWN_PATH_BYTES) {
        path += length - SHOWN_PATH_BYTES;
    }
    return engine_fail(cursor->error, status, "%s: %s%s (at byte %zu)", path, item, message, at);
}

void gguf_cursor_begin_item(gguf_cursor *cursor, const char *kind, size_t index)
{
    cursor->item_kind = kind;
    cursor->item_index = index;
    cursor->item_name = (gguf_string){NULL, 0};
}

kvern_status gguf_take(gguf_cursor *cursor, uint64_t bytes, const char *what,
                       const unsigned char **start)
{
    size_t left = cursor->bytes - cursor->at;
    *start = NULL;
    if (bytes > left) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, cursor->at,
                         "%s takes %" PRIu64 " bytes, but the file has only %zu left", what, bytes,
                         left);
    }
    *start = cursor->data + cursor->at;
    cursor->at += (size_t)bytes;
    return KVERN_OK;
}

kvern_status gguf_take_u32(gguf_cursor *cursor, const char *what, uint32_t *value)
{
    const unsigned char *start;
    kvern_status status = gguf_take(cursor, 4, what, &start);
    if (status == KVERN_OK) {
        *value = engine_load_u32(start);
    }
    return status;
}

kvern_status gguf_take_u64(gguf_cursor *cursor, const char *what, uint64_t *value)
{
    const unsigned char *start;
    kvern_status status = gguf_take(cursor, 8, what, &start);
    if (status == KVERN_OK) {
        *value = engine_load_u64(start);
    }
    return status;
}

kvern_status gguf_take_string(gguf_cursor *cursor, const char *what, gguf_string *value)
{
    uint64_t size;
    kvern_status status = gguf_take_u64(cursor, what, &size);
    if (status != KVERN_OK) {
        return status;
    }
    const unsigned char *start;
    status = gguf_take(cursor, size, what, &start);
    if (status == KVERN_OK) {
        *value = (gguf_string){(const char *)start, (size_t)size};
    }
    return status;
}

static bool is_printable_ascii(gguf_string text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < 0x20 || text.data[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

kvern_status gguf_take_name(gguf_cursor *cursor, const char *what, size_t max_bytes,
                            gguf_string *value)
{
    size_t at = cursor->at;
    kvern_status status = gguf_take_string(cursor, what, value);
    if (status != KVERN_OK) {
        return status;
    }
    if (value->size == 0 || value->size > max_bytes) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "%s has %zu bytes, not 1 to %zu", what,
                         value->size, max_bytes);
    }
    if (!is_printable_ascii(*value)) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "%s is not printable ASCII", what);
    }
    cursor->item_name = *value;
    return KVERN_OK;
}

kvern_status gguf_take_count(gguf_cursor *cursor, const char *what, size_t min_bytes, size_t *count)
{
    size_t at = cursor->at;
    uint64_t value;
    kvern_status status = gguf_take_u64(cursor, what, &value);
    if (status != KVERN_OK) {
        return status;
    }
    size_t left = cursor->bytes - cursor->at;
    if (value > left / min_bytes) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at,
                         "%s is %" PRIu64 ", more than the %zu bytes left can hold", what, value,
                         left);
    }
    *count = (size_t)value;
    return KVERN_OK;
}
