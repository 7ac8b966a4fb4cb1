// SPDX-License-Identifier: MIT
#include "cli/session/prefix_cache.h"

// A process has one model and keeps nothing longer than it runs.
static const kvern_store_field THE_MODEL = {.name = "model", .value = "the", .bytes = 3};

kvern_status prefix_cache_open(const cli_options *options, const loaded_model *loaded,
                               prefix_cache *out, engine_error *error)
{
    *out = (prefix_cache){.model = THE_MODEL};
    if (options->no_cache) {
        return KVERN_OK;
    }
    kvern_store_options wanted = kvern_store_options_default();
    wanted.budget_bytes = PREFIX_CACHE_BYTES;
    kvern_status status = kvern_store_create(model_context(loaded->model), &wanted, &out->store);
    out->key = (kvern_store_key){.fields = &out->model, .count = 1};
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "keeping prompts and answers");
}

void prefix_cache_close(prefix_cache *cache)
{
    kvern_store_destroy(cache->store);
    *cache = (prefix_cache){0};
}
