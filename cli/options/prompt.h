// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_PROMPT_H
#define KVERN_CLI_PROMPT_H

// From the text options of a command to tokens.

#include "cli/options/options.h"

#include "engine/base/text_buffer.h"
#include "engine/chat/chat.h"
#include "engine/tokenizer/tokenizer.h"

// Whether the text would have to come from a terminal: no -p, no --file, and stdin is one.
bool prompt_is_missing(const cli_options *options);

// Appends the text of -p, of -f, or of stdin when neither was given, every byte of it.
KVERN_CHECK kvern_status prompt_read(const cli_options *options, text_buffer *text,
                                     engine_error *error);

// The text becomes a message of a template: the newline that ends a file does not belong to it.
void prompt_end_message(const cli_options *options, text_buffer *text);

// Appends the tokens of a text as it is, control tokens recognised. With `begins` the beginning
// token stands first if the model's file wants one.
KVERN_CHECK kvern_status prompt_encode_raw(const tokenizer *tokens, const text_buffer *text,
                                           bool begins, token_buffer *out, engine_error *error);

// Appends the tokens of messages[from..count) of a conversation, with the beginning of the answer.
// from = 0 begins it, and then `whole` may be NULL. *whole: the tokens are those of all messages,
// and the sequence must be empty (chat_continue).
KVERN_CHECK kvern_status prompt_encode_chat(const tokenizer *tokens, const chat_template *chat,
                                            const chat_message *messages, size_t count, size_t from,
                                            token_buffer *out, bool *whole, engine_error *error);

// What tokenize and logits do with their text: it is used as it is, or put into the template that
// --template names.
KVERN_CHECK kvern_status prompt_encode_plain(const cli_options *options, const tokenizer *tokens,
                                             text_buffer *text, token_buffer *out,
                                             engine_error *error);

#endif
