// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx512.h"

#define TURBO_BITS 4
#define TURBO_KERNELS kvern_turbo_4_avx512
#include "src/codec/turbo/turbo_template.h"
