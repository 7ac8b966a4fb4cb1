// SPDX-License-Identifier: MIT
#ifndef KVERN_MATH_LANES_NEON_H
#define KVERN_MATH_LANES_NEON_H

// Sixteen lanes of 32 bits on aarch64: four registers, lanes 0-3, 4-7, 8-11 and 12-15. The names
// and their meaning are those of lanes_avx2.h, which has the comments.

#include "src/math/strict.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef struct {
    float32x4_t a, b, c, d;
} lanes;

typedef struct {
    int32x4_t a, b, c, d;
} lanes_int;

typedef struct {
    uint32x4_t a, b, c, d;
} lanes_mask;

// Applies one operation to the four registers.
#define LANES_MAP1(type, f, x)                                                                     \
    (type)                                                                                         \
    {                                                                                              \
        f((x).a), f((x).b), f((x).c), f((x).d)                                                     \
    }
#define LANES_MAP2(type, f, x, y)                                                                  \
    (type)                                                                                         \
    {                                                                                              \
        f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)                         \
    }
#define LANES_MAP3(type, f, x, y, z)                                                               \
    (type)                                                                                         \
    {                                                                                              \
        f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c),                    \
            f((x).d, (y).d, (z).d)                                                                 \
    }

// ---- Loading, storing, setting. ----

