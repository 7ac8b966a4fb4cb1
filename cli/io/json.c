// SPDX-License-Identifier: MIT
#include "cli/io/json.h"

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

void json_put_bool(json_t **object, const char *key, bool value)
{
    json_put(object, key, json_boolean(value));
}

void json_put_text(json_t **object, const char *key, const char *value)
{
    json_put(object, key, value ? json_text(value, strlen(value)) : json_null());
}

int json_print(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (!text) {
        return report_error("no memory for the JSON text");
    }
    bool written = report_write(text, strlen(text)) && report_write("\n", 1);
    free(text);
    return written ? CLI_SUCCESS : CLI_FAILURE;
}
