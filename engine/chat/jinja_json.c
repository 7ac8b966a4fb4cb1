// SPDX-License-Identifier: MIT
// tojson, as chat templates have it: Python's json.dumps that keeps characters outside ASCII.
#include "engine/chat/jinja_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct json_writer {
    jinja_run *run;
    int64_t indent; // < 0: on one line
    int64_t level;
} json_writer;

static void write_plain(const json_writer *w, const char *text)
{
    const jinja_string string = {text, NULL, strlen(text)};
    jinja_write(w->run, &string);
}

// What a byte is written as, or NULL for itself.
static const char *escape_of(unsigned char byte, char escape[8])
{
    static const char *const named[] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
        ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    if (byte < sizeof named / sizeof *named && named[byte])
        return named[byte];
    if (byte >= 0x20)
        return NULL;
    snprintf(escape, 8, "\\u%04x", byte);
    return escape;
}

static void write_string(const json_writer *w, const jinja_string *text)
{
    size_t plain = 0; // from here on bytes stand for themselves
    write_plain(w, "\"");
    for (size_t i = 0; i <= text->size; i++) {
        char buffer[8];
        const char *escape = i < text->size ? escape_of((unsigned char)text->data[i], buffer) : "";
        if (!escape)
            continue;
        jinja_write(w->run, jinja_part(w->run, text, plain, i).as.string);
        if (i < text->size) {
            const jinja_origin origin =
                text->origins ? (jinja_origin)text->origins[i] : JINJA_FROM_TEMPLATE;
            unsigned char origins[8];
            memset(origins, (int)origin, sizeof origins);
            const jinja_string string = {escape, origins, strlen(escape)};
            jinja_write(w->run, &string);
        }
        plain = i + 1;
    }
    write_plain(w, "\"");
}

static void write_break(const json_writer *w, bool first)
{
    if (!first)
        write_plain(w, w->indent < 0 ? ", " : ",");
    if (w->indent < 0)
        return;
    write_plain(w, "\n");
    jinja_charge(w->run, (size_t)(w->indent * w->level));
    for (int64_t i = 0; i < w->indent * w->level; i++)
        write_plain(w, " ");
}

static void write_value(json_writer *w, jinja_value value);

static void write_list(json_writer *w, const jinja_list *list)
{
    write_plain(w, "[");
    w->level++;
    for (size_t i = 0; i < list->count; i++) {
        write_break(w, i == 0);
        write_value(w, list->items[i]);
    }
    w->level--;
    if (list->count > 0 && w->indent >= 0)
        write_break(w, true);
    write_plain(w, "]");
}

static void write_mapping(json_writer *w, const jinja_mapping *mapping)
{
    write_plain(w, "{");
    w->level++;
    for (size_t i = 0; i < mapping->count; i++) {
        if (mapping->entries[i].key.kind != JINJA_STRING)
            jinja_refuse(w->run, "tojson of a mapping with keys that are no strings");
        write_break(w, i == 0);
        write_string(w, mapping->entries[i].key.as.string);
        write_plain(w, ": ");
        write_value(w, mapping->entries[i].value);
    }
    w->level--;
    if (mapping->count > 0 && w->indent >= 0)
        write_break(w, true);
    write_plain(w, "}");
}

static void write_value(json_writer *w, jinja_value value)
{
    jinja_enter(w->run);
    switch (value.kind) {
    case JINJA_NONE:
        write_plain(w, "null");
        break;
    case JINJA_BOOLEAN:
        write_plain(w, value.as.boolean ? "true" : "false");
        break;
    case JINJA_INTEGER:
    case JINJA_REAL:
        jinja_write(w->run, jinja_written(w->run, value));
        break;
    case JINJA_STRING:
        write_string(w, value.as.string);
        break;
    case JINJA_LIST:
        write_list(w, value.as.list);
        break;
    case JINJA_MAPPING:
        write_mapping(w, value.as.mapping);
        break;
    default:
        jinja_refuse(w->run, "tojson of %s", jinja_kind_name(value.kind));
    }
    w->run->depth--;
}

jinja_value jinja_to_json(jinja_run *run, jinja_value value, int64_t indent)
{
    json_writer writer = {run, indent, 0};
    jinja_result *outer = jinja_capture(run);
    write_value(&writer, value);
    return jinja_release(run, outer);
}
