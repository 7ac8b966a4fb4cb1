// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx512.h"

#define TURBO_BITS 6
#define TURBO_KERNELS kvern_turbo_6_avx512
#include "src/codec/turbo/turbo_template.h"
