// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define LATENT_SUM kvern_latent_sum_neon
#define LATENT_ROWS(t) ((t) == 1 ? 4 : 2)
#define LATENT_REST(t) ((t) == 1 ? 4 : 2)
#include "src/attend/latent_sum_template.h"
