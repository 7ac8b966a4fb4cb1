// SPDX-License-Identifier: MIT
#include "src/math/lanes_avx2.h"

#define INDEX_SCORE kvern_index_score_avx2
#include "src/attend/index_score_template.h"
