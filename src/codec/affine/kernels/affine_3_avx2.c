// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx2.h"

#define AFFINE_BITS 3
#define AFFINE_KERNELS kvern_affine_3_avx2
#define AFFINE_ROTATED_KERNELS kvern_rotated_3_avx2
#include "src/codec/affine/affine_template.h"
