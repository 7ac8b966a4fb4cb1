// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_GPTOSS_H
#define KVERN_ENGINE_GPTOSS_H

// The gpt-oss family: windows in every other layer, learned sinks, biases everywhere, rotary
// embedding by halves, experts between clamped values.

#include "engine/model/families/model_family.h"

extern const model_family gptoss_family;

#endif
