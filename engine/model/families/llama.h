// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LLAMA_H
#define KVERN_ENGINE_LLAMA_H

// The llama family: RMSNorm, rotary embedding by interleaved pairs, grouped heads, SwiGLU.

#include "engine/model/families/model_family.h"

extern const model_family llama_family;

#endif
