// SPDX-License-Identifier: MIT
// kvern batch: the answers of kvern run, however many at once; jobs that go on after an end in the
// middle; lines that are no prompts; output that does not arrive.

#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"

#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 400

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){.answer = "caf\xc3\xa9!"}, program_path("chain.gguf"));
    small_model_save(&(small_model){.answer = "01234567", .endless = true},
                     program_path("endless.gguf"));
    small_model_save(&(small_model){0}, program_path("random.gguf"));
    small_model_save(&(small_model){.chat = ""}, program_path("plain.gguf"));
    return 0;
}

// ---- Files ----

static const char *fresh(const char *name)
{
    const char *path = program_path(name);
    unlink(path);
    return path;
}

// The results of a file by the JSON text of their ids; every line must be whole.
static json_t *read_results(const char *path)
{
    char *text = program_read(path, NULL);
    json_t *results = json_object();
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *result = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        assert_non_null(result);
        char *key = json_dumps(json_object_get(result, "id"), JSON_ENCODE_ANY);
        assert_non_null(key);
        assert_null(json_object_get(results, key)); // nothing is done twice
        json_object_set_new(results, key, result);
        free(key);
    }
    free(text);
    return results;
}

static void expect_text(const json_t *results, const char *key, const char *text,
                        const char *finish)
{
    const json_t *result = json_object_get(results, key);
    if (!result) {
        fail_msg("there is no result of %s", key);
    }
    assert_string_equal(json_string_at(result, "text"), text);
    assert_string_equal(json_string_at(result, "finish"), finish);
}

static void must_run(const program_call *call)
{
    program_result result = program_run_well(call);
    program_free(&result);
}

// ---- Answers ----

static const char *const QUESTIONS[] = {"hi",   "hello there, all of you",
                                        "what", "a somewhat longer text, so that prompts differ",
                                        "hell", "zzz"};
#define QUESTION_COUNT (sizeof QUESTIONS / sizeof QUESTIONS[0])

// An id comes back as what it is, in its shortest form; what only looks like a number in a text is
// left alone.
static void test_ids_that_are_numbers(void **state)
{
    (void)state;
    static const char *const IDS[][2] = {
        {"0.1", "0.1"},
        {"2.0", "2.0"},
        {"-0.0", "-0.0"},
        {"1e300", "1e300"},
        {"5e-324", "5e-324"},
        {"1.52587890625e-05", "1.52587890625e-5"},
        {"0.0001", "0.0001"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1.7976931348623157e308", "1.7976931348623157e308"},
        {"12345678901234567.0", "12345678901234568.0"},
        {"1e17", "1e17"},
        {"100000.0", "100000.0"},
        {"9007199254740993", "9007199254740993"},
        {"\"1.50 \\\" 2.50\\\\\"", "\"1.50 \\\" 2.50\\\\\""},
    };
    char text[2048] = "", wanted[64];
    for (size_t i = 0; i < sizeof IDS / sizeof IDS[0]; i++) {
        sprintf(text + strlen(text), "{\"id\": %s, \"prompt\": \"hi\"}\n", IDS[i][0]);
    }
    const char *out = fresh("numbers.out");
    must_run(&(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts",
                                           program_write_text("numbers", text), "--out", out, "-n",
                                           "1"}});
    char *lines = program_read(out, NULL);
    for (size_t i = 0; i < sizeof IDS / sizeof IDS[0]; i++) {
        snprintf(wanted, sizeof wanted, "{\"id\":%s,\"text\":", IDS[i][1]);
        program_expect_part(lines, wanted);
    }
    free(lines);
}

static void write_questions(const char *name)
{
    char text[2048] = "";
    for (size_t i = 0; i < QUESTION_COUNT; i++) {
        sprintf(text + strlen(text), "{\"id\": \"q%zu\", \"prompt\": \"%s\"}\n", i, QUESTIONS[i]);
    }
    program_write_text(name, text);
}

static void expect_same_answer(const json_t *result, const json_t *wanted)
{
    static const char *const facts[] = {"text", "finish", "prompt_tokens", "generated_tokens"};
    assert_non_null(result);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        if (!json_equal(json_object_get(result, facts[i]), json_object_get(wanted, facts[i]))) {
            fail_msg("another %s: %s, alone %s", facts[i], json_dumps(result, 0),
                     json_dumps(wanted, 0));
        }
    }
}

// What kvern run answers to each question.
static void answer_alone(const char *const *options, size_t count, json_t *answers[QUESTION_COUNT])
{
    for (size_t i = 0; i < QUESTION_COUNT; i++) {
        program_call call = {
            .arguments = {"run", program_path("random.gguf"), "--json", "-p", QUESTIONS[i]}};
        for (size_t j = 0; j < count; j++) {
            call.arguments[5 + j] = options[j];
        }
        answers[i] = program_json(&call, 0);
    }
}

