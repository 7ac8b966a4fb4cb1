// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_CONVERSATION_FILE_H
#define KVERN_CLI_CONVERSATION_FILE_H

// A conversation in a file: {"messages": [{"role", "content"}, ...]}, as servers and kvern batch
// take it. What was computed of it is not in there; with --cache the directory has that.

#include "engine/chat/chat.h"

// Writes it, in place of a conversation that was there. Errors: KVERN_ERR_ARGUMENT (the file is
// there, and is none), KVERN_ERR_IO, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status conversation_save(const char *path, const chat_message *messages,
                                           size_t count, engine_error *error);

// Reads it: calls `add` for each message, in order; its role is a static string. False from `add`
// means that there is no memory. Everything is checked before the first call. Errors: KVERN_ERR_IO,
// KVERN_ERR_FORMAT (anything else than messages of a system, which may be the first one, and of a
// user and the assistant in turns, the answer last), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status conversation_load(const char *path,
                                           bool (*add)(void *user, const char *role,
                                                       const char *content, size_t bytes),
                                           void *user, engine_error *error);

#endif
