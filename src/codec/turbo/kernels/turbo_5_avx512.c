// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx512.h"

#define TURBO_BITS 5
#define TURBO_KERNELS kvern_turbo_5_avx512
#include "src/codec/turbo/turbo_template.h"