// The same text, finish and numbers of tokens as from kvern run.
static void expect_as_run(const json_t *results, json_t *const answers[QUESTION_COUNT])
{
    for (size_t i = 0; i < QUESTION_COUNT; i++) {
        char key[16];
        snprintf(key, sizeof key, "\"q%zu\"", i);
        expect_same_answer(json_object_get(results, key), answers[i]);
    }
}

static void check_as_run(const char *const *options, size_t count)
{
    static const char *const parallel[] = {"1", "3", "8"};
    json_t *answers[QUESTION_COUNT];
    answer_alone(options, count, answers);
    for (size_t i = 0; i < sizeof parallel / sizeof parallel[0]; i++) {
        const char *out = fresh("answers.jsonl");
        program_call call = {.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                           program_path("questions.jsonl"), "--out", out,
                                           "--parallel", parallel[i]}};
        for (size_t j = 0; j < count; j++) {
            call.arguments[8 + j] = options[j];
        }
        must_run(&call);
        json_t *results = read_results(out);
        assert_int_equal(json_object_size(results), QUESTION_COUNT);
        expect_as_run(results, answers);
        json_decref(results);
    }
    for (size_t i = 0; i < QUESTION_COUNT; i++) {
        json_decref(answers[i]);
    }
}

// One prompt after the other, all of which begin alike: what ended before is not computed again,
// and the answers are those that are computed from the beginning.
static void test_beginnings_are_stored(void **state)
{
    (void)state;
    write_questions("questions.jsonl");
    char *texts[2];
    const char *out = fresh("stored.jsonl");
    const char *const modes[] = {"--json", "--no-cache"};
    for (size_t i = 0; i < 2; i++) {
        unlink(out);
        json_t *run = program_json(
            &(program_call){.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                          program_path("questions.jsonl"), "--out", out,
                                          "--parallel", "1", "--temp", "0", "--system",
                                          "you are brief, and you are kind", "-n", "9", "--json",
                                          modes[i]}},
            0);
        const json_t *cache = json_object_get(run, "cache");
        assert_int_equal(json_integer_at(run, "shared_tokens"), 0);
        assert_true(i ? json_integer_at(run, "stored_tokens") == 0
                      : json_integer_at(run, "stored_tokens") > 5 * 30);
        assert_true(i ? json_is_null(cache) : json_integer_at(cache, "entries") > 0);
        assert_int_equal(
            i ? 1
              : json_integer_at(json_object_get(cache, "why"), "nothing is kept of this model yet"),
            1);
        texts[i] = program_read(out, NULL);
        json_decref(run);
    }
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

static void test_answers_of_run(void **state)
{
    (void)state;
    static const char *const greedy[] = {"--temp", "0"};
    static const char *const others[] = {"--seed", "3",     "--system", "be brief", "--stop",
                                         "e",      "--ctx", "200",      "-t",       "1"};
    write_questions("questions.jsonl");
    check_as_run(greedy, 2);
    check_as_run(others, 10);
    static const char *const drafts[] = {"--temp", "0", "--draft", "ngram", "--draft-tokens", "5"};
    check_as_run(drafts, 6);
    // The model itself, and one that guesses wrong.
    const char *const own[] = {"--temp", "1",       "--seed",
                               "4",      "--draft", program_path("random.gguf")};
    check_as_run(own, 6);
    const char *const other[] = {"--temp", "0", "-n", "40", "--draft", program_path("chain.gguf")};
    check_as_run(other, 6);
    static const char *const plain[] = {"--temp", "1.5", "--seed", "7", "-n", "60", "--raw"};
    check_as_run(plain, 7);
}

static void test_lines_say_how(void **state)
{
    (void)state;
    const char *prompts = program_write_text(
        "how.jsonl", "{\"id\": 1, \"prompt\": \"hi\", \"max_tokens\": 3}\n"
                     "\n"
                     "{\"id\": \"1\", \"prompt\": \"hi\", \"stop\": \"701\", \"extra\": null}\r\n"
                     "  \n"
                     "{\"id\": 2.5, \"prompt\": \"hi\", \"stop\": [\"x\", \"45\"]}\n"
                     "{\"id\": -3, \"messages\": [{\"role\": \"system\", \"content\": \"a\"}, "
                     "{\"role\": \"user\", \"content\": \"b\"}], \"max_tokens\": 2, "
                     "\"temperature\": 1, \"seed\": 5}");
    const char *out = fresh("how-out.jsonl");
    must_run(&(program_call){.arguments = {"batch", program_path("endless.gguf"), "--prompts",
                                           prompts, "--out", out, "--temp", "0", "--stop", "4"}});
    json_t *results = read_results(out);
    assert_int_equal(json_object_size(results), 4);
    expect_text(results, "1", "012", "token limit");
    expect_text(results, "\"1\"", "0123456", "stop string");
    expect_text(results, "2.5", "0123", "stop string");
    expect_text(results, "-3", "01", "token limit");
    json_decref(results);
}

