// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODES_CODES_H
#define KVERN_CODEC_CODES_CODES_H

// Codes of 1, 2, 3, 4, 5, 6 or 8 bits in a block, for every codec that stores codes: where they
// lie. What a code stands for is the codec's. The kernels over them are codes_template.h and
// codes_product.h.
//
// The layout is made so that a kernel reads it from front to back with vector lanes that are slots
// (for keys) or dimensions (for values): columns of 32 codes, 32 consecutive dims of a slot (keys)
// or 32 slots of a dim (values). A column takes `bits` words of 32 bits:
//
//       keys:    [dim / 32][bits words][64 slots]
//       values:  panels of 64 dims, the last one with what is left (w dims); in each panel
//                [2 halves of 32 slots][bits words][w dims]
//
// In a column every word holds floor(32 / bits) codes one after the other, low bits first, so that
// a vector of words gives that many vectors of codes, each by a shift. Where 32 / bits is not whole
// (3, 5, 6 bits), two codes and the two upper bits of every word are left: these bits, two of each
// word in order of the words, are code 30 and then code 31.
//
// `dim` is a multiple of 16. Where it is not one of 32, the last 16 dims of keys are half columns,
// and two slots share a column: dims of slot s, and then those of slot s + 32.
//
//       behind the other keys: [bits words][32 slots]

#include "src/base/assert.h"
#include "src/codec/codec_type.h"
#include "src/codec/slot_columns.h"

// Codes of a column.
#define KVERN_CODES_COLUMN 32

// Dims of a full panel of values.
#define KVERN_CODES_PANEL 64

_Static_assert(2 * KVERN_CODES_COLUMN == KVERN_PAGE_POSITIONS, "a page is two halves of columns");
_Static_assert(KVERN_MAX_STREAM_DIM % KVERN_CODES_COLUMN == 0, "columns fill the largest head");

// Bytes of all codes of a block.
static inline size_t kvern_codes_bytes(uint32_t bits, size_t dim)
{
    return dim * bits * KVERN_PAGE_POSITIONS / 8;
}

// Width in dims of the panel that starts at dim `first`.
static inline size_t kvern_codes_panel_width(size_t dim, size_t first)
{
    KVERN_ASSERT(first < dim && first % KVERN_CODES_PANEL == 0);
    return dim - first < KVERN_CODES_PANEL ? dim - first : KVERN_CODES_PANEL;
}

// First word of the columns of a panel and half; the words of a column are a panel's width apart.
static inline size_t kvern_codes_panel_at(uint32_t bits, size_t dim, size_t first, size_t half)
{
    KVERN_ASSERT(half < 2);
    return bits * (2 * first + half * kvern_codes_panel_width(dim, first));
}

// Dims of keys in whole columns.
static inline size_t kvern_codes_whole(size_t dim)
{
    KVERN_ASSERT(dim % 16 == 0);
    return dim - dim % KVERN_CODES_COLUMN;
}

// First word of the half columns of keys; the words of a column are 32 apart.
static inline size_t kvern_codes_half_at(uint32_t bits, size_t dim)
{
    return kvern_codes_whole(dim) * 2 * bits;
}

// ---- Codes in a column ----

// Some bits of a code: `width` bits from bit `shift` on of a word of the column.
typedef struct kvern_codes_piece {
    uint32_t word, shift, width;
} kvern_codes_piece;

// The piece that holds bit `from` of code `row`, and as many of the following ones as it has.
static inline kvern_codes_piece kvern_codes_piece_at(uint32_t bits, uint32_t row, uint32_t from)
{
    const uint32_t per_word = 32 / bits, whole = bits * per_word;
    KVERN_ASSERT(row < KVERN_CODES_COLUMN && from < bits);
    if (row < whole)
        return (kvern_codes_piece){row / per_word, row % per_word * bits, bits};
    const uint32_t at = (row - whole) * bits + from, left = bits - from;
    return (kvern_codes_piece){at / 2, 30 + at % 2, (at % 2 || left == 1) ? 1 : 2};
}

// One code of a column whose words are `stride` words apart.
static inline uint32_t kvern_codes_get(uint32_t bits, const uint32_t *words, size_t stride,
                                       uint32_t row)
{
    uint32_t code = 0;
    for (uint32_t from = 0; from < bits;) {
        const kvern_codes_piece p = kvern_codes_piece_at(bits, row, from);
        code |= (words[p.word * stride] >> p.shift & ((1u << p.width) - 1)) << from;
        from += p.width;
    }
    return code;
}

// Code d of a slot.
static inline uint32_t kvern_codes_find(uint32_t bits, kvern_stream stream, const uint32_t *words,
                                        size_t dim, size_t slot, size_t d)
{
    const size_t column = KVERN_CODES_COLUMN;
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS && d < dim);
    if (stream == KVERN_STREAM_K && d >= kvern_codes_whole(dim))
        return kvern_codes_get(bits, words + kvern_codes_half_at(bits, dim) + slot % column, column,
                               (uint32_t)(d % column + slot / column * 16));
    if (stream == KVERN_STREAM_K)
        return kvern_codes_get(bits, words + (d / column) * bits * KVERN_PAGE_POSITIONS + slot,
                               KVERN_PAGE_POSITIONS, (uint32_t)(d % column));
    const size_t first = d - d % KVERN_CODES_PANEL;
    words += kvern_codes_panel_at(bits, dim, first, slot / column) + (d - first);
    return kvern_codes_get(bits, words, kvern_codes_panel_width(dim, first),
                           (uint32_t)(slot % column));
}

