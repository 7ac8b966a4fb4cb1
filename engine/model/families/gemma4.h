// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GEMMA4_H
#define KVERN_ENGINE_GEMMA4_H

// Gemma 4 without experts: layers that share keys and values, inputs of layers, heads of two sizes.

#include "engine/model/families/model_family.h"

extern const model_family gemma4_family;

#endif
