// SPDX-License-Identifier: MIT
#include "engine/weights/dequantize.h"
#include "engine/base/little_endian.h"
#include "engine/weights/mxfp4.h"

#include <kvern/math.h>

// Each decoder reads `blocks` whole blocks at `in` and writes their values to `out`. Blocks are at
// any address, so that numbers are loaded byte by byte.

#define QK 32    // values of a block of the Qn_0 and Qn_1 types
#define QK_K 256 // values of a block of the Qn_K types

static float load_f16(const unsigned char *bytes)
{
    uint16_t half = engine_load_u16(bytes);
    float value;
    kvern_f16_to_f32_array(0, 1, &half, &value);
    return value;
}

static void decode_f32(const unsigned char *in, size_t blocks, float *out)
{
    for (size_t i = 0; i < blocks; i++) {
        out[i] = engine_load_f32(in + 4 * i);
    }
}

static void decode_f16(const unsigned char *in, size_t blocks, float *out)
{
    uint16_t halves[256];
    for (size_t done = 0; done < blocks;) {
        size_t n = blocks - done < 256 ? blocks - done : 256;
        for (size_t i = 0; i < n; i++) {
            halves[i] = engine_load_u16(in + 2 * (done + i));
        }
        kvern_f16_to_f32_array(0, n, halves, out + done);
        done += n;
    }
}

static void decode_bf16(const unsigned char *in, size_t blocks, float *out)
{
    for (size_t i = 0; i < blocks; i++) {
        uint32_t bits = (uint32_t)engine_load_u16(in + 2 * i) << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

// Code i of 32 four-bit codes in 16 bytes: the low halves are codes 0 to 15, the high ones 16
// to 31.
static int nibble(const unsigned char *codes, int i)
{
    return codes[i % 16] >> (i / 16 * 4) & 0xf;
}

// scale f16, codes[16]; the code 8 is zero.
static void decode_q4_0(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 18, out += QK) {
        float scale = load_f16(in);
        for (int i = 0; i < QK; i++) {
            out[i] = scale * (float)(nibble(in + 2, i) - 8);
        }
    }
}

// scale f16, minimum f16, codes[16].
static void decode_q4_1(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 20, out += QK) {
        float scale = load_f16(in);
        float minimum = load_f16(in + 2);
        for (int i = 0; i < QK; i++) {
            out[i] = scale * (float)nibble(in + 4, i) + minimum;
        }
    }
}

// scale f16, fifth bits u32, low codes[16]; the code 16 is zero.
static void decode_q5_0(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 22, out += QK) {
        float scale = load_f16(in);
        uint32_t fifth_bits = engine_load_u32(in + 2);
        for (int i = 0; i < QK; i++) {
            int code = nibble(in + 6, i) | (int)(fifth_bits >> i & 1) << 4;
            out[i] = scale * (float)(code - 16);
        }
    }
}

// scale f16, minimum f16, fifth bits u32, low codes[16].
static void decode_q5_1(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 24, out += QK) {
        float scale = load_f16(in);
        float minimum = load_f16(in + 2);
        uint32_t fifth_bits = engine_load_u32(in + 4);
        for (int i = 0; i < QK; i++) {
            int code = nibble(in + 8, i) | (int)(fifth_bits >> i & 1) << 4;
            out[i] = scale * (float)code + minimum;
        }
    }
}

// scale f16, signed codes[32].
static void decode_q8_0(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 34, out += QK) {
        float scale = load_f16(in);
        for (int i = 0; i < QK; i++) {
            out[i] = scale * (float)(signed char)in[2 + i];
        }
    }
}

// Groups of 16 values. scale and minimum codes[16] (four bits each, the minimum's the high ones),
// codes[64], scale f16, minimum scale f16. Each half of 128 values takes 32 bytes of codes; of its
// eight groups, odd ones are in the second 16 bytes, and two groups share two bits of every byte.
static void decode_q2_k(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 84, out += QK_K) {
        for (int group = 0; group < 16; group++) {
            const unsigned char *codes = in + 16 + group / 8 * 32 + group % 2 * 16;
            float scale = load_f16(in + 80) * (float)(in[group] & 0xf);
            float minimum = load_f16(in + 82) * (float)(in[group] >> 4);
            for (int i = 0; i < 16; i++) {
                int code = codes[i] >> (group / 2 % 4 * 2) & 3;
                out[group * 16 + i] = scale * (float)code - minimum;
            }
        }
    }
}

// The scale of group 0 to 15 of a Q3_K block: six bits, the code 32 is zero. Of the 12 bytes, eight
// hold the low halves, those of groups 8 to 15 in their high ones; byte 8 + g % 4 holds the high
// two bits of group g as its bits 2 * (g / 4) and the next one.
static int q3_k_scale(const unsigned char *packed, int group)
{
    int low = packed[group % 8] >> (group / 8 * 4) & 0xf;
    int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

// Groups of 16 values. third bits[32], low codes[64], packed scales[12], scale f16; the code 4 is
// zero. Low codes lie as the codes of Q2_K do; bit u of byte i of the third bits belongs to value i
// of the u-th 32 values.
static void decode_q3_k(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 110, out += QK_K) {
        for (int group = 0; group < 16; group++) {
            const unsigned char *third_bits = in + group % 2 * 16;
            const unsigned char *low_codes = in + 32 + group / 8 * 32 + group % 2 * 16;
            float scale = load_f16(in + 108) * (float)q3_k_scale(in + 96, group);
            for (int i = 0; i < 16; i++) {
                int low = low_codes[i] >> (group / 2 % 4 * 2) & 3;
                int high = third_bits[i] >> (group / 2) & 1;
                out[group * 16 + i] = scale * (float)((low | high << 2) - 4);
            }
        }
    }
}

