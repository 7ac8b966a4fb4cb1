// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_COMPOSITION_H
#define KVERN_STATE_COMPOSITION_H

#include "src/pages/pool.h"
#include "src/rows/geometry.h"

#include <kvern/composition.h>

#define KVERN_SIGNATURE_BYTES 96

// One layer: the caller's plan, what follows from it, and the pool that its pages come from. Layers
// with pages of one size share a pool.
typedef struct kvern_planned_layer {
    kvern_layer plan;
    kvern_geometry geometry;
    kvern_pool *pool;
    char signature[KVERN_SIGNATURE_BYTES];
} kvern_planned_layer;

struct kvern_composition {
    _Atomic size_t references;
    kvern_context *context;
    size_t count;
    kvern_planned_layer layers[];
};

void kvern_composition_retain(kvern_composition *composition);

#endif
