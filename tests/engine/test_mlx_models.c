// SPDX-License-Identifier: MIT
// Prompt caches of whole models: a small random model of every family is left in the middle of a
// text, saved as a cache of mlx-lm, loaded, and goes on with the bits of one that was never saved.
//
// KVERN_TEST_MLX_MODELS names a folder of tests/oracle/test_mlx_cache.py: descriptions NAME.json,
// and beside them caches NAME-theirs.safetensors that mlx-lm left at the same place, from which it
// has to go on to the logits of the description; NAME-ours.safetensors is written for mlx-lm. So
// are NAME-ours.kv and the model, NAME-model, for `kvern cache convert`; of what that has made of
// NAME-theirs, NAME-theirs.kv, the model goes on as well.

#include "engine/model/families/model_family.h"
#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/family_case.h"
#include "tests/support/folder.h"

#include <dirent.h>
#include <kvern/file.h>
#include <kvern/mlx_cache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_CASES 64
#define PATH_BYTES 1024
#define LEFT_AT 100 // behind the windows of all models

static const char *folder(void)
{
    const char *others = getenv("KVERN_TEST_MLX_MODELS");
    return others ? others : KVERN_TESTS_DIR "/golden/families";
}

static engine_fixture open_model(const family_case *c)
{
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    engine_error error = {KVERN_OK, ""};
    size_t bytes;
    char *config = family_case_config(c);
    void *tensors = family_case_safetensors(c, &bytes);
    if (model_source_of_safetensors(config, strlen(config), tensors, bytes, &options.source,
                                    &error) != KVERN_OK) {
        fail_msg("%s: %s", c->name, error.text);
    }
    engine_fixture f = engine_fixture_open(&options);
    free(config);
    free(tensors);
    return f;
}

// The logits of the tokens from `begin` to the end, to their place in logits.
static void go_on(const engine_fixture *f, const family_case *c, kvern_state *state, int64_t begin,
                  int64_t count, float *logits)
{
    assert_int_equal(begin, kvern_state_length(state, 0));
    engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, c->tokens + begin, &count,
                           logits + (size_t)begin * c->vocabulary);
}

static kvern_state *load(const engine_fixture *f, const char *path)
{
    kvern_mlx_file *file;
    kvern_state *state;
    assert_ok(kvern_mlx_open(f->context, path, &file));
    kvern_mlx_import_options options = kvern_mlx_import_options_default();
    options.k_pairs = model_key_pairs(f->facts);
    assert_ok(kvern_mlx_import(file, f->composition, &options, &state));
    kvern_mlx_close(file);
    return state;
}

// As mlx-lm left it.
static void go_on_from_theirs(const engine_fixture *f, const family_case *c, const char *path,
                              float *logits)
{
    kvern_state *state = load(f, path);
    go_on(f, c, state, LEFT_AT, (int64_t)c->count - LEFT_AT, logits);
    kvern_state_destroy(state);
    family_case_expect(c, logits);
}

// ---- For kvern cache convert, and from it ----

