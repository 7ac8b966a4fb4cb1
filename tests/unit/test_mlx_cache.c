// SPDX-License-Identifier: MIT
// Prompt caches of mlx-lm, of two releases, and of mlx-bun (tests/golden/mlx): every class comes in
// bit for bit, and goes out again. With arguments FOLDER SEED it reads files of that folder, and
// writes its own there: tests/oracle/test_mlx_cache.py looks at these.
#include "tests/support/check.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"
#include "tests/support/mlx_case.h"

#include <kvern/mlx_cache.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *golden = KVERN_TESTS_DIR "/golden/mlx";
static uint64_t seed = 1;
static bool exports_stay; // for another program

static const char *const layouts[] = {"states", "infos"};

static const char *golden_path(kvern_mlx_layout layout, const char *name)
{
    static char path[4][300];
    static int turn;
    char *to = path[turn++ % 4];
    snprintf(to, sizeof path[0], "%s/%s-%s.safetensors", golden, layouts[layout], name);
    return to;
}

static const char *export_path(const char *prefix, kvern_mlx_layout layout, const char *name)
{
    static char path[4][300];
    static int turn;
    char *to = path[turn++ % 4], file[100];
    snprintf(file, sizeof file, "%s-%s-%s.safetensors", prefix, layouts[layout], name);
    if (exports_stay)
        snprintf(to, sizeof path[0], "%s/%s", golden, file);
    else
        snprintf(to, sizeof path[0], "%s", folder_path(file));
    return to;
}

static bool has_file(const mlx_case *c, kvern_mlx_layout layout)
{
    return layout == KVERN_MLX_STATES || !c->only_states;
}

static kvern_state *import_file(const mlx_case *c, const char *path)
{
    kvern_composition *composition = mlx_case_composition(file_context, c);
    kvern_mlx_file *file;
    kvern_state *state;
    assert_ok(kvern_mlx_open(file_context, path, &file));
    assert_ok(kvern_mlx_import(file, composition, NULL, &state));
    kvern_mlx_close(file);
    kvern_composition_release(composition);
    return state;
}

// ---- What comes in ----

static void each_class_comes_bit_for_bit(void **unused)
{
    (void)unused;
    for (int layout = KVERN_MLX_STATES; layout <= KVERN_MLX_INFOS; layout++) {
        for (size_t i = 0; i < mlx_case_count; i++) {
            const mlx_case c = mlx_case_at(i);
            if (!has_file(&c, layout))
                continue;
            kvern_state *state = import_file(&c, golden_path(layout, c.name));
            mlx_case_check(&c, seed, state);
            kvern_state_destroy(state);
        }
    }
}

static void each_cache_comes_alone(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < mlx_case_count; i++) {
        const mlx_case c = mlx_case_at(i);
        kvern_composition *composition = mlx_case_composition(file_context, &c);
        kvern_state *whole = import_file(&c, golden_path(KVERN_MLX_STATES, c.name));
        kvern_mlx_file *file;
        assert_ok(kvern_mlx_open(file_context, golden_path(KVERN_MLX_STATES, c.name), &file));
        kvern_mlx_import_options options = kvern_mlx_import_options_default();
        options.lengths = c.lengths;
        for (size_t l = 0; l < c.layers; l++) {
            kvern_cache *cache;
            assert_ok(kvern_cache_create(composition, l, c.rows, &cache));
            assert_ok(kvern_mlx_import_cache(file, l, &options, cache));
            mlx_case_check_cache(&c, seed, l, cache, kvern_state_cache(whole, l));
            assert_status(KVERN_ERR_BUSY, kvern_mlx_import_cache(file, l, &options, cache));
            kvern_cache_destroy(cache);
        }
        kvern_mlx_close(file);
        kvern_state_destroy(whole);
        kvern_composition_release(composition);
    }
}

static void a_cache_of_mlx_bun_comes(void **unused)
{
    (void)unused;
    char path[300];
    snprintf(path, sizeof path, "%s/bun.mlxbunkv", golden);
    mlx_case c = {.name = "bun", .rows = 1, .lengths = {13}, .layers = 2};
    c.layer[0] = kvern_layer_default(2, 8);
    c.layer[1] = kvern_layer_window(2, 8, 8);
    kvern_mlx_file *file;
    size_t count;
    assert_ok(kvern_mlx_open(file_context, path, &file));
    assert_int_equal(KVERN_MLX_BUN, kvern_mlx_file_layout(file));
    const int32_t *tokens = kvern_mlx_tokens(file, &count);
    assert_int_equal(13, count);
    assert_true(tokens[0] == 100 && tokens[12] == 112);
    kvern_mlx_close(file);
    kvern_state *state = import_file(&c, path);
    mlx_case_check(&c, seed, state);
    kvern_state_destroy(state);
}

// ---- Facts ----

