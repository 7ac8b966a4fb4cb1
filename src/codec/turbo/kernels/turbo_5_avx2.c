// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx2.h"

#define TURBO_BITS 5
#define TURBO_KERNELS kvern_turbo_5_avx2
#include "src/codec/turbo/turbo_template.h"
