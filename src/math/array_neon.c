// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define KVERN_ARRAY_KERNELS kvern_array_kernels_neon
#include "src/math/array_template.h"
