// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define ROTATION_HELD 16
#define ROTATE kvern_rotate_avx512
#define ROTATE_BACK kvern_rotate_back_avx512
#include "src/codec/rotation/rotation_template.h"
