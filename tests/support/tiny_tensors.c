// SPDX-License-Identifier: MIT
#include "tests/support/tiny_tensors.h"

#include <kvern/math.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_f16(unsigned char *at, float value)
{
    uint16_t bits;
    kvern_f32_to_f16_array(0, 1, &value, &bits);
    memcpy(at, &bits, sizeof bits);
}

// Where a quantized block keeps its half-precision scales, and how large they must be for weights
// of about one.
typedef struct block_scales {
    uint32_t type;
    size_t scale;   // offset
    size_t minimum; // offset; 0: none
    float scale_value;
    float minimum_value;
} block_scales;

static const block_scales scales[] = {
    {GGUF_TYPE_Q4_0, 0, 0, 1.0f / 8, 0},
    {GGUF_TYPE_Q4_1, 0, 2, 1.0f / 8, -1},
    {GGUF_TYPE_Q5_0, 0, 0, 1.0f / 16, 0},
    {GGUF_TYPE_Q5_1, 0, 2, 1.0f / 16, -1},
    {GGUF_TYPE_Q8_0, 0, 0, 1.0f / 128, 0},
    {GGUF_TYPE_Q4_K, 0, 2, 1.0f / 8 / 32, 1.0f / 32},
    {GGUF_TYPE_Q5_K, 0, 2, 1.0f / 16 / 32, 1.0f / 32},
    {GGUF_TYPE_Q6_K, 208, 0, 1.0f / 32 / 64, 0},
    {GGUF_TYPE_Q2_K, 80, 82, 1.0f / 2 / 8, 1.0f / 8},
    {GGUF_TYPE_Q3_K, 108, 0, 1.0f / 4 / 16, 0},
    {GGUF_TYPE_MXFP4, 0, 0, 0, 0}, // its scale is an exponent
};

static void fill_blocks(test_random *random, uint32_t type, float size, size_t blocks,
                        size_t block_bytes, unsigned char *out)
{
    const block_scales *form = scales;
    while (form->type != type) {
        form++;
    }
    for (size_t b = 0; b < blocks; b++, out += block_bytes) {
        for (size_t i = 0; i < block_bytes; i++) {
            out[i] = (unsigned char)test_random_next(random);
        }
        if (type == GGUF_TYPE_MXFP4) {
            out[0] = (unsigned char)(123 + logbf(size) + test_random_below(random, 2));
            continue;
        }
        float vary = size * (1 + test_random_signed(random) / 4);
        put_f16(out + form->scale, form->scale_value * vary);
        if (form->minimum) {
            put_f16(out + form->minimum, form->minimum_value * vary);
        }
    }
}

static void fill_floats(test_random *random, uint32_t type, float size, size_t elements,
                        unsigned char *out)
{
    for (size_t i = 0; i < elements; i++) {
        float value = size * test_random_signed(random);
        uint16_t half;
        if (type == GGUF_TYPE_F32) {
            memcpy(out + 4 * i, &value, sizeof value);
            continue;
        }
        if (type == GGUF_TYPE_BF16) {
            kvern_f32_to_bf16_array(0, 1, &value, &half);
        } else {
            kvern_f32_to_f16_array(0, 1, &value, &half);
        }
        memcpy(out + 2 * i, &half, sizeof half);
    }
}

void tiny_matrix(gguf_builder *builder, test_random *random, const char *name, uint32_t type,
                 size_t rows, size_t cols, float size)
{
    size_t block = 1;
    size_t block_bytes = 0;
    if (!element_type_block(type, &block, &block_bytes) || cols % block != 0) {
        abort();
    }
    size_t blocks = rows * cols / block;
    unsigned char *data = malloc(blocks * block_bytes);
    if (!data) {
        abort();
    }
    if (block == 1) {
        fill_floats(random, type, size, rows * cols, data);
    } else {
        fill_blocks(random, type, size, blocks, block_bytes, data);
    }
    gguf_builder_tensor(builder, name, type, 2, (uint64_t[]){cols, rows}, data,
                        blocks * block_bytes);
    free(data);
}

void tiny_vector(gguf_builder *builder, test_random *random, const char *name, size_t n,
                 float spread)
{
    float *data = malloc(n * sizeof *data);
    if (!data) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        data[i] = 1 + spread * test_random_signed(random);
    }
    gguf_builder_tensor(builder, name, GGUF_TYPE_F32, 1, (uint64_t[]){n}, data, n * sizeof *data);
    free(data);
}
