// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_JSON_TEXT_H
#define KVERN_SERVER_JSON_TEXT_H

// JSON that the server writes.

#include "engine/base/text_buffer.h"

#include <jansson.h>
#include <stdbool.h>

// A string of any bytes: what is no UTF-8 becomes U+FFFD. NULL: no memory.
json_t *server_json_text(const char *data, size_t size);

// Appends a value in one line, and releases it; NULL stands for a lack of memory, as does false.
bool server_json_write(json_t *value, text_buffer *out);

#endif
