// SPDX-License-Identifier: MIT
// tokenizer.json: every kind of tests/golden/tokenizer/tokenizer_json.json gives the ids of the
// usual Python package, texts come back, and what is not done here is refused by its name.

#include "tests/support/golden_json.h"
#include "tests/support/json_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- The golden file. ----

static bool same_ids(const token_buffer *ids, const json_t *expected)
{
    bool same = ids->count == json_array_size(expected);
    for (size_t i = 0; same && i < ids->count; i++) {
        same = ids->ids[i] == json_integer_value(json_array_get(expected, i));
    }
    return same;
}

static void check_text(const char *name, const tokenizer *t, const json_t *text, unsigned flags,
                       const json_t *expected)
{
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {KVERN_OK, ""};
    if (tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids,
                         &error) != KVERN_OK) {
        fail_msg("%s: \"%s\": %s", name, json_string_value(text), error.text);
    }
    if (!same_ids(&ids, expected)) {
        char *right = json_dumps(expected, JSON_COMPACT);
        for (size_t i = 0; i < ids.count; i++) {
            fprintf(stderr, "%d,", (int)ids.ids[i]);
        }
        fail_msg("%s (%u): \"%s\" should be %s", name, flags, json_string_value(text), right);
    }
    token_buffer_free(&ids);
}

static void golden_ids_are_met(void **state)
{
    (void)state;
    json_t *golden = golden_json_open("tokenizer/tokenizer_json.json", 20);
    const json_t *texts = json_array_get(golden, 0);
    for (size_t k = 1; k < json_array_size(golden); k++) {
        const json_t *kind = json_array_get(golden, k);
        const char *name = json_string_value(json_object_get(kind, "name"));
        const json_t *bos = json_object_get(kind, "bos");
        tokenizer *t = json_tokenizer_make(name, json_object_get(kind, "tokenizer"), NULL);
        assert_int_equal(tokenizer_adds_bos(t), json_is_integer(bos));
        assert_int_equal(tokenizer_bos(t), json_is_integer(bos) ? json_integer_value(bos) : -1);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *plain = json_array_get(json_object_get(kind, "plain"), i);
            check_text(name, t, json_array_get(texts, i), TOKENIZER_PARSE_SPECIAL,
                       json_array_get(json_object_get(kind, "ids"), i));
            if (json_is_array(plain)) {
                check_text(name, t, json_array_get(texts, i), 0, plain);
            }
        }
        tokenizer_destroy(t);
    }
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_ids_are_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
