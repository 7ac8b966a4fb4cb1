// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define KVERN_ARRAY_KERNELS kvern_array_kernels_avx2
#include "src/math/array_template.h"
