// SPDX-License-Identifier: MIT
// --kv and its relatives: what they mean in every command that takes them.

#include "tests/support/program_json.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// 3 layers with 2 KV heads of 64: 512 bytes per token and layer in bf16, 144 in 4 bits.
#define VOCABULARY 260
#define HEADER_BYTES 128
#define TEXT "The miller's wife had a hand mill of stone, and it ground salt." // 63 bytes
#define POSITIONS 63

static int set_up(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    model.layers = 3;
    model.head_dim = 64;
    model.vocabulary = VOCABULARY;
    model.byte_tokenizer = true;
    model.separate_output = true;
    tiny_llama_save(&model, program_path("model.gguf"));
    program_write_text("kv.json", "[{\"layer_idx\": 1, \"bits\": 8},\n"
                                  " {\"layer_idx\": 2, \"bits\": 2, \"group_size\": 32}]");
    program_write_text("far.json", "[{\"layer_idx\": 3, \"bits\": 8}]");
    program_write_text("odd.json", "[{\"layer_idx\": 0, \"bits\": 7}]");
    return 0;
}

// Appends up to 6 arguments, up to the first NULL, to a call.
static program_call with(program_call call, const char *const extra[6])
{
    size_t at = 0;
    while (call.arguments[at]) {
        at++;
    }
    for (size_t i = 0; i < 6 && extra[i]; i++) {
        call.arguments[at++] = extra[i];
    }
    return call;
}

static const program_call *inspect(const char *const extra[6])
{
    static program_call call;
    call =
        with((program_call){.arguments = {"inspect", program_path("model.gguf"), "--json"}}, extra);
    return &call;
}

// Bytes per token, and the name, of every way to say it.
static void test_inspect(void **state)
{
    (void)state;
    const struct {
        const char *options[6];
        const char *name;
        json_int_t bytes;
    } cases[] = {
        {{NULL}, "bf16", 3 * 512},
        {{"--kv", "bf16"}, "bf16", 3 * 512},
        {{"--kv", "f16"}, "f16", 3 * 512},
        {{"--kv", "f32"}, "f32", 3 * 1024},
        {{"--kv", "q8"}, "q8", 3 * 272},
        {{"--kv", "q6"}, "q6", 3 * 208},
        {{"--kv", "q5"}, "q5", 3 * 176},
        {{"--kv", "q4"}, "q4", 3 * 144},
        {{"--kv", "q3"}, "q3", 3 * 112},
        {{"--kv", "q2"}, "q2", 3 * 80},
        {{"--kv", "q4g32"}, "q4g32", 3 * 160},
        {{"--kv", "q4", "--kv-group", "32"}, "q4", 3 * 160},
        {{"--kv", "q8g64", "--kv-group", "32"}, "q8g64", 3 * 272},
        {{"--kv", "q8/q4"}, "q8/q4", 3 * (136 + 72)},
        {{"--kv", "q4/q8"}, "q4/q8", 3 * (136 + 72)},
        {{"--kv", "q4", "--kv-k", "q8"}, "q8/q4", 3 * (136 + 72)},
        {{"--kv-k", "q8", "--kv", "q4"}, "q8/q4", 3 * (136 + 72)},
        {{"--kv-v", "q2", "--kv", "q4"}, "q4/q2", 3 * (72 + 40)},
        {{"--kv", "q4", "--kv-v", "bf16"}, "q4/bf16", 3 * (72 + 256)},
        {{"--kv-v", "q4"}, "bf16/q4", 3 * (256 + 72)},
        {{"--kv", "q4/q2", "--kv-v", "q8", "--kv-k", "q8"}, "q8", 3 * 272},
        {{"--kv", "q4", "--kv-first", "1"}, "q4", 512 + 2 * 144},
        {{"--kv", "q4", "--kv-first", "1", "--kv-last", "1"}, "q4", 2 * 512 + 144},
        {{"--kv", "q4", "--kv-last", "3"}, "q4", 3 * 512},
        {{"--kv", "q4", "--kv-start", "100"}, "q4 from 100 on", 3 * 144},
        {{"--kv", "light"}, "light", 3 * (136 + 104)},
        {{"--kv", "balanced"}, "balanced", 3 * (68 + 52)},
        {{"--kv", "small"}, "small", 3 * (68 + 52)},
        {{"--kv", "small", "--kv", "q8"}, "q8", 3 * 272},
        {{"--kv-k", "q8", "--kv", "small"}, "q8/small", 3 * (136 + 52)},
        {{"--kv", "q4", "--kv-residual", "70"}, "q4 behind the last 70", 3 * 144},
        {{"--kv", "q4", "--kv-residual", "70", "--kv-sinks", "4"},
         "q4 behind the first 4 and the last 70",
         3 * 144},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *facts = program_json(inspect(cases[i].options), 0);
        const json_t *kv = json_object_get(facts, "kv");
        assert_string_equal(json_string_at(kv, "storage"), cases[i].name);
        assert_int_equal(json_integer_at(kv, "bytes_per_token"), cases[i].bytes);
        json_decref(facts);
    }
}

