// SPDX-License-Identifier: MIT
#include "engine/weights/element_type.h"

// Every number that GGUF has given out and not withdrawn, so that a file with a type that cannot be
// read is refused by name. block_bytes is 0 where this reader has no decoder.
static const struct type_facts {
    const char *name;
    uint16_t block_elements;
    uint16_t block_bytes;
} TYPES[] = {
    [ELEMENT_F32] = {"F32", 1, 4},
    [ELEMENT_F16] = {"F16", 1, 2},
    [ELEMENT_Q4_0] = {"Q4_0", 32, 18},
    [ELEMENT_Q4_1] = {"Q4_1", 32, 20},
    [ELEMENT_Q5_0] = {"Q5_0", 32, 22},
    [ELEMENT_Q5_1] = {"Q5_1", 32, 24},
    [ELEMENT_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 0, 0},
    [ELEMENT_Q2_K] = {"Q2_K", 256, 84},
    [ELEMENT_Q3_K] = {"Q3_K", 256, 110},
    [ELEMENT_Q4_K] = {"Q4_K", 256, 144},
    [ELEMENT_Q5_K] = {"Q5_K", 256, 176},
    [ELEMENT_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 0, 0},
    [17] = {"IQ2_XS", 0, 0},
    [18] = {"IQ3_XXS", 0, 0},
    [19] = {"IQ1_S", 0, 0},
    [20] = {"IQ4_NL", 0, 0},
    [21] = {"IQ3_S", 0, 0},
    [22] = {"IQ2_S", 0, 0},
    [23] = {"IQ4_XS", 0, 0},
    [24] = {"I8", 0, 0},
    [25] = {"I16", 0, 0},
    [26] = {"I32", 0, 0},
    [27] = {"I64", 0, 0},
    [28] = {"F64", 0, 0},
    [29] = {"IQ1_M", 0, 0},
    [ELEMENT_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 0, 0},
    [35] = {"TQ2_0", 0, 0},
    [ELEMENT_MXFP4] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 0, 0},
    [41] = {"Q1_0", 0, 0},
};

#define TYPE_COUNT (sizeof TYPES / sizeof TYPES[0])

// The others.
static const struct named_type {
    uint32_t type;
    const char *name;
    unsigned bits; // of affine codes
} NAMED[] = {
    {ELEMENT_AFFINE_2, "affine 2", 2}, {ELEMENT_AFFINE_3, "affine 3", 3},
    {ELEMENT_AFFINE_4, "affine 4", 4}, {ELEMENT_AFFINE_5, "affine 5", 5},
    {ELEMENT_AFFINE_6, "affine 6", 6}, {ELEMENT_AFFINE_8, "affine 8", 8},
    {ELEMENT_WORDS, "U32", 0},         {ELEMENT_BYTES, "U8", 0},
};

static const struct named_type *find_named(uint32_t type)
{
    for (size_t i = 0; i < sizeof NAMED / sizeof NAMED[0]; i++) {
        if (NAMED[i].type == type) {
            return &NAMED[i];
        }
    }
    return NULL;
}

const char *element_type_name(uint32_t type)
{
    const struct named_type *named = find_named(type);
    return named ? named->name : type < TYPE_COUNT ? TYPES[type].name : NULL;
}

unsigned element_type_affine_bits(uint32_t type)
{
    const struct named_type *named = find_named(type);
    return named ? named->bits : 0;
}

bool element_type_block(uint32_t type, size_t *elements, size_t *bytes)
{
    if (type >= TYPE_COUNT || TYPES[type].block_bytes == 0) {
        return false;
    }
    *elements = TYPES[type].block_elements;
    *bytes = TYPES[type].block_bytes;
    return true;
}
