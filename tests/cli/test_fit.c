// SPDX-License-Identifier: MIT
// kvern fit: the table, the JSON, the code, and that it tells the truth about kvern run.

#include "tests/support/family_case.h"
#include "tests/support/hf_directory.h"
#include "tests/support/program_json.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

static int set_up(void **state)
{
    (void)state;
    tiny_llama llama = tiny_llama_default(GGUF_TYPE_F32);
    llama.layers = 3;
    llama.head_dim = 64;
    llama.vocabulary = 260;
    llama.byte_tokenizer = true;
    llama.context_length = 3000;
    tiny_llama_save(&llama, program_path("llama.gguf"));
    tiny_gemma3 gemma = tiny_gemma3_default(GGUF_TYPE_F32); // 6 layers with a window of 12, 1 full
    gemma.head_dim = 64;
    gemma.context_length = 3000;
    gguf_builder *builder = gguf_builder_create();
    tiny_gemma3_add(&gemma, builder);
    gguf_builder_save(builder, program_path("gemma.gguf"));
    gguf_builder_destroy(builder);
    return 0;
}

static void test_json(void **state)
{
    (void)state;
    json_t *report = program_json(
        &(program_call){.arguments = {"fit", program_path("llama.gguf"), "--ctx", "130", "--json",
                                      "--budget", "8M", "--kv", "q4", "--kv-last", "1"}},
        0);
    // Three pages of 64 positions, in two kinds.
    assert_int_equal(json_integer_at(report, "context"), 130);
    assert_int_equal(json_integer_at(report, "kv_bytes"), 192 * (2 * 144 + 512));
    assert_true(json_integer_at(report, "needed_bytes") >= 192 * (2 * 144 + 512));
    assert_true(json_integer_at(report, "needed_bytes") <= 8 << 20);
    assert_int_equal(json_integer_at(report, "budget_bytes"), 8 << 20);
    assert_true(json_integer_at(report, "weight_bytes") > 4 * 260 * 64);
    assert_true(json_is_true(json_object_get(report, "fits")));
    assert_true(json_integer_at(report, "longest_context") >= 130);
    const json_t *layers = json_object_get(report, "layers");
    assert_int_equal(json_array_size(layers), 2);
    const json_t *q4 = json_array_get(layers, 0), *bf16 = json_array_get(layers, 1);
    assert_int_equal(json_integer_at(q4, "layers"), 2);
    assert_int_equal(json_integer_at(q4, "bytes_per_token"), 2 * 144);
    assert_int_equal(json_integer_at(q4, "bytes"), 192 * 2 * 144);
    assert_int_equal(json_integer_at(bf16, "layers"), 1);
    assert_int_equal(json_integer_at(bf16, "bytes_per_token"), 512);
    assert_int_equal(json_integer_at(bf16, "bytes"), 192 * 512);
    assert_string_equal(json_string_at(bf16, "storage"), "full:h2:k64=bf16:v64=bf16");
    json_decref(report);
}

// Windowed layers are a kind of their own, and stop to grow.
static void test_windows(void **state)
{
    (void)state;
    json_int_t bytes[2][2];
    static const char *const CONTEXTS[] = {"1000", "3000"};
    for (size_t i = 0; i < 2; i++) {
        json_t *report =
            program_json(&(program_call){.arguments = {"fit", program_path("gemma.gguf"), "--ctx",
                                                       CONTEXTS[i], "--json", "--kv", "q8"}},
                         0);
        const json_t *layers = json_object_get(report, "layers");
        assert_int_equal(json_array_size(layers), 2);
        assert_int_equal(json_integer_at(json_array_get(layers, 0), "layers"), 6);
        assert_int_equal(json_integer_at(json_array_get(layers, 1), "layers"), 1);
        assert_memory_equal(json_string_at(json_array_get(layers, 0), "storage"), "window", 6);
        assert_memory_equal(json_string_at(json_array_get(layers, 1), "storage"), "full", 4);
        for (size_t kind = 0; kind < 2; kind++) {
            bytes[i][kind] = json_integer_at(json_array_get(layers, kind), "bytes");
        }
        assert_int_equal(json_integer_at(report, "kv_bytes"), bytes[i][0] + bytes[i][1]);
        json_decref(report);
    }
    assert_int_equal(bytes[0][0], bytes[1][0]);
    assert_int_equal(bytes[0][1], 16 * 64 * 272);
    assert_int_equal(bytes[1][1], 47 * 64 * 272);
}

