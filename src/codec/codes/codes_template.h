// SPDX-License-Identifier: MIT
// What the kernels of all codecs over columns of codes (codes.h) do, for one width of codes and one
// instruction set. Included once by a template of a codec, after codes_<isa>.h.
//
// Parameters, from codes_<isa>.h:
//   CODES_MOST         query vectors that are worked on at once, 4 or 8
//   CODES_WIDE(r)      how many strips of 16 lanes r of them share a pass over a tile: 4, 2 or 1
//   CODES_FEW          query vectors that are served without a tile, at most
//   CODES_FEW_LOOKED_UP(bits)  the same of codes that a table is asked for
//   CODES_FEW_WIDE(r)  how many share the unpacking in registers: words and values need some too
//   CODES_MULTIPLY     the tile product (codes_product.h)
// from the codec:
//   CODES_BITS         the width of a code
//   CODES_VALUES(words, shift)  16 floats for the codes that begin at bit `shift` of 16 words;
//                      codes_as_floats of codes_<isa>.h gives the codes themselves
//
// Few query vectors take the values as they are unpacked, in registers. For many, those of 64 rows
// by 64 lanes (rows are dims of keys, or slots of values) are unpacked into a tile in the
// first-level cache first, and all vectors are multiplied with the tile. Both do the same
// operations in the same order.
#include "src/codec/codes/codes.h"
#include "src/codec/codes/codes_product.h"
#include "src/math/unroll.h"

// ---- Loading ----

// 16 numbers of a caller, from number d on.
LANES_INLINE lanes load_numbers(kvern_type type, const void *values, size_t d)
{
    const uint16_t *at = (const uint16_t *)values + d;
    return type == KVERN_F32    ? lanes_load((const float *)values + d)
           : type == KVERN_BF16 ? lanes_load_bf16(at)
                                : lanes_load_f16(at);
}

// ---- Storing ----

// kvern_codes_place_v, 16 dims at a time.
LANES_INLINE void place_values(uint32_t *words, size_t dim, size_t slot, const uint8_t *codes)
{
    const size_t half = slot / KVERN_CODES_COLUMN;
    for (uint32_t from = 0; from < CODES_BITS;) {
        const kvern_codes_piece p =
            kvern_codes_piece_at(CODES_BITS, slot % KVERN_CODES_COLUMN, from);
        const uint32_t bits = ((1u << p.width) - 1) << p.shift;
        const lanes_int mask = lanes_int_set((int32_t)bits);
        const lanes_int others = lanes_int_set((int32_t)kvern_codes_unknown(~bits));
        for (size_t d = 0; d < dim; d += 16) {
            const size_t first = d - d % KVERN_CODES_PANEL;
            int32_t *at = (int32_t *)words + kvern_codes_panel_at(CODES_BITS, dim, first, half) +
                          p.word * kvern_codes_panel_width(dim, first) + (d - first);
            const lanes_int code = lanes_int_load_bytes(codes + d);
            const lanes_int placed =
                lanes_int_shl(lanes_int_shr_logical(code, (int)from), (int)p.shift);
            lanes_int_store(at, lanes_int_or(lanes_int_and(lanes_int_load(at), others),
                                             lanes_int_and(placed, mask)));
        }
        from += p.width;
    }
}

// kvern_codes_place.
LANES_INLINE void place_codes(kvern_stream stream, uint32_t *words, size_t dim, size_t slot,
                              const uint8_t *codes)
{
    if (stream == KVERN_STREAM_K)
        kvern_codes_place_k(CODES_BITS, words, dim, slot, codes);
    else
        place_values(words, dim, slot, codes);
}

// ---- Unpacking ----

// Columns side by side, and where their values go.
typedef struct codes_columns {
    const uint32_t *words;
    size_t stride;                  // from one word of a column to its next
    ptrdiff_t next;                 // bytes from words to memory of its shape that is read next
    float (*to)[KVERN_CODES_LANES]; // row 0, first lane
} codes_columns;

LANES_INLINE void load_words(int T, const codes_columns *c, size_t word, lanes_int words[4])
{
    const uint32_t *at = c->words + word * c->stride;
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        words[t] = lanes_int_load((const int32_t *)at + t * 16);
        lanes_prefetch((const char *)(at + t * 16) + c->next);
    }
}