// The six-bit scale and minimum of group 0 to 7 of a Q4_K or Q5_K block. Of the 12 bytes, the first
// four hold scales 0 to 3, the next four minimums 0 to 3, and the last four the low halves of the
// others, whose high two bits fill up the first eight bytes.
static void unpack_group(const unsigned char *packed, int group, int *scale, int *minimum)
{
    if (group < 4) {
        *scale = packed[group] & 0x3f;
        *minimum = packed[group + 4] & 0x3f;
    } else {
        *scale = (packed[group + 4] & 0xf) | packed[group - 4] >> 6 << 4;
        *minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
}

// scale f16, minimum scale f16, packed groups[12], codes[128]. Groups of 32 values; 32 bytes of
// codes hold one group in their low halves and the next in their high ones.
static void decode_q4_k(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 144, out += QK_K) {
        for (int group = 0; group < 8; group++) {
            int scale_code, minimum_code;
            unpack_group(in + 4, group, &scale_code, &minimum_code);
            float scale = load_f16(in) * (float)scale_code;
            float minimum = load_f16(in + 2) * (float)minimum_code;
            const unsigned char *codes = in + 16 + group / 2 * 32;
            for (int i = 0; i < 32; i++) {
                int code = codes[i] >> (group % 2 * 4) & 0xf;
                out[group * 32 + i] = scale * (float)code - minimum;
            }
        }
    }
}

// As Q4_K, with fifth bits[32] before the codes: bit g of byte i belongs to value i of group g.
static void decode_q5_k(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 176, out += QK_K) {
        for (int group = 0; group < 8; group++) {
            int scale_code, minimum_code;
            unpack_group(in + 4, group, &scale_code, &minimum_code);
            float scale = load_f16(in) * (float)scale_code;
            float minimum = load_f16(in + 2) * (float)minimum_code;
            const unsigned char *fifth_bits = in + 16;
            const unsigned char *codes = in + 48 + group / 2 * 32;
            for (int i = 0; i < 32; i++) {
                int code = codes[i] >> (group % 2 * 4) & 0xf;
                code |= (fifth_bits[i] >> group & 1) << 4;
                out[group * 32 + i] = scale * (float)code - minimum;
            }
        }
    }
}

// low codes[128], high bit pairs[64], signed group scales[16], scale f16; the code 32 is zero. Each
// half of 128 values takes 64 bytes of low codes, 32 of bit pairs and 8 scales (of 16 values each).
// Quarter q of a half: its low codes are in 32 bytes, the second 32 for odd q, in their high halves
// for q >= 2; its bit pairs are bits 2q and 2q + 1.
static void decode_q6_k(const unsigned char *in, size_t blocks, float *out)
{
    for (; blocks; blocks--, in += 210, out += QK_K) {
        for (int group = 0; group < 16; group++) {
            int half = group / 8, quarter = group / 2 % 4, first = group % 2 * 16;
            const unsigned char *low_codes = in + half * 64 + quarter % 2 * 32 + first;
            const unsigned char *bit_pairs = in + 128 + half * 32 + first;
            float scale = load_f16(in + 208) * (float)(signed char)in[192 + group];
            for (int i = 0; i < 16; i++) {
                int low = low_codes[i] >> (quarter / 2 * 4) & 0xf;
                int high = bit_pairs[i] >> (2 * quarter) & 3;
                out[group * 16 + i] = scale * (float)((low | high << 4) - 32);
            }
        }
    }
}

// exponent, codes[16].
static void decode_mxfp4(const unsigned char *in, size_t blocks, float *out)
{
    static const signed char codes[16] = MXFP4_CODES;
    for (; blocks; blocks--, in += 17, out += QK) {
        float scale = mxfp4_half_scale(in[0]);
        for (int i = 0; i < QK; i++) {
            out[i] = scale * (float)(codes[nibble(in + 1, i)] - MXFP4_ZERO);
        }
    }
}

typedef void decoder(const unsigned char *in, size_t blocks, float *out);

static decoder *const DECODERS[] = {
    [ELEMENT_F32] = decode_f32,   [ELEMENT_F16] = decode_f16,     [ELEMENT_BF16] = decode_bf16,
    [ELEMENT_Q4_0] = decode_q4_0, [ELEMENT_Q4_1] = decode_q4_1,   [ELEMENT_Q5_0] = decode_q5_0,
    [ELEMENT_Q5_1] = decode_q5_1, [ELEMENT_Q8_0] = decode_q8_0,   [ELEMENT_Q2_K] = decode_q2_k,
    [ELEMENT_Q3_K] = decode_q3_k, [ELEMENT_Q4_K] = decode_q4_k,   [ELEMENT_Q5_K] = decode_q5_k,
    [ELEMENT_Q6_K] = decode_q6_k, [ELEMENT_MXFP4] = decode_mxfp4,
};

kvern_status engine_dequantize(uint32_t type, const void *blocks, size_t elements, float *out)
{
    size_t block_elements, block_bytes;
    if (!element_type_block(type, &block_elements, &block_bytes)) {
        return KVERN_ERR_UNSUPPORTED;
    }
    if (elements % block_elements) {
        return KVERN_ERR_ARGUMENT;
    }
    DECODERS[type](blocks, elements / block_elements, out);
    return KVERN_OK;
}
