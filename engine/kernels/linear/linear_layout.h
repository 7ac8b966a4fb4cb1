// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LINEAR_LAYOUT_H
#define KVERN_ENGINE_LINEAR_LAYOUT_H

// The inside of packed weights and of rounded activations; docs/linear.md draws them.
//
// A tile is 32 rows of the matrix. It is a sequence of units: 32 rows times 32 inputs. Within a
// unit everything is interleaved by row, so that a vector lane is a row (an output): scales are
// arrays of 32, and codes come as quads: the codes of 4 inputs in 4 bytes, 32 rows in 128 bytes.
// Types with blocks of 256 inputs have a header before each 8 units, affine types one for each
// group.

#include "engine/kernels/linear/linear.h"
#include "engine/weights/mxfp4.h"

#define LINEAR_ROWS 32  // rows of a tile
#define LINEAR_UNIT 32  // inputs of a unit, and of a block of activations
#define LINEAR_QUADS 8  // quads of a unit
#define LINEAR_SUPER 8  // units that share a header
#define LINEAR_GROUP 16 // tokens whose activations are interleaved
#define LINEAR_ALIGNMENT 64

// An array of 32 bytes, half floats, or quads.
#define LINEAR_BYTES 32
#define LINEAR_HALVES 64
#define LINEAR_QUAD 128

// Pairs of six-bit numbers in a header, one pair per unit and row: per unit an array of bytes with
// their low halves (the second number's in the upper half), then per two units one with their high
// bits (two of the first number, two of the second; the second unit's in the upper half). In Q4_K
// and Q5_K a pair is scale and minimum, in Q3_K the scales of the first and the last 16 inputs.
#define LINEAR_PAIRS_HIGH (8 * LINEAR_BYTES)
#define LINEAR_PAIRS_BYTES (LINEAR_PAIRS_HIGH + 4 * LINEAR_BYTES)

// Where things are in a unit. Codes of four bits: two quads share an array, quad q (0 to 3) in the
// low halves, quad q + 4 in the high ones. Codes of two bits: two arrays, for quads 0 to 3 and 4 to
// 7, two bits each. One more bit: one array, bit q of each byte belongs to quad q. Two more bits:
// two arrays, like codes of two bits.
typedef struct linear_layout {
    unsigned source_inputs; // inputs of a block in the file; 1 for float types
    unsigned source_bytes;
    unsigned header;    // bytes before each 8 units
    unsigned minimum;   // offset of the array of minimums; 0 for none
    unsigned high_bits; // offset of the arrays of high bits
    unsigned codes;     // offset of the quads
    unsigned unit;      // bytes; for float types of 32 rows times one input
    int zero;           // the code that stands for zero
    unsigned scales;    // of a unit: 1, or 2 for its first and its last 16 inputs
    unsigned pairs;     // offset of the pairs in the header
} linear_layout;

// All zero for a type that has no layout. A constant for a constant type, which the kernels need.
static inline linear_layout linear_layout_of(uint32_t type)
{
    enum { B = LINEAR_BYTES, H = LINEAR_HALVES, Q = LINEAR_QUAD, P = LINEAR_PAIRS_BYTES };
    switch (type) {
    case ELEMENT_F32:
        return (linear_layout){1, 4, 0, 0, 0, 0, 4 * LINEAR_ROWS, 0, 1, 0};
    case ELEMENT_F16:
    case ELEMENT_BF16:
        return (linear_layout){1, 2, 0, 0, 0, 0, 2 * LINEAR_ROWS, 0, 1, 0};
    case ELEMENT_Q4_0: // scale, quads
        return (linear_layout){32, 18, 0, 0, 0, H, H + 4 * Q, 8, 1, 0};
    case ELEMENT_Q4_1: // scale, minimum, quads
        return (linear_layout){32, 20, 0, H, 0, 2 * H, 2 * H + 4 * Q, 0, 1, 0};
    case ELEMENT_Q5_0: // scale, fifth bits, quads
        return (linear_layout){32, 22, 0, 0, H, H + Q, H + 5 * Q, 16, 1, 0};
    case ELEMENT_Q5_1: // scale, minimum, fifth bits, quads
        return (linear_layout){32, 24, 0, H, 2 * H, 2 * H + Q, 2 * H + 5 * Q, 0, 1, 0};
    case ELEMENT_Q8_0: // scale, quads of code + 128
        return (linear_layout){32, 34, 0, 0, 0, H, H + 8 * Q, 128, 1, 0};
    case ELEMENT_Q2_K: // header: scale, minimum scale; scales and minimums [2][32], quads
        return (linear_layout){256, 84, 2 * H, 0, 0, 2 * B, 2 * B + 2 * Q, 0, 2, 0};
    case ELEMENT_Q3_K: // header: scale, pairs; third bits, quads
        return (linear_layout){256, 110, H + P, 0, 0, Q, 3 * Q, 4, 2, H};
    case ELEMENT_Q4_K: // header: scale, minimum scale, pairs; quads
        return (linear_layout){256, 144, 2 * H + P, 0, 0, 0, 4 * Q, 0, 1, 2 * H};
    case ELEMENT_Q5_K: // the same header; fifth bits, quads
        return (linear_layout){256, 176, 2 * H + P, 0, 0, Q, 5 * Q, 0, 1, 2 * H};
    case ELEMENT_Q6_K: // header: scale; signed scales i8[2][32], high bit pairs, quads
        return (linear_layout){256, 210, H, 0, 2 * B, 2 * B + 2 * Q, 2 * B + 6 * Q, 32, 2, 0};
    case ELEMENT_AFFINE_2: // a header for each group, linear_group_header; two quads in an array
        return (linear_layout){32, 8, 0, 0, 0, 0, 2 * Q, 0, 1, 0};
    case ELEMENT_AFFINE_3: // third bits, quads
        return (linear_layout){32, 12, 0, 0, 0, Q, 3 * Q, 0, 1, 0};
    case ELEMENT_AFFINE_4: // quads
        return (linear_layout){32, 16, 0, 0, 0, 0, 4 * Q, 0, 1, 0};
    case ELEMENT_AFFINE_5: // fifth bits, quads
        return (linear_layout){32, 20, 0, 0, 0, Q, 5 * Q, 0, 1, 0};
    case ELEMENT_AFFINE_6: // high bit pairs, quads
        return (linear_layout){32, 24, 0, 0, 0, 2 * Q, 6 * Q, 0, 1, 0};
    case ELEMENT_AFFINE_8: // quads
        return (linear_layout){32, 32, 0, 0, 0, 0, 8 * Q, 0, 1, 0};
    case ELEMENT_MXFP4: // exponents u8[32], quads of the file's codes
        return (linear_layout){32, 17, 0, 0, 0, B, B + 4 * Q, MXFP4_ZERO, 1, 0};
    default:
        return (linear_layout){0};
    }
}

