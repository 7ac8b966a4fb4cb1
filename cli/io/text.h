// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_TEXT_H
#define KVERN_CLI_TEXT_H

// Text in and out: whole files, and bytes that may be no UTF-8.

#include "engine/base/error.h"
#include "engine/base/text_buffer.h"

// Appends a whole file ("-" is stdin) to *text. On failure *text is unchanged.
KVERN_CHECK kvern_status text_read_file(const char *path, text_buffer *text, engine_error *error);

// Appends `data` as valid UTF-8: what is none becomes U+FFFD. On failure (KVERN_ERR_MEMORY) *text
// is unchanged.
KVERN_CHECK kvern_status text_append_utf8(text_buffer *text, const char *data, size_t size);

// Appends `data` on one line of valid UTF-8: backslash, control characters and bytes that are no
// UTF-8 are written as \\, \n, \r, \t or \xHH. On failure (KVERN_ERR_MEMORY) *text is unchanged.
KVERN_CHECK kvern_status text_append_escaped(text_buffer *text, const char *data, size_t size);

// Appends `data`, whole characters of UTF-8, for a terminal: control characters other than newline
// and tab, those that Unicode calls C1 too, become U+FFFD. On failure (KVERN_ERR_MEMORY) *text may
// have a part of it.
KVERN_CHECK kvern_status text_append_printable(text_buffer *text, const char *data, size_t size);

#endif
