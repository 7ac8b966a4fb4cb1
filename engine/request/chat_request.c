// SPDX-License-Identifier: MIT
#include "engine/request/chat_request.h"

#include "engine/request/request_keys.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvern_status fail_memory(engine_error *error)
{
    return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the request");
}

// ---- Content ----

// A key of a part that no text has; NULL: none.
static const char *other_key(json_t *part)
{
    const char *key;
    json_t *value;
    json_object_foreach(part, key, value)
    {
        if (strcmp(key, "type") != 0 && strcmp(key, "text") != 0 && !json_is_null(value)) {
            return key;
        }
    }
    return NULL;
}

static bool is_text_part(json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return !other_key(part) && type && strcmp(type, "text") == 0 &&
           json_is_string(json_object_get(part, "text"));
}

static kvern_status refuse_part(json_t *part, size_t index, engine_error *error)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type && strcmp(type, "text") != 0) {
        return engine_fail(
            error, KVERN_ERR_UNSUPPORTED,
            "\"messages\": message %zu has a part of type \"%.40s\"; only \"text\" is "
            "supported",
            index + 1, type);
    }
    if (type && other_key(part)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "\"messages\": the \"%.40s\" of a part of message %zu is not supported",
                           other_key(part), index + 1);
    }
    return engine_fail(
        error, KVERN_ERR_FORMAT,
        "\"messages\": a part of message %zu is not {\"type\": \"text\", \"text\": \"...\"}",
        index + 1);
}

// The texts of all parts, in a text that belongs to the request.
static kvern_status join_parts(chat_request *r, const json_t *parts, size_t index,
                               chat_message *out, engine_error *error)
{
    size_t i, bytes = 0;
    json_t *part;
    json_array_foreach(parts, i, part)
    {
        if (!is_text_part(part)) {
            return refuse_part(part, index, error);
        }
        bytes += json_string_length(json_object_get(part, "text"));
    }
    char *text = malloc(bytes + 1);
    if (!text) {
        return fail_memory(error);
    }
    r->texts[r->text_count++] = text;
    out->content = text;
    out->content_bytes = bytes;
    json_array_foreach(parts, i, part)
    {
        const json_t *value = json_object_get(part, "text");
        memcpy(text, json_string_value(value), json_string_length(value));
        text += json_string_length(value);
    }
    *text = 0;
    return KVERN_OK;
}

// ---- Messages ----

// Of a message, everything but its role and content is something that no template here writes.
static kvern_status check_message_keys(json_t *message, size_t index, engine_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value)
    {
        const bool empty = json_is_null(value) || (json_is_array(value) && !json_array_size(value));
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && !empty) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                               "\"messages\": the \"%.40s\" of message %zu is not supported", key,
                               index + 1);
        }
    }
    return KVERN_OK;
}

static kvern_status read_message(chat_request *r, json_t *value, size_t index, chat_message *out,
                                 engine_error *error)
{
    const json_t *role = json_object_get(value, "role");
    const json_t *content = json_object_get(value, "content");
    kvern_status status = check_message_keys(value, index, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (json_is_null(content)) { // what a call of a tool has, whose key was refused then
        return engine_fail(
            error, KVERN_ERR_FORMAT,
            "\"messages\": the \"content\" of message %zu is null, which only one with "
            "\"tool_calls\" may have",
            index + 1);
    }
    if (!json_is_string(role) || !(json_is_string(content) || json_is_array(content))) {
        return engine_fail(
            error, KVERN_ERR_FORMAT,
            "\"messages\": message %zu needs a \"role\", a string, and a \"content\", a "
            "string or a list of parts",
            index + 1);
    }
    if (strlen(json_string_value(role)) != json_string_length(role)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "\"messages\": the role of message %zu has a zero byte", index + 1);
    }
    *out = (chat_message){json_string_value(role), json_string_value(content),
                          json_string_length(content)};
    return json_is_array(content) ? join_parts(r, content, index, out, error) : KVERN_OK;
}

static void add_system(chat_request *r, const char *system)
{
    if (system) {
        r->messages[r->message_count++] = (chat_message){"system", system, strlen(system)};
    }
}

