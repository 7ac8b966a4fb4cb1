// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CHAT_H
#define KVERN_ENGINE_CHAT_H

// Chat templates: how a conversation is written for a model.
//
// The Jinja text in a model file is not executed; its kind is recognised by its marks and rendered
// by code of ours that gives the same text. A kind that is recognised but not rendered is refused
// by name.

#include "engine/base/text_buffer.h"
#include "engine/tokenizer/tokenizer.h"

typedef struct chat_template chat_template;

typedef struct chat_message {
    const char *role; // "system", "user", "assistant", or what the model knows besides; terminated
    const char *content; // any bytes
    size_t content_bytes;
} chat_message;

// A rendered text, and which parts of it the template wrote (control tokens count) and which a user
// wrote (plain characters, whatever they look like). parts cover text from its start: this is the
// input of tokenizer_encode_parts. Start with CHAT_TEXT_INIT (all zero).
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

// The template of the file: recognised by the text of tokenizer.chat_template, with the file's own
// default system message. KVERN_ERR_UNSUPPORTED when the file has none or one of another kind
// (named, if its marks are known); *error then says what a user can do. On success *out is owned by
// the caller.
KVERN_CHECK kvern_status chat_template_detect(const gguf_file *file, chat_template **out,
                                              engine_error *error);

// A template by name, without a default system message. KVERN_ERR_ARGUMENT for an unknown name;
// *error lists the names. On success *out is owned by the caller.
KVERN_CHECK kvern_status chat_template_find(const char *name, chat_template **out,
                                            engine_error *error);

// Names that chat_template_find knows, terminated by NULL.
const char *const *chat_template_names(void);

// NULL is allowed.
void chat_template_destroy(chat_template *chat);

const char *chat_template_name(const chat_template *chat);
// The system message that stands first when a conversation does not begin with one; NULL when there
// is none.
const char *chat_template_default_system(const chat_template *chat);

// Appends to *out the text of messages[0 .. count), and with `add_generation_prompt` the beginning
// of the assistant's next message. On failure (KVERN_ERR_MEMORY, KVERN_ERR_OVERFLOW) *out is
// unchanged.
KVERN_CHECK kvern_status chat_render(const chat_template *chat, const chat_message *messages,
                                     size_t count, bool add_generation_prompt, chat_text *out);

// The continuation of a conversation whose tokens are already in the cache up to the content of
// messages[from - 1] (the model's reply, without the token that ended it): the end of that message,
// the messages from `from` on, and the prompt. chat_render up to the reply's prompt, the reply's
// content, and this, put together, equal chat_render of all messages; but a template that trims
// contents would take the white space around the reply, which stays. from = 0 is chat_render. Same
// failures, and KVERN_ERR_ARGUMENT when from > count.
KVERN_CHECK kvern_status chat_render_from(const chat_template *chat, const chat_message *messages,
                                          size_t count, size_t from, bool add_generation_prompt,
                                          chat_text *out);

#endif
