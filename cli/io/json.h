// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_JSON_H
#define KVERN_CLI_JSON_H

// JSON that the program writes.

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A string of any bytes: what is no UTF-8 becomes U+FFFD. NULL: no memory.
json_t *json_text(const char *data, size_t size);

// Members of an object, in the order in which they are put. When there is no memory the object is
// released and becomes NULL, and stays NULL from then on.
void json_put(json_t **object, const char *key,
              json_t *value); // takes `value` over; NULL: no memory
void json_put_size(json_t **object, const char *key, uint64_t value);
void json_put_real(json_t **object, const char *key, double value);
void json_put_float(json_t **object, const char *key, float value); // as number_of_float has it
void json_put_bool(json_t **object, const char *key, bool value);
void json_put_text(json_t **object, const char *key, const char *value); // any bytes; NULL: null

// A value in one line without blanks, its numbers as short as they can be (0.1, not
// 0.10000000000000001). NULL: no memory. free().
char *json_compact(const json_t *value);

// Prints a value and a newline on stdout, and releases it. NULL means that there was no memory to
// build it. Returns an exit code; a failure was reported.
int json_print(json_t *value);

#endif
