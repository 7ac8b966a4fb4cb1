// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_BATCH_INPUT_H
#define KVERN_CLI_BATCH_INPUT_H

// The lines of a file of prompts: requests (engine/request/chat_request.h) that have an id, such as
//     {"id": "a", "prompt": "Why is the sky blue?"}
//     {"id": 2, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}

#include "cli/session/session.h"

#include "engine/request/chat_request.h"

// A line, with what the command's options say where it says nothing.
typedef struct batch_prompt {
    chat_request request;
    json_t *id; // borrowed from the line
    char *key;  // owned: the id as JSON text; equal ids have equal keys
} batch_prompt;

// Reads a line. On failure *out is all zero and the text says what is wrong with it. Errors:
// KVERN_ERR_FORMAT, KVERN_ERR_UNSUPPORTED, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status batch_prompt_parse(const char *text, size_t bytes,
                                            const session_options *options, batch_prompt *out,
                                            engine_error *error);

// All zero is permitted.
void batch_prompt_free(batch_prompt *prompt);

// Adds the keys of a line that nobody knows to the keys of `unknown`, an object, and calls `report`
// for each that is new there.
void batch_prompt_unknown(const batch_prompt *prompt, json_t *unknown,
                          void (*report)(void *user, const char *key), void *user);

// Appends the tokens of a prompt, at least one. `chat` NULL: the text as it is, which messages
// cannot be.
KVERN_CHECK kvern_status batch_prompt_encode(const batch_prompt *prompt, const tokenizer *tokens,
                                             const chat_template *chat, token_buffer *out,
                                             engine_error *error);

// The JSON text of an id; free(). NULL: neither a string nor a number, or no memory.
char *batch_id_key(const json_t *id);

#endif
