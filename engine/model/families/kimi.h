// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_KIMI_H
#define KVERN_ENGINE_KIMI_H

// Kimi Linear: a delta rule with a decay for each channel in most layers, attention by latents in
// the others, in neither of which anything rotates; experts behind both.

#include "engine/model/families/model_family.h"

extern const model_family kimi_linear_family;

#endif
