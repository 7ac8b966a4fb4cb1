// SPDX-License-Identifier: MIT
#include "cli/io/json.h"

#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/io/text.h"

#include <stdlib.h>
#include <string.h>

json_t *json_text(const char *data, size_t size)
{
    text_buffer text = TEXT_BUFFER_INIT;
    json_t *value = NULL;
    if (text_append_utf8(&text, data, size) == KVERN_OK) {
        value = json_stringn_nocheck(text.data ? text.data : "", text.size);
    }
    text_buffer_free(&text);
    return value;
}

void json_put(json_t **object, const char *key, json_t *value)
{
    if (!*object || !value || json_object_set_new_nocheck(*object, key, value) != 0) {
        if (!*object) {
            json_decref(value); // json_object_set_new_nocheck would have released it
        }
        json_decref(*object);
        *object = NULL;
    }
}

void json_put_size(json_t **object, const char *key, uint64_t value)
{
    json_put(object, key, json_integer((json_int_t)value));
}

void json_put_real(json_t **object, const char *key, double value)
{
    json_put(object, key, json_real(value));
}

void json_put_float(json_t **object, const char *key, float value)
{
    json_put_real(object, key, number_of_float(value));
}

void json_put_bool(json_t **object, const char *key, bool value)
{
    json_put(object, key, json_boolean(value));
}

void json_put_text(json_t **object, const char *key, const char *value)
{
    json_put(object, key, value ? json_text(value, strlen(value)) : json_null());
}

// The bytes of a number's text; 0: none begins here.
static size_t number_bytes(const char *text)
{
    return *text == '-' || (*text >= '0' && *text <= '9') ? strspn(text, "+-.0123456789eE") : 0;
}

// Copies a string with its quotes; returns how many bytes.
static size_t copy_string(char *to, const char *from)
{
    size_t bytes = 1;
    while (from[bytes] != '"') {
        bytes += from[bytes] == '\\' ? 2 : 1;
    }
    memmove(to, from, ++bytes);
    return bytes;
}

// Writes a number again, shorter if it is a real one, which remains one: 2.0, not 2.
static size_t copy_number(char *to, const char *from, size_t bytes)
{
    char text[NUMBER_REAL_TEXT];
    if (strcspn(from, ".eE") >= bytes) {
        memmove(to, from, bytes);
        return bytes;
    }
    number_format_real(strtod(from, NULL), text);
    if (!text[strcspn(text, ".e")]) {
        strcat(text, ".0");
    }
    memcpy(to, text, strlen(text));
    return strlen(text);
}

// Jansson writes 17 digits of every real number, and no number of ours is longer than its own.
char *json_compact(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT), *to = text;
    for (const char *from = text; from && *from;) {
        const size_t bytes = number_bytes(from);
        if (bytes > 0) {
            to += copy_number(to, from, bytes);
            from += bytes;
        } else if (*from == '"') {
            const size_t string = copy_string(to, from);
            to += string;
            from += string;
        } else {
            *to++ = *from++;
        }
    }
    if (to) {
        *to = 0;
    }
    return text;
}

int json_print(json_t *value)
{
    char *text = value ? json_compact(value) : NULL;
    json_decref(value);
    if (!text) {
        return report_error("no memory for the JSON text");
    }
    bool written = report_write(text, strlen(text)) && report_write("\n", 1);
    free(text);
    return written ? CLI_SUCCESS : CLI_FAILURE;
}
