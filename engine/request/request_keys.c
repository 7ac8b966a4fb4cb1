// SPDX-License-Identifier: MIT
#include "engine/request/request_keys.h"

#include <stdlib.h>
#include <string.h>

// What is done with a key.
typedef enum key_use {
    KEY_HONOURED,
    KEY_WITHOUT_EFFECT, // says nothing about the answer
    KEY_NEUTRAL         // only a value that asks for nothing is accepted
} key_use;

typedef struct request_key {
    const char *name;
    key_use use;
    const char
        *neutral; // JSON text of a value that asks for nothing, beside null, false, "" and []
} request_key;

static const request_key KEYS[] = {
    {"messages", KEY_HONOURED, NULL},
    {"prompt", KEY_HONOURED, NULL},
    {"max_tokens", KEY_HONOURED, NULL},
    {"max_completion_tokens", KEY_HONOURED, NULL},
    {"n_predict", KEY_HONOURED, NULL},
    {"temperature", KEY_HONOURED, NULL},
    {"top_k", KEY_HONOURED, NULL},
    {"top_p", KEY_HONOURED, NULL},
    {"min_p", KEY_HONOURED, NULL},
    {"seed", KEY_HONOURED, NULL},
    {"presence_penalty", KEY_HONOURED, NULL},
    {"frequency_penalty", KEY_HONOURED, NULL},
    {"repeat_penalty", KEY_HONOURED, NULL},
    {"repetition_penalty", KEY_HONOURED, NULL},
    {"repeat_last_n", KEY_HONOURED, NULL},
    {"logit_bias", KEY_HONOURED, NULL},
    {"stop", KEY_HONOURED, NULL},
    {"ignore_eos", KEY_HONOURED, NULL},
    {"model", KEY_WITHOUT_EFFECT, NULL},
    {"user", KEY_WITHOUT_EFFECT, NULL},
    {"metadata", KEY_WITHOUT_EFFECT, NULL},
    {"store", KEY_WITHOUT_EFFECT, NULL},
    {"service_tier", KEY_WITHOUT_EFFECT, NULL},
    {"cache_prompt", KEY_WITHOUT_EFFECT, NULL},
    {"n", KEY_NEUTRAL, "1"},
    {"best_of", KEY_NEUTRAL, "1"},
    {"stream", KEY_NEUTRAL, NULL},
    {"stream_options", KEY_NEUTRAL, NULL},
    {"logprobs", KEY_NEUTRAL, NULL},
    {"top_logprobs", KEY_NEUTRAL, "0"},
    {"echo", KEY_NEUTRAL, NULL},
    {"suffix", KEY_NEUTRAL, NULL},
    {"tools", KEY_NEUTRAL, NULL},
    {"tool_choice", KEY_NEUTRAL, "\"none\""},
    {"parallel_tool_calls", KEY_NEUTRAL, "true"},
    {"functions", KEY_NEUTRAL, NULL},
    {"function_call", KEY_NEUTRAL, "\"none\""},
    {"response_format", KEY_NEUTRAL, "{\"type\": \"text\"}"},
    {"json_schema", KEY_NEUTRAL, NULL},
    {"grammar", KEY_NEUTRAL, NULL},
    {"modalities", KEY_NEUTRAL, "[\"text\"]"},
    {"audio", KEY_NEUTRAL, NULL},
    {"prediction", KEY_NEUTRAL, NULL},
    {"reasoning_effort", KEY_NEUTRAL, NULL},
    {"min_tokens", KEY_NEUTRAL, "0"},
    {"stop_token_ids", KEY_NEUTRAL, NULL},
    {"typical_p", KEY_NEUTRAL, "1"},
    {"tfs_z", KEY_NEUTRAL, "1"},
    {"top_a", KEY_NEUTRAL, "0"},
    {"mirostat", KEY_NEUTRAL, "0"},
    {"dynatemp_range", KEY_NEUTRAL, "0"},
    {"dry_multiplier", KEY_NEUTRAL, "0"},
    {"xtc_probability", KEY_NEUTRAL, "0"},
    {"top_n_sigma", KEY_NEUTRAL, "-1"},
};

static const request_key *find_key(const char *name)
{
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        if (strcmp(KEYS[i].name, name) == 0) {
            return &KEYS[i];
        }
    }
    return NULL;
}

bool request_knows(const char *key)
{
    return find_key(key) != NULL;
}

static bool equals_text(const json_t *value, const char *text)
{
    if (json_is_number(value)) { // 1 and 1.0 are the same here
        return json_number_value(value) == strtod(text, NULL) && strchr("-0123456789", text[0]);
    }
    json_t *wanted = json_loads(text, JSON_DECODE_ANY, NULL);
    const bool equal = json_equal(value, wanted);
    json_decref(wanted);
    return equal;
}

static bool asks_for_nothing(const request_key *key, const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (key->neutral && equals_text(value, key->neutral));
}

kvern_status request_check_keys(json_t *object, engine_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const request_key *key = find_key(name);
        if (key && key->use == KEY_NEUTRAL && !asks_for_nothing(key, value)) {
            return engine_fail(error, KVERN_ERR_UNSUPPORTED, "\"%s\" is not supported%s%s", name,
                               key->neutral ? ", unless it is " : "",
                               key->neutral ? key->neutral : "");
        }
    }
    return KVERN_OK;
}

json_t *request_value(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

kvern_status request_real(const json_t *object, const char *key, double lowest, double highest,
                          float *value, engine_error *error)
{
    const json_t *found = request_value(object, key);
    const double number = json_number_value(found);
    if (!found) {
        return KVERN_OK;
    }
    if (!json_is_number(found) || !(number >= lowest && number <= highest)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "\"%s\" is not a number from %g to %g", key,
                           lowest, highest);
    }
    *value = (float)number;
    return KVERN_OK;
}

kvern_status request_whole(const json_t *object, const char *const *names, size_t count,
                           json_int_t lowest, json_int_t highest, json_int_t *value,
                           engine_error *error)
{
    const char *before = NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *found = request_value(object, names[i]);
        const json_int_t number = json_integer_value(found);
        if (!found) {
            continue;
        }
        if (!json_is_integer(found) || number < lowest || number > highest) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "\"%s\" is not a whole number from %lld to %lld", names[i],
                               (long long)lowest, (long long)highest);
        }
        if (before && number != *value) {
            return engine_fail(error, KVERN_ERR_FORMAT, "\"%s\" and \"%s\" say different things",
                               before, names[i]);
        }
        before = names[i];
        *value = number;
    }
    return KVERN_OK;
}
