// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx512.h"

#define AFFINE_BITS 3
#define AFFINE_KERNELS kvern_affine_3_avx512
#define AFFINE_ROTATED_KERNELS kvern_rotated_3_avx512
#include "src/codec/affine/affine_template.h"
