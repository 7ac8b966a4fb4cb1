// SPDX-License-Identifier: MIT
#include "src/codec/dense/dense_avx512.h"

#define DENSE_TYPE KVERN_F16
#define DENSE_KERNELS kvern_dense_f16_avx512
#include "src/codec/dense/dense_template.h"
