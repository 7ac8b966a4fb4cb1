// SPDX-License-Identifier: MIT
// kvern cache convert: prompt caches of mlx-lm become files of rows, and these become such again,
// with the same numbers, bit for bit. What cannot go across is named, and leaves no file.

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"
#include "tests/support/small_rows.h"
#include "tests/support/storages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN KVERN_TESTS_DIR "/golden/mlx/"
#define PROMPT "what is said first, and again: so that it need not be computed twice"

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){0}, program_path("random.gguf"));
    small_model_save(&(small_model){.context = 512}, program_path("other.gguf"));
    return 0;
}

static bool is_there(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) == 0;
}

// `kvern cache convert` from a file to one of the folder that is not there yet; further arguments
// end with NULL. Returns its path.
#define CONVERT(in, name, ...) convert(in, name, (const char *const[]){__VA_ARGS__, NULL})

static program_call conversion(const char *in, const char *out, const char *const *more)
{
    program_call call = {.arguments = {"cache", "convert", in, out}};
    for (size_t i = 0; more[i]; i++)
        call.arguments[4 + i] = more[i];
    return call;
}

static const char *convert(const char *in, const char *name, const char *const *more)
{
    const char *out = program_path(name);
    unlink(out);
    const program_call call = conversion(in, out, more);
    program_result result = program_run_well(&call);
    program_free(&result);
    return out;
}

// The same where it has to fail, and no file may come to be.
#define REFUSED(message, in, ...) refused(message, in, (const char *const[]){__VA_ARGS__, NULL})

static void refused(const char *message, const char *in, const char *const *more)
{
    const char *out = program_path("never");
    const program_call call = conversion(in, out, more);
    program_expect_failure(&call, message);
    assert_false(is_there(out) || is_there(program_path("never.tmp-0")));
}

// Of a safetensors file what is behind its header; of a file of rows, its pages. free().
static char *read_tensors(const char *path, size_t *bytes)
{
    uint64_t header;
    char *all = program_read(path, bytes);
    assert_true(*bytes > 8);
    memcpy(&header, all, sizeof header);
    assert_true(header < *bytes - 8);
    json_t *tensors = json_loadb(all + 8, header, 0, NULL);
    const json_t *rest = json_object_get(tensors, "snapshots");
    *bytes -= 8 + header;
    if (rest)
        *bytes =
            (size_t)json_integer_value(json_array_get(json_object_get(rest, "data_offsets"), 0));
    assert_true(tensors && *bytes > 0);
    json_decref(tensors);
    memmove(all, all + 8 + header, *bytes);
    return all;
}

static void expect_same_tensors(const char *wanted, const char *got)
{
    size_t wanted_bytes, got_bytes;
    char *a = read_tensors(wanted, &wanted_bytes), *b = read_tensors(got, &got_bytes);
    assert_int_equal(wanted_bytes, got_bytes);
    check_same_bytes(a, b, wanted_bytes, got);
    free(a);
    free(b);
}

static json_t *inspect(const char *path)
{
    return program_json(&(program_call){.arguments = {"cache", "inspect", path, "--json"}}, 0);
}

// ---- Without a model ----

// Every class whose layers are in the file: there, back, there again.
static void test_prompt_caches_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {
        "states-kv.safetensors",     "states-batch.safetensors",    "states-chunked.safetensors",
        "states-merged.safetensors", "states-rotating.safetensors", "states-quantized.safetensors",
        "infos-kv.safetensors",      "infos-batch.safetensors",     "infos-rotating.safetensors",
        "infos-merged.safetensors",  "infos-quantized.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char in[256];
        const bool old = strncmp(names[i], "infos", 5) == 0;
        snprintf(in, sizeof in, GOLDEN "%s", names[i]);
        const char *rows = CONVERT(in, "a.kv", NULL);
        if (strstr(names[i], "chunked")) // dropped positions: no layout of 0.31 says them
            REFUSED("", rows, "--to", "mlx-0.31");
        const char *back = CONVERT(rows, "a.safetensors", "--to", old ? "mlx-0.31" : "mlx");
        json_t *facts = inspect(back);
        assert_string_equal(old ? "mlx-lm prompt cache, up to 0.31"
                                : "mlx-lm prompt cache, 0.32 and later",
                            json_string_at(facts, "format"));
        json_decref(facts);
        const char *again = CONVERT(back, "b.kv", NULL);
        expect_same_tensors(back,
                            CONVERT(again, "b.safetensors", "--to", old ? "mlx-0.31" : "mlx"));
    }
}

