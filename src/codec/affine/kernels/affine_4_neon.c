// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#define AFFINE_BITS 4
#define AFFINE_KERNELS kvern_affine_4_neon
#define AFFINE_ROTATED_KERNELS kvern_rotated_4_neon
#include "src/codec/affine/affine_template.h"
