// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ELEMENT_TYPE_H
#define KVERN_ENGINE_ELEMENT_TYPE_H

// What the elements of a tensor are. A type needs a number, and these are GGUF's; other formats
// have fewer types, with other names. engine/weights/dequantize.h says what each means.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum element_type {
    ELEMENT_F32 = 0,
    ELEMENT_F16 = 1,
    ELEMENT_Q4_0 = 2,
    ELEMENT_Q4_1 = 3,
    ELEMENT_Q5_0 = 6,
    ELEMENT_Q5_1 = 7,
    ELEMENT_Q8_0 = 8,
    ELEMENT_Q2_K = 10,
    ELEMENT_Q3_K = 11,
    ELEMENT_Q4_K = 12,
    ELEMENT_Q5_K = 13,
    ELEMENT_Q6_K = 14,
    ELEMENT_BF16 = 30,
    ELEMENT_MXFP4 = 39,

    // Types of safetensors that GGUF has no numbers for. Codes of 2 to 8 bits whose groups have a
    // scale and a bias, weights_groups, as MLX writes them;
    ELEMENT_AFFINE_2 = 1002,
    ELEMENT_AFFINE_3 = 1003,
    ELEMENT_AFFINE_4 = 1004,
    ELEMENT_AFFINE_5 = 1005,
    ELEMENT_AFFINE_6 = 1006,
    ELEMENT_AFFINE_8 = 1008,
    // and words of 32 bits and bytes, which mean something together with other tensors only.
    ELEMENT_WORDS = 1032,
    ELEMENT_BYTES = 1033
} element_type;

// The bits of a code of an affine type; 0 for any other type.
unsigned element_type_affine_bits(uint32_t type);

// "Q4_1"; also names the types that files are known to have and that cannot be decoded here. NULL
// for any other number.
const char *element_type_name(uint32_t type);

// Elements and bytes of one block of a type that can be decoded; false for any other.
bool element_type_block(uint32_t type, size_t *elements, size_t *bytes);

#endif
