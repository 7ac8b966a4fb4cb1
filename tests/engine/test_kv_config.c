// SPDX-License-Identifier: MIT
// kv_config.json: what is read from a good file, and what is said about a bad one.

#include "engine/model/families/model_family.h"
#include "engine/model/kv_config.h"
#include "engine/model/model.h"
#include "tests/support/check.h"
#include "tests/support/program.h"

#include <kvern/kvern.h>

#include <stdio.h>
#include <string.h>

static int tear_down(void **state)
{
    (void)state;
    program_remove_folder();
    return 0;
}

static const char *save(const char *text)
{
    const char *path = program_path("kv_config.json");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

static kv_config read_well(const char *text)
{
    kv_config config;
    engine_error error = {0};
    if (kv_config_read(save(text), &config, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return config;
}

static void assert_entry(const kvern_layer_storage *entry, size_t layer, uint32_t bits,
                         uint32_t group)
{
    const kvern_codec wanted =
        bits == 16 ? kvern_codec_dense(KVERN_BF16) : kvern_codec_affine(bits, group);
    assert_int_equal(entry->layer, layer);
    assert_memory_equal(&entry->k, &wanted, sizeof wanted);
    assert_memory_equal(&entry->v, &wanted, sizeof wanted);
}

static void test_good_file(void **state)
{
    (void)state;
    kv_config config = read_well("[{\"layer_idx\": 3, \"bits\": 8, \"group_size\": 32},\n"
                                 " {\"layer_idx\": 0, \"bits\": 4, \"group_size\": 128},\n"
                                 " {\"bits\": 16, \"layer_idx\": 7, \"group_size\": 64},\n"
                                 " {\"layer_idx\": 1, \"bits\": 5},\n"
                                 " {\"layer_idx\": 2, \"bits\": 2, \"note\": [1.5, null]}]");
    assert_int_equal(config.count, 5);
    assert_entry(&config.layers[0], 3, 8, 32);
    assert_entry(&config.layers[1], 0, 4, 128);
    assert_entry(&config.layers[2], 7, 16, 0);
    assert_entry(&config.layers[3], 1, 5, 64); // without a group_size
    assert_entry(&config.layers[4], 2, 2, 64);
    kv_config_free(&config);
    assert_null(config.layers);
    assert_int_equal(config.count, 0);
    kv_config_free(&config);
}

// What stays precise: a number, none, or what is said of all layers.
static void test_precise_positions(void **state)
{
    (void)state;
    kv_config config =
        read_well("[{\"layer_idx\": 0, \"bits\": 4, \"residual\": 128, \"precise_sinks\": 4},"
                  " {\"layer_idx\": 1, \"bits\": 4, \"residual\": 0, \"precise_sinks\": 0},"
                  " {\"layer_idx\": 2, \"bits\": 4},"
                  " {\"layer_idx\": 3, \"bits\": 16, \"residual\": 0}]");
    static const int64_t wanted[][2] = {{128, 4}, {-1, -1}, {0, 0}, {-1, 0}};
    assert_int_equal(config.count, 4);
    kvern_layer layers[4];
    for (size_t i = 0; i < 4; i++) {
        layers[i] = kvern_layer_default(1, 64);
        assert_int_equal(config.layers[i].residual, wanted[i][0]);
        assert_int_equal(config.layers[i].precise_sinks, wanted[i][1]);
    }
    kvern_storage storage = kvern_storage_default();
    storage.residual = 256;
    storage.precise_sinks = 64;
    storage.layers = config.layers;
    storage.layer_count = config.count;
    assert_ok(kvern_storage_apply(&storage, layers, 4));
    static const int64_t applied[][2] = {{128, 4}, {0, 0}, {256, 64}, {0, 0}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(layers[i].residual, applied[i][0]);
        assert_int_equal(layers[i].precise_sinks, applied[i][1]);
    }
    kv_config_free(&config);
}

static void test_no_layers(void **state)
{
    (void)state;
    kv_config config = read_well("[]");
    assert_int_equal(config.count, 0);
    kv_config_free(&config);
}

// The status, the file's name, what is wrong; and nothing is left.
static void assert_bad(const char *path, kvern_status status, const char *fault)
{
    kv_config config;
    engine_error error = {0};
    memset(&config, 0x5a, sizeof config);
    assert_int_equal(kv_config_read(path, &config, &error), status);
    if (strncmp(error.text, path, strlen(path)) != 0 || !strstr(error.text, fault))
        fail_msg("\"%s\" is not in: %s", fault, error.text);
    assert_null(config.layers);
    assert_int_equal(config.count, 0);
}

#define GOOD "{\"layer_idx\": 0, \"bits\": 8}"

static void test_bad_entries(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"7", "entry 1 is no object"},
        {"[]", "entry 1 is no object"},
        {"null", "entry 1 is no object"},
        {"{}", "entry 1 has no valid layer_idx"},
        {"{\"bits\": 8}", "entry 1 has no valid layer_idx"},
        {"{\"layer_idx\": -1, \"bits\": 8}", "entry 1 has no valid layer_idx"},
        {"{\"layer_idx\": 1.0, \"bits\": 8}", "entry 1 has no valid layer_idx"},
        {"{\"layer_idx\": \"1\", \"bits\": 8}", "entry 1 has no valid layer_idx"},
        {"{\"layer_idx\": true, \"bits\": 8}", "entry 1 has no valid layer_idx"},
        {"{\"layer_idx\": 4294967297, \"bits\": 8}", "entry 1 has no valid layer_idx"},
        {"{\"layer_idx\": 5}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 0}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 1}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 7}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 9}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 15}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 17}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": -4}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 4.0}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": \"4\"}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": null}", "entry 1 (layer 5): bits is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"group_size\": 0}", "(layer 5): group_size is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"group_size\": 48}", "(layer 5): group_size is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"group_size\": 256}", "(layer 5): group_size is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"group_size\": -64}", "(layer 5): group_size is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"group_size\": null}", "(layer 5): group_size is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"group_size\": \"64\"}", "(layer 5): group_size is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"residual\": -1}", "entry 1: residual is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"residual\": 64.0}", "entry 1: residual is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"residual\": \"64\"}", "entry 1: residual is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"residual\": null}", "entry 1: residual is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"residual\": true}", "entry 1: residual is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"residual\": 4294967297}", "entry 1: residual is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"precise_sinks\": -64}",
         "entry 1: precise_sinks is not"},
        {"{\"layer_idx\": 5, \"bits\": 4, \"precise_sinks\": [64]}",
         "entry 1: precise_sinks is not"},
        {"{\"layer_idx\": 5, \"bits\": 16, \"residual\": 64}",
         "entry 1 (layer 5): residual or precise_sinks of a layer in bf16"},
        {"{\"layer_idx\": 5, \"bits\": 16, \"precise_sinks\": 4}",
         "entry 1 (layer 5): residual or precise_sinks of a layer in bf16"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "[" GOOD ", %s]", CASES[i][0]);
        assert_bad(save(text), KVERN_ERR_FORMAT, CASES[i][1]);
    }
}

