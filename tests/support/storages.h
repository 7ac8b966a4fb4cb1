// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_STORAGES_H
#define KVERN_TESTS_SUPPORT_STORAGES_H

// A list of every kind of storage that a layer can have, for tests that hold for all of them.

#include <kvern/composition.h>
#include <stdbool.h>

// Codecs, for static tables.
#define STORAGE_F32                                                                                \
    {                                                                                              \
        .kind = KVERN_CODEC_F32                                                                    \
    }
#define STORAGE_BF16                                                                               \
    {                                                                                              \
        .kind = KVERN_CODEC_BF16                                                                   \
    }
#define STORAGE_F16                                                                                \
    {                                                                                              \
        .kind = KVERN_CODEC_F16                                                                    \
    }
#define STORAGE_AFFINE(bits_, group_)                                                              \
    {                                                                                              \
        .kind = KVERN_CODEC_AFFINE, .bits = (bits_), .group = (group_), .scales = KVERN_BF16       \
    }

#define STORAGE_ROTATED(bits_, group_)                                                             \
    {                                                                                              \
        .kind = KVERN_CODEC_ROTATED, .bits = (bits_), .group = (group_), .scales = KVERN_BF16      \
    }
#define STORAGE_TURBO(bits_)                                                                       \
    {                                                                                              \
        .kind = KVERN_CODEC_TURBO, .bits = (bits_)                                                 \
    }

typedef struct storage {
    const char *name;
    kvern_codec k_codec, v_codec;
    int64_t start;
    int64_t residual; // in a sliding window no more than fits it
    int64_t precise_sinks;
} storage;

// Dense ones, affine ones of every number of bits, rotated ones, streams of different codecs, rows
// that begin in bf16, and rows that keep some positions precise. All fit head dims that are
// multiples of 64.
extern const storage storages[];
extern const size_t storage_count;

// A full-attention layer with this storage.
kvern_layer storage_layer(const storage *s, size_t kv_heads, size_t dim);

// The same with a sliding window.
kvern_layer storage_window(const storage *s, size_t kv_heads, size_t dim, int64_t window,
                           int64_t keep, int64_t slack);

// The same with chunks.
kvern_layer storage_chunked(const storage *s, size_t kv_heads, size_t dim, int64_t chunk,
                            int64_t slack);

typedef void storage_check(kvern_layer layer, const char *name);

// Calls a check with a layer of every storage, again with a window of `window` positions, some of
// them kept, and as many of slack, and again with chunks of as many positions.
void for_every_storage(storage_check *check, size_t kv_heads, size_t dim, int64_t window);

// Calls a check with a layer of latents of every codec that stores them: with rotated keys beside
// them, and without.
void for_every_latent(storage_check *check, size_t latent_dim);

// The first position that a query at `query` sees, apart from the kept ones; and whether it sees
// the position `position`, by the words of kvern/composition.h.
int64_t layer_first_seen(const kvern_layer *layer, int64_t query);
bool layer_sees(const kvern_layer *layer, int64_t query, int64_t position);

#endif
