// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_COMPOSITION_H
#define KVERN_STATE_COMPOSITION_H

#include "src/base/sized.h"
#include "src/layer/layer.h"

#include <kvern/composition.h>

struct kvern_composition {
    _Atomic size_t references;
    kvern_context *context;
    size_t count;
    size_t sets; // of rows in a state (src/state/batch.h)
    kvern_planned_layer layers[];
};

// What sizes the layers of callers have.
extern const kvern_sized kvern_layer_sizes;

void kvern_composition_retain(kvern_composition *composition);

#endif
