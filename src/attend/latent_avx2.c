// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

// The same for eight registers of eight lanes.
LANES_INLINE void transpose8(__m256 v[8])
{
    __m256 fours[8];
    for (int i = 0; i < 8; i += 4) {
        const __m256 a = _mm256_unpacklo_ps(v[i], v[i + 1]);
        const __m256 b = _mm256_unpackhi_ps(v[i], v[i + 1]);
        const __m256 c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]);
        const __m256 d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
        fours[i] = _mm256_shuffle_ps(a, c, 0x44);
        fours[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        fours[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        fours[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(fours[j], fours[j + 4], 0x20);
        v[j + 4] = _mm256_permute2f128_ps(fours[j], fours[j + 4], 0x31);
    }
}

// Lane j of vector i becomes lane i of vector j.
LANES_INLINE void transpose(lanes v[16])
{
    __m256 quarters[4][8]; // rows 0 to 7 and 8 to 15, low and high lanes
    for (int i = 0; i < 8; i++) {
        quarters[0][i] = v[i].low;
        quarters[1][i] = v[i].high;
        quarters[2][i] = v[i + 8].low;
        quarters[3][i] = v[i + 8].high;
    }
    for (int q = 0; q < 4; q++)
        transpose8(quarters[q]);
    for (int i = 0; i < 8; i++) {
        v[i] = (lanes){quarters[0][i], quarters[2][i]};
        v[i + 8] = (lanes){quarters[1][i], quarters[3][i]};
    }
}

#define LATENT_KERNELS kvern_latent_avx2
#define LATENT_GROUP 4
#define LATENT_STRIPS 1
#define LATENT_ROWS(t) ((t) == 1 ? 4 : 2)
#define LATENT_REST(t) ((t) == 1 ? 4 : 2)
#define LATENT_FOLDED(n) 0
#include "src/attend/latent_template.h"
