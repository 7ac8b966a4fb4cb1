// SPDX-License-Identifier: MIT
// Writes files of rows, and beside each what the library says is in it, for a reader that knows
// nothing but docs/formats/container.md:
//
//     kvern_container_samples FOLDER
//
// NAME.kv is the file. NAME.values is a list of entries: four int32 (layer, row, position or -1,
// count) and `count` floats: of a position what feed_export gives; of a recurrent row its
// convolution, S or lane as they are exported.
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/recur_feed.h"
#include "tests/support/storages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 2

static const char *folder;
static const uint64_t sequences[ROWS] = {7, 8};

static void put_entry(FILE *file, size_t layer, size_t row, int64_t position, const void *values,
                      size_t bytes)
{
    const int32_t head[] = {(int32_t)layer, (int32_t)row, (int32_t)position, (int32_t)(bytes / 4)};
    fwrite(head, sizeof head, 1, file);
    fwrite(values, 1, bytes, file);
}

static void put_row(FILE *file, const kvern_cache *cache, size_t layer, size_t row)
{
    const kvern_layer *plan = kvern_cache_layer(cache);
    if (plan->kind == KVERN_LAYER_RECURRENT) {
        size_t bytes;
        unsigned char *content = recur_content(cache, row, &bytes);
        put_entry(file, layer, row, -1, content, bytes);
        free(content);
        return;
    }
    const size_t floats = plan->kv_heads * (plan->k_dim + plan->v_dim);
    float *values = malloc(floats * sizeof *values);
    for (int64_t p = 0; values && p < kvern_cache_length(cache, row); p++) {
        if (!feed_export(cache, row, p, values)) // what a window has passed is not there
            put_entry(file, layer, row, p, values, floats * sizeof *values);
    }
    free(values);
}

static void write_sample(kvern_state *s, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.kv", folder, name);
    assert_ok(kvern_file_save(s, NULL, path));
    snprintf(path, sizeof path, "%s/%s.values", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file)
        exit(2);
    for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(s)); l++) {
        for (size_t r = 0; r < ROWS; r++) {
            if (kvern_composition_layer(kvern_state_composition(s), l)->kind != KVERN_LAYER_SHARED)
                put_row(file, kvern_state_cache(s, l), l, r);
        }
    }
    if (fclose(file))
        exit(2);
}

static void write_layer(kvern_layer layer, const char *name)
{
    static int number;
    char file[64];
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    (void)name;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_state_create(composition, ROWS, &s));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){150, 40}, NULL);
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){60, 3}, NULL);
    snprintf(file, sizeof file, "storage-%d", number++);
    write_sample(s, file);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void write_all(void **state)
{
    (void)state;
    hybrid_world w;
    for_every_storage(write_layer, 2, 64, 60);
    for_every_storage(write_layer, 1, 192, 100); // panels that are not full
    hybrid_open(&w, NULL, true);
    kvern_state *s = hybrid_state(&w, ROWS);
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){90, 5}, NULL);
    write_sample(s, "hybrid");
    kvern_state_destroy(s);
    hybrid_close(&w);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(write_all)};
    if (count != 2)
        return 2;
    folder = arguments[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
