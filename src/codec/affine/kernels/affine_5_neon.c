// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_neon.h"

#define AFFINE_BITS 5
#define AFFINE_KERNELS kvern_affine_5_neon
#define AFFINE_ROTATED_KERNELS kvern_rotated_5_neon
#include "src/codec/affine/affine_template.h"