// Whether a type has a header for each group: scales [32] and biases [32] of the source's type.
static inline bool linear_is_affine(uint32_t type)
{
    return type >= ELEMENT_AFFINE_2 && type <= ELEMENT_AFFINE_8;
}

static inline size_t linear_scale_bytes(uint32_t scale_type)
{
    return scale_type == ELEMENT_F32 ? 4 : scale_type == ELEMENT_BYTES ? 1 : 2;
}

// Bytes of an array of 32 scales.
static inline size_t linear_scale_array(uint32_t scale_type)
{
    return LINEAR_ROWS * linear_scale_bytes(scale_type);
}

// Where headers are: `bytes` before each `units` units, none where that is 0.
typedef struct linear_headers {
    size_t bytes;
    size_t units;
} linear_headers;

static inline linear_headers linear_headers_of(uint32_t type, uint32_t scale_type, uint32_t group)
{
    if (linear_is_affine(type))
        return (linear_headers){2 * linear_scale_array(scale_type), group / LINEAR_UNIT};
    return (linear_headers){linear_layout_of(type).header, LINEAR_SUPER};
}

// The codes u that the kernels multiply by, for the codes that an MXFP4 file has.
extern const uint8_t linear_mxfp4_codes[16];

// Activations. Tokens come in groups of 16 (the last one may be smaller), a group in blocks of 32
// inputs, a block as one record per token:
//   INT8   codes i8[32], tail, padding
//   INT16  high i8[32], low i8[32], tail, padding: a code is 256 * high + low
//   F32    values f32[32]
// The tail holds the scale; scale * the sum of the codes, for all 32, the first and the last 16;
// and the sum of all codes as an integer.
#define LINEAR_PLANE_BYTES 32
#define LINEAR_TAIL_SCALE 0
#define LINEAR_TAIL_SCALED_SUM 4
#define LINEAR_TAIL_HALF_SUMS 8
#define LINEAR_TAIL_SUM 16
#define LINEAR_TAIL_BYTES 20
#define LINEAR_RECORD_INT8 64
#define LINEAR_RECORD_INT16 96
#define LINEAR_RECORD_F32 128
#define LINEAR_LARGEST_INT8 127
#define LINEAR_LARGEST_INT16 32639 // 256 * 127 + 127
#define LINEAR_SMALLEST_LOW -127   // no byte is -128: its negative would not be one

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

// A unit of a quantized tile: input i of row r is scale[i / 16][r] * code + minimum[i / 16][r].
// Types without a minimum of their own have minus zero * scale.
typedef struct linear_unit {
    float scale[2][LINEAR_ROWS];
    float minimum[2][LINEAR_ROWS];
    const unsigned char *bytes; // in the tile
} linear_unit;

// All of a unit but its codes. `scale_type` and `group` are those of an affine matrix, else 0.
void linear_unpack_scales(uint32_t type, uint32_t scale_type, uint32_t group,
                          const unsigned char *tile, size_t unit, linear_unit *out);

// The codes of a row (0 to 31) of a unit: codes[LINEAR_UNIT].
void linear_unpack_codes(uint32_t type, const linear_unit *unit, size_t row, uint8_t *codes);

// An element of a float tile.
float linear_unpack_float(uint32_t type, const unsigned char *tile, size_t col, size_t row);

// Column `col` of a float tile: out[LINEAR_ROWS].
void linear_unpack_floats(uint32_t type, const unsigned char *tile, size_t col, float *out);

// Packs up to 32 rows, each in the file's layout, into a tile of zeros.
void linear_pack_tile(uint32_t type, const unsigned char *const *rows, size_t row_count,
                      size_t cols, unsigned char *tile);

// The same of a matrix whose scales are apart: its rows are source_rows[row_count] of the source.
void linear_pack_grouped_tile(const linear_source *source, const size_t *source_rows,
                              size_t row_count, unsigned char *tile);

// What a kernel computes: 32 rows (the first `rows` of them are written) for the tokens of a group.
struct linear_tile {
    uint32_t type;
    uint32_t scale_type; // of affine types
    uint32_t group;
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
void linear_tile_neon(const linear_tile *tile);

// Rounding of one token's activations: record b goes to records + b * stride.
void linear_round_plain(const float *x, size_t cols, linear_format format, unsigned char *records,
                        size_t stride);
void linear_round_avx2(const float *x, size_t cols, linear_format format, unsigned char *records,
                       size_t stride);

#endif
