// SPDX-License-Identifier: MIT
#include "cli/batch/batch_input.h"

#include "cli/options/prompt.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TEMPERATURE 100 // as --temp

static kvern_status fail_memory(engine_error *error)
{
    return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the line");
}

char *batch_id_key(const json_t *id)
{
    return json_is_string(id) || json_is_number(id) ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT)
                                                    : NULL;
}

static kvern_status read_id(batch_prompt *p, engine_error *error)
{
    p->id = json_object_get(p->line, "id");
    if (!json_is_string(p->id) && !json_is_number(p->id)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "it has no \"id\" that is a string or a number");
    }
    p->key = batch_id_key(p->id);
    return p->key ? KVERN_OK : fail_memory(error);
}

// ---- What is asked ----

static kvern_status read_message(const json_t *value, size_t index, chat_message *out,
                                 engine_error *error)
{
    const json_t *role = json_object_get(value, "role");
    const json_t *content = json_object_get(value, "content");
    if (!json_is_string(role) || !json_is_string(content)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "message %zu has no \"role\" and \"content\" that are strings",
                           index + 1);
    }
    *out = (chat_message){json_string_value(role), json_string_value(content),
                          json_string_length(content)};
    if (strlen(out->role) != json_string_length(role)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "the role of message %zu is none", index + 1);
    }
    return KVERN_OK;
}

// The command's system message goes before what does not begin with one.
static kvern_status read_messages(batch_prompt *p, const json_t *list, const char *system,
                                  engine_error *error)
{
    const size_t count = json_array_size(list);
    if (count == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT, "its \"messages\" are no list of messages");
    }
    p->messages = calloc(count + 1, sizeof *p->messages);
    if (!p->messages) {
        return fail_memory(error);
    }
    if (system) {
        p->messages[p->message_count++] = (chat_message){"system", system, strlen(system)};
    }
    for (size_t i = 0; i < count; i++) {
        chat_message message;
        kvern_status status = read_message(json_array_get(list, i), i, &message, error);
        if (status != KVERN_OK) {
            return status;
        }
        if (i == 0 && strcmp(message.role, "system") == 0) {
            p->message_count = 0;
        }
        p->messages[p->message_count++] = message;
    }
    return KVERN_OK;
}

static kvern_status wrap_prompt(batch_prompt *p, const char *system, engine_error *error)
{
    p->messages = calloc(2, sizeof *p->messages);
    if (!p->messages) {
        return fail_memory(error);
    }
    if (system) {
        p->messages[p->message_count++] = (chat_message){"system", system, strlen(system)};
    }
    p->messages[p->message_count++] =
        (chat_message){"user", json_string_value(p->prompt), json_string_length(p->prompt)};
    return KVERN_OK;
}

static kvern_status read_question(batch_prompt *p, const char *system, engine_error *error)
{
    json_t *messages = json_object_get(p->line, "messages");
    p->prompt = json_object_get(p->line, "prompt");
    if (p->prompt && messages) {
        return engine_fail(error, KVERN_ERR_FORMAT, "it has a \"prompt\" and \"messages\"");
    }
    if (messages) {
        return read_messages(p, messages, system, error);
    }
    if (!json_is_string(p->prompt)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "it has no \"prompt\" that is a string");
    }
    return wrap_prompt(p, system, error);
}

// ---- How it is answered ----

// A whole number of the line, 0 or more; false when it is there and is none.
static bool read_whole(const json_t *line, const char *key, json_int_t *value)
{
    const json_t *found = json_object_get(line, key);
    if (!found) {
        return true;
    }
    *value = json_integer_value(found);
    return json_is_integer(found) && *value >= 0;
}

