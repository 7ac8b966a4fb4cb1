// SPDX-License-Identifier: MIT
#include "src/codec/dense/dense_neon.h"

#define DENSE_TYPE KVERN_BF16
#define DENSE_KERNELS kvern_dense_bf16_neon
#include "src/codec/dense/dense_template.h"