static json_int_t needed_bytes(const char *model)
{
    json_t *report = program_json(
        &(program_call){.arguments = {"fit", program_path(model), "--ctx", "256", "--json"}}, 0);
    const json_t *layers = json_object_get(report, "layers"), *layer;
    size_t i;
    json_int_t sum = 0;
    json_array_foreach(layers, i, layer)
    {
        sum += json_integer_at(layer, "bytes");
    }
    assert_int_equal(json_integer_at(report, "kv_bytes"), sum);
    const json_int_t needed = json_integer_at(report, "needed_bytes");
    assert_true(needed > sum);
    json_decref(report);
    return needed;
}

// What recurrent layers keep for rounds once made the cache larger than all that is needed.
static void test_recurrent_layers(void **state)
{
    (void)state;
    size_t bytes;
    family_case model = family_case_open(KVERN_TESTS_DIR "/golden/families/qwen3next.json");
    void *file = family_case_gguf(&model, &bytes);
    program_write("hybrid.gguf", file, bytes);
    (void)needed_bytes("hybrid.gguf");
    free(file);
    family_case_close(&model);
}

// Selecting takes scratch, more for more positions.
static void test_selections(void **state)
{
    (void)state;
    size_t bytes;
    json_int_t needed[2];
    family_case model = family_case_open(KVERN_TESTS_DIR "/golden/families/deepseek-v32.json");
    json_t *config = json_object_get(model.description, "config");
    void *tensors = family_case_safetensors(&model, &bytes);
    assert_int_equal(mkdir(program_path("selecting"), 0700), 0);
    program_write("selecting/model.safetensors", tensors, bytes);
    for (int i = 0; i < 2; i++) {
        json_object_set_new(config, "index_topk", json_integer(i ? 200 : 8));
        char *text = family_case_config(&model);
        program_write("selecting/config.json", text, strlen(text));
        needed[i] = needed_bytes("selecting");
        free(text);
    }
    assert_true(needed[1] > needed[0]);
    hf_directory_remove(program_path("selecting"));
    free(tensors);
    family_case_close(&model);
}

static void test_table(void **state)
{
    (void)state;
    program_result result = program_run(&(program_call){
        .arguments = {"fit", program_path("llama.gguf"), "--ctx", "130", "--budget", "8M"}});
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    static const char *const PARTS[] = {
        "layers storage ",
        "     3 full:h2:k64=bf16:v64=bf16 ",
        " 1536           294912\n", // bytes per token, bytes
        "context                     130 tokens\n",
        "KV cache                 294912 (294.9 kB)\n",
        "budget                  8388608 (8.4 MB)\n",
        "fits                        yes\n",
        "longest                    3000 tokens\n",
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        program_expect_part(result.out, PARTS[i]);
    }
    program_free(&result);
}

