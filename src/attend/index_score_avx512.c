// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx512.h"

#define INDEX_SCORE kvern_index_score_avx512
#include "src/attend/index_score_template.h"
