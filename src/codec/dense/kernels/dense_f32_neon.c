// SPDX-License-Identifier: MIT
#include "src/codec/dense/dense_neon.h"

#define DENSE_TYPE KVERN_F32
#define DENSE_KERNELS kvern_dense_f32_neon
#include "src/codec/dense/dense_template.h"