static void test_what_a_model_says_is_asked_for(void **state)
{
    (void)state;
    REFUSED("ArraysCache, does not say what it is; --model MODEL",
            GOLDEN "states-arrays.safetensors", NULL);
    REFUSED("is a CacheList, which is latents with index keys or several layers; --model MODEL",
            GOLDEN "states-indexed.safetensors", NULL);
    REFUSED("has 3 caches, and 2 layers", GOLDEN "states-kv.safetensors", "--model",
            program_path("random.gguf"));
    REFUSED("No such file", GOLDEN "states-kv.safetensors", "--model", program_path("none.gguf"));
}

// Lists of tokens have thousands of numbers, which hid what came behind them.
static void test_long_values_are_cut_for_readers(void **state)
{
    (void)state;
    char name[301] = {0};
    memset(name, 'm', 300);
    const char *rows = CONVERT(GOLDEN "bun.mlxbunkv", "long.kv", NULL);
    program_result text = program_run_well(&(program_call){
        .arguments = {"cache", "inspect", CONVERT(rows, "long.safetensors", "--mlx-model", name)}});
    program_expect_part(text.out, "mmm... (300 bytes; --json has all)\n");
    program_expect_part(text.out, "row 0        13 positions");
    program_free(&text);
}

static void test_tokens_come_along(void **state)
{
    (void)state;
    const char *bun = GOLDEN "bun.mlxbunkv", *rotating = GOLDEN "states-rotating.safetensors";
    const char *rows = CONVERT(bun, "bun.kv", NULL);
    json_t *facts = inspect(rows);
    json_t *row = json_array_get(json_object_get(facts, "rows"), 0);
    assert_true(json_is_true(json_object_get(row, "tokens")));
    assert_string_equal("mlx-bun", json_string_at(json_object_get(facts, "identity"), "user.from"));
    assert_string_equal("mlx-lm", json_string_at(json_object_get(facts, "identity"), "rope"));
    json_decref(facts);
    facts = inspect(CONVERT(rows, "bun.safetensors", "--mlx-model", "made/up"));
    json_t *notes = json_object_get(facts, "metadata");
    assert_string_equal("made/up", json_string_at(notes, "model"));
    assert_string_equal("{}", json_string_at(notes, "tokenizer_config"));
    assert_true(strlen(json_string_at(notes, "kvern_tokens")) > 24);
    json_decref(facts);
    expect_same_tensors(rows, CONVERT(program_path("bun.safetensors"), "again.kv", NULL));

    const char *thirteen = program_write_text("13", "1 2,3\n4 5 6 7 8 9 10 11 12 -13\n");
    facts = inspect(CONVERT(rotating, "r.kv", "--tokens", thirteen));
    row = json_array_get(json_object_get(facts, "rows"), 0);
    assert_true(json_is_true(json_object_get(row, "tokens")));
    json_decref(facts);
    CONVERT(rotating, "r.kv", "--tokens",
            program_write_text("13.json", "{\"tokens\": [{\"id\": 1}, 2, 3, 4, 5, 6, 7, 8, 9, 10, "
                                          "11, 12, 13]}"));
    REFUSED("a length of 2 is given", rotating, "--tokens", program_write_text("2", "[1, 2]"));
    REFUSED("token 1 is none", rotating, "--tokens", program_write_text("t", "1 x"));
    REFUSED("token 0 is none", rotating, "--tokens", program_write_text("t", "[0.5]"));
    REFUSED("token 0 is none", rotating, "--tokens", program_write_text("t", "4294967296"));
    REFUSED("it has no list of tokens", rotating, "--tokens", program_write_text("t", "{\"a\":1}"));
    REFUSED("t, line 1", rotating, "--tokens", program_write_text("t", "[1"));
    REFUSED("other tokens than the prompt cache has itself", bun, "--tokens", program_path("13"));
    REFUSED("those of one row, and the prompt cache has 3", GOLDEN "states-batch.safetensors",
            "--tokens", program_path("13"));
}

