// SPDX-License-Identifier: MIT
// The weighted sums of latents for one instruction set; equal to latent_sum_plain.c bit for bit.
// Included once by latent_sum_<isa>.c after a lanes header.
//
// Parameters:
//   LATENT_SUM         the name of the kernel
//   LATENT_ROWS(t)     dims that are worked on at once where a row of sums has t strips of 16
//   LATENT_REST(t)     the same for what is left of them: divides 8 and LATENT_ROWS(t) - 8
#include "src/attend/latent_sum.h"
#include "src/math/unroll.h"

#define SLOTS 64
#define MOST_ROWS 16

// R dims from d on, T strips each. Sums stay in registers from the first slot to the last; a vector
// that does not take part gets back what it had.
LANES_INLINE void add_dims(int R, int T, const kvern_latent_sum *s, size_t d)
{
    lanes sums[MOST_ROWS][2], factors[2];
    float *at = s->sums + d * 16 * (size_t)T;
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        factors[t] = s->factors ? lanes_load(s->factors + t * 16) : lanes_set(1);
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++)
        sums[i / T][i % T] = lanes_mul(lanes_load(at + i * 16), factors[i % T]);
    const float *values = s->values + d * SLOTS;
    for (size_t p = s->begin; p < s->end; p++) {
        lanes weights[2];
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            weights[t] = lanes_load(s->weights + p * 16 * (size_t)T + t * 16);
        KVERN_UNROLL
        for (int r = 0; r < R; r++) {
            const lanes value = lanes_set(values[(size_t)r * SLOTS + p]);
            KVERN_UNROLL
            for (int t = 0; t < T; t++)
                sums[r][t] = lanes_fma(weights[t], value, sums[r][t]);
        }
    }
    const uint32_t all = T == 2 ? UINT32_MAX : 0xffff;
    KVERN_UNROLL
    for (int i = 0; i < R * T; i++) {
        lanes sum = sums[i / T][i % T];
        if (s->vectors != all) {
            const lanes_mask mask = lanes_mask_from_bits(s->vectors >> 16 * (i % T) & 0xffff);
            sum = lanes_select(mask, sum, lanes_mul(lanes_load(at + i * 16), factors[i % T]));
        }
        lanes_store(at + i * 16, sum);
    }
}

LANES_INLINE void prefetch_rows(const kvern_latent_sum *s, size_t d, size_t rows)
{
    if (!s->next)
        return;
    const char *from = s->next + d * s->next_row, *end = from + rows * s->next_row;
    for (; from < end; from += 64)
        lanes_prefetch(from);
}

LANES_INLINE void add_all(int T, const kvern_latent_sum *s)
{
    size_t d = 0;
    for (; d + LATENT_ROWS(T) <= s->dim; d += LATENT_ROWS(T)) {
        prefetch_rows(s, d, LATENT_ROWS(T));
        add_dims(LATENT_ROWS(T), T, s, d);
    }
    for (; d < s->dim; d += LATENT_REST(T)) {
        prefetch_rows(s, d, LATENT_REST(T));
        add_dims(LATENT_REST(T), T, s, d);
    }
}

void LATENT_SUM(const kvern_latent_sum *s)
{
    if (s->width == 32)
        add_all(2, s);
    else
        add_all(1, s);
}