static void write_file(const char *path, const char *name, const void *data, size_t bytes)
{
    char whole[PATH_BYTES + 32];
    snprintf(whole, sizeof whole, "%s/%s", path, name);
    FILE *file = fopen(whole, "wb");
    assert_true(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

static void write_model(const family_case *c, const char *path)
{
    size_t bytes;
    char *config = family_case_config(c);
    void *tensors = family_case_safetensors(c, &bytes);
    (void)mkdir(path, 0700);
    write_file(path, "config.json", config, strlen(config));
    write_file(path, "model.safetensors", tensors, bytes);
    free(config);
    free(tensors);
}

// The state where it was left, with its tokens.
static void write_rows(const family_case *c, const kvern_state *state, const char *path)
{
    const int32_t *rows[] = {c->tokens};
    kvern_file_content content = kvern_file_content_default();
    content.tokens = rows;
    assert_ok(kvern_file_save(state, &content, path));
}

static void go_on_from_rows(const engine_fixture *f, const family_case *c, const char *path,
                            float *logits)
{
    kvern_file *file;
    kvern_state *state = engine_fixture_state(f, 0);
    assert_ok(kvern_file_open(f->context, path, &file));
    assert_ok(kvern_file_load(file, NULL, state));
    assert_memory_equal(c->tokens, kvern_file_tokens(file, 0), LEFT_AT * sizeof *c->tokens);
    kvern_file_close(file);
    go_on(f, c, state, LEFT_AT, (int64_t)c->count - LEFT_AT, logits);
    kvern_state_destroy(state);
    family_case_expect(c, logits);
}

static void check_conversions(const engine_fixture *f, const family_case *c,
                              const kvern_state *left, float *logits)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s-model", folder(), c->name);
    write_model(c, path);
    snprintf(path, sizeof path, "%s/%s-ours.kv", folder(), c->name);
    write_rows(c, left, path);
    snprintf(path, sizeof path, "%s/%s-theirs.kv", folder(), c->name);
    if (access(path, R_OK) == 0)
        go_on_from_rows(f, c, path, logits);
}

static void check_model(const family_case *c, const char *ours, const char *theirs)
{
    engine_fixture f = open_model(c);
    const int64_t rest = (int64_t)c->count - LEFT_AT;
    const size_t count = c->count * c->vocabulary;
    float *whole = calloc(count, sizeof *whole), *saved = calloc(count, sizeof *saved);
    assert_true(rest > 0 && whole && saved);
    kvern_state *state = engine_fixture_state(&f, 1);
    go_on(&f, c, state, 0, LEFT_AT, whole);
    memcpy(saved, whole, count * sizeof *saved);
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    options.k_pairs = model_key_pairs(f.facts);
    assert_ok(kvern_mlx_export(state, NULL, 0, ours, &options));
    if (theirs)
        check_conversions(&f, c, state, saved);
    go_on(&f, c, state, LEFT_AT, rest, whole);
    kvern_state_destroy(state);
    state = load(&f, ours);
    go_on(&f, c, state, LEFT_AT, rest, saved);
    kvern_state_destroy(state);
    check_same_floats(whole, saved, count, c->name);
    if (theirs)
        go_on_from_theirs(&f, c, theirs, saved);
    free(whole);
    free(saved);
    engine_fixture_close(&f);
}

static void test_case(void **state)
{
    family_case c = family_case_open(*state);
    char ours[PATH_BYTES], theirs[PATH_BYTES];
    const bool other = getenv("KVERN_TEST_MLX_MODELS") != NULL;
    snprintf(ours, sizeof ours, "%s/%s-ours.safetensors", folder(), c.name);
    snprintf(theirs, sizeof theirs, "%s/%s-theirs.safetensors", folder(), c.name);
    check_model(&c, other ? ours : folder_path("ours.safetensors"), other ? theirs : NULL);
    family_case_close(&c);
}

static int is_description(const struct dirent *entry)
{
    const char *ending = strrchr(entry->d_name, '.');
    return ending && strcmp(ending, ".json") == 0;
}

int main(void)
{
    static char paths[MOST_CASES][PATH_BYTES];
    struct CMUnitTest tests[MOST_CASES];
    struct dirent **files;
    const int count = scandir(folder(), &files, is_description, alphasort);
    if (count < 1 || count > MOST_CASES) {
        fprintf(stderr, "%s: %d descriptions of models\n", folder(), count);
        return 1;
    }
    folder_make();
    for (int i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder(), files[i]->d_name);
        tests[i] = (struct CMUnitTest){
            .name = files[i]->d_name, .test_func = test_case, .initial_state = paths[i]};
    }
    const int failed = _cmocka_run_group_tests("mlx_models", tests, (size_t)count, NULL, NULL);
    for (int i = 0; i < count; i++)
        free(files[i]);
    free(files);
    folder_remove();
    return failed;
}
