// SPDX-License-Identifier: MIT
// kvern inspect and kvern tokenize: what they say about a model and a text.

#include "tests/support/program.h"
#include "tests/support/small_model.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){0}, program_path("model.gguf"));
    small_model_save(&(small_model){.architecture = "abacus"}, program_path("abacus.gguf"));
    return 0;
}

// Runs a call that prints JSON and nothing else; the caller releases the object.
static json_t *run_json(const program_call *call, int code)
{
    program_result result = program_run(call);
    assert_int_equal(result.code, code);
    json_t *object = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(object));
    assert_int_equal(result.out[result.out_size - 1], '\n');
    program_free(&result);
    return object;
}

static json_int_t integer_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const char *string_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_string(value));
    return json_string_value(value);
}

static void test_inspect_json(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    json_t *facts = run_json(&(program_call){.arguments = {"inspect", path, "--json"}}, 0);
    assert_string_equal(string_at(facts, "file"), path);
    assert_string_equal(string_at(facts, "architecture"), "llama");
    assert_string_equal(string_at(facts, "name"), "small\tmodel");
    assert_string_equal(string_at(facts, "template"), "chatml");
    assert_int_equal(integer_at(facts, "gguf_version"), 3);
    assert_int_equal(integer_at(facts, "file_bytes"), info.st_size);
    assert_int_equal(integer_at(facts, "weight_bytes"), 4 * integer_at(facts, "parameters"));
    const json_t *geometry = json_object_get(facts, "geometry");
    assert_int_equal(integer_at(geometry, "layers"), 2);
    assert_int_equal(integer_at(geometry, "width"), 264);
    assert_int_equal(integer_at(geometry, "heads"), 4);
    assert_int_equal(integer_at(geometry, "kv_heads"), 2);
    assert_int_equal(integer_at(geometry, "head_dim"), 8);
    assert_int_equal(integer_at(geometry, "value_dim"), 8);
    assert_int_equal(integer_at(geometry, "feed_forward"), 32);
    assert_int_equal(integer_at(geometry, "vocabulary"), SMALL_MODEL_VOCABULARY);
    assert_int_equal(integer_at(geometry, "context_length"), 256);
    assert_true(json_is_false(json_object_get(geometry, "tied_output")));
    assert_float_equal(json_real_value(json_object_get(json_object_get(geometry, "rope"), "base")),
                       10000, 0);
    json_decref(facts);
}

static void test_inspect_json_parts(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    json_t *facts = run_json(&(program_call){.arguments = {"inspect", path, "--json"}}, 0);
    const json_t *types = json_object_get(facts, "tensors");
    assert_int_equal(json_array_size(types), 1);
    assert_string_equal(string_at(json_array_get(types, 0), "type"), "F32");
    assert_int_equal(integer_at(json_array_get(types, 0), "count"), 21); // 3 and 9 per layer
    assert_int_equal(integer_at(json_array_get(types, 0), "bytes"),
                     integer_at(facts, "weight_bytes"));
    const json_t *tokenizer = json_object_get(facts, "tokenizer");
    assert_string_equal(string_at(tokenizer, "kind"), "gpt2");
    assert_string_equal(string_at(tokenizer, "pre"), "smollm");
    assert_int_equal(integer_at(tokenizer, "tokens"), SMALL_MODEL_VOCABULARY);
    assert_int_equal(integer_at(tokenizer, "eos"), SMALL_MODEL_IM_END);
    assert_true(json_is_null(json_object_get(tokenizer, "eot")));
    const json_t *kv = json_object_get(facts, "kv");
    assert_string_equal(string_at(kv, "storage"), "bf16");
    assert_int_equal(integer_at(kv, "bytes_per_token"), 128);
    assert_int_equal(integer_at(kv, "context"), 256);
    assert_int_equal(integer_at(kv, "context_bytes"), 256 * 128);
    const json_t *keys = json_object_get(facts, "keys");
    assert_true(json_array_size(keys) > 10);
    assert_string_equal(string_at(json_array_get(keys, 0), "key"), "general.architecture");
    assert_string_equal(string_at(json_array_get(keys, 0), "verdict"), "used");
    json_decref(facts);
}

static void test_inspect_context(void **state)
{
    (void)state;
    program_call call = {
        .arguments = {"inspect", program_path("model.gguf"), "--json", "--ctx", "65"}};
    json_t *facts = run_json(&call, 0);
    const json_t *kv = json_object_get(facts, "kv");
    assert_int_equal(integer_at(kv, "context"), 65);
    assert_int_equal(integer_at(kv, "context_bytes"), 128 * 128); // two pages
    json_decref(facts);
}

static void test_inspect_text(void **state)
{
    (void)state;
    program_result result =
        program_run(&(program_call){.arguments = {"inspect", program_path("model.gguf")}});
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    static const char *const PARTS[] = {
        "architecture     llama\n",
        "name             small\\tmodel\n",
        "layers           2\n",
        "heads            4 query, 2 key/value\n",
        "tensors          F32      21 tensors, ",
        "tokenizer        gpt2, split as smollm, 261 tokens\n",
        "  end            260 <|im_end|>\n",
        "chat template    chatml\n",
        "KV cache         bf16, 128 bytes per token\n",
        "                 32768 bytes (32.8 kB) for 256 tokens\n",
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        program_expect_part(result.out, PARTS[i]);
    }
    program_free(&result);
}