static void facts_are_those_of_the_file(void **unused)
{
    (void)unused;
    kvern_mlx_file *file;
    kvern_mlx_cache facts = {.size = sizeof facts};
    size_t count;
    assert_ok(kvern_mlx_open(file_context, golden_path(KVERN_MLX_STATES, "rotating"), &file));
    assert_int_equal(KVERN_MLX_STATES, kvern_mlx_file_layout(file));
    assert_int_equal(5, kvern_mlx_caches(file));
    assert_int_equal(1, kvern_mlx_rows(file));
    assert_int_equal(13, kvern_mlx_length(file, 0));
    assert_int_equal(-1, kvern_mlx_length(file, 1));
    assert_ok(kvern_mlx_cache_facts(file, 0, &facts));
    assert_string_equal("RotatingKVCache", facts.class_name);
    assert_string_equal("BF16", facts.dtype);
    assert_true(facts.max_size == 8 && facts.keep == 2 && facts.kv_heads == 2 && facts.v_dim == 8);
    assert_status(KVERN_ERR_RANGE, kvern_mlx_cache_facts(file, 5, &facts));
    assert_string_equal("made/up", kvern_mlx_find_note(file, "model"));
    assert_string_equal("{}", kvern_mlx_find_note(file, "tokenizer_config"));
    assert_null(kvern_mlx_find_note(file, "tokens"));
    assert_null(kvern_mlx_file_note(file, 2).key);
    assert_null(kvern_mlx_tokens(file, &count));
    kvern_mlx_close(file);

    assert_ok(kvern_mlx_open(file_context, golden_path(KVERN_MLX_INFOS, "hybrid"), &file));
    assert_int_equal(KVERN_MLX_INFOS, kvern_mlx_file_layout(file));
    assert_int_equal(3, kvern_mlx_caches(file));
    assert_ok(kvern_mlx_cache_facts(file, 0, &facts));
    assert_string_equal("ArraysCache", facts.class_name);
    assert_true(facts.members == 2 && facts.member == 0 && facts.entry == 0 && facts.slots == 2);
    assert_int_equal(-1, kvern_mlx_cache_length(file, 0, 0));
    assert_int_equal(11, kvern_mlx_cache_length(file, 1, 0));
    assert_int_equal(11, kvern_mlx_length(file, 0));
    assert_ok(kvern_mlx_cache_facts(file, 2, &facts));
    assert_true(facts.members == 0 && facts.entry == 1);
    kvern_mlx_close(file);
}

// A composition that a program makes without a model.
static void layers_follow_from_the_file(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < mlx_case_count; i++) {
        const mlx_case c = mlx_case_at(i);
        kvern_mlx_file *file;
        assert_ok(kvern_mlx_open(file_context, golden_path(KVERN_MLX_STATES, c.name), &file));
        for (size_t l = 0; l < c.layers; l++) {
            kvern_layer made = kvern_layer_default(1, 8);
            if (c.layer[l].kind == KVERN_LAYER_RECURRENT) {
                assert_status(KVERN_ERR_UNSUPPORTED, kvern_mlx_layer(file, l, &made));
            } else if (c.layer[l].kind != KVERN_LAYER_LATENT) {
                assert_ok(kvern_mlx_layer(file, l, &made));
                check_same_bytes(&c.layer[l], &made, sizeof made, c.name);
            }
        }
        kvern_mlx_close(file);
    }
}

// ---- What goes out ----

static void export_case(const mlx_case *c, kvern_mlx_layout layout, const kvern_state *state,
                        const char *path, kvern_status wanted)
{
    const kvern_mlx_note notes[] = {{"model", "made/up"}, {"tokens", "1 2 3"}};
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    options.layout = layout;
    options.lists = c->lists;
    options.list_count = c->list_count;
    options.notes = notes;
    options.note_count = 2;
    assert_status(wanted, kvern_mlx_export(state, NULL, 0, path, &options));
    if (wanted)
        return;
    kvern_mlx_file *file;
    assert_ok(kvern_mlx_open(file_context, path, &file));
    assert_int_equal(layout, kvern_mlx_file_layout(file));
    assert_string_equal("1 2 3", kvern_mlx_find_note(file, "tokens"));
    kvern_mlx_close(file);
    kvern_state *again = import_file(c, path);
    mlx_case_check(c, seed, again);
    kvern_state_destroy(again);
}

static void what_came_goes_out_again(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < mlx_case_count; i++) {
        const mlx_case c = mlx_case_at(i);
        kvern_state *state = import_file(&c, golden_path(KVERN_MLX_STATES, c.name));
        const kvern_status old = c.has_dropped ? KVERN_ERR_UNSUPPORTED : KVERN_OK;
        export_case(&c, KVERN_MLX_STATES, state, export_path("again", KVERN_MLX_STATES, c.name),
                    KVERN_OK);
        export_case(&c, KVERN_MLX_INFOS, state, export_path("again", KVERN_MLX_INFOS, c.name), old);
        kvern_state_destroy(state);
    }
}

// Rows that grew here hold more of a window than mlx-lm's ring.
static void rows_that_grew_here_go_out(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < mlx_case_count; i++) {
        const mlx_case c = mlx_case_at(i);
        if (!mlx_case_appends(&c))
            continue;
        kvern_composition *composition = mlx_case_composition(file_context, &c);
        for (int64_t chunk = 1; chunk <= 300; chunk *= 100) {
            kvern_state *state;
            assert_ok(kvern_state_create(composition, c.rows, &state));
            mlx_case_fill(&c, seed, state, chunk);
            for (int layout = KVERN_MLX_STATES; layout <= KVERN_MLX_INFOS; layout++)
                export_case(&c, layout, state, export_path("grown", layout, c.name), KVERN_OK);
            kvern_state_destroy(state);
        }
        kvern_composition_release(composition);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_class_comes_bit_for_bit),
        cmocka_unit_test(each_cache_comes_alone),
        cmocka_unit_test(a_cache_of_mlx_bun_comes),
        cmocka_unit_test(facts_are_those_of_the_file),
        cmocka_unit_test(layers_follow_from_the_file),
        cmocka_unit_test(what_came_goes_out_again),
        cmocka_unit_test(rows_that_grew_here_go_out),
    };
    if (argc == 3) {
        golden = argv[1];
        seed = strtoull(argv[2], NULL, 10);
        exports_stay = true;
    }
    return cmocka_run_group_tests(tests, file_bed_set_up, file_bed_tear_down);
}
