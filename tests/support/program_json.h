// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_PROGRAM_JSON_H
#define KVERN_TESTS_SUPPORT_PROGRAM_JSON_H

// What the kvern program prints with --json. Everything that is not as expected fails the test.

#include "tests/support/program.h"

#include <jansson.h>

// Runs a call that ends with `code` and prints one object and nothing else; json_decref.
json_t *program_json(const program_call *call, int code);

json_int_t json_integer_at(const json_t *object, const char *key);
double json_number_at(const json_t *object, const char *key);
const char *json_string_at(const json_t *object, const char *key);

#endif
