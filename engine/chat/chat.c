// SPDX-License-Identifier: MIT
// Rendering: messages become a text, and the text becomes tokens.
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

// --- Running the template

// Roles that a template may make a mark of, as in '<|' + role + '|>'. Any other role is a caller's
// word and plain text.
static bool is_known_role(const char *role)
{
    static const char *const known[] = {"system", "user",     "assistant", "tool",
                                        "model",  "function", "developer"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], role) == 0)
            return true;
    return false;
}

kvern_status chat_run(const chat_template *chat, const chat_message *messages, size_t count,
                      size_t anchor, bool add_generation_prompt, jinja_result *result,
                      engine_error *error)
{
    jinja_message *list = calloc(count + 1, sizeof *list);
    if (!list)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu messages", count);
    for (size_t i = 0; i < count; i++)
        list[i] = (jinja_message){
            .role = {messages[i].role, strlen(messages[i].role)},
            .content = {messages[i].content ? messages[i].content : "", messages[i].content_bytes},
            .role_origin =
                is_known_role(messages[i].role) ? JINJA_FROM_TEMPLATE : JINJA_FROM_MESSAGE,
            .content_origin = i == anchor ? JINJA_FROM_ANCHOR : JINJA_FROM_MESSAGE,
        };
    const jinja_input input = {.messages = list,
                               .count = count,
                               .add_generation_prompt = add_generation_prompt,
                               .bos = {chat->bos, chat->bos_bytes},
                               .eos = {chat->eos, chat->eos_bytes},
                               .now = chat->now};
    const kvern_status status = jinja_render(chat->program, &input, result, error);
    free(list);
    return status;
}

// --- Texts in parts

static kvern_status add_part(chat_text *out, size_t bytes, bool from_template)
{
    if (out->part_count == out->part_capacity) {
        if (out->part_capacity > SIZE_MAX / 4 / sizeof *out->parts)
            return KVERN_ERR_OVERFLOW;
        const size_t capacity = 2 * out->part_capacity + 16;
        tokenizer_part *parts = realloc(out->parts, capacity * sizeof *parts);
        if (!parts)
            return KVERN_ERR_MEMORY;
        out->parts = parts;
        out->part_capacity = capacity;
    }
    out->parts[out->part_count++] = (tokenizer_part){bytes, from_template};
    return KVERN_OK;
}

// Appends what was rendered from byte `from` on.
static kvern_status append(const jinja_result *rendered, size_t from, chat_text *out,
                           engine_error *error)
{
    const size_t text_before = out->text.size, parts_before = out->part_count;
    const char *origins = rendered->origins.data;
    const size_t size = rendered->text.size;
    kvern_status status = KVERN_OK;
    if (from < size)
        status = text_buffer_append(&out->text, rendered->text.data + from, size - from);
    for (size_t at = from, end; status == KVERN_OK && at < size; at = end) {
        const bool from_template = origins[at] == JINJA_FROM_TEMPLATE;
        for (end = at + 1; end < size && (origins[end] == JINJA_FROM_TEMPLATE) == from_template;)
            end++;
        status = add_part(out, end - at, from_template);
    }
    if (status == KVERN_OK)
        return KVERN_OK;
    out->text.size = text_before;
    out->part_count = parts_before;
    return engine_fail(error, status, "no memory for a text of %zu bytes", size);
}

kvern_status chat_render(const chat_template *chat, const chat_message *messages, size_t count,
                         bool add_generation_prompt, chat_text *out, engine_error *error)
{
    jinja_result rendered = {0};
    kvern_status status =
        chat_run(chat, messages, count, count, add_generation_prompt, &rendered, error);
    if (status == KVERN_OK)
        status = append(&rendered, 0, out, error);
    jinja_result_free(&rendered);
    return status;
}

// --- Continuing

static bool begins_with(const text_buffer *text, const text_buffer *start)
{
    return text->size >= start->size &&
           (start->size == 0 || memcmp(text->data, start->data, start->size) == 0);
}

// Takes white space off both ends.
static jinja_word stripped(jinja_word text)
{
    size_t space;
    while ((space = jinja_space_at(text.data, text.bytes)) > 0) {
        text.data += space;
        text.bytes -= space;
    }
    while ((space = jinja_space_before(text.data, text.bytes)) > 0)
        text.bytes -= space;
    return text;
}

