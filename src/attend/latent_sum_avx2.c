// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define LATENT_SUM kvern_latent_sum_avx2
#define LATENT_ROWS(t) ((t) == 1 ? 4 : 4)
#define LATENT_REST(t) ((t) == 1 ? 4 : 4)
#include "src/attend/latent_sum_template.h"
