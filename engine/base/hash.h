// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_HASH_H
#define KVERN_ENGINE_HASH_H

// Hashes for tables whose keys come from files and texts.
//
// Whoever knows a hash function can write a file whose keys all fall into one slot, and a table
// then takes quadratic time. So a table draws a seed that the author of the file cannot know.
// Nothing that a caller sees may depend on it: tables are searched, never listed.

#define XXH_INLINE_ALL
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

// A number that is hard to guess, a new one at every call.
uint64_t hash_seed(void);

static inline uint64_t hash_bytes(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}

static inline uint64_t hash_u64(uint64_t value, uint64_t seed)
{
    return XXH3_64bits_withSeed(&value, sizeof value, seed);
}

#endif
