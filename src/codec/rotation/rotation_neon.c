// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define ROTATION_HELD 4
#define ROTATE kvern_rotate_neon
#define ROTATE_BACK kvern_rotate_back_neon
#include "src/codec/rotation/rotation_template.h"
