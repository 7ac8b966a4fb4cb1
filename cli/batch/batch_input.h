// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_BATCH_INPUT_H
#define KVERN_CLI_BATCH_INPUT_H

// The lines of a file of prompts: JSON objects such as
//     {"id": "a", "prompt": "Why is the sky blue?"}
//     {"id": 2, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}

#include "cli/session/session.h"

#include <jansson.h>

// A line, with what the command's options say where it says nothing.
typedef struct batch_prompt {
    json_t *line;           // owned; strings below belong to it or to the options
    char *key;              // owned: the id as JSON text; equal ids have equal keys
    json_t *id;             // borrowed from the line
    json_t *prompt;         // borrowed from the line; NULL: there are messages
    chat_message *messages; // owned; with a system message of the options
    size_t message_count;
    int64_t max_tokens;
    sampler_options sampling;
    const char **stops; // owned
    size_t stop_count;
} batch_prompt;

// Reads a line. On failure *out is all zero and the text says what is wrong with it. Errors:
// KVERN_ERR_FORMAT, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status batch_prompt_parse(const char *text, size_t bytes,
                                            const session_options *options, batch_prompt *out,
                                            engine_error *error);

// All zero is permitted.
void batch_prompt_free(batch_prompt *prompt);

// Appends the tokens of a prompt, at least one. `chat` NULL: the text as it is, which messages
// cannot be.
KVERN_CHECK kvern_status batch_prompt_encode(const batch_prompt *prompt, const tokenizer *tokens,
                                             const chat_template *chat, token_buffer *out,
                                             engine_error *error);

// The JSON text of an id; free(). NULL: neither a string nor a number, or no memory.
char *batch_id_key(const json_t *id);

#endif
