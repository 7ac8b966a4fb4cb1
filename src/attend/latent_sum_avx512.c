// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define LATENT_SUM kvern_latent_sum_avx512
#define LATENT_ROWS(t) ((t) == 1 ? 16 : 12)
#define LATENT_REST(t) ((t) == 1 ? 8 : 4)
#include "src/attend/latent_sum_template.h"
