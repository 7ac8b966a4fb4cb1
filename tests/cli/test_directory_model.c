// SPDX-License-Identifier: MIT
// The commands on a Hugging Face directory: facts and logits without a tokenizer, and a word where
// one is needed. And on a file that lacks a tensor.

#include "tests/support/engine_fixture.h"
#include "tests/support/hf_model.h"
#include "tests/support/program.h"
#include "tests/support/tiny_llama.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[512];

static void save(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static const char *in_folder(const char *name)
{
    static char path[640];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    size_t bytes;
    const tiny_llama model = tiny_llama_default(GGUF_TYPE_BF16);
    void *data = tiny_llama_build(&model, &bytes);
    save(program_path("tiny.gguf"), data, bytes);
    model_source *source = engine_fixture_source(data, bytes);
    model_facts facts;
    assert_int_equal(model_read_facts(source, &facts, NULL), KVERN_OK);
    hf_model hf = hf_model_of(model_source_gguf(source), &facts);
    model_source_close(source);
    snprintf(folder, sizeof folder, "%s", program_path("tiny"));
    assert_int_equal(mkdir(folder, 0700), 0);
    save(in_folder("config.json"), hf.config, strlen(hf.config));
    save(in_folder("model.safetensors"), hf.tensors, hf.tensor_bytes);
    hf_model_free(&hf);
    const char name[] = "blk.1.attn_v.weight";
    for (size_t i = 0; i + sizeof name <= bytes; i++) {
        if (memcmp((char *)data + i, name, sizeof name - 1) == 0) {
            ((char *)data)[i + 13] = 'x';
        }
    }
    save(program_path("lacking.gguf"), data, bytes);
    free(data);
    return 0;
}

static int tear_down(void **state)
{
    assert_int_equal(unlink(in_folder("config.json")), 0);
    assert_int_equal(unlink(in_folder("model.safetensors")), 0);
    assert_int_equal(rmdir(folder), 0);
    return program_tear_down(state);
}

static void *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*bytes);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

static void logits_are_those_of_the_file(void **state)
{
    (void)state;
    const char *one = program_path("one.npy"), *two = program_path("two.npy");
    program_result result = program_run_well(
        &(program_call){.arguments = {"logits", folder, "--tokens", "1,2,3", "--out", one}});
    program_free(&result);
    result = program_run_well(&(program_call){
        .arguments = {"logits", program_path("tiny.gguf"), "--tokens", "1,2,3", "--out", two}});
    program_free(&result);
    size_t bytes, other_bytes;
    void *data = read_file(one, &bytes), *other = read_file(two, &other_bytes);
    assert_int_equal(bytes, other_bytes);
    assert_true(bytes > 3 * 100 * sizeof(float));
    assert_memory_equal(data, other, bytes);
    free(data);
    free(other);
}

static void facts_are_shown(void **state)
{
    (void)state;
    program_result result =
        program_run_well(&(program_call){.arguments = {"inspect", folder, "--json"}});
    json_t *facts = json_loads(result.out, 0, NULL);
    assert_true(json_is_null(json_object_get(facts, "gguf_version")));
    assert_true(json_is_null(json_object_get(facts, "tokenizer")));
    assert_string_equal(json_string_value(json_object_get(facts, "architecture")), "llama");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(facts, "geometry"), "width")), 64);
    assert_true(json_array_size(json_object_get(facts, "keys")) > 10);
    json_decref(facts);
    program_free(&result);
    result = program_run_well(&(program_call){.arguments = {"inspect", folder}});
    program_expect_part(result.out, "safetensors");
    assert_null(strstr(result.out, "--template")); // a chat needs a tokenizer in the first place
    program_free(&result);
    result = program_run_well(&(program_call){.arguments = {"fit", folder, "--ctx", "64"}});
    program_free(&result);
}

static void a_tokenizer_is_missed_where_it_is_needed(void **state)
{
    (void)state;
    program_expect_failure(&(program_call){.arguments = {"run", folder, "-p", "x"}},
                           "has no tokenizer");
    program_expect_failure(&(program_call){.arguments = {"logits", folder, "-p", "x", "--out",
                                                         program_path("none.npy")}},
                           "has no tokenizer");
}

static void a_missing_tensor_fails_every_command(void **state)
{
    (void)state;
    const char *path = program_path("lacking.gguf");
    static const char message[] = "lacks the tensor blk.1.attn_v.weight";
    program_expect_failure(&(program_call){.arguments = {"inspect", path}}, message);
    program_expect_failure(&(program_call){.arguments = {"inspect", path, "--json"}}, message);
    program_expect_failure(&(program_call){.arguments = {"fit", path}}, message);
    program_expect_failure(&(program_call){.arguments = {"logits", path, "--tokens", "1", "--out",
                                                         program_path("none.npy")}},
                           message);
}

// By the names that a config.json has for families, not those of GGUF. Replaces the configuration.
static void another_family_is_refused_by_its_model_type(void **state)
{
    (void)state;
    const program_call inspect = {.arguments = {"inspect", folder}};
    save(in_folder("config.json"), "{}", 2);
    program_expect_failure(&inspect, "config.json lacks the key model_type");
    const char gpt2[] = "{\"model_type\": \"gpt2\"}";
    save(in_folder("config.json"), gpt2, sizeof gpt2 - 1);
    program_expect_failure(&inspect, "the model_type \"gpt2\" is not supported; supported: llama");
    program_expect_failure(&inspect, ", qwen3_moe, ");
    program_expect_failure(&inspect, ", deepseek_v3, ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_file),
        cmocka_unit_test(facts_are_shown),
        cmocka_unit_test(a_tokenizer_is_missed_where_it_is_needed),
        cmocka_unit_test(a_missing_tensor_fails_every_command),
        cmocka_unit_test(another_family_is_refused_by_its_model_type),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
