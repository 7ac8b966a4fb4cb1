// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_KEYS_H
#define KVERN_ENGINE_MODEL_KEYS_H

// The keys of model files that are not a family's own: engine/weights/key_table.h.

#include "engine/weights/key_table.h"

extern const key_table model_general_keys; // "general."
extern const key_table model_other_keys;   // of other prefixes, which describe or are refused
// "<architecture>.", for every family: the keys that all use, and those that none computes. A
// family's own table comes first and wins.
extern const key_table model_common_keys;

// The keys of a config.json that families share.
extern const key_table hf_common_keys;

#endif
