// SPDX-License-Identifier: MIT
#include "engine/chat/chat_internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void chat_text_free(chat_text *text)
{
    text_buffer_free(&text->text);
    free(text->parts);
    *text = (chat_text)CHAT_TEXT_INIT;
}

static kvern_status reserve_part(chat_text *out)
{
    if (out->part_count < out->part_capacity)
        return KVERN_OK;
    if (out->part_capacity > SIZE_MAX / 4 / sizeof *out->parts)
        return KVERN_ERR_OVERFLOW;
    const size_t capacity = 2 * out->part_capacity + 16;
    tokenizer_part *parts = realloc(out->parts, capacity * sizeof *parts);
    if (!parts)
        return KVERN_ERR_MEMORY;
    out->parts = parts;
    out->part_capacity = capacity;
    return KVERN_OK;
}

static kvern_status add(chat_text *out, const char *text, size_t bytes, bool from_template)
{
    kvern_status status = reserve_part(out);
    if (status == KVERN_OK)
        status = text_buffer_append(&out->text, text, bytes);
    if (status == KVERN_OK)
        out->parts[out->part_count++] = (tokenizer_part){bytes, from_template};
    return status;
}

static kvern_status add_mark(chat_text *out, const char *mark)
{
    return add(out, mark, strlen(mark), true);
}

// The part of a message before its content. A role is a caller's word, not the template's.
static kvern_status add_head(const chat_style *style, const char *role, chat_text *out)
{
    const char *written = strcmp(role, "assistant") == 0 ? style->assistant : role;
    kvern_status status = add_mark(out, style->before_role);
    if (status == KVERN_OK)
        status = add(out, written, strlen(written), false);
    if (status == KVERN_OK)
        status = add_mark(out, style->after_role);
    return status;
}

// The bytes of the white space that a text begins with, or 0. What Jinja's trim takes: white space
// of Unicode and the separators 1C to 1F.
static size_t space_at(const char *text, size_t bytes)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
    };
    const char first = bytes > 0 ? text[0] : 'x';
    if (first == ' ' || (first >= '\t' && first <= '\r') || (first >= 0x1c && first <= 0x1f))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const size_t size = strlen(wide[i]);
        if (bytes >= size && memcmp(text, wide[i], size) == 0)
            return size;
    }
    return 0;
}

// The bytes of the white space that a text ends in, or 0.
static size_t space_before(const char *text, size_t bytes)
{
    for (size_t size = 1; size <= 3 && size <= bytes; size++)
        if (space_at(text + bytes - size, size) == size)
            return size;
    return 0;
}

static kvern_status add_content(const chat_style *style, const chat_message *message,
                                bool from_template, chat_text *out)
{
    const char *content = message->content;
    size_t bytes = message->content_bytes;
    size_t space;
    while (style->trims && (space = space_at(content, bytes)) > 0) {
        content += space;
        bytes -= space;
    }
    while (style->trims && (space = space_before(content, bytes)) > 0)
        bytes -= space;
    return add(out, content, bytes, from_template);
}

// A default system message is the template's own text, all others are a user's. `system`: one that
// stands in this message, or NULL.
static kvern_status add_message(const chat_style *style, const chat_message *system,
                                const chat_message *message, bool from_template, chat_text *out)
{
    kvern_status status = add_head(style, message->role, out);
    if (status == KVERN_OK && system)
        status = add(out, system->content, system->content_bytes, false);
    if (status == KVERN_OK && system)
        status = add_mark(out, "\n\n");
    if (status == KVERN_OK)
        status = add_content(style, message, from_template, out);
    if (status == KVERN_OK)
        status = add_mark(out, style->after_content);
    return status;
}

// The system message that is written in messages[1], if it is.
static const chat_message *system_in_first(const chat_style *style, const chat_message *messages,
                                           size_t count)
{
    const bool there =
        style->system_in_first && count > 0 && strcmp(messages[0].role, "system") == 0;
    return there ? &messages[0] : NULL;
}

static bool needs_default_system(const chat_template *chat, const chat_message *messages,
                                 size_t count)
{
    return chat->default_system && count > 0 && strcmp(messages[0].role, "system") != 0;
}

// What stands before messages[from]: the end of the message before it, or the default system
// message.
static kvern_status add_start(const chat_template *chat, const chat_message *messages, size_t count,
                              size_t from, chat_text *out)
{
    if (from > 0)
        return add_mark(out, chat->style->after_content);
    if (!needs_default_system(chat, messages, count))
        return KVERN_OK;
    const chat_message system = {"system", chat->default_system, strlen(chat->default_system)};
    return add_message(chat->style, NULL, &system, true, out);
}

kvern_status chat_render_from(const chat_template *chat, const chat_message *messages, size_t count,
                              size_t from, bool add_generation_prompt, chat_text *out)
{
    if (from > count)
        return KVERN_ERR_ARGUMENT;
    const size_t text_before = out->text.size;
    const size_t parts_before = out->part_count;
    const chat_message *system = system_in_first(chat->style, messages, count);
    kvern_status status = add_start(chat, messages, count, from, out);
    for (size_t i = from; status == KVERN_OK && i < count; i++)
        if (&messages[i] != system)
            status = add_message(chat->style, i == 1 ? system : NULL, &messages[i], false, out);
    if (status == KVERN_OK && add_generation_prompt)
        status = add_head(chat->style, "assistant", out);
    if (status != KVERN_OK) {
        out->text.size = text_before;
        out->part_count = parts_before;
    }
    return status;
}

kvern_status chat_render(const chat_template *chat, const chat_message *messages, size_t count,
                         bool add_generation_prompt, chat_text *out)
{
    return chat_render_from(chat, messages, count, 0, add_generation_prompt, out);
}