LANES_INLINE lanes lanes_load(const float *p)
{
    return (lanes){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

LANES_INLINE void lanes_store(float *p, lanes v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}

LANES_INLINE lanes lanes_set(float x)
{
    float32x4_t v = vdupq_n_f32(x);
    return (lanes){v, v, v, v};
}

LANES_INLINE lanes lanes_zero(void)
{
    return lanes_set(0.0f);
}

LANES_INLINE lanes_int lanes_int_set(int32_t x)
{
    int32x4_t v = vdupq_n_s32(x);
    return (lanes_int){v, v, v, v};
}

LANES_INLINE lanes_int lanes_int_load(const int32_t *p)
{
    return (lanes_int){vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}

LANES_INLINE void lanes_int_store(int32_t *p, lanes_int v)
{
    vst1q_s32(p, v.a);
    vst1q_s32(p + 4, v.b);
    vst1q_s32(p + 8, v.c);
    vst1q_s32(p + 12, v.d);
}

LANES_INLINE lanes_int lanes_int_load_bytes(const uint8_t *p)
{
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
    return (lanes_int){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
                       vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
                       vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
                       vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}

LANES_INLINE void lanes_int_store_bytes(uint8_t *p, lanes_int v)
{
    const uint32x4_t a = vreinterpretq_u32_s32(v.a), b = vreinterpretq_u32_s32(v.b);
    const uint32x4_t c = vreinterpretq_u32_s32(v.c), d = vreinterpretq_u32_s32(v.d);
    const uint16x8_t low = vcombine_u16(vmovn_u32(a), vmovn_u32(b));
    const uint16x8_t high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
    vst1q_u8(p, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}

LANES_INLINE void lanes_prefetch(const void *p)
{
    __builtin_prefetch(p);
}

// ---- The same 32 bits seen as float or as integer. ----

LANES_INLINE lanes_int lanes_bits(lanes v)
{
    return LANES_MAP1(lanes_int, vreinterpretq_s32_f32, v);
}

LANES_INLINE lanes lanes_from_bits(lanes_int v)
{
    return LANES_MAP1(lanes, vreinterpretq_f32_s32, v);
}

// ---- Float arithmetic. ----

LANES_INLINE lanes lanes_add(lanes x, lanes y)
{
    return LANES_MAP2(lanes, vaddq_f32, x, y);
}

LANES_INLINE lanes lanes_sub(lanes x, lanes y)
{
    return LANES_MAP2(lanes, vsubq_f32, x, y);
}

LANES_INLINE lanes lanes_mul(lanes x, lanes y)
{
    return LANES_MAP2(lanes, vmulq_f32, x, y);
}

LANES_INLINE lanes lanes_div(lanes x, lanes y)
{
    return LANES_MAP2(lanes, vdivq_f32, x, y);
}

LANES_INLINE lanes lanes_fma(lanes x, lanes y, lanes z)
{
    return LANES_MAP3(lanes, vfmaq_f32, z, x, y);
}

// The instructions fmax and fmin treat NaN and zeros otherwise, hence comparison and selection.
LANES_INLINE float32x4_t lanes_max_(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

LANES_INLINE float32x4_t lanes_min_(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}

LANES_INLINE lanes lanes_max(lanes x, lanes y)
{
    return LANES_MAP2(lanes, lanes_max_, x, y);
}

LANES_INLINE lanes lanes_min(lanes x, lanes y)
{
    return LANES_MAP2(lanes, lanes_min_, x, y);
}

LANES_INLINE lanes lanes_sqrt(lanes v)
{
    return LANES_MAP1(lanes, vsqrtq_f32, v);
}

LANES_INLINE lanes lanes_rint(lanes v)
{
    return LANES_MAP1(lanes, vrndnq_f32, v);
}

LANES_INLINE lanes lanes_neg(lanes v)
{
    return LANES_MAP1(lanes, vnegq_f32, v);
}

LANES_INLINE lanes lanes_abs(lanes v)
{
    return LANES_MAP1(lanes, vabsq_f32, v);
}

LANES_INLINE lanes lanes_copysign(lanes magnitude, lanes sign)
{
    uint32x4_t m = vdupq_n_u32(0x80000000u);
    lanes_mask mask = {m, m, m, m};
    return LANES_MAP3(lanes, vbslq_f32, mask, sign, magnitude);
}

// ---- Integer arithmetic, modulo 2^32. ----

LANES_INLINE lanes_int lanes_to_int(lanes v)
{
    return LANES_MAP1(lanes_int, vcvtnq_s32_f32, v);
}

LANES_INLINE lanes lanes_from_int(lanes_int v)
{
    return LANES_MAP1(lanes, vcvtq_f32_s32, v);
}

LANES_INLINE lanes_int lanes_int_add(lanes_int x, lanes_int y)
{
    return LANES_MAP2(lanes_int, vaddq_s32, x, y);
}

LANES_INLINE lanes_int lanes_int_sub(lanes_int x, lanes_int y)
{
    return LANES_MAP2(lanes_int, vsubq_s32, x, y);
}

LANES_INLINE lanes_int lanes_int_and(lanes_int x, lanes_int y)
{
    return LANES_MAP2(lanes_int, vandq_s32, x, y);
}

LANES_INLINE lanes_int lanes_int_or(lanes_int x, lanes_int y)
{
    return LANES_MAP2(lanes_int, vorrq_s32, x, y);
}

LANES_INLINE lanes_int lanes_int_xor(lanes_int x, lanes_int y)
{
    return LANES_MAP2(lanes_int, veorq_s32, x, y);
}

// Operators of the compilers' vector types: the intrinsics want a literal.
LANES_INLINE lanes_int lanes_int_shl(lanes_int v, int count)
{
    return (lanes_int){(int32x4_t)((uint32x4_t)v.a << count), (int32x4_t)((uint32x4_t)v.b << count),
                       (int32x4_t)((uint32x4_t)v.c << count),
                       (int32x4_t)((uint32x4_t)v.d << count)};
}

LANES_INLINE lanes_int lanes_int_shr(lanes_int v, int count)
{
    return (lanes_int){v.a >> count, v.b >> count, v.c >> count, v.d >> count};
}

LANES_INLINE lanes_int lanes_int_shr_logical(lanes_int v, int count)
{
    return (lanes_int){(int32x4_t)((uint32x4_t)v.a >> count), (int32x4_t)((uint32x4_t)v.b >> count),
                       (int32x4_t)((uint32x4_t)v.c >> count),
                       (int32x4_t)((uint32x4_t)v.d >> count)};
}

// Uses the integer shift, hence here.
LANES_INLINE lanes lanes_scale(lanes p, lanes n, lanes biased)
{
    (void)n;
    return lanes_mul(p, lanes_from_bits(lanes_int_shl(lanes_bits(biased), 23)));
}

// ---- Masks. ----

LANES_INLINE lanes_mask lanes_lt(lanes x, lanes y)
{
    return LANES_MAP2(lanes_mask, vcltq_f32, x, y);
}

LANES_INLINE lanes_mask lanes_not_lt(lanes x, lanes y)
{
    lanes_mask lt = lanes_lt(x, y);
    return LANES_MAP1(lanes_mask, vmvnq_u32, lt);
}

LANES_INLINE lanes_mask lanes_le(lanes x, lanes y)
{
    return LANES_MAP2(lanes_mask, vcleq_f32, x, y);
}

LANES_INLINE lanes_mask lanes_gt(lanes x, lanes y)
{
    return LANES_MAP2(lanes_mask, vcgtq_f32, x, y);
}

LANES_INLINE lanes_mask lanes_ge(lanes x, lanes y)
{
    return LANES_MAP2(lanes_mask, vcgeq_f32, x, y);
}

LANES_INLINE lanes_mask lanes_eq(lanes x, lanes y)
{
    return LANES_MAP2(lanes_mask, vceqq_f32, x, y);
}

LANES_INLINE lanes_mask lanes_isnan(lanes v)
{
    lanes_mask same = lanes_eq(v, v);
    return LANES_MAP1(lanes_mask, vmvnq_u32, same);
}

LANES_INLINE lanes_mask lanes_int_eq(lanes_int x, lanes_int y)
{
    return LANES_MAP2(lanes_mask, vceqq_s32, x, y);
}

LANES_INLINE lanes_mask lanes_mask_from_bits(uint32_t bits)
{
    const int32x4_t one = {1, 2, 4, 8};
    lanes_int each = {one, one << 4, one << 8, one << 12};
    return lanes_int_eq(lanes_int_and(lanes_int_set((int32_t)bits), each), each);
}

LANES_INLINE uint32_t lanes_mask_bits(lanes_mask m)
{
    const uint32x4_t one = {1, 2, 4, 8};
    uint32x4_t bits = vandq_u32(m.a, one);
    bits = vorrq_u32(bits, vandq_u32(m.b, one << 4));
    bits = vorrq_u32(bits, vandq_u32(m.c, one << 8));
    bits = vorrq_u32(bits, vandq_u32(m.d, one << 12));
    return vaddvq_u32(bits);
}

LANES_INLINE lanes_mask lanes_mask_and(lanes_mask x, lanes_mask y)
{
    return LANES_MAP2(lanes_mask, vandq_u32, x, y);
}

LANES_INLINE lanes_mask lanes_mask_or(lanes_mask x, lanes_mask y)
{
    return LANES_MAP2(lanes_mask, vorrq_u32, x, y);
}

LANES_INLINE lanes lanes_select(lanes_mask mask, lanes x, lanes y)
{
    return LANES_MAP3(lanes, vbslq_f32, mask, x, y);
}

LANES_INLINE lanes lanes_keep(lanes_mask mask, lanes v)
{
    return lanes_select(mask, v, lanes_zero());
}

LANES_INLINE lanes lanes_clear(lanes_mask mask, lanes v)
{
    return lanes_select(mask, lanes_zero(), v);
}

// ---- Lanes that change places. ----

LANES_INLINE float32x4_t lanes_swap_pairs_(float32x4_t v)
{
    return vextq_f32(v, v, 2);
}

LANES_INLINE lanes lanes_swap(lanes v, int distance)
{
    if (distance == 8)
        return (lanes){v.c, v.d, v.a, v.b};
    if (distance == 4)
        return (lanes){v.b, v.a, v.d, v.c};
    if (distance == 2)
        return LANES_MAP1(lanes, lanes_swap_pairs_, v);
    return LANES_MAP1(lanes, vrev64q_f32, v);
}

// ---- The first `count` lanes, 0 to 16. Memory from p + count on is neither read nor written. ----

LANES_INLINE lanes lanes_load_part(const float *p, int count)
{
    float all[16] = {0};
    memcpy(all, p, (size_t)count * sizeof(float));
    return lanes_load(all);
}

LANES_INLINE void lanes_store_part(float *p, lanes v, int count)
{
    float all[16];
    lanes_store(all, v);
    memcpy(p, all, (size_t)count * sizeof(float));
}

// ---- Half types; the scalar definitions are in half.h. ----

LANES_INLINE lanes lanes_load_bf16(const uint16_t *p)
{
    return (lanes){vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)),
                   vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4), 16)),
                   vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 8), 16)),
                   vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 12), 16))};
}

