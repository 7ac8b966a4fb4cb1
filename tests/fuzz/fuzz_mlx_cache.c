// SPDX-License-Identifier: MIT
// Any bytes as a prompt cache of mlx-lm or mlx-bun. Refused with a sentence, or read: into the
// layers that its caches say, recurrent ones being those of the corpus, and with a conversion.

#include "src/file/mlx/mlx_file.h"
#include "tests/support/mlx_case.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_sentence(kvern_status status)
{
    if (status && strlen(kvern_error_detail()) < strlen("layer 0: x"))
        abort();
}

// As much as a row may have here: a file can say any length where no cache contradicts it.
enum { MOST_LENGTH = 1 << 16 };

static bool plan(const kvern_mlx_file *file, kvern_layer *layers)
{
    for (size_t i = 0; i < kvern_mlx_caches(file); i++) {
        kvern_mlx_cache facts = {.size = sizeof facts};
        if (kvern_mlx_cache_facts(file, i, &facts))
            abort();
        layers[i] = kvern_layer_recurrent(KVERN_RECURRENCE_DELTA, 2, 4, 16, 8, 4);
        if (!facts.slots && kvern_mlx_layer(file, i, &layers[i]))
            return false;
        for (size_t r = 0; r < facts.rows; r++) {
            if (kvern_mlx_cache_length(file, i, r) > MOST_LENGTH)
                return false;
        }
    }
    return true;
}

static void import(kvern_context *context, const kvern_mlx_file *file, const kvern_layer *layers)
{
    kvern_composition *composition;
    kvern_state *state;
    kvern_mlx_import_options options = kvern_mlx_import_options_default();
    kvern_status status =
        kvern_composition_create(context, layers, kvern_mlx_caches(file), &composition);
    expect_sentence(status);
    if (status)
        return;
    options.conversion = KVERN_MLX_CONVERT;
    status = kvern_mlx_import(file, composition, &options, &state);
    expect_sentence(status);
    if ((state == NULL) != (status != KVERN_OK))
        abort();
    if (state && kvern_state_rows(state) && kvern_state_length(state, 0) < 0)
        abort();
    kvern_state_destroy(state);
    kvern_composition_release(composition);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    kvern_mapping *mapping;
    kvern_mlx_file *file;
    options.threads = 1;
    if (size == 0 || kvern_context_create(&options, &context))
        return 0;
    if (kvern_mapping_of(context, data, size, &mapping))
        abort();
    const kvern_status status = kvern_mlx_read(mapping, "memory", &file);
    expect_sentence(status);
    kvern_mapping_release(mapping);
    if (!status) {
        kvern_layer *layers = malloc(kvern_mlx_caches(file) * sizeof *layers);
        for (size_t i = 0; layers && i < kvern_mlx_caches(file); i++)
            layers[i] = kvern_layer_default(1, 8);
        if (layers && plan(file, layers))
            import(context, file, layers);
        free(layers);
        kvern_mlx_close(file);
    }
    kvern_context_release(context);
    return 0;
}