// ---- What no prompt cache holds ----

// Saves a row of 100 positions of a layer, with this identity.
static const char *save_layer(kvern_layer layer, const kvern_file_identity *identity)
{
    const uint64_t sequence = 5;
    const char *path = program_path("layer.kv");
    kvern_context *context = small_rows_context();
    kvern_composition *composition;
    kvern_state *s;
    kvern_file_content content = kvern_file_content_default();
    content.identity = identity;
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    hybrid_step(s, KVERN_PHASE_WINDOW, &sequence, (int64_t[]){100}, NULL);
    assert_ok(kvern_file_save(s, &content, path));
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return path;
}

static void test_rows_that_cannot_go_across(void **state)
{
    (void)state;
    const storage none[] = {
        {"rotated", STORAGE_ROTATED(4, 32), STORAGE_ROTATED(4, 32), KVERN_NO_START, 0, 0},
        {"two kinds", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(4, 32), KVERN_NO_START, 0, 0},
        {"residual", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), KVERN_NO_START, 8, 4}};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const char *path = save_layer(storage_layer(&none[i], 1, 32), NULL);
        REFUSED("has no cache for such codes; its values can be asked for (--recode)", path,
                "--key-pairs", "0");
        CONVERT(path, "values.safetensors", "--key-pairs", "0", "--recode");
    }
    const kvern_layer lane = kvern_layer_lane(40);
    REFUSED("has no cache for a lane", save_layer(lane, NULL), NULL);
    const storage q4 = {"q4", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), KVERN_NO_START, 0, 0};
    const char *path = save_layer(storage_layer(&q4, 1, 32), NULL);
    REFUSED("codes of keys in pairs of neighbours, which cannot be turned; its values can be asked "
            "for (--recode)",
            path, "--key-pairs", "32");
    const char *cache = CONVERT(path, "q4.safetensors", "--key-pairs", "0");
    REFUSED("codes of keys cannot be turned to pairs of neighbours; a conversion can be asked for "
            "(--recode)",
            cache, "--key-pairs", "32");
}

static void test_the_order_of_keys_is_asked_for(void **state)
{
    (void)state;
    const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
    const kvern_layer layer = storage_layer(&bf16, 1, 32);
    const char *path = save_layer(layer, NULL);
    REFUSED("the order of the rotated pairs in its keys is the model's", path, NULL);
    REFUSED("rows of 1 layers", path, "--model", program_path("random.gguf"));
    REFUSED("row 1 of 1", path, "--key-pairs", "0", "--row", "1");
    CONVERT(path, "plain.safetensors", "--key-pairs", "0");
    CONVERT(path, "turned.safetensors", "--key-pairs", "32");
    CONVERT(program_path("plain.safetensors"), "plain.kv", NULL);
    CONVERT(program_path("turned.safetensors"), "turned.kv", "--key-pairs", "32");
    path = program_path("layer.kv"); // paths before the last 16 are gone
    expect_same_tensors(path, program_path("turned.kv"));
    expect_same_tensors(path, program_path("plain.kv"));
    CONVERT(program_path("turned.safetensors"), "turned.kv", NULL); // as mlx-lm has them
    size_t bytes, turned_bytes;
    char *a = read_tensors(path, &bytes);
    char *b = read_tensors(program_path("turned.kv"), &turned_bytes);
    assert_int_equal(bytes, turned_bytes);
    assert_true(memcmp(a, b, bytes) != 0);
    free(a);
    free(b);
    // Latents have one order.
    CONVERT(save_layer(kvern_layer_latent(32, 8, 0), NULL), "latent.safetensors", NULL);
}

