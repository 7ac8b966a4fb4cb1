// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define SOFTMAX_KERNELS kvern_softmax_avx2
#include "src/attend/softmax_template.h"
