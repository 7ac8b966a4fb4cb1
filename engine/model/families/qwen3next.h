// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN3NEXT_H
#define KVERN_ENGINE_QWEN3NEXT_H

// Qwen3-Next: a gated delta rule in three of four layers, attention with a gate in the others,
// experts with a shared one behind both, norms whose weights are about zero.

#include "engine/model/families/model_family.h"

extern const model_family qwen3next_family;

#endif
