// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN35_H
#define KVERN_ENGINE_QWEN35_H

// Qwen 3.5, the part for texts: the layers of Qwen3-Next, with a feed-forward network or with
// experts.

#include "engine/model/families/model_family.h"

extern const model_family qwen35_family;
extern const model_family qwen35moe_family;

#endif
