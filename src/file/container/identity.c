// SPDX-License-Identifier: MIT
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/file/container/container.h"

#include <stdio.h>
#include <string.h>

#define MOST_KEYS 64
#define MOST_NAME_BYTES 256
#define MOST_VALUE_BYTES 65536
#define USER KVERN_IDENTITY "user."
#define KEY_BYTES (sizeof USER + MOST_NAME_BYTES)

static const kvern_sized identity_sizes =
    KVERN_SIZED(kvern_file_identity, KVERN_SIZE_TO(kvern_file_identity, key_count));

void kvern_file_identity_init(kvern_file_identity *identity, size_t size)
{
    const kvern_file_identity defaults = {0};
    kvern_sized_init(&identity_sizes, &defaults, identity, size);
}

// Overlong ones and stray bytes are not UTF-8, nor are surrogates.
static bool is_utf8(const char *text, size_t bytes)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    for (size_t i = 0; i < bytes;) {
        const unsigned char first = (unsigned char)text[i++];
        const int more = first < 0x80   ? 0
                         : first < 0xc0 ? -1
                         : first < 0xe0 ? 1
                         : first < 0xf0 ? 2
                         : first < 0xf8 ? 3
                                        : -1;
        if (more < 0 || (size_t)more > bytes - i)
            return false;
        uint32_t point = more ? first & (0x3fu >> more) : first;
        for (int k = 0; k < more; k++, i++) {
            if (((unsigned char)text[i] & 0xc0) != 0x80)
                return false;
            point = point << 6 | ((unsigned char)text[i] & 0x3f);
        }
        if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
            return false;
    }
    return true;
}

static kvern_status check_text(const char *what, const char *text, size_t most)
{
    const size_t bytes = text ? strnlen(text, most + 1) : 0;
    if (bytes > most)
        return kvern_fail(KVERN_ERR_ARGUMENT, "identity: %s has more than %zu bytes", what, most);
    if (!is_utf8(text, bytes))
        return kvern_fail(KVERN_ERR_ARGUMENT, "identity: %s is not UTF-8", what);
    return KVERN_OK;
}

static kvern_status check_key(const kvern_file_identity *identity, size_t index)
{
    const kvern_file_key *key = &identity->keys[index];
    if (!key->name || !*key->name || !key->value)
        return kvern_fail(KVERN_ERR_ARGUMENT, "identity: key %zu has no name or no value", index);
    kvern_status status = check_text("a key's name", key->name, MOST_NAME_BYTES);
    if (!status)
        status = check_text(key->name, key->value, MOST_VALUE_BYTES);
    for (size_t i = 0; i < index && !status; i++) {
        if (strcmp(identity->keys[i].name, key->name) == 0)
            status = kvern_fail(KVERN_ERR_ARGUMENT, "identity: key %s is there twice", key->name);
    }
    return status;
}

kvern_status kvern_identity_read(const kvern_file_identity *given, kvern_file_identity *known)
{
    kvern_status status = kvern_sized_read(&identity_sizes, given, known);
    if (!status && known->key_count > MOST_KEYS)
        status = kvern_fail(KVERN_ERR_ARGUMENT, "identity: %zu keys, more than %d",
                            known->key_count, MOST_KEYS);
    if (!status && known->key_count && !known->keys)
        status = kvern_fail(KVERN_ERR_ARGUMENT, "identity: keys is NULL");
    if (!status)
        status = check_text("model", known->model, MOST_VALUE_BYTES);
    if (!status)
        status = check_text("rope", known->rope, MOST_VALUE_BYTES);
    if (!status)
        status = check_text("adapter", known->adapter, MOST_VALUE_BYTES);
    if (!status)
        status = check_text("media", known->media, MOST_VALUE_BYTES);
    for (size_t i = 0; !status && i < known->key_count; i++)
        status = check_key(known, i);
    return status;
}

kvern_status kvern_identity_each(const kvern_file_identity *identity,
                                 kvern_status (*visit)(void *user, const char *key,
                                                       const char *value),
                                 void *user)
{
    const kvern_file_key named[] = {{KVERN_IDENTITY "model", identity->model},
                                    {KVERN_IDENTITY "rope", identity->rope},
                                    {KVERN_IDENTITY "adapter", identity->adapter},
                                    {KVERN_IDENTITY "media", identity->media}};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < sizeof named / sizeof named[0] && !status; i++) {
        if (named[i].value)
            status = visit(user, named[i].name, named[i].value);
    }
    for (size_t i = 0; i < identity->key_count && !status; i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof key, USER "%s", identity->keys[i].name);
        status = visit(user, key, identity->keys[i].value);
    }
    return status;
}

// ---- Comparing ----

typedef struct comparison {
    const kvern_file *file;
    size_t statements; // of the caller
} comparison;

static kvern_status compare(void *user, const char *key, const char *value)
{
    comparison *c = user;
    const char *own = kvern_safetensors_metadata(&c->file->tensors, key);
    c->statements++;
    if (own && strcmp(own, value) == 0)
        return KVERN_OK;
    const char *name = key + strlen(KVERN_IDENTITY);
    if (!own)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: identity: it says nothing of %s",
                          c->file->path, name);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: identity: %s is '%.80s', not '%.80s'",
                      c->file->path, name, own, value);
}

typedef struct search {
    size_t wanted, found;
    const char *key, *value;
} search;

static kvern_status count_statement(void *user, const char *key, const char *value)
{
    search *s = user;
    if (strncmp(key, KVERN_IDENTITY, strlen(KVERN_IDENTITY)) == 0 && s->found++ == s->wanted) {
        s->key = key;
        s->value = value;
    }
    return KVERN_OK;
}

static search search_statement(const kvern_file *file, size_t index)
{
    search s = {.wanted = index};
    kvern_status status = kvern_safetensors_each_metadata(&file->tensors, count_statement, &s);
    (void)status; // counting does not fail
    return s;
}

// Whether the caller made a statement.
static kvern_status is_key(void *user, const char *key, const char *value)
{
    (void)value;
    return strcmp(user, key) == 0 ? KVERN_ERR_BUSY : KVERN_OK; // any status ends the walk
}

kvern_status kvern_identity_check(const kvern_file *file, const kvern_file_identity *wanted)
{
    comparison c = {.file = file};
    kvern_status status = kvern_identity_each(wanted, compare, &c);
    if (status)
        return status;
    for (size_t i = 0; c.statements < search_statement(file, SIZE_MAX).found; i++) {
        const search s = search_statement(file, i);
        if (!s.key)
            break;
        if (!kvern_identity_each(wanted, is_key, (void *)s.key))
            return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: identity: %s is '%.80s', not nothing",
                              file->path, s.key + strlen(KVERN_IDENTITY), s.value);
    }
    return KVERN_OK;
}

const char *kvern_file_identity_of(const kvern_file *file, const char *name)
{
    char key[KEY_BYTES];
    const int bytes = snprintf(key, sizeof key, KVERN_IDENTITY "%s", name);
    if (bytes < 0 || (size_t)bytes >= sizeof key)
        return NULL;
    return kvern_safetensors_metadata(&file->tensors, key);
}

const char *kvern_file_identity_at(const kvern_file *file, size_t index, const char **name)
{
    const search s = search_statement(file, index);
    if (name)
        *name = s.key ? s.key + strlen(KVERN_IDENTITY) : NULL;
    return s.value;
}

const char *kvern_file_note(const kvern_file *file, const char *name)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, KVERN_NOTE "%s", name);
    return kvern_safetensors_metadata(&file->tensors, key);
}
