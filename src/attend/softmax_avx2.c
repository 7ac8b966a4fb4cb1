// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define SOFTMAX_SUFFIX avx2
#include "src/attend/softmax_tmpl.h"
