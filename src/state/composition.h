// SPDX-License-Identifier: MIT
#ifndef KVERN_STATE_COMPOSITION_H
#define KVERN_STATE_COMPOSITION_H

#include "src/base/sized.h"
#include "src/pages/pool.h"
#include "src/rows/geometry.h"
#include "src/rows/window.h"

#include <kvern/composition.h>

#define KVERN_SIGNATURE_BYTES 192

// One layer: the caller's plan, what follows from it, and the pools that its pages come from.
// Layers with pages of one size share a pool, but not one of planned pages and one of first ones.
typedef struct kvern_planned_layer {
    kvern_layer plan;
    kvern_window window;
    kvern_geometry geometry; // of the planned codecs
    kvern_pool *pool;
    kvern_geometry first;   // of rows before plan.start; without start it has no streams, and
    kvern_pool *first_pool; // no pool
    char signature[KVERN_SIGNATURE_BYTES];
} kvern_planned_layer;

struct kvern_composition {
    _Atomic size_t references;
    kvern_context *context;
    size_t count;
    kvern_planned_layer layers[];
};

// Pages that a row needs so that it can reach `tokens` positions by decodes.
size_t kvern_planned_pages(const kvern_planned_layer *layer, int64_t tokens);

// Pages to reserve for that in a row's present form: before its start a row needs them up to there.
size_t kvern_reserved_pages(const kvern_planned_layer *layer, bool converted, int64_t tokens);

// What sizes the layers of callers have.
extern const kvern_sized kvern_layer_sizes;

void kvern_composition_retain(kvern_composition *composition);

#endif
