// SPDX-License-Identifier: MIT
#include "src/store/key.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <string.h>

// ---- Fields ----

static void put_word(kvern_key_front *front, uint32_t word)
{
    memcpy(&front->words[front->fields++], &word, sizeof word);
}

static void put_bytes(kvern_key_front *front, const void *bytes, size_t count)
{
    const size_t words = kvern_ceil_div(count, 4);
    put_word(front, (uint32_t)count);
    memset(&front->words[front->fields], 0, words * 4);
    if (count)
        memcpy(&front->words[front->fields], bytes, count);
    front->fields += words;
}

// Also whether they fit.
static kvern_status check_fields(const kvern_store_key *key)
{
    size_t bytes = 0;
    if (key->count > KVERN_STORE_MOST_FIELDS)
        return kvern_fail(KVERN_ERR_RANGE, "a key of %zu fields, more than %d", key->count,
                          KVERN_STORE_MOST_FIELDS);
    if (key->count && !key->fields)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the fields of the key are NULL");
    for (size_t f = 0; f < key->count; f++) {
        const kvern_store_field *field = &key->fields[f];
        if (!field->name || (field->bytes && !field->value))
            return kvern_fail(KVERN_ERR_ARGUMENT, "field %zu of the key has no %s", f,
                              field->name ? "value" : "name");
        const size_t name = strlen(field->name);
        if (name > KVERN_STORE_MOST_KEY_BYTES || field->bytes > KVERN_STORE_MOST_KEY_BYTES ||
            (bytes += name + field->bytes + 16) > KVERN_STORE_MOST_KEY_BYTES)
            return kvern_fail(KVERN_ERR_RANGE, "a key of more than %d bytes",
                              KVERN_STORE_MOST_KEY_BYTES);
    }
    return KVERN_OK;
}

// An insertion sort: there are few.
static kvern_status sort_fields(const kvern_store_key *key, const kvern_store_field **sorted)
{
    for (size_t f = 0; f < key->count; f++) {
        const kvern_store_field *field = &key->fields[f];
        size_t at = f;
        for (; at > 0 && strcmp(sorted[at - 1]->name, field->name) > 0; at--)
            sorted[at] = sorted[at - 1];
        if (at > 0 && strcmp(sorted[at - 1]->name, field->name) == 0)
            return kvern_fail(KVERN_ERR_ARGUMENT, "the key has two fields '%s'", field->name);
        sorted[at] = field;
    }
    return KVERN_OK;
}

kvern_status kvern_key_front_make(const kvern_store_key *key, kvern_key_front *out)
{
    static const kvern_store_key none = {0};
    const kvern_store_field *sorted[KVERN_STORE_MOST_FIELDS];
    const kvern_store_key *given = key ? key : &none;
    kvern_status status = check_fields(given);
    if (!status)
        status = sort_fields(given, sorted);
    if (status)
        return status;
    out->fields = 0;
    put_word(out, (uint32_t)given->count);
    for (size_t f = 0; f < given->count; f++) {
        put_bytes(out, sorted[f]->name, strlen(sorted[f]->name));
        put_bytes(out, sorted[f]->value, sorted[f]->bytes);
    }
    out->count = out->fields;
    return KVERN_OK;
}

void kvern_key_front_set_layout(kvern_key_front *front, uint64_t layout)
{
    memcpy(&front->words[front->fields], &layout, sizeof layout);
    front->count = front->fields + KVERN_LAYOUT_WORDS;
}

// ---- Words ----

// Blocks are compared as a whole, and only the one that differs word by word.
static size_t match_words(const int32_t *a, const int32_t *b, size_t count)
{
    const size_t block = 64;
    size_t same = 0;
    while (count - same >= block && memcmp(a + same, b + same, block * sizeof a[0]) == 0)
        same += block;
    while (same < count && a[same] == b[same])
        same++;
    return same;
}

size_t kvern_key_match(const kvern_key *key, size_t at, const int32_t *run, size_t count)
{
    const size_t front = key->front->count;
    size_t same = 0;
    if (at < front) {
        const size_t most = kvern_min_size(count, front - at);
        same = match_words(key->front->words + at, run, most);
        if (same < most)
            return same;
    }
    if (same == count || key->tokens_count == 0) // nothing is left, or there is nothing
        return same;
    const size_t token = at + same - front;
    const size_t most = kvern_min_size(count - same, key->tokens_count - token);
    return same + match_words(key->tokens + token, run + same, most);
}

void kvern_key_copy_end(const kvern_key *key, size_t count, int32_t *out)
{
    const size_t tokens = kvern_min_size(count, key->tokens_count), rest = count - tokens;
    if (rest)
        memcpy(out, key->front->words + key->front->count - rest, rest * sizeof out[0]);
    if (tokens)
        memcpy(out + rest, key->tokens + key->tokens_count - tokens, tokens * sizeof out[0]);
}
