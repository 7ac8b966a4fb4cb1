// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CHAT_INTERNAL_H
#define KVERN_ENGINE_CHAT_INTERNAL_H

// What the two halves of the chat templates share: chat_template.c recognises, chat.c renders.

#include "engine/chat/chat.h"

// How every message of a conversation is written: before_role, the role, after_role, the content,
// after_content.
typedef struct chat_style {
    const char *name;
    const char *before_role;
    const char *after_role;
    const char *after_content;
    const char *assistant; // how the assistant's role is written
    bool trims;            // contents lose their white space at both ends, but for a system message
    bool system_in_first;  // a system message stands in the next message, before its content
} chat_style;

struct chat_template {
    const chat_style *style;
    char *default_system; // owned; NULL: none
};

#endif
