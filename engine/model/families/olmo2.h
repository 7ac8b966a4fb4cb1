// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_OLMO2_H
#define KVERN_ENGINE_OLMO2_H

// OLMo 2: norms behind attention and feed-forward network and none before them, and norms of all
// queries and of all keys of a token together.

#include "engine/model/families/model_family.h"

extern const model_family olmo2_family;

#endif
