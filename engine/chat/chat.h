// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CHAT_H
#define KVERN_ENGINE_CHAT_H

// Chat templates: how a conversation is written for a model.
//
// A template is a program in Jinja that the model's file brings along, or one of ours by name. It
// is run (jinja.h), so the text is what the file says and not what the template resembles; a
// template that uses more of the language than we know is refused with the line.

#include "engine/base/text_buffer.h"
#include "engine/tokenizer/tokenizer.h"

typedef struct chat_template chat_template;

typedef struct chat_message {
    const char *role; // "system", "user", "assistant", or what the model knows besides; terminated
    const char *content; // any bytes
    size_t content_bytes;
} chat_message;

// A rendered text, and which parts of it the template wrote (control tokens count) and which came
// with the messages (plain characters, whatever they look like). parts cover text from its start:
// this is the input of tokenizer_encode_parts. Start with CHAT_TEXT_INIT (all zero).
typedef struct chat_text {
    text_buffer text;
    tokenizer_part *parts; // owned
    size_t part_count;
    size_t part_capacity;
} chat_text;

// clang-format off
#define CHAT_TEXT_INIT {TEXT_BUFFER_INIT, NULL, 0, 0}
// clang-format on

void chat_text_free(chat_text *text);

// Whether the file has a template at all: one without is a model that continues texts.
bool chat_template_present(const gguf_file *file);

// The template of the file (tokenizer.chat_template). `tokens` gives the texts of bos_token and
// eos_token; NULL: they are undefined. It is not needed afterwards. KVERN_ERR_UNSUPPORTED when the
// file has no template, or one that is not understood; *error then says where, and what a user can
// do. On success *out is owned by the caller.
KVERN_CHECK kvern_status chat_template_detect(const gguf_file *file, const tokenizer *tokens,
                                              chat_template **out, engine_error *error);

// The same of a template's text, wherever it comes from.
KVERN_CHECK kvern_status chat_template_of_text(text_view source, const tokenizer *tokens,
                                               chat_template **out, engine_error *error);

// What chat_template_detect says where there is no template.
kvern_status chat_template_missing(engine_error *error);

// A template by name. KVERN_ERR_ARGUMENT for an unknown name; *error lists the names. The rest as
// above.
KVERN_CHECK kvern_status chat_template_find(const char *name, const tokenizer *tokens,
                                            chat_template **out, engine_error *error);

// NULL is allowed.
void chat_template_destroy(chat_template *chat);

// The name it was found by; of a file's template the name of the one that writes the same, or
// "custom".
const char *chat_template_name(const chat_template *chat);

// The time that a template is told, in seconds since 1970. By default it is that of its creation,
// so that a conversation keeps its date.
void chat_template_set_time(chat_template *chat, int64_t seconds);

// Appends to *out the text of messages[0 .. count), and with `add_generation_prompt` the beginning
// of the assistant's next message. On failure *out is unchanged: KVERN_ERR_ARGUMENT when the
// template refuses the messages (*error has its sentence), KVERN_ERR_UNSUPPORTED for something that
// is not understood and was reached now, KVERN_ERR_MEMORY, KVERN_ERR_OVERFLOW.
KVERN_CHECK kvern_status chat_render(const chat_template *chat, const chat_message *messages,
                                     size_t count, bool add_generation_prompt, chat_text *out,
                                     engine_error *error);

// The continuation, with the prompt of an answer, of a conversation whose text is already in a
// cache up to the content of messages[from - 1], the model's reply without what ended it.
// chat_render up to the reply's prompt, the reply, and this, put together, equal chat_render of all
// messages but for white space around the reply, which stays.
//
// Many templates write past replies otherwise than they were given, without their reasoning for
// example. Then *whole is set, and *out gets all messages, for a sequence that begins anew;
// likewise when from is 0. Same failures, and KVERN_ERR_ARGUMENT when from > count.
KVERN_CHECK kvern_status chat_continue(const chat_template *chat, const chat_message *messages,
                                       size_t count, size_t from, chat_text *out, bool *whole,
                                       engine_error *error);

// Appends the tokens of a rendered text. `begins`: it is the beginning of a sequence, which gets
// the beginning token if the file asks for it and the template has not written it. Failures are
// those of tokenizer_encode_parts.
KVERN_CHECK kvern_status chat_encode(const chat_text *text, const tokenizer *tokens, bool begins,
                                     token_buffer *out, engine_error *error);

// The token that the template writes behind the assistant's words, or TOKENIZER_NO_TOKEN when it
// writes none, or when that cannot be told.
int32_t chat_turn_end(const chat_template *chat, const tokenizer *tokens);

#endif
