// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx2.h"

#define TURBO_BITS 6
#define TURBO_KERNELS kvern_turbo_6_avx2
#include "src/codec/turbo/turbo_template.h"
