// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_SMOLLM3_H
#define KVERN_ENGINE_SMOLLM3_H

// SmolLM 3: llama's layers, some of which do not rotate queries and keys.

#include "engine/model/families/model_family.h"

extern const model_family smollm3_family;

#endif