// Messages equal a prompt with a system message.
static void test_messages(void **state)
{
    (void)state;
    const char *prompts = program_write_text(
        "messages.jsonl",
        "{\"id\": 1, \"prompt\": \"hi\"}\n"
        "{\"id\": 2, \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"
        "{\"id\": 3, \"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}, "
        "{\"role\": \"user\", \"content\": \"hi\"}]}\n"
        "{\"id\": 4, \"messages\": [{\"role\": \"system\", \"content\": \"other\"}, "
        "{\"role\": \"user\", \"content\": \"hi\"}]}\n");
    const char *out = fresh("messages-out.jsonl");
    must_run(&(program_call){.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                           prompts, "--out", out, "--temp", "0", "--system",
                                           "be brief", "-n", "20"}});
    json_t *results = read_results(out);
    const json_t *first = json_object_get(results, "1");
    expect_same_answer(json_object_get(results, "2"), first);
    expect_same_answer(json_object_get(results, "3"), first);
    assert_int_not_equal(json_integer_at(json_object_get(results, "4"), "prompt_tokens"),
                         json_integer_at(first, "prompt_tokens"));
    json_decref(results);
    program_result result = program_run(
        &(program_call){.arguments = {"batch", program_path("plain.gguf"), "--prompts", prompts,
                                      "--out", fresh("none.jsonl"), "-n", "2"}});
    assert_int_equal(result.code, 1);
    program_expect_part(result.err,
                        "line 2: messages need a chat template, and the model's file has none");
    program_free(&result);
}

// A line with a key is answered as with the option of the same name; both differ from neither.
static void test_keys_of_lines(void **state)
{
    (void)state;
    static const char *const CASES[][3] = {
        {"--top-k", "2", "\"top_k\": 2"},
        {"--top-p", "0.3", "\"top_p\": 0.3"},
        {"--min-p", "0.6", "\"min_p\": 0.6"},
        {"--seed", "9", "\"seed\": 9"},
        {"-n", "7", "\"max_completion_tokens\": 7"},
        {"-n", "7", "\"n_predict\": 7, \"max_tokens\": 7"},
        {"--temp", "0", "\"temperature\": 0"},
        {"--presence-penalty", "5", "\"presence_penalty\": 5"},
        {"--frequency-penalty", "5", "\"frequency_penalty\": 5"},
        {"--repeat-penalty", "9", "\"repeat_penalty\": 9"},
        {"--repeat-penalty", "9", "\"repetition_penalty\": 9, \"repeat_last_n\": 64"},
        {"--logit-bias", "104+20", "\"logit_bias\": {\"104\": 20}"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char text[300];
        const char *model = program_path("random.gguf"), *out = fresh("keys-out.jsonl");
        snprintf(text, sizeof text,
                 "{\"id\": 1, \"prompt\": \"hi\"}\n{\"id\": 2, \"prompt\": \"hi\", %s}\n"
                 "{\"id\": 3, \"prompt\": \"hi\", \"n\": 1, \"stop\": null, \"top_p\": null, "
                 "\"tools\": [], \"stream\": false, \"model\": \"any\"}\n",
                 CASES[i][2]);
        const char *prompts = program_write_text("keys.jsonl", text);
        must_run(&(program_call){.arguments = {"batch", model, "--prompts", prompts, "--out", out,
                                               "-n", "30", "-s", "4", "--temp", "1.5"}});
        json_t *results = read_results(out);
        json_t *wanted = program_json(
            &(program_call){.arguments = {"run", model, "-p", "hi", "--json", "-n", "30", "-s", "4",
                                          "--temp", "1.5", CASES[i][0], CASES[i][1]}},
            0);
        expect_same_answer(json_object_get(results, "2"), wanted);
        expect_same_answer(json_object_get(results, "3"), json_object_get(results, "1"));
        assert_string_not_equal(json_string_at(json_object_get(results, "1"), "text"),
                                json_string_at(wanted, "text"));
        json_decref(results);
        json_decref(wanted);
    }
}

static void test_parts_of_messages(void **state)
{
    (void)state;
    const char *prompts = program_write_text(
        "parts.jsonl",
        "{\"id\": 1, \"prompt\": \"hi there\"}\n"
        "{\"id\": 2, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"hi\"}, {\"type\": \"text\", \"text\": \" there\"}], \"name\": null}]}\n");
    const char *out = fresh("parts-out.jsonl");
    must_run(&(program_call){.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                           prompts, "--out", out, "--temp", "0", "-n", "20"}});
    json_t *results = read_results(out);
    expect_same_answer(json_object_get(results, "2"), json_object_get(results, "1"));
    json_decref(results);
}

