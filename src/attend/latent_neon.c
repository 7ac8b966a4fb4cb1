// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

// Lane j of vector i becomes lane i of vector j.
LANES_INLINE void transpose(lanes v[16])
{
    float rows[16][16];
    for (int i = 0; i < 16; i++)
        lanes_store(rows[i], v[i]);
    for (int i = 0; i < 16; i++) {
        float column[16];
        for (int j = 0; j < 16; j++)
            column[j] = rows[j][i];
        v[i] = lanes_load(column);
    }
}

#define LATENT_KERNELS kvern_latent_neon
#define LATENT_GROUP 4
#define LATENT_STRIPS 1
#define LATENT_ROWS(t) ((t) == 1 ? 4 : 2)
#define LATENT_REST(t) ((t) == 1 ? 4 : 2)
#define LATENT_FOLDED(n) 0
#include "src/attend/latent_template.h"
