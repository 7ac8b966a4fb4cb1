// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN2MOE_H
#define KVERN_ENGINE_QWEN2MOE_H

// Qwen 1.5 and 2 with experts: biases of q, k and v, and a shared expert that is weighted.

#include "engine/model/families/model_family.h"

extern const model_family qwen2moe_family;

#endif
