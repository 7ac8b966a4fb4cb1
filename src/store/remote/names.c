// SPDX-License-Identifier: MIT
// Keys, and the hashes in them.
#include "src/store/remote/remote_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PREFIX "kvern1:"

void kvern_remote_name(const kvern_key_front *front, const kvern_composition *composition,
                       const int32_t *tokens, size_t count, char text[KVERN_REMOTE_HASH_DIGITS + 1])
{
    char name[KVERN_DISK_NAME_BYTES];
    kvern_disk_name(front, composition->count, kvern_composition_signature_of, composition, tokens,
                    count, name);
    memcpy(text, name, KVERN_REMOTE_HASH_DIGITS);
    text[KVERN_REMOTE_HASH_DIGITS] = '\0';
}

void kvern_remote_space(const kvern_key_front *front, const kvern_composition *composition,
                        char text[KVERN_REMOTE_HASH_DIGITS + 1])
{
    static const int32_t none[1];
    kvern_remote_name(front, composition, none, 0, text);
}

// ---- The chain ----

static kvern_remote_hash hash_of(XXH3_state_t *sum)
{
    const XXH128_hash_t hash = XXH3_128bits_digest(sum);
    return (kvern_remote_hash){hash.low64, hash.high64};
}

kvern_remote_hash kvern_remote_chain(const char *space)
{
    XXH3_state_t sum;
    XXH3_128bits_reset(&sum);
    XXH3_128bits_update(&sum, space, KVERN_REMOTE_HASH_DIGITS);
    return hash_of(&sum);
}

kvern_remote_hash kvern_remote_link(kvern_remote_hash before, const int32_t *tokens)
{
    XXH3_state_t sum;
    XXH3_128bits_reset(&sum);
    XXH3_128bits_update(&sum, &before, sizeof before);
    XXH3_128bits_update(&sum, tokens, KVERN_REMOTE_TOKENS * sizeof tokens[0]);
    return hash_of(&sum);
}

uint64_t kvern_remote_tail(kvern_remote_hash before, const int32_t *tokens, size_t count)
{
    XXH3_state_t sum;
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, &before, sizeof before);
    if (count)
        XXH3_64bits_update(&sum, tokens, count * sizeof tokens[0]);
    return XXH3_64bits_digest(&sum);
}

// ---- Keys ----

void kvern_remote_entry_key(const char *space, const char *name, char key[KVERN_REMOTE_KEY_BYTES])
{
    snprintf(key, KVERN_REMOTE_KEY_BYTES, PREFIX "%s:e:%s", space, name);
}

void kvern_remote_index_key(const char *space, kvern_remote_hash chain,
                            char key[KVERN_REMOTE_KEY_BYTES])
{
    snprintf(key, KVERN_REMOTE_KEY_BYTES, PREFIX "%s:i:%016" PRIx64 "%016" PRIx64, space,
             chain.high, chain.low);
}

void kvern_remote_block_key(const char *space, const kvern_manifest_block *block,
                            char key[KVERN_REMOTE_KEY_BYTES])
{
    snprintf(key, KVERN_REMOTE_KEY_BYTES, PREFIX "%s:b:%016" PRIx64 "%016" PRIx64 "-%" PRIu64,
             space, block->high, block->low, block->bytes);
}