// Recipes store windows in a way of their own, and what is said beside them holds there, too.
static void test_windows(void **state)
{
    (void)state;
    static const struct {
        const char *options[4];
        json_int_t bytes; // 6 layers with a window of 100, 1 full; 2 KV heads of 64
    } CASES[] = {
        {{"--kv", "balanced"}, 6 * (84 + 68) + 68 + 52},
        {{"--kv", "balanced", "--kv-k", "q8"}, 6 * (136 + 68) + 136 + 52},
        {{"--kv", "balanced", "--kv-v", "q8"}, 6 * (84 + 136) + 68 + 136},
        {{"--kv", "balanced", "--kv-residual", "128"}, 6 * 512 + 68 + 52},
    };
    tiny_gemma3 gemma = tiny_gemma3_default(GGUF_TYPE_F32);
    gemma.head_dim = 64;
    gemma.window = 100;
    gguf_builder *builder = gguf_builder_create();
    tiny_gemma3_add(&gemma, builder);
    gguf_builder_save(builder, program_path("gemma.gguf"));
    gguf_builder_destroy(builder);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        program_call call = {.arguments = {"inspect", program_path("gemma.gguf"), "--json"}};
        for (size_t k = 0; k < 4; k++) {
            call.arguments[3 + k] = CASES[i].options[k];
        }
        json_t *facts = program_json(&call, 0);
        const json_t *kv = json_object_get(facts, "kv");
        assert_int_equal(json_integer_at(kv, "bytes_per_token"), CASES[i].bytes);
        json_decref(facts);
    }
}

// The file's layers go before everything else; layers that it does not name follow the options.
static void test_config(void **state)
{
    (void)state;
    const char *path = program_path("kv.json");
    json_t *facts = program_json(inspect((const char *[6]){"--kv-config", path}), 0);
    const json_t *kv = json_object_get(facts, "kv");
    assert_string_equal(json_string_at(kv, "storage"), path);
    assert_int_equal(json_integer_at(kv, "bytes_per_token"), 512 + 272 + 4 * (16 + 8));
    json_decref(facts);
    facts = program_json(
        inspect((const char *[6]){"--kv-config", path, "--kv", "q4", "--kv-last", "2"}), 0);
    kv = json_object_get(facts, "kv");
    assert_int_equal(json_integer_at(kv, "bytes_per_token"), 144 + 272 + 4 * (16 + 8));
    json_decref(facts);
}

static program_call logits(const char *out, const char *const extra[6])
{
    return with((program_call){.arguments = {"logits", program_path("model.gguf"), "-p", TEXT, "-t",
                                             "1", "--out", out}},
                extra);
}

// The logits of all positions of TEXT.
static void read_logits(float values[POSITIONS * VOCABULARY], const char *const extra[6])
{
    const char *out = program_path("logits.npy");
    program_call call = logits(out, extra);
    program_result result = program_run_well(&call);
    program_free(&result);
    FILE *file = fopen(out, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, HEADER_BYTES, SEEK_SET), 0);
    assert_int_equal(fread(values, sizeof(float), POSITIONS * VOCABULARY, file),
                     POSITIONS * VOCABULARY);
    assert_int_equal(getc(file), EOF);
    fclose(file);
}

static double difference(const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < (size_t)POSITIONS * VOCABULARY; i++) {
        sum += fabs((double)a[i] - (double)b[i]);
    }
    return sum / ((double)POSITIONS * VOCABULARY);
}