// ---- Storing a slot ----

// The `bits` words of a column.
static inline void kvern_codes_pack(uint32_t bits, const uint32_t *codes, uint32_t *words,
                                    size_t stride)
{
    KVERN_ASSERT(bits >= 1 && bits <= 8);
    const uint32_t per_word = 32 / bits;
    const uint32_t rest = 32 % bits ? codes[30] | codes[31] << bits : 0;
    for (uint32_t w = 0; w < bits; w++) {
        uint32_t word = (rest >> 2 * w & 3) << 30;
        for (uint32_t j = 0; j < per_word; j++)
            word |= codes[w * per_word + j] << j * bits;
        words[w * stride] = word;
    }
}

// Hides from the compiler what a value is.
static inline uint32_t kvern_codes_unknown(uint32_t value)
{
    __asm__("" : "+r"(value));
    return value;
}

// Slots share words, so these are read, changed and written. A compiler that knows that `others` is
// ~mask makes ((a ^ b) & mask) ^ a of it, which is no faster, and of which valgrind's memcheck
// believes that bits of slots that were never stored reach those of this one.
static inline void kvern_codes_place_v(uint32_t bits, uint32_t *words, size_t dim, size_t slot,
                                       const uint32_t *codes)
{
    const size_t half = slot / KVERN_CODES_COLUMN;
    for (uint32_t from = 0; from < bits;) {
        const kvern_codes_piece p = kvern_codes_piece_at(bits, slot % KVERN_CODES_COLUMN, from);
        const uint32_t mask = ((1u << p.width) - 1) << p.shift;
        const uint32_t others = kvern_codes_unknown(~mask);
        for (size_t d = 0; d < dim; d += 16) { // 16 at a time: a loop that compilers vectorize
            const size_t first = d - d % KVERN_CODES_PANEL;
            uint32_t *at = words + kvern_codes_panel_at(bits, dim, first, half) +
                           p.word * kvern_codes_panel_width(dim, first) + (d - first);
            for (size_t i = 0; i < 16; i++)
                at[i] = (at[i] & others) | ((codes[d + i] >> from) << p.shift & mask);
        }
        from += p.width;
    }
}

// The 16 codes of a half column, which shares its words with another slot's.
static inline void kvern_codes_place_half(uint32_t bits, uint32_t *words, size_t slot,
                                          const uint32_t *codes)
{
    words += slot % KVERN_CODES_COLUMN;
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t from = 0; from < bits;) {
            const uint32_t row = i + (uint32_t)(slot / KVERN_CODES_COLUMN) * 16;
            const kvern_codes_piece p = kvern_codes_piece_at(bits, row, from);
            const uint32_t mask = ((1u << p.width) - 1) << p.shift;
            uint32_t *at = words + p.word * KVERN_CODES_COLUMN;
            *at = (*at & kvern_codes_unknown(~mask)) | ((codes[i] >> from) << p.shift & mask);
            from += p.width;
        }
    }
}

static inline void kvern_codes_place_k(uint32_t bits, uint32_t *words, size_t dim, size_t slot,
                                       const uint32_t *codes)
{
    const size_t whole = kvern_codes_whole(dim);
    for (size_t d = 0; d < whole; d += KVERN_CODES_COLUMN)
        kvern_codes_pack(bits, codes + d, words + d * 2 * bits + slot, KVERN_PAGE_POSITIONS);
    if (whole < dim)
        kvern_codes_place_half(bits, words + kvern_codes_half_at(bits, dim), slot, codes + whole);
}

// All codes of a slot.
static inline void kvern_codes_place(uint32_t bits, kvern_stream stream, uint32_t *words,
                                     size_t dim, size_t slot, const uint32_t *codes)
{
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS);
    if (stream == KVERN_STREAM_K)
        kvern_codes_place_k(bits, words, dim, slot, codes);
    else
        kvern_codes_place_v(bits, words, dim, slot, codes);
}

// Copies the codes of slots[0 .. count - 1], ascending, of one block to the slots from `at` on of
// another one.
static inline void kvern_codes_gather(uint32_t bits, kvern_stream stream, size_t dim,
                                      const uint32_t *words, const uint8_t *slots, size_t count,
                                      uint32_t *to, size_t at)
{
    uint32_t codes[KVERN_MAX_STREAM_DIM];
    const size_t whole = stream == KVERN_STREAM_K ? kvern_codes_whole(dim) : 0;
    KVERN_ASSERT(dim <= KVERN_MAX_STREAM_DIM && at + count <= KVERN_PAGE_POSITIONS);
    kvern_gather_columns(sizeof words[0], whole / KVERN_CODES_COLUMN * bits, words, slots, count,
                         to, at);
    for (size_t i = 0; i < count && whole < dim; i++) {
        for (size_t d = whole; d < dim; d++)
            codes[d] = kvern_codes_find(bits, stream, words, dim, slots[i], d);
        if (stream == KVERN_STREAM_V)
            kvern_codes_place_v(bits, to, dim, at + i, codes);
        else
            kvern_codes_place_half(bits, to + kvern_codes_half_at(bits, dim), at + i,
                                   codes + whole);
    }
}

#endif
