// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define SOFTMAX_KERNELS kvern_softmax_avx512
#include "src/attend/softmax_template.h"