// Keys that nobody knows are told once each, and change nothing.
static void test_unknown_keys(void **state)
{
    (void)state;
    const char *prompts =
        program_write_text("unknown.jsonl", "{\"id\": 1, \"prompt\": \"hi\", \"topp\": 1}\n"
                                            "{\"id\": 2, \"prompt\": \"hi\", \"topp\": 1}\n"
                                            "{\"id\": 3, \"prompt\": \"hi\", \"note\": \"x\"}\n");
    program_result result = program_run_well(
        &(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts", prompts,
                                      "--out", fresh("unknown-out.jsonl"), "-q"}});
    program_expect_part(result.err, "line 1: the key \"topp\" is unknown and has no effect\n");
    program_expect_part(result.err, "line 3: the key \"note\" is unknown and has no effect\n");
    assert_null(strstr(result.err, "line 2"));
    program_free(&result);
}

// A file of results of another model or other options is left alone.
static void test_results_of_another_job(void **state)
{
    (void)state;
    static const char *const OTHERS[][2] = {{"-n", "4"},
                                            {"--temp", "0.5"},
                                            {"--seed", "3"},
                                            {"--system", "a"},
                                            {"--stop", "x"},
                                            {"--kv", "f16"},
                                            {"--ctx", "100"},
                                            {"--raw", NULL},
                                            {"--ignore-eos", NULL},
                                            {"--top-k", "3"},
                                            {"--min-p", "0.2"},
                                            {"--repeat-penalty", "2"},
                                            {"--logit-bias", "7+1"}};
    static const char *const SAME[][2] = {
        {"-t", "2"}, {"--parallel", "2"}, {"--draft", "ngram"}, {"-q", NULL}, {"--json", NULL}};
    const char *model = program_path("chain.gguf"), *out = fresh("job.jsonl");
    const char *prompts = program_write_text("job-in.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    must_run(&(program_call){.arguments = {"batch", model, "--prompts", prompts, "--out", out}});
    char *before = program_read(out, NULL);
    program_expect_part(before, "\"job\":\"");
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        program_expect_failure(
            &(program_call){.arguments = {"batch", model, "--prompts", prompts, "--out", out,
                                          OTHERS[i][0], OTHERS[i][1]}},
            "line 1: this result comes from another model or other options");
    }
    program_expect_failure(&(program_call){.arguments = {"batch", program_path("endless.gguf"),
                                                         "--prompts", prompts, "--out", out}},
                           "another model");
    for (size_t i = 0; i < sizeof SAME / sizeof SAME[0]; i++) {
        must_run(&(program_call){.arguments = {"batch", model, "--prompts", prompts, "--out", out,
                                               SAME[i][0], SAME[i][1]}});
    }
    char *after = program_read(out, NULL);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

// ---- Bad lines ----

static void test_bad_lines(void **state)
{
    (void)state;
    char text[4096] = "{\"id\": 1, \"prompt\": \"hi\"}\n"
                      "{\"id\": 2, \"prompt\": \n"
                      "[1]\n"
                      "{\"prompt\": \"no id\"}\n"
                      "{\"id\": [], \"prompt\": \"hi\"}\n"
                      "{\"id\": 3}\n"
                      "{\"id\": 1, \"prompt\": \"again\"}\n"
                      "{\"id\": 4, \"prompt\": 5}\n"
                      "{\"id\": 5, \"prompt\": \"hi\", \"max_tokens\": -2}\n"
                      "{\"id\": 6, \"prompt\": \"hi\", \"temperature\": \"hot\"}\n"
                      "{\"id\": 7, \"prompt\": \"hi\", \"seed\": 1.5}\n"
                      "{\"id\": 8, \"prompt\": \"hi\", \"stop\": \"\"}\n"
                      "{\"id\": 9, \"messages\": []}\n"
                      "{\"id\": 10, \"messages\": [{\"role\": 1, \"content\": \"x\"}]}\n"
                      "{\"id\": 11, \"prompt\": \"a\", \"messages\": [{}]}\n"
                      "{\"id\": 12, \"prompt\": \"a\", \"prompt\": \"b\"}\n"
                      "{\"id\": 13, \"prompt\": \"";
    memset(text + strlen(text), 'x', 400);
    strcat(text, "\"}\n\xff\xfe\n{\"id\": 14, \"prompt\": \"hi\"}\n");
    const char *prompts = program_write_text("bad.jsonl", text);
    const char *out = fresh("bad-out.jsonl");
    program_result result =
        program_run(&(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts",
                                                  prompts, "--out", out, "--temp", "0"}});
    assert_int_equal(result.code, 1);
    for (int line = 2; line <= 18; line++) {
        char wanted[300];
        snprintf(wanted, sizeof wanted, "kvern: %s, line %d: ", prompts, line);
        program_expect_part(result.err, wanted);
    }
    program_expect_part(result.err, "line 7: the id is that of line 1");
    program_expect_part(result.err, "line 12: \"stop\" is not a text or a list of texts");
    program_expect_part(result.err, "line 17: the prompt has ");
    program_expect_part(result.err, "2 answered, 0 there before, 17 bad lines, 0 failed");
    program_free(&result);
    json_t *results = read_results(out);
    assert_int_equal(json_object_size(results), 2);
    expect_text(results, "1", "caf\xc3\xa9!", "end of turn");
    expect_text(results, "14", "caf\xc3\xa9!", "end of turn");
    json_decref(results);
}

