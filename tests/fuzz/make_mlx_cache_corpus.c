// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz target of prompt caches: the cases of tests/golden/mlx as this
// library writes them, which is without the columns that mlx-lm does not fill.
// `make_mlx_cache_corpus tests/fuzz/corpus/mlx_cache`

#include "tests/support/check.h"
#include "tests/support/mlx_case.h"

#include <kvern/mlx_cache.h>

#include <stdio.h>

static kvern_state *load(kvern_context *context, const mlx_case *c)
{
    char path[300];
    kvern_composition *composition = mlx_case_composition(context, c);
    kvern_mlx_file *file;
    kvern_state *state;
    snprintf(path, sizeof path, "%s/golden/mlx/states-%s.safetensors", KVERN_TESTS_DIR, c->name);
    assert_ok(kvern_mlx_open(context, path, &file));
    assert_ok(kvern_mlx_import(file, composition, NULL, &state));
    kvern_mlx_close(file);
    kvern_composition_release(composition);
    return state;
}

static void save(const mlx_case *c, const kvern_state *state, const char *folder,
                 kvern_mlx_layout layout)
{
    char path[4096];
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    options.lists = c->lists;
    options.list_count = c->list_count;
    options.layout = layout;
    snprintf(path, sizeof path, "%s/%s%d", folder, c->name, (int)layout);
    // The older layout does not have all of them.
    assert_true(!kvern_mlx_export(state, NULL, 0, path, &options) || layout == KVERN_MLX_INFOS);
}

int main(int argc, char **argv)
{
    kvern_context *context;
    if (argc != 2) {
        fprintf(stderr, "usage: make_mlx_cache_corpus FOLDER\n");
        return 2;
    }
    assert_ok(kvern_context_create(NULL, &context));
    for (size_t i = 0; i < mlx_case_count; i++) {
        mlx_case c = mlx_case_at(i);
        kvern_state *state = load(context, &c);
        if (c.lengths[0] > 32 && mlx_case_appends(&c) && !c.has_dropped)
            assert_ok(kvern_state_trim(state, 0, c.lengths[0] - 3));
        save(&c, state, argv[1], KVERN_MLX_STATES);
        save(&c, state, argv[1], KVERN_MLX_INFOS);
        kvern_state_destroy(state);
    }
    kvern_context_release(context);
    return 0;
}
