// SPDX-License-Identifier: MIT
#include "server/api/completion_request.h"

#include "engine/request/request_keys.h"
#include "engine/sampling/biases.h"

#include "server/worker/logprobs.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PROMPTS 128

// Keys of a server; those that engine/request knows besides would be refused there.
static const char *const OWN_KEYS[] = {"model",          "n",        "best_of",     "stream",
                                       "stream_options", "logprobs", "top_logprobs"};

// Newer keys that say nothing about an answer.
static const char *const HARMLESS_KEYS[] = {"prompt_cache_key", "safety_identifier",
                                            "prompt_cache_retention"};

static bool is_one_of(const char *key, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

#define IS_ONE_OF(key, list) is_one_of(key, list, sizeof(list) / sizeof(list)[0])

// ---- Keys ----

static kvern_status check_known(json_t *object, bool chat, engine_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const bool others = strcmp(key, chat ? "prompt" : "messages") == 0;
        if (json_is_null(value)) {
            continue;
        }
        if (others || (!chat_request_knows(key) && !IS_ONE_OF(key, HARMLESS_KEYS))) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED, "\"%.60s\" is not a key of %s", key,
                               chat ? "/v1/chat/completions" : "/v1/completions");
        }
    }
    return KVERN_OK;
}

// A shallow copy without what the server honours itself.
static json_t *without_own_keys(json_t *object, bool chat)
{
    json_t *copy = json_copy(object);
    for (size_t i = 0; copy && i < sizeof OWN_KEYS / sizeof OWN_KEYS[0]; i++) {
        json_object_del(copy, OWN_KEYS[i]);
    }
    // Prompts are read here, in all their forms.
    if (copy && !chat) {
        json_object_set_new(copy, "prompt", json_string("prompt"));
    }
    return copy;
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

static kvern_status read_whole(const json_t *object, const char *key, json_int_t lowest,
                               json_int_t highest, json_int_t *value, engine_error *error)
{
    return request_whole(object, &key, 1, lowest, highest, value, error);
}

static kvern_status read_count(completion_request *r, const json_t *object, size_t most,
                               engine_error *error)
{
    json_int_t each = 1;
    kvern_status status = read_whole(object, "n", 1, (json_int_t)most, &each, error);
    json_int_t best = each;
    if (status == KVERN_OK) {
        status = read_whole(object, "best_of", 1, (json_int_t)most, &best, error);
    }
    if (status == KVERN_OK && best != each) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "\"best_of\" is not supported, unless it is \"n\"");
    }
    r->each = (size_t)each;
    return status;
}

static kvern_status read_stream(completion_request *r, const json_t *object, engine_error *error)
{
    json_t *options = request_value(object, "stream_options");
    const char *key;
    json_t *value;
    kvern_status status = read_flag(object, "stream", &r->stream, error);
    if (status != KVERN_OK || !options) {
        return status;
    }
    if (!json_is_object(options) || !r->stream) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           json_is_object(options)
                               ? "\"stream_options\" needs \"stream\" to be true"
                               : "\"stream_options\" is not an object");
    }
    json_object_foreach(options, key, value)
    {
        if (strcmp(key, "include_usage") != 0 && !json_is_false(value) && !json_is_null(value)) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                               "\"stream_options\" with \"%.60s\" is not supported", key);
        }
    }
    return read_flag(options, "include_usage", &r->include_usage, error);
}

// Whether a key of texts asks for something that chats know and texts do not: they count
// log probabilities where chats say true.
static bool asks_as_chats(const json_t *object)
{
    const json_t *top = request_value(object, "top_logprobs");
    return top && !(json_is_integer(top) && json_integer_value(top) == 0);
}

// Chats say true and a number; texts a number, or false.
static kvern_status read_logprobs(completion_request *r, const json_t *object, engine_error *error)
{
    json_int_t top = -1;
    bool wanted = false;
    kvern_status status = KVERN_OK;
    if (!r->chat && json_is_true(json_object_get(object, "logprobs"))) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "\"logprobs\" says how many here, from 0 to %d, and is true in "
                           "/v1/chat/completions alone",
                           LOGPROBS_MOST_TOP);
    }
    if (r->chat || !json_is_false(json_object_get(object, "logprobs"))) {
        status = read_whole(object, r->chat ? "top_logprobs" : "logprobs", 0, LOGPROBS_MOST_TOP,
                            &top, error);
    }
    if (status == KVERN_OK && r->chat) {
        status = read_flag(object, "logprobs", &wanted, error);
    } else if (status == KVERN_OK && asks_as_chats(object)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "\"top_logprobs\" is not a key of /v1/completions");
    }
    if (status == KVERN_OK && r->chat && top > 0 && !wanted) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "\"top_logprobs\" needs \"logprobs\" to be true");
    }
    r->top_logprobs = r->chat ? (wanted ? (int)(top > 0 ? top : 0) : -1) : (int)top;
    return status;
}

