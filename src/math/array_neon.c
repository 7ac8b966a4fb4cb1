// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define KVERN_ARRAY_KERNEL(name) kvern_##name##_array_neon
#include "src/math/array_template.h"
