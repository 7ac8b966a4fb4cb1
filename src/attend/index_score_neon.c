// SPDX-License-Identifier: MIT
#include "src/math/lanes_neon.h"

#define INDEX_SCORE kvern_index_score_neon
#include "src/attend/index_score_template.h"
