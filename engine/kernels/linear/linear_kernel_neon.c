// SPDX-License-Identifier: MIT
// Four lanes, an eighth of a tile, on aarch64's baseline: products of bytes by widening
// multiplication. The instructions for sums of four products are no part of the baseline.
#include "engine/kernels/linear/linear_inline.h"
#include "engine/kernels/linear/linear_layout.h"

#include <arm_neon.h>

#define LANES 4
#define VECTORS 2

#define SIGNED_8_BITS 1
#define TOKENS_AT_ONCE 4
#define TOKENS_OF_TWO_SUMS 4

typedef float32x4_t lanes_float;
typedef int32x4_t lanes_int;
typedef uint32_t lanes_u32 __attribute__((vector_size(16)));

INLINE lanes_int load_int(const unsigned char *p)
{
    return vreinterpretq_s32_u8(vld1q_u8(p));
}

// Four bytes and four zeros.
INLINE uint64_t four_bytes(const unsigned char *p)
{
    return (uint32_t)int_at(p);
}

INLINE lanes_int load_u8(const unsigned char *p)
{
    const uint16x8_t wide = vmovl_u8(vcreate_u8(four_bytes(p)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}

INLINE lanes_int load_i8(const unsigned char *p)
{
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four_bytes(p)))));
}

INLINE lanes_float load_f32(const void *p)
{
    return vld1q_f32(p);
}

INLINE uint16x4_t load_halves(const unsigned char *p)
{
    return vreinterpret_u16_u8(vld1_u8(p));
}

INLINE lanes_float load_f16(const unsigned char *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p)));
}

INLINE lanes_float load_bf16(const unsigned char *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(load_halves(p), 16));
}

INLINE void store_f32(float *p, lanes_float a)
{
    vst1q_f32(p, a);
}

INLINE lanes_int all_int(int32_t value)
{
    return vdupq_n_s32(value);
}

INLINE lanes_float all_float(float value)
{
    return vdupq_n_f32(value);
}

INLINE lanes_int bits_and(lanes_int a, lanes_int b)
{
    return vandq_s32(a, b);
}

INLINE lanes_int bits_or(lanes_int a, lanes_int b)
{
    return vorrq_s32(a, b);
}

INLINE lanes_float to_float(lanes_int a)
{
    return vcvtq_f32_s32(a);
}

INLINE lanes_int add_int(lanes_int a, lanes_int b)
{
    return vaddq_s32(a, b);
}

INLINE lanes_int max_int(lanes_int a, lanes_int b)
{
    return vmaxq_s32(a, b);
}

INLINE lanes_float as_float(lanes_int a)
{
    return vreinterpretq_f32_s32(a);
}

// table[a] of every byte, which is below 16.
INLINE lanes_int look_up(const uint8_t table[16], lanes_int a)
{
    return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_s32(a)));
}

INLINE lanes_float plus(lanes_float a, lanes_float b)
{
    return vaddq_f32(a, b);
}

INLINE lanes_float times(lanes_float a, lanes_float b)
{
    return vmulq_f32(a, b);
}

INLINE lanes_float times_plus(lanes_float a, lanes_float b, lanes_float c)
{
    return vfmaq_f32(c, a, b);
}

INLINE lanes_float minus(lanes_float a)
{
    return vnegq_f32(a);
}

// Two products fit 16 bits: weights are at most 128 in magnitude, activations 127, and
// 2 * 128 * 127 = 32512.
INLINE int16x8_t multiply_pairs(int8x16_t a, int8x16_t b)
{
    return vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
}

INLINE void dot_quads(int bits, int tokens, int unit, lanes_int *sums, const lanes_int *weights,
                      const unsigned char *codes, size_t stride, int quads)
{
    (void)bits;
    UNROLL
    for (int quad = 0; quad < quads; quad++) {
        UNROLL
        for (int i = 0; i < tokens * VECTORS; i++) {
            const int8x16_t weight =
                vreinterpretq_s8_s32(weights[i % VECTORS * LINEAR_QUADS + quad]);
            const lanes_int word = all_int(int_at(codes + i / VECTORS * stride + 4 * quad));
            sums[i] = vpadalq_s16(sums[i], multiply_pairs(weight, vreinterpretq_s8_s32(word)));
        }
    }
    UNROLL
    for (int i = 0; i < tokens * VECTORS; i++)
        sums[i] = (lanes_int)((lanes_u32)sums[i] * (uint32_t)unit);
}

#define LINEAR_TILE linear_tile_neon
#include "engine/kernels/linear/linear_kernel_template.h"
