// SPDX-License-Identifier: MIT
#include "src/codec/codes/codes_avx512.h"

#define AFFINE_BITS 8
#define AFFINE_KERNELS kvern_affine_8_avx512
#define AFFINE_ROTATED_KERNELS kvern_rotated_8_avx512
#include "src/codec/affine/affine_template.h"