static float exact[POSITIONS * VOCABULARY], one[POSITIONS * VOCABULARY],
    other[POSITIONS * VOCABULARY];

// Every bit brings the logits nearer to those of bf16, and the keys' bits are not the values'.
static void test_logits(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"q2", "q3", "q4", "q5", "q6", "q8", "bf16"};
    double before = INFINITY;
    read_logits(exact, (const char *[6]){NULL});
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        read_logits(one, (const char *[6]){"--kv", NAMES[i]});
        const double distance = difference(one, exact);
        assert_true(distance < before * 0.8);
        before = distance;
    }
    assert_true(before == 0);
    read_logits(one, (const char *[6]){"--kv", "q8/q2"});
    read_logits(other, (const char *[6]){"--kv-k", "q8", "--kv-v", "q2"});
    assert_memory_equal(one, other, sizeof one);
    read_logits(other, (const char *[6]){"--kv", "q2/q8"});
    assert_true(difference(one, other) > 0);
    // The first position sees nothing but its own value.
    read_logits(one, (const char *[6]){"--kv-k", "q2"});
    assert_memory_equal(one, exact, VOCABULARY * sizeof(float));
    read_logits(one, (const char *[6]){"--kv-v", "q2"});
    assert_memory_not_equal(one, exact, VOCABULARY * sizeof(float));
}

// Chunks do not decide where a row is converted, nor anything else.
static void test_start(void **state)
{
    (void)state;
    static const char *const CHUNKS[] = {"1", "7", "20", "21", "64"};
    read_logits(exact, (const char *[6]){NULL});
    read_logits(one, (const char *[6]){"--kv", "q3", "--kv-start", "20"});
    const size_t begin = (size_t)20 * VOCABULARY;
    assert_memory_equal(one, exact, begin * sizeof(float)); // bf16 up to the start
    for (size_t i = 20; i < POSITIONS; i++) {
        assert_memory_not_equal(one + i * VOCABULARY, exact + i * VOCABULARY,
                                VOCABULARY * sizeof(float));
    }
    for (size_t i = 0; i < sizeof CHUNKS / sizeof CHUNKS[0]; i++) {
        read_logits(other,
                    (const char *[6]){"--kv", "q3", "--kv-start", "20", "--chunk", CHUNKS[i]});
        assert_memory_equal(other, one, sizeof one);
        read_logits(other, (const char *[6]){"--kv", "q3", "--chunk", CHUNKS[i]});
        if (i == 0) {
            memcpy(exact, other, sizeof exact);
        }
        assert_memory_equal(other, exact, sizeof exact);
    }
    read_logits(other, (const char *[6]){"--kv", "q3", "--kv-start", "1000"});
    read_logits(one, (const char *[6]){NULL});
    assert_memory_equal(other, one, sizeof one);
}

