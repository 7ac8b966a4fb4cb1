// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define KVERN_ARRAY_KERNEL(name) kvern_##name##_array_avx512
#include "src/math/array_template.h"