// What is no text at all is a bad line, not an empty one.
static void fault_zero_bytes_passed_for_an_empty_line(void **state)
{
    (void)state;
    static const char text[] = "\0\0\n{\"id\": 1, \"prompt\": \"hi\"}\n\0";
    const char *prompts = program_write("zeros.jsonl", text, sizeof text - 1);
    const char *out = fresh("zeros-out.jsonl");
    program_result result = program_run(&(program_call){
        .arguments = {"batch", program_path("chain.gguf"), "--prompts", prompts, "--out", out}});
    assert_int_equal(result.code, 1);
    program_expect_part(result.err, "line 1: invalid JSON");
    program_expect_part(result.err, "line 3: invalid JSON");
    program_expect_part(result.err, "1 answered, 0 there before, 2 bad lines, 0 failed");
    program_free(&result);
}

static void test_byte_order_mark(void **state)
{
    (void)state;
    const char *prompts =
        program_write_text("mark.jsonl", "\xef\xbb\xbf{\"id\": 1, \"prompt\": \"hi\"}\r\n"
                                         "{\"id\": 2, \"prompt\": \"hi\"}\r\n");
    const char *out = fresh("mark-out.jsonl");
    must_run(&(program_call){
        .arguments = {"batch", program_path("chain.gguf"), "--prompts", prompts, "--out", out}});
    json_t *results = read_results(out);
    assert_int_equal(json_object_size(results), 2);
    json_decref(results);
}

// ---- Going on ----

static const char *write_many(void)
{
    char *text = calloc(MANY, 64);
    assert_non_null(text);
    char *end = text;
    for (int i = 0; i < MANY; i++) {
        end += sprintf(end, "{\"id\": %d, \"prompt\": \"number %d\"}\n", i, i * 7919);
    }
    const char *path = program_write_text("many.jsonl", text);
    free(text);
    return path;
}

static program_call many_call(const char *out)
{
    return (program_call){.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                        program_path("many.jsonl"), "--out", out, "--seed", "1",
                                        "-n", "120", "-t", "1"}};
}

// The call as a process of its own, whose files may have `most_bytes` bytes (0: any number).
static pid_t start(const program_call *call, rlim_t most_bytes)
{
    char *arguments[PROGRAM_MAX_ARGUMENTS + 2] = {getenv("KVERN_PROGRAM")};
    for (size_t i = 0; i < PROGRAM_MAX_ARGUMENTS && call->arguments[i]; i++) {
        arguments[i + 1] = (char *)call->arguments[i];
    }
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int errors = open(program_path("errors.txt"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(errors, STDERR_FILENO);
        if (most_bytes > 0) {
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){most_bytes, most_bytes});
        }
        execv(arguments[0], arguments);
        _exit(98);
    }
    return child;
}