// The last two codes of a column lie in the two upper bits of its words, the first word's lowest.
// They are gathered at the upper end of `rest`, from words that are loaded again: kept on the way,
// they would take registers from the sums.
LANES_INLINE void gather_rest(int T, const codes_columns *c, lanes_int rest[4])
{
    const lanes_int upper = lanes_int_set((int32_t)0xc0000000);
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        rest[t] = lanes_int_set(0);
    KVERN_UNROLL
    for (int word = 0; word < CODES_BITS; word++) {
        const uint32_t *at = c->words + (size_t)word * c->stride;
        KVERN_UNROLL
        for (int t = 0; t < T; t++) {
            const lanes_int words = lanes_int_load((const int32_t *)at + t * 16);
            rest[t] = lanes_int_or(lanes_int_shr_logical(rest[t], 2), lanes_int_and(words, upper));
        }
    }
}

// One of the last two codes, 0 or 1, of a column, from what has been gathered.
LANES_INLINE lanes rest_code(lanes_int rest, int number)
{
    return CODES_VALUES(lanes_int_shr_logical(rest, 32 - 2 * CODES_BITS + number * CODES_BITS), 0);
}

// Lines that codes lie on: what strip t holds is scale[t] * code + bias[t].
typedef struct codes_lines {
    lanes scale[4], bias[4];
} codes_lines;

LANES_INLINE lanes on_line(const codes_lines *lines, int t, lanes value)
{
    return lines ? lanes_fma(lines->scale[t], value, lines->bias[t]) : value;
}

// The codes of one word of T strips: consecutive rows. `lines`: NULL for the codes themselves.
LANES_INLINE void unpack_word(int T, const codes_columns *c, size_t word, const codes_lines *lines)
{
    const size_t row = word * (size_t)(32 / CODES_BITS);
    lanes_int words[4];
    load_words(T, c, word, words);
    KVERN_UNROLL
    for (int j = 0; j < 32 / CODES_BITS; j++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            lanes_store(c->to[row + (size_t)j] + t * 16,
                        on_line(lines, t, CODES_VALUES(words[t], j * CODES_BITS)));
    }
}

LANES_INLINE void unpack_strips(int T, const codes_columns *c, const codes_lines *lines)
{
    for (size_t word = 0; word < (size_t)CODES_BITS; word++)
        unpack_word(T, c, word, lines);
    if (32 % CODES_BITS == 0)
        return;
    lanes_int rest[4];
    gather_rest(T, c, rest);
    KVERN_UNROLL
    for (int i = 0; i < 2 * T; i++)
        lanes_store(c->to[30 + i / T] + i % T * 16,
                    on_line(lines, i % T, rest_code(rest[i % T], i / T)));
}

// Columns of `strips` times 16 lanes.
LANES_INLINE void unpack(codes_columns c, size_t strips)
{
    if (strips == 4) {
        unpack_strips(4, &c, NULL);
        return;
    }
    for (size_t t = 0; t < strips; t++) {
        unpack_strips(1, &c, NULL);
        c.words += 16;
        c.to = (float(*)[KVERN_CODES_LANES])(c.to[0] + 16);
    }
}

// ---- Few vectors ----

// What the rows of each vector are multiplied with: of[i][row].
typedef struct codes_factors {
    const float *of[CODES_MOST];
} codes_factors;

// The compiler is not told how far apart they are: it would keep the place of every vector's every
// row of a word, many times more than it has registers, and load each from memory.
LANES_INLINE codes_factors factors_at(int R, const float *a, size_t stride)
{
    codes_factors f;
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        f.of[i] = a + (size_t)i * stride;
        __asm__("" : "+r"(f.of[i]));
    }
    return f;
}

// One row of codes for R vectors and T strips.
LANES_INLINE void add_row(int R, int T, const lanes strip[4], const codes_factors *a, size_t row,
                          lanes acc[CODES_MOST][4])
{
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        const lanes weight = lanes_set(a->of[i][row]);
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            acc[i][t] = lanes_fma(weight, strip[t], acc[i][t]);
    }
}