// A context that does not fit: the report all the same, and code 3.
static void test_does_not_fit(void **state)
{
    (void)state;
    program_call call = {.arguments = {"fit", program_path("llama.gguf"), "--budget", "1M"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 3);
    program_expect_part(result.out, "fits                         no\n");
    program_expect_part(result.out, "context                    3000 tokens\n");
    program_free(&result);
    call.arguments[4] = "--json";
    json_t *report = program_json(&call, 3);
    assert_true(json_is_false(json_object_get(report, "fits")));
    assert_true(json_integer_at(report, "needed_bytes") > 1 << 20);
    const json_int_t longest = json_integer_at(report, "longest_context");
    assert_true(longest > 64 && longest < 3000);
    json_decref(report);
    call.arguments[3] = "10K";
    report = program_json(&call, 3);
    assert_int_equal(json_integer_at(report, "longest_context"), 0);
    json_decref(report);
}

// Whether kvern run takes a context, and then fills it with a prompt but for the last token, which
// it generates.
static bool runs(const char *const c[4], const char *threads, json_int_t context)
{
    char number[24], prompt[3001] = "";
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, context);
    memset(prompt, 'a', (size_t)context - 1);
    program_call call = {.input = prompt,
                         .all_processors = true,
                         .arguments = {"run", program_path(c[0]), "--raw", "--temp", "0", "-t",
                                       threads, "-n", "2", "--ctx", number, "--budget", c[1],
                                       "--kv", c[2], c[3] ? "--kv-start" : NULL, c[3]}};
    program_result result = program_run(&call);
    if (result.code != 0) {
        program_expect_part(result.err, ", and the budget is ");
    } else if (!strstr(result.err, "(end of turn)")) {
        program_expect_part(result.err, "(context full)");
    }
    const bool good = result.code == 0;
    program_free(&result);
    return good;
}

// The longest context that fits is one that runs, and the next one is not. Of a case: model,
// budget, --kv, --kv-start.
static void test_longest(void **state)
{
    (void)state;
    static const char *const CASES[][4] = {
        {"llama.gguf", "700K", "bf16", NULL},   {"llama.gguf", "700K", "q4", NULL},
        {"llama.gguf", "700K", "q8/q4", NULL},  {"llama.gguf", "700K", "q4", "200"},
        {"llama.gguf", "700K", "q4", "100000"}, {"llama.gguf", "700K", "q4", "383"},
        {"llama.gguf", "700K", "q4", "384"},    {"llama.gguf", "700K", "q4", "385"},
        {"gemma.gguf", "1250K", "q4", "500"},   {"gemma.gguf", "1400K", "q8", "700"},
        {"gemma.gguf", "700K", "q8", NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const char *const *c = CASES[i], *const threads = i % 2 ? "2" : "1";
        program_call call = {.arguments = {"fit", program_path(c[0]), "--json", "--budget", c[1],
                                           "-t", threads, "--kv", c[2], c[3] ? "--kv-start" : NULL,
                                           c[3]}};
        program_result result = program_run(&call);
        const int code = result.code;
        program_free(&result);
        json_t *report = program_json(&call, code);
        const json_int_t longest = json_integer_at(report, "longest_context");
        json_decref(report);
        if (longest <= 64 || longest >= 3000) {
            fail_msg("case %zu: %d", i, (int)longest); // the budget is meant to cut
        }
        assert_true(runs(c, threads, longest));
        assert_false(runs(c, threads, longest + 1));
    }
}

// 2^31 - 1 tokens in 64 layers are seen not to fit, and the longest context is found, without
// reserving what is not there.
static void test_long_contexts(void **state)
{
    (void)state;
    struct timespec before, after;
    tiny_llama llama = tiny_llama_default(GGUF_TYPE_F32);
    llama.layers = 64;
    llama.context_length = INT32_MAX;
    tiny_llama_save(&llama, program_path("long.gguf"));
    clock_gettime(CLOCK_MONOTONIC, &before);
    json_t *report =
        program_json(&(program_call){.arguments = {"fit", program_path("long.gguf"), "--json",
                                                   "--budget", "1G", "-t", "1"}},
                     3);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(json_integer_at(report, "needed_bytes") >= json_integer_at(report, "kv_bytes"));
    assert_true(json_integer_at(report, "longest_context") > 10000);
    assert_true(after.tv_sec - before.tv_sec < 5);
    json_decref(report);
}

static void test_failures(void **state)
{
    (void)state;
    program_expect_failure(
        &(program_call){.arguments = {"fit", program_path("llama.gguf"), "--ctx", "3001"}},
        "--ctx 3001 is beyond the model's context of 3000 tokens");
    program_expect_failure(&(program_call){.arguments = {"fit", program_path("none.gguf")}},
                           "none.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_selections),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_does_not_fit),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_long_contexts),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