// Sends a signal once the file has some lines; returns the status of waitpid.
static int stop_in_the_middle(const program_call *call, const char *out, int signal)
{
    const pid_t child = start(call, 0);
    struct stat info = {0};
    for (int i = 0; i < 20000 && (stat(out, &info) != 0 || info.st_size < 2000); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_true(info.st_size >= 2000);
    assert_int_equal(kill(child, signal), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_same_results(const json_t *wanted, const char *path)
{
    json_t *results = read_results(path);
    assert_int_equal(json_object_size(results), MANY);
    assert_true(json_equal(wanted, results));
    json_decref(results);
}

// The results of the whole job, computed once; a reference.
static json_t *uninterrupted(void)
{
    static json_t *results;
    if (!results) {
        const program_call call = many_call(fresh("whole.jsonl"));
        must_run(&call);
        results = read_results(program_path("whole.jsonl"));
    }
    return json_incref(results);
}

static void test_goes_on_after_a_kill(void **state)
{
    (void)state;
    write_many();
    json_t *wanted = uninterrupted();
    const char *out = fresh("killed.jsonl");
    const program_call call = many_call(out);
    const int status = stop_in_the_middle(&call, out, SIGKILL);
    assert_true(WIFSIGNALED(status));
    must_run(&call);
    expect_same_results(wanted, out);
    json_decref(wanted);
}

// What its caller ignores, as nohup and a shell's background jobs do, a job ignores, too.
static void test_ignored_signals_stay_ignored(void **state)
{
    (void)state;
    write_many();
    json_t *wanted = uninterrupted();
    const char *out = fresh("ignored.jsonl");
    const program_call call = many_call(out);
    signal(SIGINT, SIG_IGN); // which the program inherits
    const int status = stop_in_the_middle(&call, out, SIGINT);
    signal(SIGINT, SIG_DFL);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_same_results(wanted, out);
    json_decref(wanted);
}

static void test_interrupt_ends_in_order(void **state)
{
    (void)state;
    write_many();
    json_t *wanted = uninterrupted();
    const char *out = fresh("interrupted.jsonl");
    const program_call call = many_call(out);
    const int status = stop_in_the_middle(&call, out, SIGINT);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 130);
    char *errors = program_read(program_path("errors.txt"), NULL);
    program_expect_part(errors, "kvern: interrupted");
    program_expect_part(errors, " answered, 0 there before");
    free(errors);
    json_decref(read_results(out)); // whole lines
    must_run(&call);
    expect_same_results(wanted, out);
    json_decref(wanted);
}

// A file that may not grow ends the job; what was written of a line that did not fit is taken back,
// and the job can go on.
static void test_full_disk(void **state)
{
    (void)state;
    write_many();
    json_t *wanted = uninterrupted();
    const char *out = fresh("full.jsonl");
    const program_call call = many_call(out);
    int status;
    const pid_t child = start(&call, 3001);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    char *errors = program_read(program_path("errors.txt"), NULL);
    program_expect_part(errors, "full.jsonl: File too large");
    free(errors);
    json_t *results = read_results(out); // whole lines
    assert_in_range(json_object_size(results), 2, 60);
    json_decref(results);
    must_run(&call);
    expect_same_results(wanted, out);
    json_decref(wanted);
}

// However the last line was torn, its prompt is done again; what is whole is not.
static void test_torn_line(void **state)
{
    (void)state;
    program_write_text("two.jsonl", "{\"id\": \"a\", \"prompt\": \"hi\"}\n"
                                    "{\"id\": \"b\", \"prompt\": \"hi\"}\n");
    static const char first[] = "{\"id\":\"a\",\"text\":\"mine\",\"finish\":\"end of turn\"}\n";
    // Longer than what will stand in its place.
    static const char second[] = "{\"id\":\"b\",\"text\":\"torn, and torn, and torn, and torn, and "
                                 "torn, and torn, and torn, and torn, and torn, and torn\"}";
    for (size_t bytes = 0; bytes < sizeof second; bytes += 3) {
        char text[512];
        snprintf(text, sizeof text, "%s%.*s", first, (int)bytes, second);
        const char *out = program_write_text("torn.jsonl", text);
        must_run(
            &(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts",
                                          program_path("two.jsonl"), "--out", out, "--temp", "0"}});
        json_t *results = read_results(out);
        assert_int_equal(json_object_size(results), 2);
        expect_text(results, "\"a\"", "mine", "end of turn");
        expect_text(results, "\"b\"", "caf\xc3\xa9!", "end of turn");
        json_decref(results);
    }
}

// A file that is somebody else's is left as it is.
static void test_other_files_are_left_alone(void **state)
{
    (void)state;
    static const char *const others[] = {"my diary", "my diary\n", "{\"id\": 1}\n",
                                         "{\"id\":1,\"text\":\"x\"}\nmore\n"};
    const char *prompts = program_write_text("one.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const char *out = program_write_text("other.txt", others[i]);
        program_expect_failure(&(program_call){.arguments = {"batch", program_path("chain.gguf"),
                                                             "--prompts", prompts, "--out", out}},
                               "not a result of kvern batch");
        char *text = program_read(out, NULL);
        assert_string_equal(text, others[i]);
        free(text);
    }
}

// ---- What does not work ----

static void test_output_that_does_not_arrive(void **state)
{
    (void)state;
    const char *prompts = program_write_text("one.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    program_result result =
        program_run(&(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts",
                                                  prompts, "--out", "/dev/full", "--temp", "0"}});
    assert_int_equal(result.code, 1);
    program_expect_part(result.err, "kvern: /dev/full: No space left on device");
    program_expect_part(result.err, "0 answered");
    program_free(&result);
    program_expect_failure(
        &(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts", prompts,
                                      "--out", program_path("no/such/folder")}},
        "No such file");
    program_expect_failure(
        &(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts", prompts,
                                      "--out", program_folder()}},
        "directory");
    program_expect_failure(
        &(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts",
                                      program_path("none.txt"), "--out", fresh("new.jsonl")}},
        "none.txt: No such file");
    assert_int_not_equal(access(program_path("new.jsonl"), F_OK), 0);
    const char *empty = program_write_text("empty.jsonl", "");
    program_expect_failure(&(program_call){.arguments = {"batch", program_path("chain.gguf"),
                                                         "--prompts", empty, "--out", empty}},
                           "same file");
}

