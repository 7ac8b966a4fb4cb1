// SPDX-License-Identifier: MIT
#include "tests/support/small_rows.h"

#include "tests/support/storages.h"

#include <stdlib.h>

void small_rows_layers(kvern_layer layers[SMALL_ROWS_LAYERS])
{
    const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
    const storage later = {"later", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), 70, 0, 0};
    const storage split = {
        "precise", STORAGE_AFFINE(2, 32), STORAGE_AFFINE(2, 32), KVERN_NO_START, 8, 4};
    layers[0] = storage_window(&bf16, 1, 8, 20, 2, 4);
    layers[1] = storage_layer(&later, 1, 32);
    layers[2] = kvern_layer_delta(1, 2, 8, 8, 3);
    layers[3] = storage_layer(&split, 1, 32);
    layers[4] = kvern_layer_lane(40);
}

kvern_context *small_rows_context(void)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.threads = 1;
    if (kvern_context_create(&options, &context))
        abort();
    return context;
}

kvern_composition *small_rows_composition(kvern_context *context)
{
    kvern_layer layers[SMALL_ROWS_LAYERS];
    kvern_composition *composition;
    small_rows_layers(layers);
    if (kvern_composition_create(context, layers, SMALL_ROWS_LAYERS, &composition))
        abort();
    return composition;
}
