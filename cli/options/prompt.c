// SPDX-License-Identifier: MIT
#include "cli/options/prompt.h"

#include "cli/io/text.h"

#include <string.h>
#include <unistd.h>

bool prompt_is_missing(const cli_options *options)
{
    return !options->prompt && !options->file && isatty(STDIN_FILENO);
}

kvern_status prompt_read(const cli_options *options, text_buffer *text, engine_error *error)
{
    if (options->prompt) {
        kvern_status status = text_buffer_append(text, options->prompt, strlen(options->prompt));
        return status == KVERN_OK ? status : engine_fail(error, status, "no memory for the prompt");
    }
    return text_read_file(options->file ? options->file : "-", text, error);
}

void prompt_end_message(const cli_options *options, text_buffer *text)
{
    if (!options->prompt && text->size > 0 && text->data[text->size - 1] == '\n') {
        text->size--;
    }
}

kvern_status prompt_encode_raw(const tokenizer *tokens, const text_buffer *text, bool begins,
                               token_buffer *out, engine_error *error)
{
    unsigned flags = TOKENIZER_PARSE_SPECIAL | (begins ? TOKENIZER_ADD_BOS : 0);
    return tokenizer_encode(tokens, text->data ? text->data : "", text->size, flags, out, error);
}

kvern_status prompt_encode_chat(const tokenizer *tokens, const chat_template *chat,
                                const chat_message *messages, size_t count, size_t from,
                                token_buffer *out, bool *whole, engine_error *error)
{
    chat_text rendered = CHAT_TEXT_INIT;
    bool all;
    kvern_status status = chat_continue(chat, messages, count, from, &rendered, &all, error);
    if (status == KVERN_OK) {
        status = chat_encode(&rendered, tokens, all, out, error);
    }
    if (whole) {
        *whole = all;
    }
    chat_text_free(&rendered);
    return status;
}

kvern_status prompt_encode_plain(const cli_options *options, const tokenizer *tokens,
                                 text_buffer *text, token_buffer *out, engine_error *error)
{
    if (!options->template_name) {
        return prompt_encode_raw(tokens, text, true, out, error);
    }
    chat_template *chat;
    kvern_status status = chat_template_find(options->template_name, tokens, &chat, error);
    if (status != KVERN_OK) {
        return status;
    }
    prompt_end_message(options, text);
    chat_message message = {"user", text->data ? text->data : "", text->size};
    status = prompt_encode_chat(tokens, chat, &message, 1, 0, out, NULL, error);
    chat_template_destroy(chat);
    return status;
}
