// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_MODEL_WALK_H
#define KVERN_TESTS_MODEL_WALK_H

// What fuzz targets do with a model that was opened: everything up to a forward pass. A promise
// that is broken ends the program.

#include "engine/model/model.h"

// Judges the keys, reads the facts, loads the weights and forwards two tokens, as far as the model
// lets it. Closes the source.
void model_walk(model_source *source);

#endif
