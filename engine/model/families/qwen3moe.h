// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN3MOE_H
#define KVERN_ENGINE_QWEN3MOE_H

// The Qwen 3 family with experts: norms of every query and key, rotary embedding by halves, a
// softmax over all experts.

#include "engine/model/families/model_family.h"

extern const model_family qwen3moe_family;

#endif
