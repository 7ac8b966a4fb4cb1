// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_PHI3_H
#define KVERN_ENGINE_PHI3_H

// Phi 3, 3.5 and 4: llama's layers with fused matrices, a part of each head rotated, a window in
// all layers where the file has one, and rotary factors for long contexts.

#include "engine/model/families/model_family.h"

extern const model_family phi3_family;

#endif