// A call that is refused and leaves the file of results as it is.
static void expect_left_alone(const char *prompts, const char *input, const char *out,
                              const char *message)
{
    char *before = program_read(out, NULL);
    program_expect_failure(&(program_call){.arguments = {"batch", program_path("chain.gguf"),
                                                         "--prompts", prompts, "--out", out},
                                           .input = input},
                           message);
    char *after = program_read(out, NULL);
    assert_string_equal(after, before);
    free(before);
    free(after);
}

// What fails before the first prompt can be computed makes no file, and takes nothing from one: not
// even a torn line.
static void test_failures_before_the_first_prompt(void **state)
{
    (void)state;
    static const char *const CASES[][4] = {
        {"nowhere.gguf", "-n", "1", "nowhere.gguf: No such file"},
        {"one.jsonl", "-n", "1", "one.jsonl: "},
        {"chain.gguf", "--budget", "1K", "budget"},
        {"chain.gguf", "--kv-config", "none.json", "none.json: No such file"},
        {"plain.gguf", "--system", "be brief", "cannot handle a system message"},
    };
    static const char torn[] = "{\"id\":1,\"text\":\"x\"}\n{\"id\":2,\"te";
    const char *prompts = program_write_text("one.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const char *out = fresh("answers.jsonl");
        const program_call call = {.arguments = {"batch", program_path(CASES[i][0]), "--prompts",
                                                 prompts, "--out", out, CASES[i][1], CASES[i][2]}};
        program_expect_failure(&call, CASES[i][3]);
        assert_int_not_equal(access(out, F_OK), 0);
        program_write_text("answers.jsonl", torn);
        program_expect_failure(&call, CASES[i][3]);
        char *text = program_read(out, NULL);
        assert_string_equal(text, torn);
        free(text);
    }
}

// A line of prompts without an end begins as a torn line of results does.
static void fault_prompts_taken_for_a_torn_line(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"id\":1,\"prompt\":\"hi\"}", "{\"id\":1,\"prom"};
    const char *good = program_write_text("good.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    for (size_t i = 0; i < 2; i++) {
        const char *prompts = program_write_text("precious.jsonl", texts[i]);
        const char *link_to = fresh("link.jsonl");
        assert_int_equal(link(prompts, link_to), 0);
        expect_left_alone(prompts, NULL, prompts, "same file");
        expect_left_alone(prompts, NULL, link_to, "same file");
        unlink(link_to);
    }
    const char *other = program_write_text("other.jsonl", texts[0]);
    expect_left_alone(good, NULL, other, "line 1: this is not a result of kvern batch");
    expect_left_alone("-", texts[0], other, "line 1: this is not a result of kvern batch");
}

static void test_out_is_a_file(void **state)
{
    (void)state;
    const char *prompts = program_write_text("one.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    program_expect_usage(&(program_call){.arguments = {"batch", program_path("chain.gguf"),
                                                       "--prompts", prompts, "--out", "-"}},
                         "--out takes a file");
}

static void test_one_job_at_a_time(void **state)
{
    (void)state;
    const char *prompts = program_write_text("one.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n");
    const char *out = program_write_text("locked.jsonl", "");
    const int fd = open(out, O_RDWR);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    program_expect_failure(&(program_call){.arguments = {"batch", program_path("chain.gguf"),
                                                         "--prompts", prompts, "--out", out}},
                           "another job is writing");
    close(fd);
}

// What the budget cannot hold is reported; what it can is done, as many at once as fit.
static void test_budget(void **state)
{
    (void)state;
    write_questions("questions.jsonl");
    const char *prompts = program_write_text("budget.jsonl", "{\"id\": 1, \"prompt\": \"hi\"}\n"
                                                             "{\"id\": 2, \"prompt\": \"hi\", "
                                                             "\"max_tokens\": 150}\n"
                                                             "{\"id\": 3, \"prompt\": \"hi\"}\n");
    const char *out = fresh("budget-out.jsonl");
    program_result result = program_run(&(program_call){
        .arguments = {"batch", program_path("endless.gguf"), "--prompts", prompts, "--out", out,
                      "--temp", "0", "-n", "3", "--budget", "60K", "-t", "1", "--ctx", "128"}});
    assert_int_equal(result.code, 0);
    program_free(&result);
    json_t *results = read_results(out);
    expect_text(results, "1", "012", "token limit");
    expect_text(results, "3", "012", "token limit");
    assert_string_equal(json_string_at(json_object_get(results, "2"), "finish"), "context full");
    json_decref(results);
    json_t *facts = program_json(
        &(program_call){.arguments = {"batch", program_path("endless.gguf"), "--prompts", prompts,
                                      "--out", fresh("budget-out.jsonl"), "--temp", "0", "--json",
                                      "--budget", "60K", "-t", "1", "--ctx", "128"}},
        0);
    assert_int_equal(json_integer_at(facts, "answered"), 3);
    assert_true(json_integer_at(facts, "kv_bytes") < 60 * 1024);
    json_decref(facts);
}

