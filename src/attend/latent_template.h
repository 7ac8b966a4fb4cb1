// SPDX-License-Identifier: MIT
// The kernels of latents for one instruction set; equal to latent_plain.c bit for bit. Included
// once by latent_<isa>.c after a lanes header.
//
// Parameters:
//   LATENT_KERNELS     the name of the kernels
//   LATENT_GROUP       vectors that are scored at once, 4 or 8
//   LATENT_STRIPS      strips of 16 slots that they take then
//   LATENT_ROWS(t)     dims that are summed up at once where t strips of 16 vectors take part
//   LATENT_REST(t)     the same for what is left of them: divides 8 and LATENT_ROWS(t) - 8
//   LATENT_FOLDED(n)   of n numbers that two strips are multiplied with, how many are loaded by the
//                      multiplications themselves, once for each
#include "src/attend/latent_kernels.h"
#include "src/math/unroll.h"

#include <stdbool.h>

#define SLOTS 64
#define MOST_ROWS 16
#define CHUNK 64 // dims that are scored for all vectors before the next ones: 16 KB

// Requests in small steps: each asks for the line at `at`, and goes on by `step` bytes.
typedef struct requests {
    const char *at;
    size_t step;
} requests;

// For some memory in `count` steps; or, where there is none, again and again for what is at hand.
LANES_INLINE requests requests_of(const char *from, size_t bytes, size_t count, const float *other)
{
    return (requests){from ? from : (const char *)other, from && count ? bytes / count : 0};
}

LANES_INLINE void request(requests *r)
{
    lanes_prefetch(r->at);
    r->at += r->step;
}

// The same for memory that is wanted later: the second-level cache is near enough.
LANES_INLINE void request_later(requests *r)
{
    __builtin_prefetch(r->at, 0, 2);
    r->at += r->step;
}

// sums[t] += strip[t] * number for one strip or two. Where a multiplication can broadcast its
// factor from memory, that saves an instruction and costs a load: two with a broadcast in front are
// 3 instructions and 1 load, two that load by themselves 2 and 2. Two loads start in a cycle, and
// three instructions while another thread has its half of the core; with half of the numbers one
// way and half the other, both are enough for two multiplications. `again`: the number once more,
// for those that are folded.
LANES_INLINE void multiply(int T, bool folded, const float *number, const float *again,
                           const lanes strip[2], lanes sums[2])
{
    const lanes first = lanes_set(*number);
    sums[0] = lanes_fma(strip[0], first, sums[0]);
    if (T == 2)
        sums[1] = lanes_fma(strip[1], folded ? lanes_set(*again) : first, sums[1]);
}

// The same address, not known to be it by the compiler, which would load only once.
LANES_INLINE const float *hidden(const float *at)
{
    __asm__("" : "+r"(at));
    return at;
}

// ---- Scores ----

// One dim for a group of vectors and T strips.
LANES_INLINE void add_dim(int T, const float *keys, const float *q, const float *again,
                          lanes sums[LATENT_GROUP][2])
{
    lanes strip[2];
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        strip[t] = lanes_load(keys + t * 16);
    KVERN_UNROLL
    for (int i = 0; i < LATENT_GROUP; i++)
        multiply(T, i < LATENT_FOLDED(LATENT_GROUP), q + i, again + i, strip, sums[i]);
}

// One group of vectors and T strips over the dims [begin, end).
LANES_INLINE void score_dims(int T, const kvern_latent_score *s, size_t begin, size_t end,
                             const float *q, float *scores, requests *near, requests *far)
{
    lanes sums[LATENT_GROUP][2];
    KVERN_UNROLL
    for (int i = 0; i < LATENT_GROUP * T; i++)
        sums[i / T][i % T] =
            begin ? lanes_load(scores + (size_t)(i / T) * SLOTS + i % T * 16) : lanes_zero();
    const float *keys = s->keys + (begin - s->begin) * SLOTS + (scores - s->scores) % SLOTS;
    q += begin * LATENT_GROUP;
    const float *again = hidden(q);
    for (size_t d = begin; d < end; d += 2) {
        request(near);
        request_later(far);
        add_dim(T, keys, q, again, sums);
        add_dim(T, keys + SLOTS, q + LATENT_GROUP, again + LATENT_GROUP, sums);
        keys += 2 * SLOTS;
        q += 2 * LATENT_GROUP;
        again += 2 * LATENT_GROUP;
    }
    KVERN_UNROLL
    for (int i = 0; i < LATENT_GROUP * T; i++)
        lanes_store(scores + (size_t)(i / T) * SLOTS + i % T * 16, sums[i / T][i % T]);
}

static void score(const kvern_latent_score *s)
{
    const size_t width = 16 * LATENT_STRIPS, passes = s->groups * (SLOTS / width);
    const size_t steps = passes * (s->end - s->begin) / 2; // of two dims
    requests far = requests_of(s->next.later, s->next.later_bytes, steps, s->q);
    for (size_t begin = s->begin; begin < s->end; begin += CHUNK) {
        const bool is_last = s->end - begin <= CHUNK;
        const size_t end = is_last ? s->end : begin + CHUNK;
        const char *soon =
            is_last ? s->next.soon : (const char *)(s->keys + (end - s->begin) * SLOTS);
        requests near =
            requests_of(soon, is_last ? s->next.soon_bytes : CHUNK * SLOTS * sizeof(float),
                        passes * (end - begin) / 2, s->q);
        for (size_t g = 0; g < s->groups; g++) {
            const float *q = s->q + g * s->dim * LATENT_GROUP;
            float *scores = s->scores + g * LATENT_GROUP * SLOTS;
            for (size_t slot = 0; slot < SLOTS; slot += width)
                score_dims(LATENT_STRIPS, s, begin, end, q, scores + slot, &near, &far);
        }
    }
}

