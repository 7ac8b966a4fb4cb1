// SPDX-License-Identifier: MIT
#include "server/api/api_keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_BYTES 256

// Padded with zeros, so that all are compared alike.
typedef struct key_text {
    unsigned char bytes[KEY_BYTES];
} key_text;

struct api_keys {
    key_text *keys;
    size_t count;
};

static bool is_key(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (!isgraph((unsigned char)text[i])) {
            return false;
        }
    }
    return bytes > 0 && bytes < KEY_BYTES;
}

static kvern_status add_key(api_keys *keys, const char *text, size_t bytes, engine_error *error)
{
    key_text *grown = realloc(keys->keys, (keys->count + 1) * sizeof *grown);
    if (!grown) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the keys");
    }
    keys->keys = grown;
    key_text *key = &grown[keys->count++];
    memset(key, 0, sizeof *key);
    memcpy(key->bytes, text, bytes);
    return KVERN_OK;
}

static kvern_status read_lines(FILE *file, const char *path, api_keys *keys, engine_error *error)
{
    char *line = NULL;
    size_t capacity = 0, number = 0;
    ssize_t bytes;
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK && (bytes = getline(&line, &capacity, file)) >= 0) {
        number++;
        while (bytes > 0 && isspace((unsigned char)line[bytes - 1])) {
            bytes--;
        }
        const char *key = line;
        for (; bytes > 0 && isspace((unsigned char)*key); key++) {
            bytes--;
        }
        if (bytes == 0 || *key == '#') {
            continue;
        }
        status = is_key(key, (size_t)bytes)
                     ? add_key(keys, key, (size_t)bytes, error)
                     : engine_fail(error, KVERN_ERR_FORMAT,
                                   "%s, line %zu: a key has 1 to %d characters without blanks",
                                   path, number, KEY_BYTES - 1);
    }
    free(line);
    if (status == KVERN_OK && ferror(file)) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return status == KVERN_OK && keys->count == 0
               ? engine_fail(error, KVERN_ERR_FORMAT, "%s has no key", path)
               : status;
}

kvern_status api_keys_read(const char *path, api_keys **out, engine_error *error)
{
    *out = NULL;
    FILE *file = fopen(path, "re");
    if (!file) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    api_keys *keys = calloc(1, sizeof *keys);
    kvern_status status = keys ? read_lines(file, path, keys, error)
                               : engine_fail(error, KVERN_ERR_MEMORY, "no memory for the keys");
    fclose(file);
    if (status != KVERN_OK) {
        api_keys_free(keys);
        return status;
    }
    *out = keys;
    return KVERN_OK;
}

void api_keys_free(api_keys *keys)
{
    if (keys) {
        free(keys->keys);
        free(keys);
    }
}

// Looks at every byte, whatever they are.
static bool same_text(const key_text *a, const key_text *b)
{
    volatile unsigned char differs = 0;
    for (size_t i = 0; i < KEY_BYTES; i++) {
        differs |= a->bytes[i] ^ b->bytes[i];
    }
    return differs == 0;
}

bool api_keys_permit(const api_keys *keys, const char *authorization)
{
    static const char SCHEME[] = "Bearer ";
    key_text given = {{0}};
    if (!authorization || strncasecmp(authorization, SCHEME, sizeof SCHEME - 1) != 0) {
        return false;
    }
    const char *key = authorization + sizeof SCHEME - 1;
    key += strspn(key, " "); // the header's blanks around a key are none of it
    size_t bytes = strnlen(key, KEY_BYTES);
    while (bytes > 0 && bytes < KEY_BYTES && (key[bytes - 1] == ' ' || key[bytes - 1] == '\t')) {
        bytes--;
    }
    if (bytes == 0 || bytes == KEY_BYTES) {
        return false;
    }
    memcpy(given.bytes, key, bytes);
    bool permitted = false;
    for (size_t i = 0; i < keys->count; i++) {
        permitted = same_text(&keys->keys[i], &given) | permitted;
    }
    return permitted;
}
