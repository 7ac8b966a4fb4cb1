// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QWEN3_H
#define KVERN_ENGINE_QWEN3_H

// Qwen 3 without experts: llama's layers with norms of the heads of q and k.

#include "engine/model/families/model_family.h"

extern const model_family qwen3_family;

#endif
