// SPDX-License-Identifier: MIT
// Any bytes as the body of a request to the server, chats and texts: read, with prompts of tokens
// and what a sampler takes, or refused with an error that can be sent.

#include "server/api/completion_request.h"
#include "tests/support/tiny_tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_CHOICES 16

static completion_context context;

static void prepare(void)
{
    if (context.tokens) {
        return;
    }
    chat_template *chat;
    tokenizer *tokens = tiny_tokenizer_create("gpt-2");
    if (chat_template_find("chatml", tokens, &chat, NULL) != KVERN_OK) {
        abort();
    }
    context = (completion_context){.model_name = "m",
                                   .tokens = tokens,
                                   .chat = chat,
                                   .defaults = {.max_tokens = -1, .sampling = {.temperature = 1}},
                                   .most_choices = MOST_CHOICES};
}

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void check_request(const completion_request *r)
{
    check(r->prompt_count > 0 && r->each > 0 && r->prompt_count * r->each <= MOST_CHOICES);
    check(!r->chat || r->prompt_count == 1);
    check(r->top_logprobs >= -1 && r->top_logprobs <= 20);
    check(r->stream || !r->include_usage);
    for (size_t i = 0; i < r->prompt_count; i++) {
        check(r->prompts[i].count > 0);
        for (size_t t = 0; t < r->prompts[i].count; t++) {
            const int32_t token = r->prompts[i].ids[t];
            check(token >= 0 && (size_t)token < tokenizer_size(context.tokens));
        }
    }
    for (size_t i = 0; i < r->bias_count; i++) {
        check(r->biases[i].bias == r->biases[i].bias);
    }
}

static void check_error(const api_error *error)
{
    check(error->http >= 400 && error->http < 600 && error->type && error->message[0]);
    json_t *value = api_error_json(error);
    check(value != NULL);
    json_decref(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    json_t *object =
        json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    for (int chat = 0; json_is_object(object) && chat < 2; chat++) {
        completion_request request;
        api_error error = {0};
        if (completion_request_read(object, chat, &context, &request, &error)) {
            check(error.http == 0);
            check_request(&request);
        } else {
            check_error(&error);
            check(!request.prompts && !request.biases);
        }
        completion_request_free(&request);
    }
    json_decref(object);
    return 0;
}
