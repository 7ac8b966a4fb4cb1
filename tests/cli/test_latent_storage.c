// SPDX-License-Identifier: MIT
// Models with latents: --kv stores their lanes as asked, and what says nothing about them is
// refused (the option was once taken and ignored, and f32 was stored); inspect tells which layers
// select.

#include "tests/support/family_case.h"
#include "tests/support/hf_directory.h"
#include "tests/support/program_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

// 3 layers, of latents of 32 and rotated keys of 16 numbers.
#define LAYERS 3

// Layers 0 and 2 select, 1 and 3 attend what these do.
static void save_shared(void)
{
    size_t bytes;
    family_case shared =
        family_case_open(KVERN_TESTS_DIR "/golden/families/glm-moe-dsa-shared.json");
    char *config = family_case_config(&shared);
    void *tensors = family_case_safetensors(&shared, &bytes);
    assert_int_equal(mkdir(program_path("shared"), 0700), 0);
    program_write("shared/config.json", config, strlen(config));
    program_write("shared/model.safetensors", tensors, bytes);
    free(tensors);
    free(config);
    family_case_close(&shared);
}

static void save_gguf(const char *family, const char *name)
{
    size_t bytes;
    family_case model = family_case_open(family);
    void *file = family_case_gguf(&model, &bytes);
    assert_non_null(file);
    program_write(name, file, bytes);
    free(file);
    family_case_close(&model);
}

static int set_up(void **state)
{
    (void)state;
    save_shared();
    save_gguf(KVERN_TESTS_DIR "/golden/families/deepseek-v3-gguf.json", "latents.gguf");
    save_gguf(KVERN_TESTS_DIR "/golden/families/gemma3-gguf.json", "keys.gguf");
    return 0;
}

static int tear_down(void **state)
{
    hf_directory_remove(program_path("shared"));
    return program_tear_down(state);
}

static void the_lanes_are_stored_as_asked(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *text;
        json_int_t bytes;
        const char *leave;
    } cases[] = {
        {NULL, NULL, "f32", (32 + 16) * 4, NULL},
        {"--kv", "bf16", "bf16", (32 + 16) * 2, NULL},
        {"--kv", "q8g32/bf16", "q8g32/bf16", 32 + 4 + 16 * 2, NULL},
        {"--kv-k", "f16", "f16/f32", 32 * 2 + 16 * 4, NULL},
        {"--kv-v", "bf16", "f32/bf16", 32 * 4 + 16 * 2, NULL},
        {"--kv", "rq4g32/tq4", "rq4g32/tq4", 16 + 4 + 8 + 2, "--kv-rotated-latents"},
        {"--kv", "q8g32/bf16", "q8g32/bf16", 32 + 4 + 16 * 2, "--kv-rotated-latents"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const program_call call = {.arguments = {"inspect", program_path("latents.gguf"), "--json",
                                                 cases[i].option, cases[i].value, cases[i].leave}};
        json_t *object = program_json(&call, 0);
        const json_t *cache = json_object_get(object, "kv");
        assert_string_equal(json_string_at(cache, "storage"), cases[i].text);
        assert_int_equal(json_integer_at(cache, "bytes_per_token"), LAYERS * cases[i].bytes);
        json_decref(object);
    }
}

// Fewer bits give other logits, so the option reaches what is computed.
static void logits_follow(void **state)
{
    (void)state;
    const char *exact = program_path("exact.npy"), *same = program_path("same.npy");
    const char *rounded = program_path("rounded.npy"), *model = program_path("latents.gguf");
    const program_call calls[] = {
        {.arguments = {"logits", model, "--tokens", "1,2,3,4", "--out", exact}},
        {.arguments = {"logits", model, "--tokens", "1,2,3,4", "--out", same, "--kv", "f32"}},
        {.arguments = {"logits", model, "--tokens", "1,2,3,4", "--out", rounded, "--kv", "bf16"}},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        program_result result = program_run_well(&calls[i]);
        program_free(&result);
    }
    size_t bytes;
    char *a = program_read(exact, &bytes), *b = program_read(same, NULL);
    char *c = program_read(rounded, NULL);
    assert_memory_equal(a, b, bytes);
    assert_memory_not_equal(a, c, bytes);
    free(a);
    free(b);
    free(c);
}

static void what_no_layer_follows_is_refused(void **state)
{
    (void)state;
    static const char *const options[][2] = {
        {"--kv-start", "4"}, {"--kv-first", "1"}, {"--kv-last", "1"}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        program_expect_failure(
            &(program_call){.arguments = {"inspect", program_path("latents.gguf"), options[i][0],
                                          options[i][1]}},
            "no layer of the model stores keys and values");
    }
    program_expect_failure(
        &(program_call){.arguments = {"inspect", program_path("latents.gguf"), "--kv", "q8"}},
        "layer 0");
    program_expect_failure(
        &(program_call){.arguments = {"inspect", program_path("latents.gguf"), "--kv", "tq4"}},
        "layer 0: latent_codec is turbo4r1c1, of rotated vectors");
    program_expect_failure(&(program_call){.arguments = {"inspect", program_path("keys.gguf"),
                                                         "--kv-rotated-latents"}},
                           "--kv-rotated-latents: no layer of the model stores latents");
}

static void layers_that_share_a_selection_are_shown(void **state)
{
    (void)state;
    program_result result =
        program_run_well(&(program_call){.arguments = {"inspect", program_path("shared")}});
    program_expect_part(result.out, "in 2 of 4 layers; 2 share what the latest of these selected");
    program_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lanes_are_stored_as_asked),
        cmocka_unit_test(logits_follow),
        cmocka_unit_test(what_no_layer_follows_is_refused),
        cmocka_unit_test(layers_that_share_a_selection_are_shown),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
