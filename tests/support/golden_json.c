// SPDX-License-Identifier: MIT
#include "tests/support/golden_json.h"

#include "tests/support/check.h"

#include <stdio.h>

json_t *golden_json_open(const char *name, size_t least)
{
    char path[1024];
    json_error_t error;
    snprintf(path, sizeof path, "%s/golden/%s", KVERN_TESTS_DIR, name);
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!golden)
        fail_msg("%s: %s", name, error.text);
    if (json_array_size(golden) < least)
        fail_msg("%s has %zu entries", name, json_array_size(golden));
    return golden;
}