bool completion_request_is_served(const json_t *object, const char *name, api_error *error)
{
    const json_t *model = request_value(object, "model");
    const char *asked = json_string_value(model);
    const bool same = asked && strcmp(asked, name) == 0 &&
                      json_string_length(model) == strlen(name); // it may hold a NUL
    if (model && !asked) {
        api_error_set(error, 400, API_INVALID, NULL, "model", "\"model\" is not a string");
    } else if (model && !same) {
        api_error_set(error, 404, API_INVALID, "model_not_found", "model",
                      "there is no model %.100s here, but %.200s", asked, name);
    }
    return error->http == 0;
}

// ---- Prompts ----

static bool is_tokens(const json_t *value)
{
    return json_is_array(value) && json_is_integer(json_array_get(value, 0));
}

static kvern_status take_tokens(const json_t *list, const tokenizer *tokens, token_buffer *out,
                                engine_error *error)
{
    size_t i;
    const json_t *value;
    json_array_foreach(list, i, value)
    {
        const json_int_t token = json_integer_value(value);
        if (!json_is_integer(value) || token < 0 || (uint64_t)token >= tokenizer_size(tokens)) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "\"prompt\" has something else than numbers from 0 to %zu in a "
                               "list of tokens",
                               tokenizer_size(tokens) - 1);
        }
        if (token_buffer_push(out, (int32_t)token) != KVERN_OK) {
            return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the prompt");
        }
    }
    return KVERN_OK;
}

size_t completion_most_text(const tokenizer *tokens, size_t context_length)
{
    size_t longest = 1;
    for (size_t t = 0; t < tokenizer_size(tokens); t++) {
        const size_t bytes = tokenizer_piece_special(tokens, (int32_t)t).size;
        longest = bytes > longest ? bytes : longest;
    }
    return context_length > SIZE_MAX / longest ? SIZE_MAX : context_length * longest;
}

static kvern_status check_bytes(const completion_context *context, size_t bytes,
                                engine_error *error)
{
    return bytes <= context->most_text
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_RANGE,
                             "the prompt has %zu bytes, more than the %zu of the longest text for "
                             "the context of %zu tokens",
                             bytes, context->most_text, context->context_length);
}

static kvern_status take_text(const json_t *value, const completion_context *context,
                              token_buffer *out, engine_error *error)
{
    const size_t bytes = json_string_length(value);
    const kvern_status status = check_bytes(context, bytes, error);
    return status == KVERN_OK
               ? tokenizer_encode(context->tokens, json_string_value(value), bytes,
                                  TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS, out, error)
               : status;
}

static kvern_status take_prompt(const json_t *value, const completion_context *context,
                                token_buffer *out, engine_error *error)
{
    if (is_tokens(value)) {
        return take_tokens(value, context->tokens, out, error);
    }
    if (!value || (json_is_array(value) && json_array_size(value) == 0)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           value ? "\"prompt\" is empty" : "there is no \"prompt\"");
    }
    if (!json_is_string(value)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "\"prompt\" is neither a string, a list of tokens, nor a list of one "
                           "or the other");
    }
    return take_text(value, context, out, error);
}

// The scheduler would say the same of each, after all of them were tokenized.
static kvern_status check_length(const completion_context *context, const token_buffer *prompt,
                                 engine_error *error)
{
    return prompt->count <= context->context_length
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_RANGE,
                             "the prompt has %zu tokens, more than the context of %zu",
                             prompt->count, context->context_length);
}

static kvern_status check_prompts(const completion_request *r, engine_error *error)
{
    for (size_t i = 0; i < r->prompt_count; i++) {
        if (r->prompts[i].count == 0) {
            return engine_fail(error, KVERN_ERR_ARGUMENT, "\"prompt\" is empty");
        }
    }
    return KVERN_OK;
}

static kvern_status read_prompts(completion_request *r, const json_t *prompt,
                                 const completion_context *context, engine_error *error)
{
    const bool many = json_is_array(prompt) && !is_tokens(prompt) && json_array_size(prompt) > 0;
    const size_t count = many ? json_array_size(prompt) : 1;
    if (count > MOST_PROMPTS || count * r->each > context->most_choices) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "\"prompt\" asks for %zu answers, more than the %zu of one request",
                           count * r->each, context->most_choices);
    }
    r->prompts = calloc(count, sizeof *r->prompts);
    if (!r->prompts) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the prompts");
    }
    kvern_status status = KVERN_OK;
    for (r->prompt_count = 0; r->prompt_count < count && status == KVERN_OK; r->prompt_count++) {
        token_buffer *taken = &r->prompts[r->prompt_count];
        status = take_prompt(many ? json_array_get(prompt, r->prompt_count) : prompt, context,
                             taken, error);
        if (status == KVERN_OK) {
            status = check_length(context, taken, error);
        }
    }
    return status == KVERN_OK ? check_prompts(r, error) : status;
}