// The system message of the defaults goes before what does not begin with one.
static kvern_status read_messages(chat_request *r, const json_t *list, const char *system,
                                  engine_error *error)
{
    const size_t count = json_array_size(list);
    if (count == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           json_is_array(list) ? "\"messages\" is empty"
                                               : "\"messages\" is not a list of messages");
    }
    r->messages = calloc(count + 1, sizeof *r->messages);
    r->texts = calloc(count, sizeof *r->texts);
    if (!r->messages || !r->texts) {
        return fail_memory(error);
    }
    add_system(r, system);
    for (size_t i = 0; i < count; i++) {
        chat_message message;
        const kvern_status status = read_message(r, json_array_get(list, i), i, &message, error);
        if (status != KVERN_OK) {
            return status;
        }
        if (i == 0 && strcmp(message.role, "system") == 0) {
            r->message_count = 0;
        }
        r->messages[r->message_count++] = message;
    }
    return KVERN_OK;
}

static kvern_status wrap_prompt(chat_request *r, const json_t *prompt, const char *system,
                                engine_error *error)
{
    r->messages = calloc(2, sizeof *r->messages);
    if (!r->messages) {
        return fail_memory(error);
    }
    r->prompt = json_string_value(prompt);
    r->prompt_bytes = json_string_length(prompt);
    add_system(r, system);
    r->messages[r->message_count++] = (chat_message){"user", r->prompt, r->prompt_bytes};
    return KVERN_OK;
}

static kvern_status read_question(chat_request *r, const char *system, engine_error *error)
{
    const json_t *messages = request_value(r->object, "messages");
    const json_t *prompt = request_value(r->object, "prompt");
    if (prompt && messages) {
        return engine_fail(error, KVERN_ERR_FORMAT, "there are both \"prompt\" and \"messages\"");
    }
    if (messages) {
        return read_messages(r, messages, system, error);
    }
    if (!json_is_string(prompt)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           prompt ? "\"prompt\" is not a string"
                                  : "there is neither a \"prompt\" nor \"messages\"");
    }
    return wrap_prompt(r, prompt, system, error);
}

// ---- How it is answered ----

static kvern_status read_limit(chat_request *r, engine_error *error)
{
    static const char *const NAMES[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    json_int_t most = r->max_tokens;
    const kvern_status status = request_whole(r->object, NAMES, 3, -1, INT32_MAX, &most, error);
    r->max_tokens = most;
    return status;
}

static kvern_status read_filters(chat_request *r, engine_error *error)
{
    sampler_options *s = &r->sampling;
    json_int_t top_k = s->top_k, seed = -1; // the default's
    kvern_status status = request_real(r->object, "temperature", 0, 100, &s->temperature, error);
    if (status == KVERN_OK) {
        status = request_real(r->object, "top_p", 0, 1, &s->top_p, error);
    }
    if (status == KVERN_OK) {
        status = request_real(r->object, "min_p", 0, 1, &s->min_p, error);
    }
    if (status == KVERN_OK) {
        status = request_whole(r->object, (const char *const[]){"top_k"}, 1, -1, INT32_MAX, &top_k,
                               error);
    }
    if (status == KVERN_OK) {
        status =
            request_whole(r->object, (const char *const[]){"seed"}, 1, -1, INT64_MAX, &seed, error);
    }
    s->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
    s->seed = seed < 0 ? s->seed : (uint64_t)seed;
    return status;
}

static kvern_status read_penalties(chat_request *r, engine_error *error)
{
    penalty_options *p = &r->sampling.penalties;
    json_int_t window = p->window > INT32_MAX ? -1 : (json_int_t)p->window;
    kvern_status status =
        request_real(r->object, "presence_penalty", -100, 100, &p->presence, error);
    if (status == KVERN_OK) {
        status = request_real(r->object, "frequency_penalty", -100, 100, &p->frequency, error);
    }
    if (request_value(r->object, "repeat_penalty") &&
        request_value(r->object, "repetition_penalty")) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "\"repeat_penalty\" and \"repetition_penalty\" are the same");
    }
    if (status == KVERN_OK) {
        status = request_real(r->object, "repeat_penalty", 0.01, 100, &p->repeat, error);
    }
    if (status == KVERN_OK) {
        status = request_real(r->object, "repetition_penalty", 0.01, 100, &p->repeat, error);
    }
    if (status == KVERN_OK) {
        status = request_whole(r->object, (const char *const[]){"repeat_last_n"}, 1, -1, INT32_MAX,
                               &window, error);
    }
    p->window = window < 0 ? PENALTY_WINDOW_ALL : (size_t)window;
    return status;
}

