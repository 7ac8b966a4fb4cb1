// SPDX-License-Identifier: MIT
// kvern eval: its numbers against those that follow from kvern logits, and what does not change
// them.

#include "tests/support/program_json.h"
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

#define VOCABULARY 260
#define HEADER_BYTES 128
#define WINDOW 150 // more than one step of 64, and no multiple of it
#define WINDOWS 2
#define TEXT_BYTES (WINDOWS * WINDOW + 20) // the rest is no whole window
#define SCORED (WINDOW - WINDOW / 2 - 1)   // of a window

static char text[TEXT_BYTES + 1];

static int set_up(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    model.head_dim = 64;
    model.vocabulary = VOCABULARY;
    model.byte_tokenizer = true;
    model.separate_output = true;
    tiny_llama_save(&model, program_path("model.gguf"));
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        text[i] = (char)('a' + (i * i / 7 + i * 11) % 26);
    }
    program_write("text", text, TEXT_BYTES);
    program_write("short", text, WINDOW - 1);
    program_write("empty", text, 0);
    program_write_text("kv.json", "[{\"layer_idx\": 1, \"bits\": 4}]");
    return 0;
}

static program_call eval_call(const char *kv, const char *option, const char *value)
{
    return (program_call){.arguments = {"eval", program_path("model.gguf"), "--text",
                                        program_path("text"), "--ctx", "150", "--json", "--kv", kv,
                                        option, value}};
}

static json_t *evaluate(const char *kv, const char *option, const char *value)
{
    const program_call call = eval_call(kv, option, value);
    return program_json(&call, 0);
}

static const json_t *row_at(const json_t *report, size_t row)
{
    return json_array_get(json_object_get(report, "rows"), row);
}

static void test_bits(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"bf16", "q8", "q6", "q5", "q4", "q3", "q2"};
    static const int BYTES[] = {1024, 544, 416, 352, 288, 224, 160};
    static const double BITS[] = {16, 8.5, 6.5, 5.5, 4.5, 3.5, 2.5}; // two in bf16 for 64 numbers
    json_t *report = evaluate("bf16,q8,q6,q5,q4,q3,q2", NULL, NULL);
    assert_int_equal(json_integer_at(report, "windows"), WINDOWS);
    assert_int_equal(json_integer_at(report, "window"), WINDOW);
    assert_int_equal(json_integer_at(report, "positions"), WINDOWS * SCORED);
    assert_int_equal(json_array_size(json_object_get(report, "rows")), 7);
    double before = 0;
    for (size_t i = 0; i < 7; i++) {
        const json_t *row = row_at(report, i);
        assert_int_equal(json_object_size(row), 8);
        assert_string_equal(json_string_at(row, "kv"), NAMES[i]);
        assert_int_equal(json_integer_at(row, "kv_bytes_per_token"), BYTES[i]);
        assert_true(json_number_at(row, "kv_bits") == BITS[i]);
        const double mean = json_number_at(row, "kld_mean"), p99 = json_number_at(row, "kld_p99");
        const double same = json_number_at(row, "same_top");
        assert_true(json_number_at(row, "ppl") > 1);
        assert_true(i == 0 ? mean == 0 : mean > before);
        assert_true(mean <= p99 && p99 <= json_number_at(row, "kld_max"));
        assert_true(i == 0 ? same == 1 : same > 0 && same <= 1);
        before = mean;
    }
    assert_true(json_number_at(row_at(report, 0), "kld_max") == 0);
    assert_true(json_number_at(row_at(report, 6), "same_top") < 1);
    json_decref(report);
}

// Pages of 64 tokens: of the three of a window of 150 the first is precise, and the last one is
// until it is full.
static void test_bits_of_precise_tokens(void **state)
{
    (void)state;
    json_t *report = evaluate("bf16,q4", "--kv-sinks", "64");
    assert_true(json_number_at(row_at(report, 0), "kv_bits") == 16);
    assert_true(fabs(json_number_at(row_at(report, 1), "kv_bits") - (2 * 16 + 4.5) / 3) < 1e-12);
    assert_int_equal(json_integer_at(row_at(report, 1), "kv_bytes_per_token"), 288);
    json_decref(report);
}

typedef struct sums {
    double loss, kl, largest;
    size_t same;
} sums;

