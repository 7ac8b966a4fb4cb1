// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODES_CODES_STREAM_H
#define KVERN_CODEC_CODES_CODES_STREAM_H

// Codes of a slot as callers have them, and MLX: one stream of bits, the low bits of the first word
// first. A vector is whole words.

#include "src/codec/codes/codes.h"

static inline size_t kvern_codes_stream_words(uint32_t bits, size_t dim)
{
    return (dim * bits + 31) / 32;
}

static inline void kvern_codes_to_stream(uint32_t bits, kvern_stream stream, const uint32_t *words,
                                         size_t dim, size_t slot, uint32_t *to)
{
    __builtin_memset(to, 0, kvern_codes_stream_words(bits, dim) * sizeof to[0]);
    for (size_t d = 0; d < dim; d++) {
        const uint64_t code = kvern_codes_find(bits, stream, words, dim, slot, d);
        const size_t bit = d * bits, word = bit / 32;
        const uint64_t placed = code << bit % 32;
        KVERN_ASSERT(code >> bits == 0);
        to[word] |= (uint32_t)placed;
        if (placed >> 32)
            to[word + 1] |= (uint32_t)(placed >> 32);
    }
}

static inline void kvern_codes_from_stream(uint32_t bits, kvern_stream stream, uint32_t *words,
                                           size_t dim, size_t slot, const uint32_t *from)
{
    uint8_t codes[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(dim <= KVERN_MAX_STREAM_DIM);
    for (size_t d = 0; d < dim; d++) {
        const size_t bit = d * bits, word = bit / 32;
        uint64_t pair = from[word];
        if (bit % 32 + bits > 32)
            pair |= (uint64_t)from[word + 1] << 32;
        codes[d] = (uint8_t)(pair >> bit % 32 & ((UINT32_C(1) << bits) - 1));
    }
    kvern_codes_place(bits, stream, words, dim, slot, codes);
}

#endif