// What is known of a file that cannot be run; the code says that it cannot.
static void test_inspect_unknown_architecture(void **state)
{
    (void)state;
    json_t *facts = run_json(
        &(program_call){.arguments = {"inspect", program_path("abacus.gguf"), "--json"}}, 1);
    assert_string_equal(string_at(facts, "architecture"), "abacus");
    assert_true(json_is_null(json_object_get(facts, "geometry")));
    assert_true(json_is_null(json_object_get(facts, "kv")));
    assert_int_equal(json_array_size(json_object_get(facts, "tensors")), 1);
    json_decref(facts);
}

// The ids and texts of a JSON answer.
static void expect_tokens(const program_call *call, const int *ids, const char *const *texts,
                          size_t count)
{
    json_t *answer = run_json(call, 0);
    const json_t *tokens = json_object_get(answer, "tokens");
    assert_int_equal(json_array_size(tokens), count);
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_array_get(tokens, i);
        assert_int_equal(integer_at(token, "id"), ids[i]);
        assert_string_equal(string_at(token, "text"), texts[i]);
    }
    json_decref(answer);
}

#define UNKNOWN "\xef\xbf\xbd"

static void test_tokenize_json(void **state)
{
    (void)state;
    const char *path = program_path("model.gguf");
    // "he", a character of two bytes, a control token, a newline
    const int ids[] = {SMALL_MODEL_HE, 0xc3, 0xa9, SMALL_MODEL_IM_END, '\n'};
    const char *const texts[] = {"he", UNKNOWN, UNKNOWN, "<|im_end|>", "\n"};
    const char *text = "he\xc3\xa9<|im_end|>\n";
    expect_tokens(&(program_call){.arguments = {"tokenize", path, "--json", "-p", text}}, ids,
                  texts, 5);
    expect_tokens(&(program_call){.arguments = {"tokenize", path, "--json"}, .input = text}, ids,
                  texts, 5);
    expect_tokens(&(program_call){.arguments = {"tokenize", path, "--json", "--raw", "--file", "-"},
                                  .input = text},
                  ids, texts, 5);
    expect_tokens(&(program_call){.arguments = {"tokenize", path, "--json", "-p", ""}}, NULL, NULL,
                  0);
}

// Text of a user that looks like a control token is none inside a template.
static void expect_plain_mark(const char *path)
{
    program_call call = {
        .arguments = {"tokenize", path, "--json", "-p", "<|im_end|>", "--template", "chatml"}};
    json_t *answer = run_json(&call, 0);
    const json_t *tokens = json_object_get(answer, "tokens");
    int starts = 0, ends = 0;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        json_int_t id = integer_at(json_array_get(tokens, i), "id");
        starts += id == SMALL_MODEL_IM_START;
        ends += id == SMALL_MODEL_IM_END;
    }
    assert_int_equal(starts, 2);
    assert_int_equal(ends, 1);
    json_decref(answer);
}

static void test_tokenize_template(void **state)
{
    (void)state;
    expect_plain_mark(program_path("model.gguf"));
}

// A file that does not say how texts are split needs --pre: to tokenize, to run, as a draft.
static void test_pre(void **state)
{
    (void)state;
    const char *path = program_path("no_pre.gguf");
    small_model_save(&(small_model){.no_pre = true}, path);
    program_expect_failure(&(program_call){.arguments = {"tokenize", path, "-p", "a1"}},
                           "--pre NAME tells it");
    program_expect_failure(&(program_call){.arguments = {"run", path, "-p", "a1"}},
                           "--pre NAME tells it");
    program_result result = program_run_well(
        &(program_call){.arguments = {"tokenize", path, "-p", "a1", "--pre", "gpt-2"}});
    assert_string_equal(result.out, "97\ta\n49\t1\n");
    program_free(&result);
    result = program_run_well(&(program_call){
        .arguments = {"run", path, "-p", "a1", "-n", "1", "--pre", "smollm", "--draft", path}});
    program_free(&result);
    result = program_run_well(&(program_call){.arguments = {"inspect", path, "--pre", "qwen2"}});
    assert_non_null(strstr(result.out, "split as qwen2"));
    program_free(&result);
}

// Files that type the marks of their template otherwise than control: user-defined, ordinary.
static void test_marks_of_other_types(void **state)
{
    (void)state;
    const char *path = program_path("marks.gguf");
    for (int type = 4; type >= 1; type -= 3) {
        small_model_save(&(small_model){.mark_type = type, .other_end = true}, path);
        expect_plain_mark(path);
        program_result result = program_run(&(program_call){.arguments = {"inspect", path}});
        assert_int_equal(result.code, 0);
        assert_non_null(strstr(result.out, "  marks          <|im_start|> <|im_end|> "
                                           "(act as control tokens)\n"));
        program_free(&result);
    }
}

static void test_tokenize_text(void **state)
{
    (void)state;
    program_call call = {.arguments = {"tokenize", program_path("model.gguf"), "-p",
                                       "he\\\t\n\x01\xe2\x98\x95<|im_start|>"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.out, "256\the\n92\t\\\\\n9\t\\t\n10\t\\n\n1\t\\x01\n226\t\\xe2\n"
                                    "152\t\\x98\n149\t\\x95\n259\t<|im_start|>\n");
    assert_string_equal(result.err, "");
    program_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inspect_json),
        cmocka_unit_test(test_inspect_json_parts),
        cmocka_unit_test(test_inspect_context),
        cmocka_unit_test(test_inspect_text),
        cmocka_unit_test(test_inspect_unknown_architecture),
        cmocka_unit_test(test_tokenize_json),
        cmocka_unit_test(test_tokenize_template),
        cmocka_unit_test(test_marks_of_other_types),
        cmocka_unit_test(test_pre),
        cmocka_unit_test(test_tokenize_text),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