static kvern_status render_messages(completion_request *r, const completion_context *context,
                                    engine_error *error)
{
    chat_text rendered = CHAT_TEXT_INIT;
    if (!context->chat) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "\"messages\" need a chat template, and this model has none; "
                           "/v1/completions continues a text");
    }
    r->prompts = calloc(1, sizeof *r->prompts);
    if (!r->prompts) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the prompt");
    }
    r->prompt_count = 1;
    kvern_status status = chat_render(context->chat, r->asked.messages, r->asked.message_count,
                                      true, &rendered, error);
    if (status == KVERN_OK) {
        status = check_bytes(context, rendered.text.size, error);
    }
    if (status == KVERN_OK) {
        status = chat_encode(&rendered, context->tokens, true, r->prompts, error);
    }
    chat_text_free(&rendered);
    return status == KVERN_OK ? check_prompts(r, error) : status;
}

// ---- The whole ----

static kvern_status read_own_keys(completion_request *r, json_t *object,
                                  const completion_context *context, engine_error *error)
{
    kvern_status status = check_known(object, r->chat, error);
    if (status == KVERN_OK) {
        status = read_count(r, object, context->most_choices, error);
    }
    if (status == KVERN_OK) {
        status = read_stream(r, object, error);
    }
    return status == KVERN_OK ? read_logprobs(r, object, error) : status;
}

static kvern_status read_asked(completion_request *r, json_t *object,
                               const completion_context *context, engine_error *error)
{
    json_t *copy = without_own_keys(object, r->chat);
    if (!copy) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the request");
    }
    const kvern_status status = chat_request_read(copy, &context->defaults, &r->asked, error);
    json_decref(copy);
    return status;
}

// Those of the command line are whatever the owner of the server wants.
static kvern_status check_stops(const completion_request *r, const json_t *object,
                                engine_error *error)
{
    if (!request_value(object, "stop")) {
        return KVERN_OK;
    }
    bool fits = r->asked.stop_count <= COMPLETION_MOST_STOPS;
    for (size_t i = 0; fits && i < r->asked.stop_count; i++) {
        fits = strlen(r->asked.stops[i]) <= COMPLETION_MOST_STOP_BYTES;
    }
    return fits ? KVERN_OK
                : engine_fail(error, KVERN_ERR_ARGUMENT,
                              "\"stop\" has more than %d texts, or one of more than %d bytes",
                              COMPLETION_MOST_STOPS, COMPLETION_MOST_STOP_BYTES);
}

static kvern_status make_biases(completion_request *r, const tokenizer *tokens, engine_error *error)
{
    const sampler_options *sampling = &r->asked.sampling;
    if (!sampling_biases(sampling->biases, sampling->bias_count,
                         r->asked.ignore_eos ? tokens : NULL, &r->biases, &r->bias_count)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to sample with");
    }
    return KVERN_OK;
}

static kvern_status read_request(completion_request *r, json_t *object,
                                 const completion_context *context, engine_error *error)
{
    kvern_status status = read_own_keys(r, object, context, error);
    if (status == KVERN_OK) {
        status = read_asked(r, object, context, error);
    }
    if (status == KVERN_OK) {
        status = check_stops(r, object, error);
    }
    if (status == KVERN_OK) {
        status = make_biases(r, context->tokens, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    return r->chat ? render_messages(r, context, error)
                   : read_prompts(r, request_value(object, "prompt"), context, error);
}

bool completion_request_read(json_t *object, bool chat, const completion_context *context,
                             completion_request *out, api_error *error)
{
    engine_error refusal;
    *out = (completion_request){.chat = chat, .top_logprobs = -1};
    if (!completion_request_is_served(object, context->model_name, error)) {
        return false;
    }
    if (read_request(out, object, context, &refusal) == KVERN_OK) {
        return true;
    }
    api_error_refuse(error, &refusal, object);
    completion_request_free(out);
    return false;
}

void completion_request_free(completion_request *request)
{
    for (size_t i = 0; request->prompts && i < request->prompt_count; i++) {
        token_buffer_free(&request->prompts[i]);
    }
    free(request->prompts);
    free(request->biases);
    chat_request_free(&request->asked);
    *request = (completion_request){0};
}
