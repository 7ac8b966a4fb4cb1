// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN2_H
#define KVERN_ENGINE_QWEN2_H

// Qwen 2 and 2.5: llama's layers with biases of q, k and v.

#include "engine/model/families/model_family.h"

extern const model_family qwen2_family;

// Keys that Qwen's config.json have and that give a meaning to keys of other families.
extern const key_table qwen_hf_keys;

#endif
