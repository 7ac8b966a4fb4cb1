// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODES_CODES_PRODUCT_H
#define KVERN_CODEC_CODES_CODES_PRODUCT_H

// Products of many vectors with a tile of numbers that codes were unpacked to. They know nothing of
// codes, so there is one function per instruction set for codecs of all widths.

#include <stdbool.h>
#include <stddef.h>

#define KVERN_CODES_LANES 64 // of a tile
#define KVERN_CODES_ROWS 64  // of a tile

// Rows are dims of keys, or slots of values.
typedef struct kvern_codes_tile {
    _Alignas(64) float rows[KVERN_CODES_ROWS][KVERN_CODES_LANES];
} kvern_codes_tile;

// c[i][lane] += sum over the rows of a[i][row] * tile[row][lane], rows ascending, one fma each.
typedef struct kvern_codes_product {
    const float (*rows)[KVERN_CODES_LANES];
    size_t count;   // rows
    size_t width;   // lanes, a multiple of 16
    const float *a; // of the first row; a[i * a_stride + row]
    size_t a_stride;
    float *c; // c[i * c_stride + lane]
    size_t c_stride;
    bool fresh;        // start from +0 instead of c
    const float *bias; // added at the end: bias[i] to all lanes; NULL: nothing is
} kvern_codes_product;

// For n vectors.
void kvern_codes_multiply_avx2(size_t n, const kvern_codes_product *p);
void kvern_codes_multiply_avx512(size_t n, const kvern_codes_product *p);
void kvern_codes_multiply_neon(size_t n, const kvern_codes_product *p);

#endif