// ---- Sums ----

// Sums of R dims, T strips each, in registers.
typedef struct held {
    lanes of[MOST_ROWS][2];
} held;

// One slot.
LANES_INLINE void add_slot(int R, int T, const float *weights, const float *values,
                           const float *again, held *sums)
{
    lanes weight[2];
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        weight[t] = lanes_load(weights + t * 16);
    KVERN_UNROLL
    for (int r = 0; r < R; r++)
        multiply(T, r < LATENT_FOLDED(R), values + (size_t)r * SLOTS, again + (size_t)r * SLOTS,
                 weight, sums->of[r]);
}

LANES_INLINE void scale_sums(int R, int T, const lanes factors[2], held *sums)
{
    KVERN_UNROLL
    for (int r = 0; r < R; r++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            sums->of[r][t] = lanes_mul(sums->of[r][t], factors[t]);
    }
}

// R dims from d on, T strips each of rows of `width`. A vector that does not take part gets back
// what it had.
LANES_INLINE void add_dims(int R, int T, size_t width, const kvern_latent_sum *s, size_t d,
                           requests *soon, requests *far)
{
    lanes factors[2];
    held sums;
    float *at = s->sums + d * width;
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        factors[t] = s->factors ? lanes_load(s->factors + t * 16) : lanes_set(1);
    KVERN_UNROLL
    for (int r = 0; r < R; r++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            sums.of[r][t] = lanes_load(at + (size_t)r * width + t * 16);
    }
    if (s->factors)
        scale_sums(R, T, factors, &sums);
    const float *values = s->values + d * SLOTS, *again = hidden(values);
    requests near = {(const char *)(values + (size_t)R * SLOTS), 2 * (size_t)R * sizeof(float)};
    if (s->next.soon)
        near = *soon;
    size_t p = s->begin;
    for (; p + 2 <= s->end; p += 2) {
        request(&near);
        request_later(far);
        add_slot(R, T, s->weights + p * width, values + p, again + p, &sums);
        add_slot(R, T, s->weights + (p + 1) * width, values + p + 1, again + p + 1, &sums);
    }
    *soon = near;
    if (p < s->end)
        add_slot(R, T, s->weights + p * width, values + p, again + p, &sums);
    const uint32_t all = T == 2 ? UINT32_MAX : 0xffff;
    KVERN_UNROLL
    for (int r = 0; r < R; r++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++) {
            float *to = at + (size_t)r * width + t * 16;
            lanes sum = sums.of[r][t];
            if (s->vectors != all) {
                const lanes_mask mask = lanes_mask_from_bits(s->vectors >> 16 * t & 0xffff);
                sum = lanes_select(mask, sum, lanes_mul(lanes_load(to), factors[t]));
            }
            lanes_store(to, sum);
        }
    }
}

LANES_INLINE void add_all(int T, size_t width, const kvern_latent_sum *s)
{
    const size_t steps = (s->end - s->begin) / 2 * (s->dim / LATENT_ROWS(T) + 1);
    requests soon = requests_of(s->next.soon, s->next.soon_bytes, steps, s->weights);
    requests far = requests_of(s->next.later, s->next.later_bytes, steps, s->weights);
    size_t d = 0;
    for (; d + LATENT_ROWS(T) <= s->dim; d += LATENT_ROWS(T))
        add_dims(LATENT_ROWS(T), T, width, s, d, &soon, &far);
    for (; d < s->dim; d += LATENT_REST(T))
        add_dims(LATENT_REST(T), T, width, s, d, &soon, &far);
}

static void sum(const kvern_latent_sum *s)
{
    if (s->strips == 2)
        add_all(2, 32, s);
    else if (s->width == 32)
        add_all(1, 32, s);
    else
        add_all(1, 16, s);
}

// ---- Turning ----

// At most 16 rows and columns, in registers.
LANES_INLINE void turn_part(size_t rows, size_t columns, const float *from, size_t from_stride,
                            float *to, size_t to_stride)
{
    lanes v[16];
    KVERN_UNROLL
    for (size_t r = 0; r < 16; r++)
        v[r] = r >= rows       ? lanes_zero()
               : columns == 16 ? lanes_load(from + r * from_stride)
                               : lanes_load_part(from + r * from_stride, (int)columns);
    transpose(v);
    KVERN_UNROLL
    for (size_t c = 0; c < 16; c++) {
        if (c < columns && rows == 16)
            lanes_store(to + c * to_stride, v[c]);
        else if (c < columns)
            lanes_store_part(to + c * to_stride, v[c], (int)rows);
    }
}

static void turn(size_t rows, size_t columns, const float *from, size_t from_stride, float *to,
                 size_t to_stride)
{
    for (size_t r = 0; r < rows; r += 16) {
        const size_t height = rows - r < 16 ? rows - r : 16;
        for (size_t c = 0; c < columns; c += 16) {
            const float *part = from + r * from_stride + c;
            float *turned = to + c * to_stride + r;
            if (height == 16 && c + 16 <= columns)
                turn_part(16, 16, part, from_stride, turned, to_stride);
            else
                turn_part(height, columns - c < 16 ? columns - c : 16, part, from_stride, turned,
                          to_stride);
        }
    }
}

const kvern_latent_kernels LATENT_KERNELS = {LATENT_GROUP, score, sum, turn};
