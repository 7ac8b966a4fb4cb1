// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_GOLDEN_JSON_H
#define KVERN_TESTS_SUPPORT_GOLDEN_JSON_H

// Golden files of JSON.

#include <jansson.h>

// The list in a file of tests/golden, such as "tokenizer/words.json"; json_decref. Fails the test
// when it cannot be read or has fewer than `least` entries.
json_t *golden_json_open(const char *name, size_t least);

#endif
