// SPDX-License-Identifier: MIT
#include "engine/kernels/linear/linear_lanes_avx2.h"

#define SIGNED_8_BITS 0
#define VECTORS 1
// A sum is a chain of instructions, each of which waits for the one before: four of them keep the
// processor busy, and fit into 16 registers with the weights.
#define TOKENS_AT_ONCE 4
#define TOKENS_OF_TWO_SUMS 4

INLINE void dot_quads(int bits, int tokens, int unit, lanes_int *sums, const lanes_int *weights,
                      const unsigned char *codes, size_t stride, int quads)
{
    (void)bits;
    UNROLL
    for (int quad = 0; quad < quads; quad++) {
        UNROLL
        for (int i = 0; i < tokens * VECTORS; i++) {
            const lanes_int word = all_int(int_at(codes + i / VECTORS * stride + 4 * quad));
            sums[i] =
                _mm256_dpbusd_avx_epi32(sums[i], weights[i % VECTORS * LINEAR_QUADS + quad], word);
        }
    }
    UNROLL
    for (int i = 0; i < tokens * VECTORS; i++)
        sums[i] = (lanes_int)((lanes_u32)sums[i] * (uint32_t)unit);
}

#define LINEAR_TILE linear_tile_avxvnni
#include "engine/kernels/linear/linear_kernel_template.h"
