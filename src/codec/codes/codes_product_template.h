// SPDX-License-Identifier: MIT
// The tile product (codes_product.h) for one instruction set. Included once by
// codes_product_<isa>.c after codes_<isa>.h, which says what of.
#include "src/base/assert.h"
#include "src/codec/codes/codes_product.h"
#include "src/math/unroll.h"

LANES_INLINE void multiply_pass(int R, int T, const kvern_codes_product *p, size_t first,
                                size_t lane)
{
    lanes acc[CODES_MOST][4];
    float *c = p->c + first * p->c_stride + lane;
    const float *a = p->a + first * p->a_stride;
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            acc[i][t] = p->fresh ? lanes_zero() : lanes_load(c + (size_t)i * p->c_stride + t * 16);
    }
    for (size_t row = 0; row < p->count; row++) {
        const float *b = p->rows[row] + lane;
        lanes strip[4];
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            strip[t] = lanes_load(b + t * 16);
        KVERN_UNROLL
        for (int i = 0; i < R; i++) {
            const lanes weight = lanes_set(a[(size_t)i * p->a_stride + row]);
            KVERN_UNROLL
            for (int t = 0; t < T; t++)
                acc[i][t] = lanes_fma(weight, strip[t], acc[i][t]);
        }
    }
    KVERN_UNROLL
    for (int i = 0; i < R; i++) {
        const lanes bias = p->bias ? lanes_set(p->bias[first + (size_t)i]) : lanes_zero();
        KVERN_UNROLL
        for (int t = 0; t < T; t++)
            lanes_store(c + (size_t)i * p->c_stride + t * 16,
                        p->bias ? lanes_add(acc[i][t], bias) : acc[i][t]);
    }
}

// All lanes for R vectors, the widest passes first.
LANES_INLINE void multiply_strips(int R, const kvern_codes_product *p, size_t first)
{
    size_t lane = 0;
    if (CODES_WIDE(R) >= 4)
        for (; lane + 64 <= p->width; lane += 64)
            multiply_pass(R, CODES_WIDE(R) >= 4 ? 4 : 1, p, first, lane);
    if (CODES_WIDE(R) >= 2)
        for (; lane + 32 <= p->width; lane += 32)
            multiply_pass(R, CODES_WIDE(R) >= 2 ? 2 : 1, p, first, lane);
    for (; lane < p->width; lane += 16)
        multiply_pass(R, 1, p, first, lane);
}

void CODES_MULTIPLY(size_t n, const kvern_codes_product *p)
{
    KVERN_ASSERT(p->count <= KVERN_CODES_ROWS && p->width <= KVERN_CODES_LANES);
    KVERN_ASSERT(p->width % 16 == 0);
    size_t i = 0;
    for (; CODES_MOST > 4 && i + CODES_MOST <= n; i += CODES_MOST)
        multiply_strips(CODES_MOST, p, i);
    for (; i + 4 <= n; i += 4)
        multiply_strips(4, p, i);
    if (n - i == 3)
        multiply_strips(3, p, i);
    else if (n - i == 2)
        multiply_strips(2, p, i);
    else if (n - i == 1)
        multiply_strips(1, p, i);
}
