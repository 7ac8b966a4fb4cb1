// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_WINDOW_FACTS_H
#define KVERN_ENGINE_WINDOW_FACTS_H

// Layers with a window between full ones, for model_family.read_facts.

#include "engine/model/model_facts_reader.h"

// The window, and the layers that have it: those that a list names, else all but every
// `full_every`th, which the file may say too. They rotate by facts->rope[rope].
KVERN_CHECK kvern_status facts_read_windows(facts_reader *reader, size_t full_every, uint32_t rope,
                                            model_facts *facts);

#endif
