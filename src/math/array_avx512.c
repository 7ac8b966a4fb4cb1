// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define KVERN_ARRAY_KERNELS kvern_array_kernels_avx512
#include "src/math/array_template.h"