LANES_INLINE float32x4_t lanes_load_f16_(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

LANES_INLINE lanes lanes_load_f16(const uint16_t *p)
{
    return (lanes){lanes_load_f16_(p), lanes_load_f16_(p + 4), lanes_load_f16_(p + 8),
                   lanes_load_f16_(p + 12)};
}

LANES_INLINE void lanes_load_bf16_pairs(const uint16_t *p, lanes *even, lanes *odd)
{
    lanes_int words = lanes_int_load((const int32_t *)(const void *)p);
    *even = lanes_from_bits(lanes_int_shl(words, 16));
    *odd = lanes_from_bits(lanes_int_and(words, lanes_int_set((int32_t)0xffff0000u)));
}

LANES_INLINE void lanes_store_bf16(uint16_t *p, lanes v)
{
    lanes_int bits = lanes_bits(v);
    lanes_int upper = lanes_int_shr_logical(bits, 16);
    lanes_int tie = lanes_int_add(lanes_int_and(upper, lanes_int_set(1)), lanes_int_set(0x7fff));
    lanes rounded = lanes_from_bits(lanes_int_shr_logical(lanes_int_add(bits, tie), 16));
    lanes quiet = lanes_from_bits(lanes_int_or(upper, lanes_int_set(0x40)));
    lanes halves = lanes_select(lanes_isnan(v), quiet, rounded);
    vst1_u16(p, vmovn_u32(vreinterpretq_u32_f32(halves.a)));
    vst1_u16(p + 4, vmovn_u32(vreinterpretq_u32_f32(halves.b)));
    vst1_u16(p + 8, vmovn_u32(vreinterpretq_u32_f32(halves.c)));
    vst1_u16(p + 12, vmovn_u32(vreinterpretq_u32_f32(halves.d)));
}

LANES_INLINE void lanes_store_f16(uint16_t *p, lanes v)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v.a)));
    vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(v.b)));
    vst1_u16(p + 8, vreinterpret_u16_f16(vcvt_f16_f32(v.c)));
    vst1_u16(p + 12, vreinterpret_u16_f16(vcvt_f16_f32(v.d)));
}

