// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_SNAPSHOT_PARTS_H
#define KVERN_SERVER_SNAPSHOT_PARTS_H

// Parts of what GET /cache answers. Results are new references; NULL: no memory.

#include "server/worker/worker.h"

#include <jansson.h>

// Layers that are stored alike, each kind of storage once.
json_t *snapshot_layers(const kvern_composition *composition);

// The rows of the scheduler's state. What else is known of them follows from `jobs`.
json_t *snapshot_rows(const schedule *s, const kvern_composition *composition, const job *jobs);

// The tree of what the store in memory holds for this model, without texts unless the options say
// that they may be shown.
json_t *snapshot_tree(const worker_options *options, const kvern_store_stats *stats);

#endif
