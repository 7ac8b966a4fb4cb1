// SPDX-License-Identifier: MIT
#include "engine/chat_internal.h"

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
    kvern_status status = add_mark(out, style->before_role);
    if (status == KVERN_OK)
        status = add(out, role, strlen(role), false);
    if (status == KVERN_OK)
        status = add_mark(out, style->after_role);
    return status;
}

// A default system message is the template's own text, all others are a user's.
static kvern_status add_message(const chat_style *style, const chat_message *message,
                                bool from_template, chat_text *out)
{
    kvern_status status = add_head(style, message->role, out);
    if (status == KVERN_OK)
        status = add(out, message->content, message->content_bytes, from_template);
    if (status == KVERN_OK)
        status = add_mark(out, style->after_content);
    return status;
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
    return add_message(chat->style, &system, true, out);
}

kvern_status chat_render_from(const chat_template *chat, const chat_message *messages, size_t count,
                              size_t from, bool add_generation_prompt, chat_text *out)
{
    if (from > count)
        return KVERN_ERR_ARGUMENT;
    const size_t text_before = out->text.size;
    const size_t parts_before = out->part_count;
    kvern_status status = add_start(chat, messages, count, from, out);
    for (size_t i = from; status == KVERN_OK && i < count; i++)
        status = add_message(chat->style, &messages[i], false, out);
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
