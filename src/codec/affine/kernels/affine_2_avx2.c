// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx2.h"

#define AFFINE_BITS 2
#define AFFINE_KERNELS kvern_affine_2_avx2
#define AFFINE_ROTATED_KERNELS kvern_rotated_2_avx2
#include "src/codec/affine/affine_template.h"
