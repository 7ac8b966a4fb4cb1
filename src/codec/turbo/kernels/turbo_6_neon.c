// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#define TURBO_BITS 6
#define TURBO_KERNELS kvern_turbo_6_neon
#include "src/codec/turbo/turbo_template.h"
