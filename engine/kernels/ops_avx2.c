// SPDX-License-Identifier: MIT
// The kernels of engine/kernels/ops.h, compiled for this file's instruction set.

#define OPS(name) name##_avx2
#include "engine/kernels/ops_template.h"
