// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GEMMA3_H
#define KVERN_ENGINE_GEMMA3_H

// The Gemma 3 family: sliding windows in most layers, norms before and after attention and
// feed-forward network and of every query and key, rotary embedding by halves with a base of its
// own in window layers, GELU, scaled embeddings.

#include "engine/model/families/model_family.h"

extern const model_family gemma3_family;

#endif
