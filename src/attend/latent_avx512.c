// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"
#include "src/math/unroll.h"

// The zero-masked forms, with every lane kept: see lanes_avx512.h.
#define ALL ((__mmask16)0xffff)

// Lane j of vector i becomes lane i of vector j.
LANES_INLINE void transpose(lanes v[16])
{
    __m512d pairs[16], fours[16];
    KVERN_UNROLL
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(ALL, v[i], v[i + 1]));
        pairs[i + 1] = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(ALL, v[i], v[i + 1]));
    }
    KVERN_UNROLL
    for (int i = 0; i < 16; i += 4) {
        fours[i] = _mm512_maskz_unpacklo_pd(0xff, pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_maskz_unpackhi_pd(0xff, pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_maskz_unpacklo_pd(0xff, pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_maskz_unpackhi_pd(0xff, pairs[i + 1], pairs[i + 3]);
    }
    KVERN_UNROLL
    for (int j = 0; j < 4; j++) {
        const lanes a = _mm512_castpd_ps(fours[j]), b = _mm512_castpd_ps(fours[j + 4]);
        const lanes c = _mm512_castpd_ps(fours[j + 8]), d = _mm512_castpd_ps(fours[j + 12]);
        const lanes ab = _mm512_maskz_shuffle_f32x4(ALL, a, b, 0x88);
        const lanes cd = _mm512_maskz_shuffle_f32x4(ALL, c, d, 0x88);
        const lanes ab_odd = _mm512_maskz_shuffle_f32x4(ALL, a, b, 0xdd);
        const lanes cd_odd = _mm512_maskz_shuffle_f32x4(ALL, c, d, 0xdd);
        v[j] = _mm512_maskz_shuffle_f32x4(ALL, ab, cd, 0x88);
        v[j + 4] = _mm512_maskz_shuffle_f32x4(ALL, ab_odd, cd_odd, 0x88);
        v[j + 8] = _mm512_maskz_shuffle_f32x4(ALL, ab, cd, 0xdd);
        v[j + 12] = _mm512_maskz_shuffle_f32x4(ALL, ab_odd, cd_odd, 0xdd);
    }
}

#define LATENT_KERNELS kvern_latent_avx512
#define LATENT_GROUP 8
#define LATENT_STRIPS 2
#define LATENT_ROWS(t) ((t) == 1 ? 16 : 12)
#define LATENT_REST(t) ((t) == 1 ? 8 : 4)
#define LATENT_FOLDED(n) ((n) / 2)
#include "src/attend/latent_template.h"
