// SPDX-License-Identifier: MIT
#include "cli/batch/batch_input.h"

#include "cli/options/prompt.h"

#include <stdlib.h>
#include <string.h>

char *batch_id_key(const json_t *id)
{
    return json_is_string(id) || json_is_number(id) ? json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT)
                                                    : NULL;
}

static kvern_status read_id(batch_prompt *p, const json_t *line, engine_error *error)
{
    p->id = json_object_get(line, "id");
    if (!json_is_string(p->id) && !json_is_number(p->id)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "there is no \"id\" that is a string or a number");
    }
    p->key = batch_id_key(p->id);
    return p->key ? KVERN_OK : engine_fail(error, KVERN_ERR_MEMORY, "no memory for the line");
}

static kvern_status read_request_line(batch_prompt *p, json_t *line, const session_options *options,
                                      engine_error *error)
{
    const chat_request_defaults defaults = {.system = options->system,
                                            .max_tokens = options->max_tokens,
                                            .sampling = options->sampling,
                                            .stops = options->stops,
                                            .stop_count = options->stop_count,
                                            .ignore_eos = options->ignore_eos};
    kvern_status status = read_id(p, line, error);
    return status == KVERN_OK ? chat_request_read(line, &defaults, &p->request, error) : status;
}

kvern_status batch_prompt_parse(const char *text, size_t bytes, const session_options *options,
                                batch_prompt *out, engine_error *error)
{
    json_error_t fault;
    *out = (batch_prompt){0};
    json_t *line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    kvern_status status;
    if (!line) {
        status = engine_fail(error, KVERN_ERR_FORMAT, "invalid JSON: %s", fault.text);
    } else if (!json_is_object(line)) {
        status = engine_fail(error, KVERN_ERR_FORMAT, "not a JSON object");
    } else {
        status = read_request_line(out, line, options, error);
    }
    json_decref(line);
    if (status != KVERN_OK) {
        batch_prompt_free(out);
    }
    return status;
}

void batch_prompt_free(batch_prompt *prompt)
{
    chat_request_free(&prompt->request);
    free(prompt->key);
    *prompt = (batch_prompt){0};
}

void batch_prompt_unknown(const batch_prompt *prompt, json_t *unknown,
                          void (*report)(void *user, const char *key), void *user)
{
    const char *key;
    json_t *value;
    json_object_foreach(prompt->request.object, key, value)
    {
        if (strcmp(key, "id") != 0 && !chat_request_knows(key) && !json_object_get(unknown, key)) {
            json_object_set_new_nocheck(unknown, key, json_true());
            report(user, key);
        }
    }
}

static kvern_status encode(const chat_request *request, const tokenizer *tokens,
                           const chat_template *chat, token_buffer *out, engine_error *error)
{
    if (chat) {
        return prompt_encode_chat(tokens, chat, request->messages, request->message_count, 0, out,
                                  NULL, error);
    }
    if (!request->prompt) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "messages need a chat template, and the model's file has none, or --raw "
                           "was given; --template NAME chooses one");
    }
    const text_buffer text = {(char *)request->prompt, request->prompt_bytes, 0};
    return prompt_encode_raw(tokens, &text, true, out, error);
}

kvern_status batch_prompt_encode(const batch_prompt *prompt, const tokenizer *tokens,
                                 const chat_template *chat, token_buffer *out, engine_error *error)
{
    kvern_status status = encode(&prompt->request, tokens, chat, out, error);
    if (status == KVERN_OK && out->count == 0) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "the prompt is empty");
    }
    return status;
}