// {"15043": -100}: what is added to the logits of tokens. They replace those of the defaults.
static kvern_status read_biases(chat_request *r, engine_error *error)
{
    json_t *biases = request_value(r->object, "logit_bias");
    const char *key;
    json_t *value;
    if (!biases) {
        return KVERN_OK;
    }
    r->biases = calloc(json_object_size(biases) + 1, sizeof *r->biases);
    if (!r->biases) {
        return fail_memory(error);
    }
    size_t count = 0;
    json_object_foreach(biases, key, value)
    {
        char *end;
        const long token = strtol(key, &end, 10);
        // "01" would be token 1 again.
        const bool padded = key[0] == '0' && key[1];
        if (*end || !isdigit((unsigned char)key[0]) || padded || token > INT32_MAX ||
            !json_is_number(value) || fabs(json_number_value(value)) > 100) {
            count = SIZE_MAX;
            break;
        }
        r->biases[count++] = (logit_bias){(int32_t)token, (float)json_number_value(value)};
    }
    if (!json_is_object(biases) || count == SIZE_MAX) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "\"logit_bias\" is not an object of token numbers and values from -100 "
                           "to 100");
    }
    r->sampling.biases = r->biases;
    r->sampling.bias_count = count;
    return KVERN_OK;
}

static bool is_stop(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           strlen(json_string_value(value)) == json_string_length(value);
}

// Stop strings of the request replace those of the defaults.
static kvern_status read_stops(chat_request *r, const chat_request_defaults *defaults,
                               engine_error *error)
{
    const json_t *stop = request_value(r->object, "stop");
    const size_t count = json_is_array(stop) ? json_array_size(stop) : 1;
    r->stop_count = stop ? count : defaults->stop_count;
    r->stops = calloc(r->stop_count + 1, sizeof *r->stops);
    if (!r->stops) {
        return fail_memory(error);
    }
    for (size_t i = 0; i < r->stop_count; i++) {
        const json_t *value = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (stop && !is_stop(value)) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "\"stop\" is not a text or a list of texts, or one is empty");
        }
        r->stops[i] = stop ? json_string_value(value) : defaults->stops[i];
    }
    return KVERN_OK;
}

static kvern_status read_ends(chat_request *r, engine_error *error)
{
    const json_t *ignore = request_value(r->object, "ignore_eos");
    if (ignore && !json_is_boolean(ignore)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "\"ignore_eos\" is neither true nor false");
    }
    r->ignore_eos = ignore ? json_is_true(ignore) : r->ignore_eos;
    return KVERN_OK;
}

// ---- The request ----

static kvern_status read_all(chat_request *r, const chat_request_defaults *defaults,
                             engine_error *error)
{
    kvern_status status = request_check_keys(r->object, error);
    if (status == KVERN_OK) {
        status = read_question(r, defaults->system, error);
    }
    if (status == KVERN_OK) {
        status = read_limit(r, error);
    }
    if (status == KVERN_OK) {
        status = read_filters(r, error);
    }
    if (status == KVERN_OK) {
        status = read_penalties(r, error);
    }
    if (status == KVERN_OK) {
        status = read_biases(r, error);
    }
    if (status == KVERN_OK) {
        status = read_stops(r, defaults, error);
    }
    return status == KVERN_OK ? read_ends(r, error) : status;
}

kvern_status chat_request_read(json_t *object, const chat_request_defaults *defaults,
                               chat_request *out, engine_error *error)
{
    *out = (chat_request){.object = json_incref(object),
                          .max_tokens = defaults->max_tokens,
                          .sampling = defaults->sampling,
                          .ignore_eos = defaults->ignore_eos};
    const kvern_status status =
        json_is_object(object)
            ? read_all(out, defaults, error)
            : engine_fail(error, KVERN_ERR_FORMAT, "the request is not a JSON object");
    if (status != KVERN_OK) {
        chat_request_free(out);
    }
    return status;
}

void chat_request_free(chat_request *request)
{
    for (size_t i = 0; i < request->text_count; i++) {
        free(request->texts[i]);
    }
    free(request->texts);
    free(request->messages);
    free(request->stops);
    free(request->biases);
    json_decref(request->object);
    *request = (chat_request){0};
}

bool chat_request_knows(const char *key)
{
    return request_knows(key);
}