// Codes of a word that are taken in one go: a loop over all 32 of one bit is longer than what a
// processor keeps decoded.
#define CODES_AT_ONCE (CODES_BITS == 1 ? 8 : 32 / CODES_BITS)

// The codes of one word of T strips.
LANES_INLINE void add_word(int R, int T, const codes_columns *c, size_t word,
                           const codes_factors *a, lanes acc[CODES_MOST][4])
{
    lanes_int words[4];
    load_words(T, c, word, words);
    size_t row = word * (size_t)(32 / CODES_BITS);
    for (int first = 0; first < 32 / CODES_BITS; first += CODES_AT_ONCE, row += CODES_AT_ONCE) {
        KVERN_UNROLL
        for (int j = 0; j < CODES_AT_ONCE; j++) {
            lanes strip[4];
            KVERN_UNROLL
            for (int t = 0; t < T; t++)
                strip[t] = CODES_VALUES(words[t], j * CODES_BITS);
            add_row(R, T, strip, a, row + (size_t)j, acc);
        }
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            words[t] = lanes_int_shr_logical(words[t], CODES_AT_ONCE * CODES_BITS % 32);
    }
}

// All 32 rows of T strips.
LANES_INLINE void add_columns(int R, int T, const codes_columns *c, const float *first,
                              size_t stride, lanes acc[CODES_MOST][4])
{
    const codes_factors a = factors_at(R, first, stride);
    for (size_t word = 0; word < (size_t)CODES_BITS; word++)
        add_word(R, T, c, word, &a, acc);
    if (32 % CODES_BITS == 0)
        return;
    lanes_int rest[4];
    gather_rest(T, c, rest);
    KVERN_UNROLL
    for (int number = 0; number < 2; number++) {
        lanes strip[4];
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            strip[t] = rest_code(rest[t], number);
        add_row(R, T, strip, &a, 30 + (size_t)number, acc);
    }
}

// ---- Half columns ----

// The values of row `row` of the half columns of a strip: dims of its slots, after which those of
// the slots 32 behind them follow.
LANES_INLINE lanes half_row(const codes_columns *c, int row)
{
    const int per_word = 32 / CODES_BITS;
    if (row >= CODES_BITS * per_word) {
        lanes_int rest[4];
        gather_rest(1, c, rest);
        return rest_code(rest[0], row - CODES_BITS * per_word);
    }
    const uint32_t *at = c->words + (size_t)(row / per_word) * c->stride;
    return CODES_VALUES(lanes_int_load((const int32_t *)at), row % per_word * CODES_BITS);
}

// For the 16 slots from `slot` on.
LANES_INLINE void add_half_strip(int R, const codes_columns *columns, size_t slot,
                                 const codes_factors *a, int t, lanes acc[CODES_MOST][4])
{
    codes_columns c = *columns;
    c.words += slot % KVERN_CODES_COLUMN;
    KVERN_UNROLL
    for (int row = 0; row < 16; row++) {
        const lanes values = slot < KVERN_CODES_COLUMN ? half_row(&c, row) : half_row(&c, 16 + row);
        KVERN_UNROLL
        for (int i = 0; i < R; i++)
            acc[i][t] = lanes_fma(lanes_set(a->of[i][row]), values, acc[i][t]);
    }
}

// The half columns of `strips` times 16 slots from `slot` on become 16 rows.
LANES_INLINE void unpack_half(const codes_columns *columns, size_t slot, size_t strips)
{
    for (size_t t = 0; t < strips; t++, slot += 16) {
        codes_columns c = *columns;
        c.words += slot % KVERN_CODES_COLUMN;
        KVERN_UNROLL
        for (int row = 0; row < 16; row++)
            lanes_store(c.to[row] + t * 16,
                        slot < KVERN_CODES_COLUMN ? half_row(&c, row) : half_row(&c, 16 + row));
    }
}

// ---- Values ----

// The columns of the panel that holds dim d, from d on.
LANES_INLINE void enter_panel(size_t dim, size_t d, size_t half, const uint32_t *words,
                              codes_columns *c)
{
    const size_t first = d - d % KVERN_CODES_PANEL;
    c->words = words + kvern_codes_panel_at(CODES_BITS, dim, first, half) + (d - first);
    c->stride = kvern_codes_panel_width(dim, first);
}
