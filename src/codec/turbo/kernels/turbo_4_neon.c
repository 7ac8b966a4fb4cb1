// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#define TURBO_BITS 4
#define TURBO_KERNELS kvern_turbo_4_neon
#include "src/codec/turbo/turbo_template.h"