// The logits of one window from kvern logits, in chunks of 7.
static float *window_logits(size_t window, const char *kv, const char *start)
{
    const char *out = program_path("logits.npy");
    char prompt[WINDOW + 1] = "";
    memcpy(prompt, text + window * WINDOW, WINDOW);
    program_result result = program_run_well(&(program_call){
        .arguments = {"logits", program_path("model.gguf"), "-p", prompt, "--out", out, "--kv", kv,
                      "--chunk", "7", "-t", "1", start ? "--kv-start" : NULL, start}});
    program_free(&result);
    float *logits = malloc((size_t)WINDOW * VOCABULARY * sizeof *logits);
    FILE *file = fopen(out, "rb");
    assert_true(file && logits);
    assert_int_equal(fseek(file, HEADER_BYTES, SEEK_SET), 0);
    assert_int_equal(fread(logits, sizeof *logits, (size_t)WINDOW * VOCABULARY, file),
                     WINDOW * VOCABULARY);
    fclose(file);
    return logits;
}

// ln of the probabilities, in double; returns the most likely token.
static size_t log_probabilities(const float *logits, double out[VOCABULARY])
{
    size_t top = 0;
    double total = 0;
    for (size_t i = 0; i < VOCABULARY; i++) {
        top = logits[i] > logits[top] ? i : top;
    }
    for (size_t i = 0; i < VOCABULARY; i++) {
        total += exp((double)logits[i] - (double)logits[top]);
    }
    for (size_t i = 0; i < VOCABULARY; i++) {
        out[i] = (double)logits[i] - (double)logits[top] - log(total);
    }
    return top;
}

static void add_position(sums *s, const float *reference, const float *candidate, size_t next)
{
    double p[VOCABULARY], q[VOCABULARY], kl = 0;
    const size_t wanted = log_probabilities(reference, p), top = log_probabilities(candidate, q);
    for (size_t i = 0; i < VOCABULARY; i++) {
        kl += exp(p[i]) * (p[i] - q[i]);
    }
    s->loss -= q[next];
    s->kl += kl;
    s->largest = kl > s->largest ? kl : s->largest;
    s->same += wanted == top;
}

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-5 * fabs(wanted) + 1e-8)) {
        fail_msg("%.12g instead of %.12g", got, wanted);
    }
}

static void expect_row(const json_t *row, const char *kv, const char *start)
{
    sums s = {0};
    for (size_t w = 0; w < WINDOWS; w++) {
        float *reference = window_logits(w, "bf16", NULL), *own = window_logits(w, kv, start);
        for (size_t i = WINDOW / 2; i + 1 < WINDOW; i++) {
            add_position(&s, reference + i * VOCABULARY, own + i * VOCABULARY,
                         (unsigned char)text[w * WINDOW + i + 1]);
        }
        free(reference);
        free(own);
    }
    const double count = WINDOWS * SCORED;
    assert_near(json_number_at(row, "ppl"), exp(s.loss / count));
    assert_near(json_number_at(row, "kld_mean"), s.kl / count);
    assert_near(json_number_at(row, "kld_max"), s.largest);
    assert_near(json_number_at(row, "same_top"), (double)s.same / count);
}

// The same numbers from other steps, by other code, for storages beside each other.
static void test_against_logits(void **state)
{
    (void)state;
    json_t *report = evaluate("q4,bf16,q8/q2", NULL, NULL);
    expect_row(row_at(report, 0), "q4", NULL);
    expect_row(row_at(report, 1), "bf16", NULL);
    expect_row(row_at(report, 2), "q8/q2", NULL);
    json_decref(report);
    report = evaluate("q4,bf16", "--kv-start", "90");
    expect_row(row_at(report, 0), "q4", "90");
    expect_row(row_at(report, 1), "bf16", NULL);
    assert_string_equal(json_string_at(row_at(report, 0), "kv"), "q4 from 90 on");
    json_decref(report);
}

static void test_threads(void **state)
{
    (void)state;
    program_call one = eval_call("q4,q2", "-t", "1"), two = eval_call("q4,q2", "-t", "2");
    two.all_processors = true;
    program_result first = program_run(&one), second = program_run(&two);
    assert_int_equal(first.code, 0);
    assert_int_equal(second.code, 0);
    assert_string_equal(first.out, second.out);
    program_free(&first);
    program_free(&second);
}

