// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_JSON_H
#define KVERN_CLI_JSON_H

// JSON on stdout.

#include <jansson.h>
#include <stddef.h>

// A string of any bytes: what is no UTF-8 becomes U+FFFD. NULL: no memory.
json_t *json_text(const char *data, size_t size);

// Prints a value and a newline on stdout, and releases it. NULL means that there was no memory to
// build it. Returns an exit code; a failure was reported.
int json_print(json_t *value);

#endif