static void test_identities_come_along(void **state)
{
    (void)state;
    const kvern_file_key keys[] = {{"salt.y", "\"s\""}, {"kvern", "0"}};
    kvern_file_identity identity = kvern_file_identity_default();
    identity.model = "0123456789abcdef";
    identity.adapter = "A";
    identity.media = "";
    identity.keys = keys;
    identity.key_count = 2;
    const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
    const char *path = save_layer(storage_layer(&bf16, 1, 32), &identity);
    REFUSED("rows of another model than", path, "--model", program_path("random.gguf"));
    const char *cache = CONVERT(path, "c.safetensors", "--key-pairs", "0");
    json_t *facts = inspect(CONVERT(cache, "c.kv", NULL));
    const json_t *said = json_object_get(facts, "identity");
    assert_string_equal("A", json_string_at(said, "adapter"));
    assert_string_equal("", json_string_at(said, "media"));
    assert_string_equal("\"s\"", json_string_at(said, "user.salt.y"));
    assert_string_equal("mlx-lm", json_string_at(said, "user.from"));
    assert_null(json_object_get(said, "model")); // its keys lie otherwise
    assert_null(json_object_get(said, "user.kvern"));
    json_decref(facts);
    REFUSED("rows of another model than", cache, "--model", program_path("random.gguf"));
}

static void test_many_rows(void **state)
{
    (void)state;
    const char *rows = CONVERT(GOLDEN "states-batch.safetensors", "many.kv", NULL);
    json_t *one = inspect(CONVERT(rows, "one.safetensors", "--row", "1"));
    json_t *many = inspect(CONVERT(rows, "many.safetensors", NULL));
    assert_int_equal(1, json_array_size(json_object_get(one, "rows")));
    assert_int_equal(3, json_array_size(json_object_get(many, "rows")));
    assert_string_equal("KVCache",
                        json_string_at(json_array_get(json_object_get(one, "caches"), 0), "class"));
    json_decref(one);
    json_decref(many);
}

// ---- With a model ----

// The entry that a prompt leaves in a directory.
static const char *compute_entry(const char *model)
{
    static char path[4096];
    const char *directory = program_path("prefixes");
    program_remove(directory);
    program_result result = program_run_well(
        &(program_call){.arguments = {"run", model, "-p", PROMPT, "--temp", "0", "-n", "8", "-t",
                                      "1", "--cache", directory}});
    program_free(&result);
    json_t *list =
        program_json(&(program_call){.arguments = {"cache", "list", directory, "--json"}}, 0);
    const json_t *entries = json_object_get(list, "entries");
    assert_int_equal(1, json_array_size(entries));
    snprintf(path, sizeof path, "%s/%s", directory,
             json_string_at(json_array_get(entries, 0), "name"));
    json_decref(list);
    return path;
}

// What a directory has of one model, and how it is stored.
static void test_entries_of_one_model(void **state)
{
    (void)state;
    compute_entry(program_path("random.gguf"));
    program_call list = {.arguments = {"cache", "list", program_path("prefixes"), "--model",
                                       program_path("random.gguf")}};
    program_result text = program_run_well(&list);
    program_expect_part(text.out, ", bf16\n1 entry, ");
    program_free(&text);
    list.arguments[4] = program_path("other.gguf");
    text = program_run_well(&list);
    assert_string_equal("0 entries, 0 bytes\n", text.out);
    program_free(&text);
    list.arguments[4] = program_path("none.gguf");
    program_expect_failure(&list, "none.gguf: No such file");
}

// Out of a directory, into mlx-lm's order of keys, and back into the engine's.
static void test_an_entry_goes_out_and_comes_back(void **state)
{
    (void)state;
    const char *model = program_path("random.gguf"), *entry = compute_entry(model);
    REFUSED("the order of the rotated pairs", entry, NULL);
    REFUSED("rows of another model than", entry, "--model", program_path("other.gguf"));
    const char *cache = CONVERT(entry, "e.safetensors", "--model", model);
    REFUSED("rows of another model than", cache, "--model", program_path("other.gguf"));
    REFUSED("k is stored in f32, in the file in bf16; a conversion can be asked for (--recode)",
            cache, "--model", model, "--kv", "f32");
    const char *rows = CONVERT(cache, "e.kv", "--model", model);
    expect_same_tensors(entry, rows);
    json_t *said = inspect(rows), *first = inspect(entry);
    assert_string_equal(json_string_at(json_object_get(first, "identity"), "model"),
                        json_string_at(json_object_get(said, "identity"), "model"));
    json_decref(first);
    json_decref(said);
    CONVERT(cache, "f.kv", "--model", model, "--kv", "f32", "--recode");
    expect_same_tensors(cache, CONVERT(rows, "g.safetensors", "--model", model));
}

