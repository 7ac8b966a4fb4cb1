// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define LANES_CHECK lanes_check_avx512
#define LANES_CHECK_PART lanes_check_part_avx512
#include "tests/math/lanes_check_template.h"