static kvern_status read_sampling(batch_prompt *p, engine_error *error)
{
    json_int_t most = p->max_tokens, seed = (json_int_t)p->sampling.seed;
    const json_t *temperature = json_object_get(p->line, "temperature");
    if (!read_whole(p->line, "max_tokens", &most) || most > INT32_MAX) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "its \"max_tokens\" is no whole number from 0 on");
    }
    if (!read_whole(p->line, "seed", &seed)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "its \"seed\" is no whole number from 0 on");
    }
    if (temperature && !(json_is_number(temperature) && json_number_value(temperature) >= 0 &&
                         json_number_value(temperature) <= MOST_TEMPERATURE)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "its \"temperature\" is no number from 0 to %d",
                           MOST_TEMPERATURE);
    }
    p->max_tokens = most;
    p->sampling.seed = (uint64_t)seed;
    if (temperature) {
        p->sampling.temperature = (float)json_number_value(temperature);
    }
    return KVERN_OK;
}

static bool is_stop(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           strlen(json_string_value(value)) == json_string_length(value);
}

// Stop strings of the line replace those of the command.
static kvern_status read_stops(batch_prompt *p, const session_options *options, engine_error *error)
{
    const json_t *stop = json_object_get(p->line, "stop");
    const size_t count = json_is_array(stop) ? json_array_size(stop) : 1;
    p->stop_count = stop ? count : options->stop_count;
    p->stops = calloc(p->stop_count + 1, sizeof *p->stops);
    if (!p->stops) {
        return fail_memory(error);
    }
    for (size_t i = 0; i < p->stop_count; i++) {
        const json_t *value = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (stop && !is_stop(value)) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "its \"stop\" is not a text or a list of texts, or one is empty");
        }
        p->stops[i] = stop ? json_string_value(value) : options->stops[i];
    }
    return KVERN_OK;
}

// ---- The line ----

static kvern_status read_line(batch_prompt *p, const session_options *options, engine_error *error)
{
    kvern_status status = read_id(p, error);
    if (status == KVERN_OK) {
        status = read_question(p, options->system, error);
    }
    if (status == KVERN_OK) {
        status = read_sampling(p, error);
    }
    if (status == KVERN_OK) {
        status = read_stops(p, options, error);
    }
    return status;
}

kvern_status batch_prompt_parse(const char *text, size_t bytes, const session_options *options,
                                batch_prompt *out, engine_error *error)
{
    json_error_t fault;
    *out = (batch_prompt){.max_tokens = options->max_tokens, .sampling = options->sampling};
    out->line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    kvern_status status;
    if (!out->line) {
        status = engine_fail(error, KVERN_ERR_FORMAT, "it is no JSON: %s", fault.text);
    } else if (!json_is_object(out->line)) {
        status = engine_fail(error, KVERN_ERR_FORMAT, "it is no JSON object");
    } else {
        status = read_line(out, options, error);
    }
    if (status != KVERN_OK) {
        batch_prompt_free(out);
    }
    return status;
}

void batch_prompt_free(batch_prompt *prompt)
{
    json_decref(prompt->line);
    free(prompt->key);
    free(prompt->messages);
    free(prompt->stops);
    *prompt = (batch_prompt){0};
}

static kvern_status encode(const batch_prompt *prompt, const tokenizer *tokens,
                           const chat_template *chat, token_buffer *out, engine_error *error)
{
    if (chat) {
        return prompt_encode_chat(tokens, chat, prompt->messages, prompt->message_count, 0, out,
                                  error);
    }
    if (!prompt->prompt) {
        return engine_fail(
            error, KVERN_ERR_UNSUPPORTED,
            "it has messages, but the model's file has no chat template to write them in, "
            "or --raw was given; --template NAME chooses one");
    }
    const text_buffer text = {(char *)json_string_value(prompt->prompt),
                              json_string_length(prompt->prompt), 0};
    return prompt_encode_raw(tokens, &text, true, out, error);
}

kvern_status batch_prompt_encode(const batch_prompt *prompt, const tokenizer *tokens,
                                 const chat_template *chat, token_buffer *out, engine_error *error)
{
    kvern_status status = encode(prompt, tokens, chat, out, error);
    if (status == KVERN_OK && out->count == 0) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "the prompt is empty");
    }
    return status;
}