// ---- The canonical tree over 16 lanes; sum.h defines it in plain C. ----

// Four lanes of r4 for one vector, then two of r2 for two vectors.
#define LANES_MEET(f, v) f(f((v).a, (v).c), f((v).b, (v).d))
#define LANES_MEET2(f, x, y)                                                                       \
    f(vcombine_f32(vget_low_f32(x), vget_low_f32(y)),                                              \
      vcombine_f32(vget_high_f32(x), vget_high_f32(y)))
#define LANES_TREE_EACH(f)                                                                         \
    float32x4_t p = LANES_MEET(f, v[0]), q = LANES_MEET(f, v[1]);                                  \
    float32x4_t r = LANES_MEET(f, v[2]), s = LANES_MEET(f, v[3]);                                  \
    float32x4_t pq = LANES_MEET2(f, p, q), rs = LANES_MEET2(f, r, s);                              \
    vst1q_f32(out, f(vuzp1q_f32(pq, rs), vuzp2q_f32(pq, rs)))

LANES_INLINE void lanes_sum_each(const lanes v[4], float *out)
{
    LANES_TREE_EACH(vaddq_f32);
}

LANES_INLINE void lanes_largest_each(const lanes v[4], float *out)
{
    LANES_TREE_EACH(lanes_max_);
}

#undef LANES_TREE_EACH
#undef LANES_MEET2
#undef LANES_MEET

#undef LANES_MAP1
#undef LANES_MAP2
#undef LANES_MAP3

#endif
