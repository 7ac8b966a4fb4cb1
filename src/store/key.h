// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_KEY_H
#define KVERN_STORE_KEY_H

// What an entry is filed under: words in front, which say the key and the layout of the layers, and
// the tokens behind them. Fields are sorted by name, and names and values have their lengths before
// them, so that equal words mean equal fields.

#include <kvern/store.h>
#include <stdbool.h>

// Lengths and padding of names and values, and their number.
#define KVERN_KEY_WORDS (KVERN_STORE_MOST_KEY_BYTES / 4 + 6 * KVERN_STORE_MOST_FIELDS + 1)
#define KVERN_LAYOUT_WORDS 2

// The words in front.
typedef struct kvern_key_front {
    size_t fields; // words of the fields
    size_t count;  // those of the layout among them, once they are known
    int32_t words[KVERN_KEY_WORDS + KVERN_LAYOUT_WORDS];
} kvern_key_front;

// All words of an entry or a prompt, in two pieces.
typedef struct kvern_key {
    const kvern_key_front *front;
    const int32_t *tokens;
    size_t tokens_count;
} kvern_key;

// Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE.
KVERN_CHECK kvern_status kvern_key_front_make(const kvern_store_key *key, kvern_key_front *out);

// Puts the number of a layout behind the fields.
void kvern_key_front_set_layout(kvern_key_front *front, uint64_t layout);

static inline size_t kvern_key_count(const kvern_key *key)
{
    return key->front->count + key->tokens_count;
}

static inline int32_t kvern_key_word(const kvern_key *key, size_t index)
{
    const size_t front = key->front->count;
    return index < front ? key->front->words[index] : key->tokens[index - front];
}

// How many of the first `count` words of `run` are those of the key from `at` on.
size_t kvern_key_match(const kvern_key *key, size_t at, const int32_t *run, size_t count);

// Copies the key's last `count` words.
void kvern_key_copy_end(const kvern_key *key, size_t count, int32_t *out);

#endif
