// SPDX-License-Identifier: MIT
// kvern cache: files of rows, good ones and damaged ones.
#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_rows.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int write_file(void **state)
{
    (void)state;
    const uint64_t sequences[] = {3, 4};
    int32_t tokens[100] = {0};
    kvern_context *context = small_rows_context();
    kvern_composition *composition = small_rows_composition(context);
    kvern_state *s;
    assert_ok(kvern_state_create(composition, 2, &s));
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_C(1) << 24));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){30, 66}, NULL);
    assert_ok(kvern_state_checkpoint(s, 1));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){3, 4}, NULL);
    kvern_file_identity identity = kvern_file_identity_default();
    kvern_file_content content = kvern_file_content_default();
    identity.model = "a\nb";
    content.tokens = (const int32_t *[]){tokens, tokens};
    content.identity = &identity;
    assert_ok(kvern_file_save(s, &content, program_path("rows.kv")));
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return 0;
}

static void a_file_is_described(void **state)
{
    (void)state;
    program_result text = program_run_well(
        &(program_call){.arguments = {"cache", "inspect", program_path("rows.kv")}});
    program_expect_part(text.out, "kvern-cache, version 1\n");
    program_expect_part(text.out, "model        a?b\n");
    program_expect_part(text.out, "row 1        70 positions with tokens, 1 checkpoint\n");
    program_expect_part(text.out, "layer 0      window20+2+4:h1:k8=bf16:v8=bf16\n");
    program_free(&text);
    program_result result = program_run_well(
        &(program_call){.arguments = {"cache", "inspect", program_path("rows.kv"), "--json"}});
    json_t *facts = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(facts);
    assert_string_equal(
        "a\nb", json_string_value(json_object_get(json_object_get(facts, "identity"), "model")));
    assert_int_equal(5, json_array_size(json_object_get(facts, "layers")));
    json_t *row = json_array_get(json_object_get(facts, "rows"), 1);
    assert_int_equal(70, json_integer_value(json_object_get(row, "positions")));
    assert_int_equal(66,
                     json_integer_value(json_array_get(json_object_get(row, "checkpoints"), 0)));
    json_decref(facts);
    program_free(&result);
}

static void damage_is_found(void **state)
{
    (void)state;
    const char *path = program_path("rows.kv");
    program_call verify = {.arguments = {"cache", "verify", path}};
    program_result result = program_run_well(&verify);
    program_expect_part(result.out, "pages and all else are as they were saved\n");
    program_free(&result);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, 5000, SEEK_SET)); // a page
    assert_int_equal('x', fputc('x', file));
    assert_int_equal(0, fclose(file));
    program_expect_failure(&verify, "layer 0: page 0 has another checksum");
    result = program_run_well(&(program_call){.arguments = {"cache", "inspect", path}});
    program_free(&result);
    file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, -30, SEEK_END)); // a table
    assert_int_equal('x', fputc('x', file));
    assert_int_equal(0, fclose(file));
    program_expect_failure(&(program_call){.arguments = {"cache", "inspect", path}},
                           "the checksum of its header and tables is wrong");
    program_expect_failure(&(program_call){.arguments = {"cache", "verify", "/dev/null"}},
                           "/dev/null is not a regular file");
}

static void prompt_caches_are_described(void **state)
{
    (void)state;
    const char *path = KVERN_TESTS_DIR "/golden/mlx/states-rotating.safetensors";
    program_result text =
        program_run_well(&(program_call){.arguments = {"cache", "inspect", path}});
    program_expect_part(text.out, "format       mlx-lm prompt cache, 0.32 and later\n");
    program_expect_part(text.out, "model        made/up\n");
    program_expect_part(text.out, "row 0        13 positions\n");
    program_expect_part(text.out,
                        "cache 0      RotatingKVCache, 2 heads of 8 and 8, BF16, a window "
                        "of 8 that keeps 2, 13 positions\n");
    program_free(&text);
    path = KVERN_TESTS_DIR "/golden/mlx/bun.mlxbunkv";
    program_result result =
        program_run_well(&(program_call){.arguments = {"cache", "inspect", path, "--json"}});
    json_t *facts = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(facts);
    assert_string_equal("MLXBUNKV1", json_string_value(json_object_get(facts, "format")));
    assert_int_equal(13, json_integer_value(json_object_get(facts, "tokens")));
    const json_t *ring = json_array_get(json_object_get(facts, "caches"), 1);
    assert_int_equal(8, json_integer_value(json_object_get(ring, "max_size")));
    json_decref(facts);
    program_free(&result);
    program_expect_failure(&(program_call){.arguments = {"cache", "verify", path}},
                           "which has no checksums");
}

// ---- Directories ----

