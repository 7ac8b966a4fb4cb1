// SPDX-License-Identifier: MIT
#ifndef KVERN_LAYER_SHARED_SHARED_H
#define KVERN_LAYER_SHARED_SHARED_H

// Shared layers (kvern/donor.h): they read the rows of another layer, their donor. Their own rows
// stay empty whatever the batch holds: no operation finds anything to do, so that steps, rounds and
// rows that come and go need not know of them. Calls that ask about a row ask the donor's
// (kvern_planned_layer.donor).

#include "src/layer/layer.h"

extern const kvern_layer_ops kvern_shared_layer;

// Finds the donor of a layer of this kind among the `layers` of its composition, those in front of
// it being planned, and what follows from it. Errors: KVERN_ERR_RANGE (it is no earlier layer),
// KVERN_ERR_UNSUPPORTED (it keeps no keys and values), KVERN_ERR_ARGUMENT (other heads or dims).
KVERN_CHECK kvern_status kvern_shared_plan(const kvern_planned_layer *layers,
                                           kvern_planned_layer *layer);

#endif
