// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define LANES_CHECK lanes_check_avx2
#define LANES_CHECK_PART lanes_check_part_avx2
#include "tests/math/lanes_check_template.h"
