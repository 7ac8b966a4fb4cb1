// SPDX-License-Identifier: MIT
// Any bytes as a request: read, or refused with a sentence, and a sampler takes every request that
// was read.

#include "engine/request/chat_request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VOCABULARY 16

// All text of a request belongs to it.
static size_t read_all(const chat_request *request)
{
    size_t sum = request->prompt_bytes;
    for (size_t i = 0; i < request->message_count; i++) {
        const chat_message *m = &request->messages[i];
        sum += strlen(m->role);
        for (size_t b = 0; b < m->content_bytes; b++) {
            sum += (unsigned char)m->content[b];
        }
    }
    for (size_t i = 0; i < request->stop_count; i++) {
        sum += strlen(request->stops[i]);
    }
    return sum;
}

static void sample(const chat_request *request)
{
    static const float logits[VOCABULARY] = {1, 2, 3};
    static const int32_t tokens[] = {1, 1, 2};
    const sampled_sequence sequence = {.tokens = tokens, .count = 3};
    engine_error error = {0};
    sampler *s;
    int32_t token = 0;
    if (sampler_create(&request->sampling, VOCABULARY, &s, &error) != KVERN_OK) {
        if (!strstr(error.text, "token ")) { // biases may be outside of this vocabulary
            abort();
        }
        return;
    }
    if (sampler_next(s, logits, &sequence, &token, &error) != KVERN_OK || token < 0 ||
        token >= VOCABULARY) {
        abort();
    }
    sampler_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const chat_request_defaults defaults = {
        .system = "s", .max_tokens = -1, .sampling = {.temperature = 1, .top_p = 1}};
    chat_request request;
    engine_error error = {0};
    json_t *object =
        json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!object) {
        return 0;
    }
    const kvern_status status = chat_request_read(object, &defaults, &request, &error);
    json_decref(object);
    if (status == KVERN_OK) {
        if (read_all(&request) == 0 || request.max_tokens < -1) {
            abort(); // there is a system message at least
        }
        sample(&request);
        chat_request_free(&request);
    } else if (error.status != status || !error.text[0] || request.object) {
        abort();
    }
    return 0;
}
