// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GEMMA2_H
#define KVERN_ENGINE_GEMMA2_H

// The Gemma 2 family: a sliding window in every other layer, norms before and after attention and
// feed-forward network, softcaps of scores and logits, GELU, scaled embeddings.

#include "engine/model/families/model_family.h"

extern const model_family gemma2_family;

#endif
