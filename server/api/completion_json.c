// SPDX-License-Identifier: MIT
#include "server/api/completion_json.h"

#include "server/base/json_text.h"

#include <kvern/version.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

// What stands for a probability of 0.
#define LEAST_LOGPROB (-9999.0)

static const char *object_of(const completion_style *style)
{
    return style->chat ? (style->stream ? "chat.completion.chunk" : "chat.completion")
                       : "text_completion";
}

json_t *completion_json(const completion_style *style, json_t *choices, json_t *usage)
{
    char fingerprint[40];
    snprintf(fingerprint, sizeof fingerprint, "kvern-%s", kvern_version());
    json_t *all = json_pack("{s:s, s:s, s:I, s:o, s:s, s:o}", "id", style->id, "object",
                            object_of(style), "created", (json_int_t)style->created, "model",
                            server_json_text(style->model, strlen(style->model)),
                            "system_fingerprint", fingerprint, "choices", choices);
    if (all && (usage || style->include_usage)) {
        json_object_set_new(all, "usage", usage ? usage : json_null());
    } else {
        json_decref(usage);
    }
    return all;
}

// ---- Log probabilities ----

static json_t *number_json(float logprob)
{
    return json_real(isfinite(logprob) ? (double)logprob : LEAST_LOGPROB);
}

static json_t *token_text_json(const completion_style *style, int32_t token)
{
    const tokenizer_text text = tokenizer_piece_special(style->tokens, token);
    return server_json_text(text.data, text.size);
}

static json_t *bytes_json(const completion_style *style, int32_t token)
{
    const tokenizer_text text = tokenizer_piece_special(style->tokens, token);
    json_t *bytes = json_array();
    for (size_t i = 0; bytes && i < text.size; i++) {
        json_array_append_new(bytes, json_integer((unsigned char)text.data[i]));
    }
    return bytes;
}

static json_t *chat_entry_json(const completion_style *style, const token_logprob *entry)
{
    return json_pack("{s:o, s:o, s:o}", "token", token_text_json(style, entry->token), "logprob",
                     number_json(entry->logprob), "bytes", bytes_json(style, entry->token));
}

static json_t *chat_token_json(const completion_style *style, const token_logprob *entry,
                               size_t top)
{
    json_t *token = chat_entry_json(style, entry), *others = json_array();
    for (size_t i = 1; others && i <= top; i++) {
        json_array_append_new(others, chat_entry_json(style, entry + i));
    }
    if (!token || json_object_set_new(token, "top_logprobs", others) != 0) {
        json_decref(token);
        return NULL;
    }
    return token;
}

static json_t *chat_logprobs_json(const completion_style *style, const token_logprobs *list)
{
    json_t *content = json_array();
    for (size_t i = 0; content && i < list->count; i++) {
        json_array_append_new(
            content, chat_token_json(style, list->entries + i * (1 + list->top), list->top));
    }
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

// Tokens of texts are keys, so each has a text of its own: what is no whole characters is written
// as its bytes, in OpenAI's form.
static json_t *text_token_json(const completion_style *style, int32_t token)
{
    const tokenizer_text text = tokenizer_piece_special(style->tokens, token);
    text_buffer out = TEXT_BUFFER_INIT;
    const char *data = text.size > 0 ? text.data : "";
    json_t *value = memchr(data, 0, text.size) ? NULL : json_stringn(data, text.size);
    if (value) {
        return value;
    }
    kvern_status status = text_buffer_append(&out, "bytes:", 6);
    for (size_t i = 0; i < text.size && status == KVERN_OK; i++) {
        char byte[5];
        snprintf(byte, sizeof byte, "\\x%02x", (unsigned)(unsigned char)data[i]);
        status = text_buffer_append(&out, byte, 4);
    }
    value = status == KVERN_OK ? json_stringn(out.data, out.size) : NULL;
    text_buffer_free(&out);
    return value;
}

static json_t *top_json(const completion_style *style, const token_logprob *entry, size_t top)
{
    json_t *others = json_object();
    for (size_t i = 1; others && i <= top; i++) {
        json_t *text = text_token_json(style, entry[i].token);
        if (text && !json_object_get(others, json_string_value(text))) {
            json_object_set_new(others, json_string_value(text), number_json(entry[i].logprob));
        }
        json_decref(text);
    }
    return others;
}

// Each counts where it begins: the rest of one may be another token's.
static size_t characters(tokenizer_text text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++) {
        count += (text.data[i] & 0xc0) != 0x80;
    }
    return count;
}

static json_t *text_logprobs_json(const completion_style *style, completion_part *part)
{
    const token_logprobs *list = &part->logprobs;
    json_t *tokens = json_array(), *numbers = json_array(), *top = json_array(),
           *offsets = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const token_logprob *entry = list->entries + i * (1 + list->top);
        json_array_append_new(offsets, json_integer((json_int_t)part->offset));
        part->offset += characters(tokenizer_piece_special(style->tokens, entry->token));
        json_array_append_new(tokens, text_token_json(style, entry->token));
        json_array_append_new(numbers, number_json(entry->logprob));
        json_array_append_new(top, top_json(style, entry, list->top));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", numbers,
                     "top_logprobs", top, "text_offset", offsets);
}

static json_t *logprobs_json(const completion_style *style, completion_part *part)
{
    if (!style->logprobs || (style->stream && part->logprobs.count == 0)) {
        return json_null();
    }
    return style->chat ? chat_logprobs_json(style, &part->logprobs)
                       : text_logprobs_json(style, part);
}

// ---- Choices ----

static json_t *finish_json(const completion_part *part)
{
    if (!part->ends) {
        return json_null();
    }
    const bool full = part->reason == GENERATE_MAX_TOKENS || part->reason == GENERATE_CONTEXT;
    return json_string(full ? "length" : "stop");
}

static json_t *delta_json(const completion_part *part)
{
    json_t *delta =
        part->begins ? json_pack("{s:s, s:s}", "role", "assistant", "content", "") : json_object();
    if (delta && part->text.size > 0) {
        json_object_set_new(delta, "content", server_json_text(part->text.data, part->text.size));
    }
    return delta;
}

static json_t *message_json(const completion_part *part)
{
    return json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                     server_json_text(part->text.data, part->text.size), "refusal");
}

json_t *completion_choice_json(const completion_style *style, completion_part *part)
{
    json_t *logprobs = logprobs_json(style, part), *finish = finish_json(part);
    if (!style->chat) {
        return json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)part->index, "text",
                         server_json_text(part->text.data, part->text.size), "logprobs", logprobs,
                         "finish_reason", finish);
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)part->index,
                     style->stream ? "delta" : "message",
                     style->stream ? delta_json(part) : message_json(part), "logprobs", logprobs,
                     "finish_reason", finish);
}

// Of several answers to a prompt, the first one tells what was there before it.
json_t *completion_usage_json(const job *j)
{
    size_t prompt = 0, cached = 0, generated = 0;
    for (size_t i = 0; i < j->count; i++) {
        const schedule_result *result = &j->choices[i].result;
        generated += result->generated_tokens;
        if (i % j->options.each == 0) {
            prompt += j->options.prompts[i / j->options.each].count;
            cached += result->shared_tokens;
        }
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)prompt,
                     "completion_tokens", (json_int_t)generated, "total_tokens",
                     (json_int_t)(prompt + generated), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)cached);
}
