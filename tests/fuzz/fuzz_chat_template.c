// SPDX-License-Identifier: MIT
// Any bytes as a chat template: it is refused with a sentence, or it renders, in bounded time, to a
// text of which every byte has an origin; and rendering again gives the same.
//
// The first byte chooses the messages and the prompt; then the template, a zero byte, and a
// content.

#include "engine/chat/jinja.h"

#include <stdlib.h>
#include <string.h>

static void check_origins(const jinja_result *result)
{
    if (result->origins.size != result->text.size)
        abort();
    for (size_t i = 0; i < result->origins.size; i++)
        if ((unsigned char)result->origins.data[i] > JINJA_FROM_ANCHOR)
            abort();
}

static kvern_status render(const jinja_template *t, const jinja_input *input, jinja_result *result)
{
    engine_error error = {0};
    const kvern_status status = jinja_render(t, input, result, &error);
    if (status != KVERN_OK && (error.status != status || !error.text[0] || result->text.size > 0))
        abort();
    check_origins(result);
    return status;
}

static void render_twice(const jinja_template *t, const jinja_input *input)
{
    jinja_result first = {0}, second = {0};
    const kvern_status status = render(t, input, &first);
    if (render(t, input, &second) != status || first.text.size != second.text.size ||
        (first.text.size > 0 && memcmp(first.text.data, second.text.data, first.text.size) != 0))
        abort();
    jinja_result_free(&first);
    jinja_result_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *source = (const char *)data + 1;
    const size_t bytes = size - 1;
    const char *end = bytes > 0 ? memchr(source, '\0', bytes) : NULL;
    const size_t source_bytes = end ? (size_t)(end - source) : bytes;
    const jinja_word content = {end ? end + 1 : "", end ? bytes - source_bytes - 1 : 0};
    jinja_template *t;
    engine_error error = {0};
    const kvern_status status = jinja_parse(source, source_bytes, &t, &error);
    if ((status == KVERN_OK) != (t != NULL) ||
        (status != KVERN_OK && (error.status != status || !error.text[0])))
        abort();
    if (!t)
        return 0;
    const jinja_message messages[] = {
        {{"user", 4}, content, JINJA_FROM_TEMPLATE, JINJA_FROM_MESSAGE},
        {{"assistant", 9}, content, JINJA_FROM_TEMPLATE, JINJA_FROM_ANCHOR},
        {{"x", 1}, {"y", 1}, JINJA_FROM_MESSAGE, JINJA_FROM_MESSAGE},
    };
    const jinja_input input = {.messages = messages,
                               .count = data[0] & 3,
                               .add_generation_prompt = data[0] & 4,
                               .bos = {data[0] & 8 ? NULL : "<s>", 3},
                               .eos = {"</s>", 4},
                               .now = 1751544000};
    render_twice(t, &input);
    jinja_destroy(t);
    return 0;
}
