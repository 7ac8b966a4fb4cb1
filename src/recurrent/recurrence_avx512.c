// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define RECURRENCE_KERNELS kvern_recurrence_avx512

#define RECURRENCE_BLOCKS 2
#define RECURRENCE_SSD_TOKENS 2
#include "src/recurrent/recurrence_template.h"
