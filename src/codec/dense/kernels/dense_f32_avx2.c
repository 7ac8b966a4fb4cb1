// SPDX-License-Identifier: MIT
#include "src/codec/dense/dense_avx2.h"

#define DENSE_TYPE KVERN_F32
#define DENSE_KERNELS kvern_dense_f32_avx2
#include "src/codec/dense/dense_template.h"
