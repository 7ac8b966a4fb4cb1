// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#define AFFINE_BITS 8
#define AFFINE_KERNELS kvern_affine_8_neon
#define AFFINE_ROTATED_KERNELS kvern_rotated_8_neon
#include "src/codec/affine/affine_template.h"
