// SPDX-License-Identifier: MIT
#include "cli/json.h"

#include "cli/report.h"
#include "cli/text.h"

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
