// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_API_KEYS_H
#define KVERN_SERVER_API_KEYS_H

// Keys that clients must show: Authorization: Bearer KEY.

#include "engine/base/error.h"

#include <stdbool.h>

typedef struct api_keys api_keys;

// Reads a file with a key in each line, of 1 to 255 bytes without blanks; empty lines and those
// that begin with '#' are passed over. On failure *out is NULL: KVERN_ERR_IO, KVERN_ERR_FORMAT (no
// key at all, or one that is none, named by its line), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status api_keys_read(const char *path, api_keys **out, engine_error *error);

// NULL is allowed.
void api_keys_free(api_keys *keys);

// Whether the value of an Authorization header (NULL: there is none) has one of the keys. How long
// that takes tells nothing about them but how many there are.
bool api_keys_permit(const api_keys *keys, const char *authorization);

#endif
