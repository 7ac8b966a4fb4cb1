// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define SOFTMAX_SUFFIX neon
#include "src/attend/softmax_tmpl.h"
