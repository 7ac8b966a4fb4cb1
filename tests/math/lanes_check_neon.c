// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define LANES_CHECK lanes_check_neon
#define LANES_CHECK_PART lanes_check_part_neon
#include "tests/math/lanes_check_template.h"
