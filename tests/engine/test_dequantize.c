// SPDX-License-Identifier: MIT
// Decoding of GGUF blocks: every bit against what the reference package made of the same random
// blocks (tests/golden/gguf/make_golden.py), and against hand-made blocks whose values are plain to
// see.

#include "engine/gguf/gguf.h"
#include "engine/weights/dequantize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t all_types[] = {ELEMENT_F32,  ELEMENT_F16,  ELEMENT_BF16, ELEMENT_Q4_0,
                                     ELEMENT_Q4_1, ELEMENT_Q5_0, ELEMENT_Q5_1, ELEMENT_Q8_0,
                                     ELEMENT_Q4_K, ELEMENT_Q5_K, ELEMENT_Q6_K, ELEMENT_Q2_K,
                                     ELEMENT_Q3_K, ELEMENT_MXFP4};
#define TYPES (sizeof all_types / sizeof all_types[0])

static void decode(uint32_t type, const void *blocks, size_t elements, float *out)
{
    assert_int_equal(engine_dequantize(type, blocks, elements, out), KVERN_OK);
}

static void check_type(const gguf_file *file, uint32_t type)
{
    char name[40];
    const gguf_tensor *blocks = gguf_find_tensor(file, element_type_name(type));
    snprintf(name, sizeof name, "%s.expected", element_type_name(type));
    const gguf_tensor *expected = gguf_find_tensor(file, name);
    assert_non_null(blocks);
    assert_non_null(expected);
    assert_int_equal(blocks->type, type);
    assert_int_equal(blocks->elements, expected->elements);
    assert_true(blocks->elements >= 72);

    float *values = malloc(expected->bytes);
    decode(type, blocks->data, blocks->elements, values);
    for (size_t i = 0; i < blocks->elements; i++) {
        const float *wanted = (const float *)expected->data + i;
        if (memcmp(&values[i], wanted, sizeof *wanted) != 0) {
            fail_msg("%s value %zu: %a, not %a", element_type_name(type), i, values[i], *wanted);
        }
    }
    free(values);
}

static void equals_the_reference(void **state)
{
    (void)state;
    gguf_file *file;
    engine_error error = {0};
    if (gguf_open(KVERN_TESTS_DIR "/golden/gguf/reference.gguf", &file, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    for (size_t i = 0; i < TYPES; i++) {
        check_type(file, all_types[i]);
    }
    gguf_close(file);
}

// All 65536 numbers of f16 against their definition.
static void every_f16(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        unsigned char bytes[2] = {(unsigned char)half, (unsigned char)(half >> 8)};
        int exponent = half >> 10 & 0x1f;
        int fraction = half & 0x3ff;
        float value;
        decode(ELEMENT_F16, bytes, 1, &value);
        assert_int_equal(signbit(value) != 0, half >> 15);
        if (exponent == 31) {
            assert_true(fraction ? isnan(value) : isinf(value));
        } else {
            double magnitude =
                exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
            assert_true(fabs((double)value) == magnitude);
        }
    }
}

static void every_bf16(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        unsigned char bytes[2] = {(unsigned char)half, (unsigned char)(half >> 8)};
        uint32_t expected = half << 16, bits;
        float value;
        decode(ELEMENT_BF16, bytes, 1, &value);
        memcpy(&bits, &value, sizeof bits);
        assert_int_equal(bits, expected);
    }
}

// scale 1: the values are the codes, value i in code byte i % 16.
static void q4_0_places_its_codes(void **state)
{
    (void)state;
    unsigned char block[18] = {0x00, 0x3c};
    for (int i = 0; i < 16; i++) {
        block[2 + i] = (unsigned char)(i | (15 - i) << 4);
    }
    float out[32];
    decode(ELEMENT_Q4_0, block, 32, out);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == i - 8);
        assert_true(out[16 + i] == 7 - i);
    }
}

// scale 2, minimum 0.5.
static void q5_1_places_its_fifth_bits(void **state)
{
    (void)state;
    unsigned char block[24] = {0x00, 0x40, 0x00, 0x38, 0x01, 0x00, 0x02, 0x80};
    memset(block + 8, 0x21, 16);
    float out[32];
    decode(ELEMENT_Q5_1, block, 32, out);
    for (int i = 0; i < 32; i++) {
        int code = i < 16 ? 1 : 2;
        code += i == 0 || i == 17 || i == 31 ? 16 : 0;
        assert_true(out[i] == (float)(2 * code) + 0.5f);
    }
}

// The inverse of how Q4_K and Q5_K pack eight 6-bit scales and minimums into 12 bytes.
static void pack_groups(const int *scales, const int *minimums, unsigned char *packed)
{
    for (int g = 0; g < 4; g++) {
        packed[g] = (unsigned char)(scales[g] | scales[g + 4] >> 4 << 6);
        packed[g + 4] = (unsigned char)(minimums[g] | minimums[g + 4] >> 4 << 6);
        packed[g + 8] = (unsigned char)((scales[g + 4] & 15) | (minimums[g + 4] & 15) << 4);
    }
}

// scale 0.5, minimum scale 0.25; code (i + group) % 16 for value i of a group.
static void q4_k_unpacks_its_groups(void **state)
{
    (void)state;
    const int scales[8] = {0, 1, 62, 63, 15, 16, 47, 63};
    const int minimums[8] = {63, 0, 1, 32, 48, 31, 5, 60};
    unsigned char block[144] = {0x00, 0x38, 0x00, 0x34};
    pack_groups(scales, minimums, block + 4);
    for (int group = 0; group < 8; group++) {
        for (int i = 0; i < 32; i++) {
            block[16 + group / 2 * 32 + i] |= (unsigned char)((i + group) % 16 << group % 2 * 4);
        }
    }
    float out[256];
    decode(ELEMENT_Q4_K, block, 256, out);
    for (int i = 0; i < 256; i++) {
        int group = i / 32, code = (i % 32 + group) % 16;
        float expected = 0.5f * (float)(scales[group] * code) - 0.25f * (float)minimums[group];
        assert_true(out[i] == expected);
    }
}

