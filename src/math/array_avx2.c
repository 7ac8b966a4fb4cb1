// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define KVERN_ARRAY_KERNEL(name) kvern_##name##_array_avx2
#include "src/math/array_template.h"