static void test_run(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    const struct {
        const char *options[6];
        const char *name;
        json_int_t bytes; // per token
    } cases[] = {
        {{NULL}, "bf16", 3 * 512},
        {{"--kv", "q4"}, "q4", 3 * 144},
        {{"--kv", "q8/q4"}, "q8/q4", 3 * 208},
        {{"--kv", "q4", "--kv-start", "10"}, "q4 from 10 on", 3 * 144},
        {{"--kv", "q4", "--kv-start", "100"}, "q4 from 100 on", 3 * 512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const program_call base = {.arguments = {"run", path, "-p", TEXT, "--raw", "--temp", "0",
                                                 "-t", "1", "-n", "1", "--ctx", "64"}};
        program_call call = with(base, cases[i].options);
        program_result result = program_run(&call);
        assert_int_equal(result.code, 0);
        char line[80];
        snprintf(line, sizeof line, " of %s, 63 of 64 positions\n", cases[i].name);
        program_expect_part(result.err, line);
        program_free(&result);
        call = with(call, (const char *[6]){"--json"});
        json_t *answer = program_json(&call, 0);
        assert_string_equal(json_string_at(answer, "kv"), cases[i].name);
        assert_int_equal(json_integer_at(answer, "kv_bytes"), 64 * cases[i].bytes);
        json_decref(answer);
    }
}

static void test_failures(void **state)
{
    (void)state;
    char far[64], odd[64], none[64], odd_entry[128];
    snprintf(far, sizeof far, "%s/far.json", program_folder());
    snprintf(odd, sizeof odd, "%s/odd.json", program_folder());
    snprintf(odd_entry, sizeof odd_entry, "kvern: %s: entry 0 (layer 0): bits", odd);
    snprintf(none, sizeof none, "%s/none.json", program_folder());
    const struct {
        const char *options[6];
        const char *message;
    } cases[] = {
        {{"--kv", "q4", "--kv-group", "128"}, "layer 0"},
        {{"--kv", "q4g128", "--kv-first", "2"}, "layer 2"},
        {{"--kv-v", "q8g128", "--kv-first", "1"}, "layer 1"},
        {{"--kv", "q4", "--kv-first", "4"}, "4 first and 0 last layers in bf16, of 3 layers"},
        {{"--kv", "f32", "--kv-start", "9"}, "layer 0"},
        {{"--kv-config", far}, "layer 3, and there are 3 layers"},
        {{"--kv-config", odd}, odd_entry},
        {{"--kv-config", none}, "none.json: No such file"},
        {{"--kv-config", program_folder()}, program_folder()},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const program_call run = {.arguments = {"run", program_path("model.gguf"), "-p", "x"}};
        program_call call = with(run, cases[i].options);
        program_expect_failure(&call, cases[i].message);
        program_expect_failure(inspect(cases[i].options), cases[i].message);
        call = logits(program_path("none.npy"), cases[i].options);
        program_expect_failure(&call, cases[i].message);
        const program_call fit = {.arguments = {"fit", program_path("model.gguf")}};
        call = with(fit, cases[i].options);
        program_expect_failure(&call, cases[i].message);
    }
}

static void test_usage(void **state)
{
    (void)state;
    static const char *const COMMANDS[][4] = {
        {"run", "m"}, {"inspect", "m"}, {"fit", "m"}, {"logits", "m"}, {"bench", "model", "m"}};
    static const struct {
        const char *options[6];
        const char *message;
    } CASES[] = {
        {{"--kv", "q7"}, "--kv takes bf16, f16, f32, q8"},
        {{"--kv", ""}, "not ''"},
        {{"--kv", "q4/"}, "not 'q4/'"},
        {{"--kv", "/q4"}, "not '/q4'"},
        {{"--kv", "q4/q4/q4"}, "not 'q4/q4/q4'"},
        {{"--kv", "q4g48"}, "not 'q4g48'"},
        {{"--kv", "a-name-that-is-too-long"}, "not 'a-name-that-is-too-long'"},
        {{"--kv", "bf16,q4"}, "not 'bf16,q4'"},
        {{"--kv-k", "q8/q4"}, "--kv-k takes"},
        {{"--kv-k", "q8/q4"}, "not 'q8/q4'"},
        {{"--kv-v", "x"}, "--kv-v takes bf16, f16, f32, q8"},
        {{"--kv-group", "48"}, "--kv-group takes 32, 64 or 128, not 48"},
        {{"--kv-group", "0"}, "--kv-group takes"},
        {{"--kv-start", "-1"}, "--kv-start takes"},
        {{"--kv-start", "0"}, "--kv-start takes"},
        {{"--kv-start", "x"}, "--kv-start takes"},
        {{"--kv-first", "-1"}, "--kv-first takes"},
        {{"--kv-last", "4097"}, "--kv-last takes"},
        {{"--kv", "huge"}, "light, balanced or small, not 'huge'"},
        {{"--kv-residual", "-1"}, "--kv-residual takes"},
        {{"--kv-sinks", "x"}, "--kv-sinks takes"},
    };
    for (size_t c = 0; c < sizeof COMMANDS / sizeof COMMANDS[0]; c++) {
        for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
            program_call call = {.arguments = {NULL}};
            memcpy(call.arguments, COMMANDS[c], sizeof COMMANDS[c]);
            call = with(call, CASES[i].options);
            program_expect_usage(&call, CASES[i].message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inspect),  cmocka_unit_test(test_windows),
        cmocka_unit_test(test_config),   cmocka_unit_test(test_logits),
        cmocka_unit_test(test_start),    cmocka_unit_test(test_run),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
