// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_REQUEST_KEYS_H
#define KVERN_ENGINE_REQUEST_KEYS_H

// The keys of requests, what is done with each, and their values.

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>

bool request_knows(const char *key);

// KVERN_ERR_UNSUPPORTED names a key that asks for what cannot be done.
KVERN_CHECK kvern_status request_check_keys(json_t *object, engine_error *error);

// The value of a key; NULL when it is absent or null.
json_t *request_value(const json_t *object, const char *key);

// A number of a range. *value stays what it is when the key is absent. KVERN_ERR_FORMAT otherwise.
KVERN_CHECK kvern_status request_real(const json_t *object, const char *key, double lowest,
                                      double highest, float *value, engine_error *error);

// The same for a whole number that has several names; two of them that say different things are a
// KVERN_ERR_FORMAT, too.
KVERN_CHECK kvern_status request_whole(const json_t *object, const char *const *names, size_t count,
                                       json_int_t lowest, json_int_t highest, json_int_t *value,
                                       engine_error *error);

#endif
