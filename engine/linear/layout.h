// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LINEAR_LAYOUT_H
#define KVERN_ENGINE_LINEAR_LAYOUT_H

// The inside of packed weights and of rounded activations; docs/linear.md draws them.
//
// A tile is 16 rows of the matrix. It is a sequence of units: 16 rows times 32 inputs. Within a
// unit everything is interleaved by row, so that a vector lane is a row (an output): scales are
// arrays of 16, and codes come as quads: the codes of 4 inputs in 4 bytes, 16 rows in 64 bytes.
// Types with blocks of 256 inputs have a header before each 8 units.

#include "engine/linear/linear.h"

#define LINEAR_ROWS 16  // rows of a tile
#define LINEAR_UNIT 32  // inputs of a unit, and of a block of activations
#define LINEAR_QUADS 8  // quads of a unit
#define LINEAR_SUPER 8  // units that share a header
#define LINEAR_GROUP 16 // tokens whose activations are interleaved
#define LINEAR_QUAD_BYTES 64

// Offsets in a unit. Codes of four bits: two quads share 64 bytes, quad q (0 to 3) in the low
// halves, quad q + 4 in the high ones. A fifth bit: one plane of 64 bytes, bit q of each byte
// belongs to quad q. A fifth and sixth bit: two planes, for quads 0 to 3 and 4 to 7, two bits each.
typedef struct linear_layout {
    unsigned source_inputs; // inputs of a block in the file; 1 for float types
    unsigned source_bytes;
    unsigned header_bytes; // before each 8 units
    unsigned unit_bytes;   // for float types: bytes of 16 rows times one input
    unsigned codes;        // offset of the quads in a unit
    unsigned high_bits;    // offset of the planes of high bits
    int zero;              // the code that stands for zero
    bool quantized;
} linear_layout;

// All zero for a type that has no layout. A constant for a constant type, which the kernels need.
static inline linear_layout linear_layout_of(uint32_t type)
{
    switch (type) {
    case GGUF_TYPE_F32:
        return (linear_layout){1, 4, 0, 64, 0, 0, 0, false};
    case GGUF_TYPE_F16:
    case GGUF_TYPE_BF16:
        return (linear_layout){1, 2, 0, 32, 0, 0, 0, false};
    case GGUF_TYPE_Q4_0: // scale f16[16], quads
        return (linear_layout){32, 18, 0, 288, 32, 0, 8, true};
    case GGUF_TYPE_Q4_1: // scale f16[16], minimum f16[16], quads
        return (linear_layout){32, 20, 0, 320, 64, 0, 0, true};
    case GGUF_TYPE_Q5_0: // scale, fifth bits, quads
        return (linear_layout){32, 22, 0, 352, 96, 32, 16, true};
    case GGUF_TYPE_Q5_1: // scale, minimum, fifth bits, quads
        return (linear_layout){32, 24, 0, 384, 128, 64, 0, true};
    case GGUF_TYPE_Q8_0: // scale, whole quads of code + 128
        return (linear_layout){32, 34, 0, 544, 32, 0, 128, true};
    case GGUF_TYPE_Q4_K: // header; quads
        return (linear_layout){256, 144, 256, 256, 0, 0, 0, true};
    case GGUF_TYPE_Q5_K: // header; fifth bits, quads
        return (linear_layout){256, 176, 256, 320, 64, 0, 0, true};
    case GGUF_TYPE_Q6_K: // header: scale f16[16]; i8[2][16], high bit pairs, quads
        return (linear_layout){256, 210, 32, 416, 160, 32, 32, true};
    default:
        return (linear_layout){0};
    }
}

// The header of Q4_K and Q5_K: scale f16[16] and minimum scale f16[16], then per unit 16 bytes of
// low halves (of the unit's six-bit scale, and of its minimum in the upper half), then per two
// units 16 bytes of high bits (two of the scale, two of the minimum; the second unit's in the upper
// half).
#define LINEAR_HEADER_LOW 64
#define LINEAR_HEADER_HIGH 192

// Activations. Tokens come in groups of 16 (the last one may be smaller), a group in blocks of 32
// inputs, a block as one record per token:
//   INT8   codes i8[32]                    scale f32, scaled sum f32, minus sums i32[3], padding
//   INT16  high i8[32], low i8[32]         scale f32, scaled sum f32, minus sums i32[2][3]
//   F32    values f32[32]
// Minus sums are minus the sum of the codes of a plane: of all 32, of the first and the last 16.
#define LINEAR_PLANE_BYTES 32
#define LINEAR_RECORD_INT8 64
#define LINEAR_RECORD_INT16 96
#define LINEAR_RECORD_F32 128
#define LINEAR_PLANE_BASE 255      // a 16-bit code is 255 * high + low
#define LINEAR_LARGEST_INT16 32512 // 255 * 127 + 127
// A block whose largest magnitude is below this counts as zero: the reciprocal of its scale, and
// its product with a weight's scale, stay normal numbers.
#define LINEAR_SMALLEST_PEAK 0x1p-80f

static inline size_t linear_record_bytes(linear_format format)
{
    return format == LINEAR_FORMAT_INT8    ? LINEAR_RECORD_INT8
           : format == LINEAR_FORMAT_INT16 ? LINEAR_RECORD_INT16
                                           : LINEAR_RECORD_F32;
}

static inline size_t linear_units(size_t cols)
{
    return cols / LINEAR_UNIT + (cols % LINEAR_UNIT != 0);
}

// A unit of a quantized tile: input i of row r is scale[i / 16][r] * code + minimum[r].
typedef struct linear_unit {
    float scale[2][LINEAR_ROWS];
    float minimum[LINEAR_ROWS];
    bool has_minimum;
    const unsigned char *bytes; // in the tile
} linear_unit;

// All of a unit but its codes.
void linear_unpack_scales(uint32_t type, const unsigned char *tile, size_t unit, linear_unit *out);

// The codes of a row (0 to 15) of a unit: codes[LINEAR_UNIT].
void linear_unpack_codes(uint32_t type, const linear_unit *unit, size_t row, int8_t *codes);

// Column `col` of a float tile: out[LINEAR_ROWS].
void linear_unpack_floats(uint32_t type, const unsigned char *tile, size_t col, float *out);

// Packs up to 16 rows, row_bytes apart in the file's layout, into a tile of zeros.
void linear_pack_tile(uint32_t type, const unsigned char *rows, size_t row_bytes, size_t row_count,
                      size_t cols, unsigned char *tile);

// What a kernel computes: 16 rows (the first `rows` of them are written) for the tokens of a group.
struct linear_tile {
    uint32_t type;
    linear_format format;
    const unsigned char *weights;
    size_t cols;
    const unsigned char *records; // of the group
    size_t tokens;                // of the group, 1 to LINEAR_GROUP
    float *y;                     // of the tile's first row and the group's first token
    size_t y_stride;
    size_t rows;
    bool add;
};

// The kernels. linear_tile_plain is the definition.
void linear_tile_plain(const linear_tile *tile);
void linear_tile_avx2(const linear_tile *tile);
void linear_tile_avxvnni(const linear_tile *tile);
void linear_tile_avx512vnni(const linear_tile *tile);

// Rounding of one token's activations: record b goes to records + b * stride.
void linear_round_plain(const float *x, size_t cols, linear_format format, unsigned char *records,
                        size_t stride);
void linear_round_avx2(const float *x, size_t cols, linear_format format, unsigned char *records,
                       size_t stride);

#endif
