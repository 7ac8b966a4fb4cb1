// SPDX-License-Identifier: MIT
// Every family of models against mlx-lm: a small random model of each, from a directory and from
// GGUF, which must be equal bit for bit, and so must all ways of serving it, on one thread or many,
// with the kernels of the machine or those in plain C.
//
// The models are those of tests/golden/families, or of the folder that KVERN_TEST_FAMILIES names.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/family_case.h"
#include "tests/support/served_sequence.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CASES 64
#define PATH_BYTES 1024

static const char *folder(void)
{
    const char *others = getenv("KVERN_TEST_FAMILIES"); // of tests/oracle/test_families.py
    return others ? others : KVERN_TESTS_DIR "/golden/families";
}

// A window takes no more back than its slack, and a recurrent state nothing.
static bool can_be_trimmed(const model_facts *facts)
{
    bool full = true;
    for (size_t i = 0; i < facts->layers; i++) {
        full = full && facts->layer[i].kind == MODEL_LAYER_FULL;
    }
    return full;
}

static void serve_all_ways(const engine_fixture *f, const served_sequence *s)
{
    serve_decodes(f, s);
    serve_known(f, s, 9);
    serve_chunks(f, s, 64);
    serve_random_chunks(f, s, 40, 7);
    serve_in_batch(f, s, 8);
    serve_in_rounds(f, s, 9);
    if (can_be_trimmed(f->facts)) {
        serve_after_trim(f, s);
    }
}

static float *serve_window_of(const engine_fixture *f, const family_case *c)
{
    float *logits = calloc(c->count * c->vocabulary, sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(f->facts->vocabulary, c->vocabulary);
    kvern_state *state = engine_fixture_state(f, 1);
    engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, c->tokens, &(int64_t){(int64_t)c->count},
                           logits);
    kvern_state_destroy(state);
    return logits;
}

// The contents of a directory.
typedef struct directory {
    char *config;
    void *tensors;
    size_t bytes;
} directory;

static engine_fixture open_directory(const family_case *c, const directory *d,
                                     const kvern_context_options *context)
{
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    engine_error error = {KVERN_OK, ""};
    options.context = context ? *context : options.context;
    if (model_source_of_safetensors(d->config, strlen(d->config), d->tensors, d->bytes,
                                    &options.source, &error) != KVERN_OK) {
        fail_msg("%s: %s", c->name, error.text);
    }
    return engine_fixture_open(&options);
}

// The same on several threads, and with the kernels in plain C.
static void check_elsewhere(const family_case *c, const directory *d, const float *logits)
{
    kvern_context_options contexts[2] = {kvern_context_options_default(),
                                         kvern_context_options_default()};
    contexts[0].executor = executor_shuffled(5);
    contexts[1].threads = 1;
    contexts[1].cpu_features = 0;
    for (size_t i = 0; i < 2; i++) {
        engine_fixture f = open_directory(c, d, &contexts[i]);
        float *others = serve_window_of(&f, c);
        if (memcmp(logits, others, c->count * c->vocabulary * sizeof *logits) != 0) {
            fail_msg("%s: other bits %s", c->name, i ? "in plain C" : "on several threads");
        }
        free(others);
        engine_fixture_close(&f);
    }
}

// The directory's logits; free().
static float *check_directory(const family_case *c)
{
    directory d = {.config = family_case_config(c)};
    d.tensors = family_case_safetensors(c, &d.bytes);
    engine_fixture f = open_directory(c, &d, NULL);
    float *logits = serve_window_of(&f, c);
    const served_sequence sequence = {c->tokens, c->count, logits, c->vocabulary};
    family_case_expect(c, logits);
    serve_all_ways(&f, &sequence);
    engine_fixture_close(&f);
    check_elsewhere(c, &d, logits);
    free(d.tensors);
    free(d.config);
    return logits;
}

static void check_gguf(const family_case *c, const float *logits)
{
    size_t bytes;
    void *file = family_case_gguf(c, &bytes);
    if (!file) {
        return;
    }
    const engine_fixture_options options = engine_fixture_default(file, bytes);
    engine_fixture f = engine_fixture_open(&options);
    float *others = serve_window_of(&f, c);
    if (family_case_is_rounded(c)) {
        family_case_expect(c, others);
    } else if (memcmp(logits, others, c->count * c->vocabulary * sizeof *logits) != 0) {
        fail_msg("%s: the GGUF file has other logits than the directory", c->name);
    }
    free(others);
    engine_fixture_close(&f);
    free(file);
}

static void test_case(void **state)
{
    family_case c = family_case_open(*state);
    float *logits = check_directory(&c);
    check_gguf(&c, logits);
    free(logits);
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
    int count = scandir(folder(), &files, is_description, alphasort);
    if (count < 1 || count > MOST_CASES) {
        fprintf(stderr, "%s: %d descriptions of models\n", folder(), count);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder(), files[i]->d_name);
        tests[i] = (struct CMUnitTest){
            .name = files[i]->d_name, .test_func = test_case, .initial_state = paths[i]};
    }
    int failed = _cmocka_run_group_tests("families", tests, (size_t)count, NULL, NULL);
    for (int i = 0; i < count; i++) {
        free(files[i]);
    }
    free(files);
    return failed;
}
