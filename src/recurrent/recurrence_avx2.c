// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define RECURRENCE_KERNELS kvern_recurrence_avx2
#define RECURRENCE_BLOCKS 1
#define RECURRENCE_SSD_TOKENS 4
#include "src/recurrent/recurrence_template.h"