static void test_facts(void **state)
{
    (void)state;
    write_questions("questions.jsonl");
    const char *out = fresh("facts.jsonl");
    const program_call call = {.arguments = {"batch", program_path("random.gguf"), "--prompts",
                                             program_path("questions.jsonl"), "--out", out,
                                             "--json", "--parallel", "3", "--seed", "9", "-n",
                                             "20"}};
    json_t *facts = program_json(&call, 0);
    assert_int_equal(json_integer_at(facts, "answered"), QUESTION_COUNT);
    assert_int_equal(json_integer_at(facts, "skipped"), 0);
    assert_int_equal(json_integer_at(facts, "most_rows"), 3);
    assert_int_equal(json_integer_at(facts, "seed"), 9);
    assert_true(json_number_at(facts, "rows_per_pass") > 1);
    json_t *results = read_results(out);
    json_int_t generated = 0, prompts = 0;
    const char *key;
    json_t *result;
    json_object_foreach(results, key, result)
    {
        generated += json_integer_at(result, "generated_tokens");
        prompts += json_integer_at(result, "prompt_tokens");
    }
    assert_int_equal(json_integer_at(facts, "generated_tokens"), generated);
    assert_int_equal(
        json_integer_at(facts, "prompt_tokens") + json_integer_at(facts, "shared_tokens"), prompts);
    json_decref(results);
    json_decref(facts);
    facts = program_json(&call, 0); // all is there
    assert_int_equal(json_integer_at(facts, "answered"), 0);
    assert_int_equal(json_integer_at(facts, "skipped"), QUESTION_COUNT);
    json_decref(facts);
}

// Prompts from standard input, answers to standard output.
static void test_streams(void **state)
{
    (void)state;
    program_result result =
        program_run(&(program_call){.arguments = {"batch", program_path("chain.gguf"), "--prompts",
                                                  "-", "--out", "/dev/stdout", "--temp", "0"},
                                    .input = "{\"id\": 1, \"prompt\": \"hi\"}\n"});
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "{\"id\":1,\"text\":\"caf\xc3\xa9!\",");
    program_free(&result);
}

static void test_usage(void **state)
{
    (void)state;
    program_expect_usage(&(program_call){.arguments = {"batch", "m", "--out", "o"}},
                         "--prompts FILE)");
    program_expect_usage(&(program_call){.arguments = {"batch", "m", "--prompts", "p"}},
                         "(--out FILE)");
    program_expect_usage(&(program_call){.arguments = {"batch", "--prompts", "p", "--out", "o"}},
                         "model");
    program_expect_usage(&(program_call){.arguments = {"batch", "m", "--prompts", "p", "--out", "o",
                                                       "--parallel", "0"}},
                         "--parallel takes");
    program_expect_usage(&(program_call){.arguments = {"batch", "m", "--prompts", "p", "--out", "o",
                                                       "--draft-tokens", "3"}},
                         "--draft-tokens needs --draft");
    program_expect_usage(&(program_call){.arguments = {"batch", "m", "-p", "hi"}}, "'-p'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_that_are_numbers),
        cmocka_unit_test(test_answers_of_run),
        cmocka_unit_test(test_beginnings_are_stored),
        cmocka_unit_test(test_lines_say_how),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_keys_of_lines),
        cmocka_unit_test(test_parts_of_messages),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_results_of_another_job),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(fault_zero_bytes_passed_for_an_empty_line),
        cmocka_unit_test(test_byte_order_mark),
        cmocka_unit_test(test_goes_on_after_a_kill),
        cmocka_unit_test(test_ignored_signals_stay_ignored),
        cmocka_unit_test(test_interrupt_ends_in_order),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_torn_line),
        cmocka_unit_test(test_other_files_are_left_alone),
        cmocka_unit_test(test_output_that_does_not_arrive),
        cmocka_unit_test(test_failures_before_the_first_prompt),
        cmocka_unit_test(fault_prompts_taken_for_a_torn_line),
        cmocka_unit_test(test_out_is_a_file),
        cmocka_unit_test(test_one_job_at_a_time),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