// ---- Files ----

static void test_no_file_is_lost(void **state)
{
    (void)state;
    const char *in = GOLDEN "states-kv.safetensors";
    char out[4096];
    snprintf(out, sizeof out, "%s", program_write_text("kept", "a text that is not to be lost"));
    const program_call call = {.arguments = {"cache", "convert", in, out}};
    program_expect_failure(&call, "kept is there; --force replaces it");
    char *text = program_read(out, NULL);
    assert_string_equal("a text that is not to be lost", text);
    free(text);
    // A conversion that fails leaves what is there, also where it may be replaced.
    program_expect_failure(
        &(program_call){
            .arguments = {"cache", "convert", GOLDEN "states-hybrid.safetensors", out, "--force"}},
        "--model MODEL");
    text = program_read(out, NULL);
    assert_string_equal("a text that is not to be lost", text);
    free(text);
    program_result result = program_run_well(
        &(program_call){.arguments = {"cache", "convert", in, out, "--force", "--json"}});
    program_expect_part(result.out, "{\"format\":\"kvern\",\"rows\":1,\"positions\":11,\"bytes\":");
    program_free(&result);
    program_expect_failure(
        &(program_call){.arguments = {"cache", "convert", in, program_path("no/such/folder")}},
        "no/such/folder");
    REFUSED("is a prompt cache of mlx-lm already", in, "--to", "mlx");
    REFUSED("is a file of rows already", out, "--to", "kvern");
    REFUSED("--row is for files of rows", in, "--row", "0");
    REFUSED("--mlx-model is for files of rows", in, "--mlx-model", "m");
    REFUSED("--tokens is for prompt caches", out, "--tokens", "f");
    REFUSED("--kv is for prompt caches", out, "--model", program_path("random.gguf"), "--kv",
            "f32");
    REFUSED("is not a regular file", "/dev/null", NULL);
    // A page that is damaged is not carried on.
    FILE *file = fopen(out, "r+b");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, 4096 + 20, SEEK_SET));
    assert_int_equal('x', fputc('x', file));
    assert_int_equal(0, fclose(file));
    REFUSED("has another checksum", out, NULL);
}

static void test_usage(void **state)
{
    (void)state;
    program_expect_usage(&(program_call){.arguments = {"cache", "convert", "a"}},
                         "convert wants two files");
    program_expect_usage(&(program_call){.arguments = {"cache", "convert", "a", "b", "c"}},
                         "too many files: c");
    program_expect_usage(&(program_call){.arguments = {"cache", "verify", "a", "--force"}},
                         "--force is for convert");
    program_expect_usage(&(program_call){.arguments = {"cache", "list", "a", "--kv", "q4"}},
                         "storage (--kv) is for convert");
    program_expect_usage(&(program_call){.arguments = {"cache", "convert", "a", "b", "--kv", "q4"}},
                         "how rows are stored (--kv) needs --model");
    program_expect_usage(&(program_call){.arguments = {"cache", "convert", "a", "b", "--to", "x"}},
                         "--to takes kvern, mlx or mlx-0.31, not 'x'");
    program_expect_usage(&(program_call){.arguments = {"cache", "convert", "a", "b", "--key-pairs",
                                                       "8", "--model", "m"}},
                         "--key-pairs and --model cannot be used together");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_caches_come_back),
        cmocka_unit_test(test_what_a_model_says_is_asked_for),
        cmocka_unit_test(test_long_values_are_cut_for_readers),
        cmocka_unit_test(test_tokens_come_along),
        cmocka_unit_test(test_rows_that_cannot_go_across),
        cmocka_unit_test(test_the_order_of_keys_is_asked_for),
        cmocka_unit_test(test_identities_come_along),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_entries_of_one_model),
        cmocka_unit_test(test_an_entry_goes_out_and_comes_back),
        cmocka_unit_test(test_no_file_is_lost),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
