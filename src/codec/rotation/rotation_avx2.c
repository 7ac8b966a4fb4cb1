// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define ROTATION_HELD 4
#define ROTATE kvern_rotate_avx2
#define ROTATE_BACK kvern_rotate_back_avx2
#include "src/codec/rotation/rotation_template.h"
