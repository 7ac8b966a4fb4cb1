// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define SOFTMAX_KERNELS kvern_softmax_neon
#include "src/attend/softmax_template.h"
