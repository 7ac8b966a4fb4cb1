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
#include "src/math/unroll.h"

#include <string.h>

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

// Fields of `width` bits, one at the lower end of every `room` bits, become half as many of twice
// the width and room: of two neighbours, the upper one moves down to the lower one.
static inline uint64_t kvern_codes_pair(uint64_t x, uint32_t width, uint32_t room)
{
    const uint64_t lower = ((UINT64_C(1) << width) - 1) * (room == 8    ? UINT64_C(0x1000100010001)
                                                           : room == 16 ? UINT64_C(0x100000001)
                                                                        : 1);
    const uint64_t moved = x >> (room - width);
    if (2 * width <= room) // they do not meet where they are not wanted
        return (x | moved) & (lower | lower << width);
    return (x & lower) | (moved & lower << width);
}

// Eight codes, a byte each, side by side in 8 * bits bits, the first one in the lowest.
static inline uint64_t kvern_codes_squeeze(uint32_t bits, const uint8_t *codes)
{
    uint64_t x;
    memcpy(&x, codes, sizeof x); // the processor is one that has the first byte lowest
    x = kvern_codes_pair(x, bits, 8);
    x = kvern_codes_pair(x, 2 * bits, 16);
    return kvern_codes_pair(x, 4 * bits, 32);
}

// `count` bits from bit `from` on of the codes of a column, side by side in four parts.
static inline uint32_t kvern_codes_cut(uint32_t bits, const uint64_t parts[4], uint32_t from,
                                       uint32_t count)
{
    uint64_t out = 0;
    KVERN_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = i * 8 * bits;
        if (at < from + count && at + 8 * bits > from)
            out |= at < from ? parts[i] >> (from - at) : parts[i] << (at - from);
    }
    return (uint32_t)out & UINT32_MAX >> (32 - count);
}

// The `bits` words of a column. Codes are bytes, the bits above them clear.
static inline void kvern_codes_pack(uint32_t bits, const uint8_t *codes, uint32_t *words,
                                    size_t stride)
{
    KVERN_ASSERT(bits >= 1 && bits <= 8);
    const uint32_t whole = 32 / bits * bits;
    uint64_t parts[4];
    KVERN_UNROLL
    for (size_t i = 0; i < 4; i++)
        parts[i] = kvern_codes_squeeze(bits, codes + 8 * i);
    const uint32_t rest = whole < 32 ? kvern_codes_cut(bits, parts, 30 * bits, 2 * bits) : 0;
    KVERN_UNROLL
    for (uint32_t w = 0; w < 8; w++) { // not up to `bits`, which need not be known here
        if (w < bits)
            words[w * stride] = kvern_codes_cut(bits, parts, w * whole, whole) | (rest >> 2 * w & 3)
                                                                                     << 30;
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
                                       const uint8_t *codes)
{
    const size_t half = slot / KVERN_CODES_COLUMN;
    for (uint32_t from = 0; from < bits;) {
        const kvern_codes_piece p = kvern_codes_piece_at(bits, slot % KVERN_CODES_COLUMN, from);
        const uint32_t mask = ((1u << p.width) - 1) << p.shift;
        const uint32_t others = kvern_codes_unknown(~mask);
        for (size_t d = 0; d < dim; d++) {
            const size_t first = d - d % KVERN_CODES_PANEL;
            uint32_t *at = words + kvern_codes_panel_at(bits, dim, first, half) +
                           p.word * kvern_codes_panel_width(dim, first) + (d - first);
            *at = (*at & others) | ((uint32_t)codes[d] >> from << p.shift & mask);
        }
        from += p.width;
    }
}

// The 16 codes of a half column, which shares its words with another slot's.
static inline void kvern_codes_place_half(uint32_t bits, uint32_t *words, size_t slot,
                                          const uint8_t *codes)
{
    const size_t first = slot / KVERN_CODES_COLUMN * 16;
    uint8_t column[KVERN_CODES_COLUMN] = {0}, all[KVERN_CODES_COLUMN] = {0};
    uint32_t packed[8], mask[8];
    memcpy(column + first, codes, 16);
    memset(all + first, (1 << bits) - 1, 16);
    kvern_codes_pack(bits, column, packed, 1);
    kvern_codes_pack(bits, all, mask, 1);
    for (uint32_t w = 0; w < bits; w++) {
        uint32_t *at = words + w * KVERN_CODES_COLUMN + slot % KVERN_CODES_COLUMN;
        *at = (*at & kvern_codes_unknown(~mask[w])) | packed[w];
    }
}

static inline void kvern_codes_place_k(uint32_t bits, uint32_t *words, size_t dim, size_t slot,
                                       const uint8_t *codes)
{
    const size_t whole = kvern_codes_whole(dim);
    for (size_t d = 0; d < whole; d += KVERN_CODES_COLUMN)
        kvern_codes_pack(bits, codes + d, words + d * 2 * bits + slot, KVERN_PAGE_POSITIONS);
    if (whole < dim)
        kvern_codes_place_half(bits, words + kvern_codes_half_at(bits, dim), slot, codes + whole);
}

// All codes of a slot.
static inline void kvern_codes_place(uint32_t bits, kvern_stream stream, uint32_t *words,
                                     size_t dim, size_t slot, const uint8_t *codes)
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
    uint8_t codes[KVERN_MAX_STREAM_DIM];
    const size_t whole = stream == KVERN_STREAM_K ? kvern_codes_whole(dim) : 0;
    KVERN_ASSERT(dim <= KVERN_MAX_STREAM_DIM && at + count <= KVERN_PAGE_POSITIONS);
    kvern_gather_columns(sizeof words[0], whole / KVERN_CODES_COLUMN * bits, words, slots, count,
                         to, at);
    for (size_t i = 0; i < count && whole < dim; i++) {
        for (size_t d = whole; d < dim; d++)
            codes[d] = (uint8_t)kvern_codes_find(bits, stream, words, dim, slots[i], d);
        if (stream == KVERN_STREAM_V)
            kvern_codes_place_v(bits, to, dim, at + i, codes);
        else
            kvern_codes_place_half(bits, to + kvern_codes_half_at(bits, dim), at + i,
                                   codes + whole);
    }
}

#endif
