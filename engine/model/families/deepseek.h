// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DEEPSEEK_H
#define KVERN_ENGINE_DEEPSEEK_H

// DeepSeek V2, V3 and their relatives: attention by latents, a few layers with a feed-forward
// network and experts in all others; V3.2 and GLM 5 with an indexer that selects what a token
// attends.

#include "engine/model/families/model_family.h"

extern const model_family deepseek2_family;    // V2 and V3, as GGUF calls them
extern const model_family deepseek_v2_family;  // V2 in directories
extern const model_family deepseek_v32_family; // V3.2
extern const model_family glm_moe_dsa_family;  // GLM 5

#endif