static void test_bad_files(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"", "line "},
        {"[" GOOD, "line 1"},
        {"[" GOOD ",\n" GOOD "\n}", "line 3"},
        {"[" GOOD "] x", "line 1"},
        {"{\"layers\": []}", "not an array"},
        {"{}", "not an array"},
        {"[{\"layer_idx\": 1, \"bits\": 8, \"bits\": 4}]", "duplicate"},
        {"[{\"layer_idx\": 1, \"layer_idx\": 2, \"bits\": 4}]", "duplicate"},
        {"[{\"layer_idx\": 99999999999999999999, \"bits\": 4}]", "line 1"},
        {"[{\"layer_idx\": 1, \"bits\": \"\xff\"}]", "line 1"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        assert_bad(save(CASES[i][0]), KVERN_ERR_FORMAT, CASES[i][1]);
    assert_bad(program_path("none.json"), KVERN_ERR_IO, "none.json: No such file");
}

// Arrays without an end do not take the stack with them.
static void test_deep_nesting(void **state)
{
    (void)state;
    static char text[100001];
    memset(text, '[', sizeof text - 1);
    assert_bad(save(text), KVERN_ERR_FORMAT, "line 1");
}

// Through the plan of a model: the layers get their bits, or the text names the one that cannot.
static void test_composition(void **state)
{
    (void)state;
    const model_layer_facts layer = {.heads = 4, .kv_heads = 2, .head_dim = 64, .value_dim = 64};
    const model_facts facts = {.family = model_family_find(text_view_of("llama")),
                               .layers = 3,
                               .layer = {layer, layer, layer}};
    kvern_context *context;
    kvern_composition *plan;
    engine_error error = {0};
    assert_ok(kvern_context_create(NULL, &context));
    kv_config config =
        read_well("[{\"layer_idx\": 2, \"bits\": 8}, {\"layer_idx\": 0, \"bits\": 4, "
                  "\"group_size\": 32}]");
    kvern_storage storage = kvern_storage_default();
    storage.layers = config.layers;
    storage.layer_count = config.count;
    assert_ok(model_composition(&facts, context, &storage, &plan, &error));
    assert_int_equal(kvern_composition_layer_bytes_per_token(plan, 0), 4 * 40);
    assert_int_equal(kvern_composition_layer_bytes_per_token(plan, 1), 4 * 128);
    assert_int_equal(kvern_composition_layer_bytes_per_token(plan, 2), 4 * 68);
    kvern_composition_release(plan);
    kv_config_free(&config);
    static const char *const CASES[][2] = {
        {"[{\"layer_idx\": 3, \"bits\": 8}]", "layer 3, and there are 3 layers"},
        {"[{\"layer_idx\": 1, \"bits\": 8}, {\"layer_idx\": 1, \"bits\": 4}]", "layer 1 twice"},
        {"[{\"layer_idx\": 1, \"bits\": 8, \"group_size\": 128}]", "layer 1"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        config = read_well(CASES[i][0]);
        storage.layers = config.layers;
        storage.layer_count = config.count;
        assert_int_not_equal(model_composition(&facts, context, &storage, &plan, &error), KVERN_OK);
        program_expect_part(error.text, CASES[i][1]);
        assert_null(plan);
        kv_config_free(&config);
    }
    kvern_context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precise_positions), cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_no_layers),         cmocka_unit_test(test_bad_entries),
        cmocka_unit_test(test_bad_files),         cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_composition),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