static void test_options(void **state)
{
    (void)state;
    json_t *report = evaluate("q4,q4g32", "--windows", "1");
    assert_int_equal(json_integer_at(report, "windows"), 1);
    assert_int_equal(json_integer_at(report, "positions"), SCORED);
    json_decref(report);
    report = evaluate("q4,q4g32,q8g64", "--kv-group", "32"); // a name's own group wins
    assert_int_equal(json_integer_at(row_at(report, 0), "kv_bytes_per_token"), 320);
    assert_int_equal(json_integer_at(row_at(report, 1), "kv_bytes_per_token"), 320);
    assert_int_equal(json_integer_at(row_at(report, 2), "kv_bytes_per_token"), 544);
    assert_true(json_number_at(row_at(report, 0), "kld_mean") ==
                json_number_at(row_at(report, 1), "kld_mean"));
    json_decref(report);
    // One layer in four bits, the other precise: by a file, and by number.
    char list[128];
    snprintf(list, sizeof list, "%s", program_path("kv.json"));
    report = evaluate(list, NULL, NULL);
    json_t *same = evaluate("q4", "--kv-first", "1");
    assert_string_equal(json_string_at(row_at(report, 0), "kv"), list);
    assert_true(json_number_at(row_at(report, 0), "kld_mean") > 0);
    assert_true(json_number_at(row_at(report, 0), "kld_mean") ==
                json_number_at(row_at(same, 0), "kld_mean"));
    json_decref(report);
    json_decref(same);
}

static void test_table(void **state)
{
    (void)state;
    program_call call = eval_call("bf16,q8/q4", NULL, NULL);
    call.arguments[6] = "--windows=1";
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    program_expect_part(result.out, "kv                      ppl   kld mean");
    program_expect_part(result.out, "\nbf16 ");
    program_expect_part(result.out,
                        "   0.000000   0.000000   0.000000   100.00%  16.00         1024\n");
    program_expect_part(result.out, "\nq8/q4 ");
    program_expect_part(result.out, "\n1 windows of 150 tokens, 74 positions scored\n");
    program_free(&result);
    call.arguments[7] = NULL; // without --kv it is bf16
    result = program_run(&call);
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "\nbf16 ");
    program_free(&result);
}

static void test_failures(void **state)
{
    (void)state;
    program_call call = eval_call("q4", NULL, NULL);
    call.arguments[3] = program_path("empty");
    program_expect_failure(&call, "the text has 0 tokens, less than one window of 150");
    call.arguments[3] = program_path("short");
    program_expect_failure(&call, "the text has 149 tokens, less than one window of 150");
    call.arguments[3] = program_path("none");
    program_expect_failure(&call, "none");
    call = eval_call("q4", NULL, NULL);
    call.arguments[5] = "3";
    program_expect_failure(&call, "--ctx 3 leaves nothing to score");
    call = eval_call("q8,q4g128", NULL, NULL);
    program_expect_failure(&call, "layer 0");
    call = eval_call("q4", "--budget", "64K");
    program_expect_failure(&call, "budget");
    call = eval_call("q4,bf16,bf16", "--budget", "500K"); // one fits, and not all
    program_expect_failure(&call, "making room for a window of every storage");
}

static void test_usage(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {
        {"q4,", "not ''"},
        {"q4,q7", "not 'q7'"},
        {",", "not ''"},
        {"q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,q4,"
         "q4,q4,q4,q4",
         "32 storages"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const program_call call = eval_call(CASES[i][0], NULL, NULL);
        program_expect_usage(&call, CASES[i][1]);
    }
    program_expect_usage(
        &(program_call){.arguments = {"eval", "m", "--text", "none", "--ctx", "0"}},
        "--ctx takes a whole number from 1 to");
    program_result result = program_run(&(program_call){.arguments = {"eval", "--help"}});
    program_expect_part(result.out, "-c, --ctx=N                 Tokens of a window");
    program_free(&result);
    program_expect_usage(&(program_call){.arguments = {"eval", "m"}},
                         "no text given (--text FILE)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),           cmocka_unit_test(test_bits_of_precise_tokens),
        cmocka_unit_test(test_against_logits), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_options),        cmocka_unit_test(test_table),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
