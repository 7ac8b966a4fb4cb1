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
