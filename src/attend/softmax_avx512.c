// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define SOFTMAX_SUFFIX avx512
#include "src/attend/softmax_tmpl.h"
