// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#define TURBO_BITS 5
#define TURBO_KERNELS kvern_turbo_5_neon
#include "src/codec/turbo/turbo_template.h"
