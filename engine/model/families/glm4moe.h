// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GLM4MOE_H
#define KVERN_ENGINE_GLM4MOE_H

// GLM 4.5, 4.6 and 4.7: grouped attention of which a part of each head rotates, by halves, with
// biases of q, k and v and norms of heads where the file says so; experts as in DeepSeek V3.

#include "engine/model/families/model_family.h"

extern const model_family glm4_moe_family; // from directories

#endif
