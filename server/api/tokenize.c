// SPDX-License-Identifier: MIT
// /tokenize and /detokenize.

#include "server/api/api.h"
#include "server/api/completion_request.h"
#include "server/base/json_text.h"

#include "engine/request/request_keys.h"

#include <string.h>

// Bytes of a text. All long ones are worked on by one thread.
#define MOST_TEXT (512 * 1024)

static kvern_status check_keys(json_t *object, const char *const *keys, const char *wanted,
                               engine_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0) {
            i++;
        }
        if (!keys[i]) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED, "\"%.60s\" is not supported: %s", key,
                               wanted);
        }
    }
    return KVERN_OK;
}

static kvern_status read_flag(const json_t *object, const char *key, bool *value,
                              engine_error *error)
{
    const json_t *found = request_value(object, key);
    if (found && !json_is_boolean(found)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "\"%s\" is neither true nor false", key);
    }
    *value = found ? json_is_true(found) : *value;
    return KVERN_OK;
}

static kvern_status check_bytes(const char *key, size_t bytes, engine_error *error)
{
    return bytes <= MOST_TEXT
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_ARGUMENT, "\"%s\" is a text of more than %d bytes",
                             key, MOST_TEXT);
}

static kvern_status encode_prompt(const api *a, const json_t *object, token_buffer *out,
                                  engine_error *error)
{
    const json_t *prompt = request_value(object, "prompt");
    bool special = true;
    kvern_status status = read_flag(object, "add_special_tokens", &special, error);
    if (status == KVERN_OK && !json_is_string(prompt)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "\"prompt\" is not a string");
    }
    if (status == KVERN_OK) {
        status = check_bytes("prompt", json_string_length(prompt), error);
    }
    const unsigned flags = TOKENIZER_PARSE_SPECIAL | (special ? TOKENIZER_ADD_BOS : 0u);
    return status == KVERN_OK ? tokenizer_encode(a->options.tokens, json_string_value(prompt),
                                                 json_string_length(prompt), flags, out, error)
                              : status;
}

static kvern_status encode_messages(const api *a, json_t *object, token_buffer *out,
                                    engine_error *error)
{
    chat_request asked = {0};
    chat_text rendered = CHAT_TEXT_INIT;
    bool begins = true;
    json_t *only = json_pack("{s:O}", "messages", json_object_get(object, "messages"));
    if (!only || !a->options.chat) {
        json_decref(only);
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "\"messages\" need a chat template, and this model has none");
    }
    kvern_status status = read_flag(object, "add_generation_prompt", &begins, error);
    if (status == KVERN_OK) {
        status = chat_request_read(only, &a->options.defaults, &asked, error);
    }
    if (status == KVERN_OK) {
        status = chat_render(a->options.chat, asked.messages, asked.message_count, begins,
                             &rendered, error);
    }
    if (status == KVERN_OK) {
        status = check_bytes("messages", rendered.text.size, error);
    }
    if (status == KVERN_OK) {
        status = chat_encode(&rendered, a->options.tokens, true, out, error);
    }
    chat_text_free(&rendered);
    chat_request_free(&asked);
    json_decref(only);
    return status;
}

static kvern_status encode(const api *a, json_t *object, token_buffer *out, engine_error *error)
{
    static const char *const PROMPT[] = {"model", "prompt", "add_special_tokens", NULL};
    static const char *const MESSAGES[] = {"model", "messages", "add_generation_prompt", NULL};
    const bool chat = request_value(object, "messages");
    kvern_status status = check_keys(
        object, chat ? MESSAGES : PROMPT,
        "/tokenize takes \"prompt\" or \"messages\", with what is theirs (docs/server.md)", error);
    if (status != KVERN_OK) {
        return status;
    }
    return chat ? encode_messages(a, object, out, error) : encode_prompt(a, object, out, error);
}

static json_t *tokens_json(const token_buffer *tokens)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < tokens->count; i++) {
        json_array_append_new(list, json_integer(tokens->ids[i]));
    }
    return list;
}

static void reply_refusal(const engine_error *refusal, const json_t *object, http_reply *reply)
{
    api_error error;
    api_error_refuse(&error, refusal, object);
    api_reply_error(&error, reply);
}

void api_tokenize(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    api_error error = {0};
    engine_error refusal;
    token_buffer tokens = TOKEN_BUFFER_INIT;
    json_t *object = api_read_object(request, &error);
    (void)task;
    if (!object) {
        api_reply_error(&error, reply);
    } else if (!completion_request_is_served(object, a->options.model_name, &error)) {
        api_reply_error(&error, reply);
    } else if (encode(a, object, &tokens, &refusal) != KVERN_OK) {
        reply_refusal(&refusal, object, reply);
    } else {
        api_reply_json(json_pack("{s:I, s:I, s:o}", "count", (json_int_t)tokens.count,
                                 "max_model_len", (json_int_t)a->options.context_length, "tokens",
                                 tokens_json(&tokens)),
                       reply);
    }
    token_buffer_free(&tokens);
    json_decref(object);
}

static kvern_status decode(const api *a, json_t *object, text_buffer *text, engine_error *error)
{
    static const char *const KEYS[] = {"model", "tokens", NULL};
    const json_t *list = request_value(object, "tokens"), *value;
    size_t i;
    kvern_status status = check_keys(object, KEYS, "/detokenize takes \"tokens\"", error);
    if (status == KVERN_OK && !json_is_array(list)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "\"tokens\" is not a list of tokens");
    }
    json_array_foreach(list, i, value)
    {
        const json_int_t token = json_integer_value(value);
        if (!json_is_integer(value) || token < 0 ||
            (uint64_t)token >= tokenizer_size(a->options.tokens)) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "\"tokens\" has something else than numbers from 0 to %zu",
                               tokenizer_size(a->options.tokens) - 1);
        }
        const tokenizer_text piece = tokenizer_piece_special(a->options.tokens, (int32_t)token);
        if (text_buffer_append(text, piece.data, piece.size) != KVERN_OK) {
            return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the text");
        }
        if (text->size > MOST_TEXT) {
            return check_bytes("tokens", text->size, error);
        }
    }
    return status;
}

void api_detokenize(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    api_error error = {0};
    engine_error refusal;
    text_buffer text = TEXT_BUFFER_INIT;
    json_t *object = api_read_object(request, &error);
    (void)task;
    if (!object) {
        api_reply_error(&error, reply);
    } else if (!completion_request_is_served(object, a->options.model_name, &error)) {
        api_reply_error(&error, reply);
    } else if (decode(a, object, &text, &refusal) != KVERN_OK) {
        reply_refusal(&refusal, object, reply);
    } else {
        api_reply_json(json_pack("{s:o}", "prompt", server_json_text(text.data, text.size)), reply);
    }
    text_buffer_free(&text);
    json_decref(object);
}
