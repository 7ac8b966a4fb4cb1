// SPDX-License-Identifier: MIT
#include "tests/support/matrices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const uint32_t matrix_types[MATRIX_TYPES] = {
    GGUF_TYPE_F32,  GGUF_TYPE_F16,  GGUF_TYPE_BF16, GGUF_TYPE_Q4_0,  GGUF_TYPE_Q4_1,
    GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_K,  GGUF_TYPE_Q5_K,
    GGUF_TYPE_Q6_K, GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K, GGUF_TYPE_MXFP4,
};

size_t matrix_block(uint32_t type)
{
    size_t elements, bytes;
    if (!element_type_block(type, &elements, &bytes))
        abort();
    return elements;
}

// Where a block keeps its half-precision scale and minimum: SIZE_MAX for none.
static void half_offsets(uint32_t type, size_t offset[2])
{
    offset[0] = type == GGUF_TYPE_Q2_K   ? 80
                : type == GGUF_TYPE_Q3_K ? 108
                : type == GGUF_TYPE_Q6_K ? 208
                                         : 0;
    switch (type) {
    case GGUF_TYPE_Q2_K:
        offset[1] = 82;
        break;
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
        offset[1] = 2;
        break;
    default:
        offset[1] = SIZE_MAX;
    }
}

static void put_u16(unsigned char *to, uint16_t value)
{
    to[0] = (unsigned char)value;
    to[1] = (unsigned char)(value >> 8);
}

// A half of either sign and random fraction with the exponent field in [low, high].
static uint16_t random_half(test_random *random, unsigned low, unsigned high)
{
    const uint64_t bits = test_random_next(random);
    const unsigned exponent = low + (unsigned)(bits >> 32) % (high - low + 1);
    return (uint16_t)((bits & 0x83ff) | exponent << 10);
}

static void fill_block(uint32_t type, unsigned char *block, size_t bytes, matrix_kind kind,
                       test_random *random)
{
    static const unsigned exponents[][2] = {
        [MATRIX_ORDINARY] = {8, 14}, [MATRIX_LARGEST] = {28, 30}, [MATRIX_SMALLEST] = {0, 0}};
    if (kind == MATRIX_MIXED) {
        const unsigned choice = (unsigned)test_random_below(random, 4);
        memset(block, 0, bytes);
        if (choice == 3)
            return;
        kind = (matrix_kind)choice;
    }
    for (size_t i = 0; i < bytes; i++)
        block[i] = kind == MATRIX_ORDINARY  ? (unsigned char)test_random_next(random)
                   : kind == MATRIX_LARGEST ? 0xff
                                            : 0;
    if (type == GGUF_TYPE_MXFP4) { // the scale is an exponent, of which 128 stands for 1/2
        block[0] = (unsigned char)(kind == MATRIX_SMALLEST ? test_random_below(random, 2)
                                                           : 113 + exponents[kind][0]);
        return;
    }
    size_t offset[2];
    half_offsets(type, offset);
    for (size_t i = 0; i < 2 && offset[i] != SIZE_MAX; i++)
        put_u16(block + offset[i], random_half(random, exponents[kind][0], exponents[kind][1]));
}

// Values of either sign; F16 and BF16 share the sign and a safe exponent by construction.
static void fill_float(uint32_t type, unsigned char *value, matrix_kind kind, test_random *random)
{
    static const int exponents[] = {
        [MATRIX_ORDINARY] = 0, [MATRIX_LARGEST] = 12, [MATRIX_SMALLEST] = -24, [MATRIX_MIXED] = 0};
    const int spread = kind == MATRIX_MIXED ? 20 : 6;
    // In two statements: the order in which arguments are evaluated is the compiler's choice.
    const int exponent = exponents[kind] - (int)test_random_below(random, (uint64_t)spread);
    const float x = ldexpf(test_random_signed(random), exponent);
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (type == GGUF_TYPE_F32) {
        put_u16(value, (uint16_t)bits);
        put_u16(value + 2, (uint16_t)(bits >> 16));
    } else if (type == GGUF_TYPE_BF16) {
        put_u16(value, (uint16_t)(bits >> 16));
    } else {
        put_u16(value,
                kind == MATRIX_SMALLEST ? random_half(random, 0, 1) : random_half(random, 8, 16));
    }
}

gguf_tensor matrix_make(uint32_t type, size_t rows, size_t cols, matrix_kind kind,
                        test_random *random)
{
    size_t elements, bytes;
    if (!element_type_block(type, &elements, &bytes) || cols % elements)
        abort();
    const size_t blocks = rows * (cols / elements);
    unsigned char *data = malloc(blocks * bytes);
    if (!data)
        abort();
    for (size_t i = 0; i < blocks; i++) {
        if (elements > 1)
            fill_block(type, data + i * bytes, bytes, kind, random);
        else
            fill_float(type, data + i * bytes, kind, random);
    }
    return (gguf_tensor){.name = {"matrix", 6},
                         .type = type,
                         .known = true,
                         .dims = 2,
                         .shape = {cols, rows, 1, 1},
                         .elements = rows * cols,
                         .data = data,
                         .bytes = blocks * bytes};
}

void matrix_free(gguf_tensor *tensor)
{
    free((void *)tensor->data);
    tensor->data = NULL;
}
