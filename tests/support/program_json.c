// SPDX-License-Identifier: MIT
#include "tests/support/program_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

json_t *program_json(const program_call *call, int code)
{
    program_result result = program_run(call);
    if (result.code != code) {
        fail_msg("code %d instead of %d; stderr: %s", result.code, code, result.err);
    }
    json_t *object = json_loads(result.out, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        fail_msg("no JSON object: %s", result.out);
    }
    program_free(&result);
    return object;
}

static const json_t *value_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        fail_msg("there is no \"%s\"", key);
    }
    return value;
}

json_int_t json_integer_at(const json_t *object, const char *key)
{
    const json_t *value = value_at(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

double json_number_at(const json_t *object, const char *key)
{
    const json_t *value = value_at(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

const char *json_string_at(const json_t *object, const char *key)
{
    const json_t *value = value_at(object, key);
    assert_true(json_is_string(value));
    return json_string_value(value);
}
