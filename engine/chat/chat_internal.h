// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CHAT_INTERNAL_H
#define KVERN_ENGINE_CHAT_INTERNAL_H

// What the parts of the chat templates share: chat_template.c makes templates, chat.c renders,
// chat_builtin.c has the texts of those that have a name, jinja.h the language.

#include "engine/chat/chat.h"
#include "engine/chat/jinja.h"

struct chat_template {
    jinja_template *program;
    const char *name;
    char *bos, *eos; // owned; NULL: undefined
    size_t bos_bytes, eos_bytes;
    int64_t now;
};

typedef struct chat_builtin {
    const char *name;
    const char *source;
} chat_builtin;

extern const chat_builtin chat_builtins[];
extern const size_t chat_builtin_count;

// Renders; `anchor` is the index of the message whose content is marked, or `count`.
KVERN_CHECK kvern_status chat_run(const chat_template *chat, const chat_message *messages,
                                  size_t count, size_t anchor, bool add_generation_prompt,
                                  jinja_result *result, engine_error *error);

#endif