static kvern_disk_store *open_directory(kvern_context *context)
{
    kvern_disk_store_options options = kvern_disk_store_options_default();
    kvern_disk_store *store;
    options.create = 1;
    assert_ok(kvern_disk_store_open(context, program_path("prefixes"), &options, &store));
    return store;
}

// Two prompts that do not begin alike.
static void publish_prompts(kvern_disk_store *store, kvern_composition *composition)
{
    for (int32_t i = 0; i < 2; i++) {
        const uint64_t sequence = (uint64_t)i;
        int32_t tokens[40];
        kvern_state *s;
        for (size_t t = 0; t < 40; t++)
            tokens[t] = i;
        assert_ok(kvern_state_create(composition, 1, &s));
        hybrid_step(s, KVERN_PHASE_WINDOW, &sequence, (int64_t[]){40 - i}, NULL);
        assert_ok(kvern_disk_store_publish(store, NULL, tokens, (size_t)(40 - i), s, 0, NULL));
        kvern_state_destroy(s);
    }
    kvern_disk_store_flush(store);
}

// The bytes of the first one listed, as text.
static const char *one_entry(const json_t *list)
{
    static char text[32];
    const json_t *entry = json_array_get(json_object_get(list, "entries"), 0);
    snprintf(text, sizeof text, "%lld", (long long)json_integer_at(entry, "bytes"));
    return text;
}

static void a_directory_is_listed_and_pruned(void **state)
{
    (void)state;
    const char *path = program_path("prefixes");
    const program_call prune = {.arguments = {"cache", "prune", path, "--bytes", "0"}};
    kvern_context *context = small_rows_context();
    kvern_composition *composition = small_rows_composition(context);
    program_expect_failure(&(program_call){.arguments = {"cache", "list", path}}, "No such file");
    kvern_disk_store *store = open_directory(context);
    publish_prompts(store, composition);
    program_result text = program_run_well(&(program_call){.arguments = {"cache", "list", path}});
    program_expect_part(text.out, " 39 positions, served from ");
    program_expect_part(text.out, "model unknown, bf16, q4g32 from 70 on, q2g32 behind the first 4 "
                                  "and the last 8\n");
    program_expect_part(text.out, "2 entries, ");
    program_free(&text);
    program_expect_failure(&prune, "another process has");
    kvern_disk_store_close(store);
    program_result result =
        program_run_well(&(program_call){.arguments = {"cache", "list", path, "--json"}});
    json_t *facts = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    const json_t *entries = json_object_get(facts, "entries");
    assert_int_equal(2, json_array_size(entries));
    assert_int_equal(
        0, json_integer_value(json_object_get(json_array_get(entries, 0), "checkpoints")));
    assert_null(json_object_get(json_array_get(entries, 0), "model"));
    program_free(&result);
    text = program_run_well(
        &(program_call){.arguments = {"cache", "prune", path, "--bytes", one_entry(facts)}});
    program_expect_part(text.out, "1 entry removed; 1 is left, of ");
    program_free(&text);
    json_decref(facts);
    text = program_run_well(&prune);
    program_expect_part(text.out, "1 entry removed; 0 are left, of 0 bytes\n");
    program_free(&text);
    assert_int_equal(0, unlink(program_path("prefixes/writer.lock")));
    assert_int_equal(0, rmdir(path));
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void wrong_usage_is_refused(void **state)
{
    (void)state;
    program_expect_usage(&(program_call){.arguments = {"cache"}}, "no action given");
    program_expect_usage(&(program_call){.arguments = {"cache", "eat", "f"}},
                         "unknown action 'eat'");
    program_expect_usage(&(program_call){.arguments = {"cache", "verify"}}, "no file given");
    program_expect_usage(&(program_call){.arguments = {"cache", "verify", "a", "b"}},
                         "more than one file: b");
    program_expect_usage(&(program_call){.arguments = {"cache", "list"}}, "no directory given");
    program_expect_usage(&(program_call){.arguments = {"cache", "verify", "f", "--model", "m"}},
                         "--model is for convert and list");
    program_expect_usage(&(program_call){.arguments = {"cache", "prune", "d"}},
                         "prune wants --bytes");
    program_expect_usage(&(program_call){.arguments = {"cache", "list", "d", "--bytes", "1"}},
                         "--bytes is for prune");
    program_expect_usage(&(program_call){.arguments = {"cache", "prune", "d", "--bytes", "x"}},
                         "'x' is no number of bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_described),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(a_directory_is_listed_and_pruned),
        cmocka_unit_test(prompt_caches_are_described),
        cmocka_unit_test(wrong_usage_is_refused),
    };
    return cmocka_run_group_tests(tests, write_file, program_tear_down);
}
