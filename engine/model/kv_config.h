// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_KV_CONFIG_H
#define KVERN_ENGINE_KV_CONFIG_H

// kv_config.json: how each layer stores its keys and values, as mlx-optiq writes it. A JSON array
// with one object per layer that is not bf16:
//
//     [{"layer_idx": 0, "bits": 8, "group_size": 64}, {"layer_idx": 3, "bits": 4, "group_size":
//     64}]
//
// bits is 2, 3, 4, 5, 6 or 8, or 16 for bf16; keys and values alike. A group_size that is missing
// is 64. Two keys are ours: residual and precise_sinks, how many of the newest and of the first
// positions stay in bf16 in a layer of less bits (kvern_layer_storage), 0 for none. Where they are
// missing, the layer has what is said of all.

#include "engine/base/error.h"

#include <kvern/storage.h>

typedef struct kv_config {
    kvern_layer_storage *layers; // one per object, in the file's order
    size_t count;
} kv_config;

// Reads a file. On failure *out is empty and *error names the file, and the object where one is at
// fault. Errors: KVERN_ERR_IO, KVERN_ERR_FORMAT, KVERN_ERR_MEMORY. Whether the layers exist, and
// none is named twice, kvern_storage_apply says.
KVERN_CHECK kvern_status kv_config_read(const char *path, kv_config *out, engine_error *error);

// Frees the layers; an empty one is permitted.
void kv_config_free(kv_config *config);

#endif
