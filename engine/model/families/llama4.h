// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_LLAMA4_H
#define KVERN_ENGINE_LLAMA4_H

// Llama 4: attention within chunks in most layers; the others see everything, do not rotate, and
// have queries that grow with their position; experts whose weight multiplies what they read.

#include "engine/model/families/model_family.h"

extern const model_family llama4_family;

#endif