// scale 0.5, minimum scale 0.25; code (i + group) % 4 for value i of a group of 16.
static void q2_k_unpacks_its_groups(void **state)
{
    (void)state;
    unsigned char block[84] = {0};
    memcpy(block + 80, "\x00\x38\x00\x34", 4);
    for (int group = 0; group < 16; group++) {
        block[group] = (unsigned char)(group | (15 - group) << 4);
        for (int i = 0; i < 16; i++) {
            unsigned char *byte = &block[16 + group / 8 * 32 + group % 2 * 16 + i];
            *byte |= (unsigned char)((i + group) % 4 << group / 2 % 4 * 2);
        }
    }
    float out[256];
    decode(ELEMENT_Q2_K, block, 256, out);
    for (int i = 0; i < 256; i++) {
        int group = i / 16, code = (i % 16 + group) % 4;
        assert_true(out[i] == 0.5f * (float)(group * code) - 0.25f * (float)(15 - group));
    }
}

// scale 0.5; code (i + 3 * group) % 8 for value i of a group of 16.
static void q3_k_unpacks_its_groups(void **state)
{
    (void)state;
    const int scales[16] = {0, 63, 32, 31, 33, 15, 16, 48, 1, 62, 47, 5, 20, 44, 3, 60};
    unsigned char block[110] = {0};
    memcpy(block + 108, "\x00\x38", 2);
    for (int group = 0; group < 16; group++) {
        block[96 + group % 8] |= (unsigned char)((scales[group] & 15) << group / 8 * 4);
        block[104 + group % 4] |= (unsigned char)(scales[group] >> 4 << group / 4 * 2);
        for (int i = 0; i < 16; i++) {
            int code = (i + 3 * group) % 8, at = group % 2 * 16 + i;
            block[32 + group / 8 * 32 + at] |= (unsigned char)((code & 3) << group / 2 % 4 * 2);
            block[at] |= (unsigned char)(code >> 2 << group / 2);
        }
    }
    float out[256];
    decode(ELEMENT_Q3_K, block, 256, out);
    for (int i = 0; i < 256; i++) {
        int group = i / 16, code = (i % 16 + 3 * group) % 8;
        assert_true(out[i] == 0.5f * (float)((scales[group] - 32) * (code - 4)));
    }
}

// No order of the products can change a bit: the largest codes of every kind keep within 24 bits.
static void largest_products_are_exact(void **state)
{
    (void)state;
    // Q6_K: f16 scale 2047 * 2^-10, group scale 127, code 63 for 31.
    unsigned char block[210];
    memset(block, 0xff, 192);
    memset(block + 192, 127, 16);
    memcpy(block + 208, "\xff\x3f", 2);
    float out[256];
    decode(ELEMENT_Q6_K, block, 256, out);
    for (int i = 0; i < 256; i++) {
        assert_true((double)out[i] == 2047 * 0x1p-10 * 127 * 31);
    }
}

static void many_blocks_equal_one_by_one(void **state)
{
    (void)state;
    enum { BLOCKS = 5 };
    for (size_t t = 0; t < TYPES; t++) {
        size_t elements, bytes;
        assert_true(element_type_block(all_types[t], &elements, &bytes));
        unsigned char data[BLOCKS * 210 + 1];
        for (size_t i = 0; i < sizeof data; i++) {
            data[i] = (unsigned char)(i * 29 % 0x3b); // no exponent of ones: no NaN
        }
        float together[BLOCKS * 256], alone[256];
        // From an odd address: blocks need no alignment.
        decode(all_types[t], data + 1, BLOCKS * elements, together);
        for (size_t i = 0; i < BLOCKS; i++) {
            decode(all_types[t], data + 1 + i * bytes, elements, alone);
            assert_memory_equal(alone, together + i * elements, elements * sizeof(float));
        }
    }
}

static void refusals(void **state)
{
    (void)state;
    unsigned char data[512] = {0};
    float out[256];
    for (size_t i = 0; i < 256; i++) {
        out[i] = 42;
    }
    assert_int_equal(engine_dequantize(20, data, 256, out), KVERN_ERR_UNSUPPORTED);
    assert_int_equal(engine_dequantize(UINT32_MAX, data, 256, out), KVERN_ERR_UNSUPPORTED);
    assert_int_equal(engine_dequantize(ELEMENT_Q4_0, data, 31, out), KVERN_ERR_ARGUMENT);
    assert_int_equal(engine_dequantize(ELEMENT_Q6_K, data, 32, out), KVERN_ERR_ARGUMENT);
    decode(ELEMENT_Q6_K, data, 0, out);
    for (size_t i = 0; i < 256; i++) {
        assert_true(out[i] == 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(every_f16),
        cmocka_unit_test(every_bf16),
        cmocka_unit_test(q4_0_places_its_codes),
        cmocka_unit_test(q5_1_places_its_fifth_bits),
        cmocka_unit_test(q2_k_unpacks_its_groups),
        cmocka_unit_test(q3_k_unpacks_its_groups),
        cmocka_unit_test(q4_k_unpacks_its_groups),
        cmocka_unit_test(largest_products_are_exact),
        cmocka_unit_test(many_blocks_equal_one_by_one),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