static bool same_but_space(jinja_word a, jinja_word b)
{
    a = stripped(a);
    b = stripped(b);
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

// Whether a rendered text begins with what was rendered for the reply, and then has the reply in
// one piece. *end is where the reply ends.
static bool keeps_reply(const jinja_result *all, const jinja_result *before,
                        const chat_message *reply, size_t *end)
{
    const char *text = all->text.data, *origins = all->origins.data;
    const size_t size = all->text.size;
    size_t begin = before->text.size, space;
    if (!begins_with(&all->text, &before->text))
        return false;
    size_t at = begin;
    while (at < size && origins[at] == JINJA_FROM_TEMPLATE &&
           (space = jinja_space_at(text + at, size - at)) > 0)
        at += space;
    if (at < size && origins[at] == JINJA_FROM_ANCHOR)
        begin = at;
    for (*end = begin; *end < size && origins[*end] == JINJA_FROM_ANCHOR;)
        ++*end;
    return !memchr(origins + *end, JINJA_FROM_ANCHOR, size - *end) &&
           same_but_space((jinja_word){text + begin, *end - begin},
                          (jinja_word){reply->content, reply->content_bytes});
}

kvern_status chat_continue(const chat_template *chat, const chat_message *messages, size_t count,
                           size_t from, chat_text *out, bool *whole, engine_error *error)
{
    *whole = from == 0;
    if (from > count)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "there is no message %zu of %zu", from,
                           count);
    jinja_result all = {0}, before = {0};
    size_t end = 0;
    kvern_status status =
        chat_run(chat, messages, count, *whole ? count : from - 1, true, &all, error);
    if (status == KVERN_OK && !*whole)
        status = chat_run(chat, messages, from - 1, count, true, &before, error);
    if (status == KVERN_OK && !*whole)
        *whole = !keeps_reply(&all, &before, &messages[from - 1], &end);
    if (status == KVERN_OK)
        status = append(&all, *whole ? 0 : end, out, error);
    jinja_result_free(&all);
    jinja_result_free(&before);
    return status;
}

// --- Tokens

kvern_status chat_encode(const chat_text *text, const tokenizer *tokens, bool begins,
                         token_buffer *out, engine_error *error)
{
    const tokenizer_text bos = tokenizer_piece_special(tokens, tokenizer_bos(tokens));
    const bool written = bos.size > 0 && text->text.size >= bos.size &&
                         text->parts[0].parse_special &&
                         memcmp(text->text.data, bos.data, bos.size) == 0;
    return tokenizer_encode_parts(tokens, text->text.data ? text->text.data : "", text->parts,
                                  text->part_count, begins && !written ? TOKENIZER_ADD_BOS : 0, out,
                                  error);
}

// The first token of a text, if it is a special one.
static int32_t first_special(const tokenizer *tokens, const char *text, size_t bytes)
{
    token_buffer ids = TOKEN_BUFFER_INIT;
    int32_t first = TOKENIZER_NO_TOKEN;
    if (tokenizer_encode(tokens, text, bytes, TOKENIZER_PARSE_SPECIAL, &ids, NULL) == KVERN_OK &&
        ids.count > 0 && tokenizer_is_special(tokens, ids.ids[0]))
        first = ids.ids[0];
    token_buffer_free(&ids);
    return first;
}

int32_t chat_turn_end(const chat_template *chat, const tokenizer *tokens)
{
    static const chat_message messages[] = {{"user", "a", 1}, {"assistant", "b", 1}};
    jinja_result rendered = {0};
    int32_t end = TOKENIZER_NO_TOKEN;
    if (chat_run(chat, messages, 2, 1, false, &rendered, NULL) == KVERN_OK) {
        size_t at = rendered.text.size, space;
        const char *text = rendered.text.data;
        while (at > 0 && rendered.origins.data[at - 1] != JINJA_FROM_ANCHOR)
            at--;
        while (at > 0 && (space = jinja_space_at(text + at, rendered.text.size - at)) > 0)
            at += space;
        if (at > 0)
            end = first_special(tokens, text + at, rendered.text.size - at);
    }
    jinja_result_free(&rendered);
    return end;
}
