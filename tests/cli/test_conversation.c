// SPDX-License-Identifier: MIT
// kvern run on a terminal: a pseudo-terminal plays the person.

#include "tests/support/hybrid_state.h"
#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"
#include "tests/support/small_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <kvern/kvern.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#define SECONDS 60

// A program on a terminal of its own, and everything it has shown.
typedef struct screen {
    pid_t child;
    int terminal;
    char text[1 << 20];
    size_t size;
    size_t seen; // expect looks behind this
} screen;

static screen shown; // too large for the stack
static bool with_color;

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){.answer = "abc"}, program_path("chain.gguf"));
    small_model_save(&(small_model){.chat = ""}, program_path("base.gguf"));
    small_model_save(&(small_model){.answer = "abc",
                                    .chat = "{% for m in messages if m.role == 'user' %}"
                                            "{{ m.content }};{% endfor %}{{ '\\n' }}"},
                     program_path("forgetful.gguf"));
    small_model_save(&(small_model){.answer = "abcdefgh", .endless = true, .context = 10000000},
                     program_path("endless.gguf"));
    small_model_save(&(small_model){.answer = "abc", .context = 100}, program_path("short.gguf"));
    small_model_save(&(small_model){.answer = "a\033[31mb\177c\302\233d\te"},
                     program_path("control.gguf"));
    return 0;
}

// Starts the program with these arguments, NULL-terminated, its own name first.
static void start_program(const char *const *arguments)
{
    shown = (screen){0};
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    shown.child = forkpty(&shown.terminal, NULL, NULL, &size);
    assert_true(shown.child >= 0);
    if (shown.child == 0) {
        setenv("TERM", "xterm", 1);
        setenv("HOME", "/nonexistent", 1); // nobody's ~/.editrc
        setenv("NO_COLOR", with_color ? "" : "1", 1);
        execv(getenv("KVERN_PROGRAM"), (char *const *)arguments);
        _exit(98);
    }
}

// A conversation with a model; `more` is an option or NULL.
static void start(const char *model, const char *more)
{
    start_program((const char *[]){"kvern", "run", model, "--temp", "0", "-t", "1", more, NULL});
}

static void type(const char *keys)
{
    assert_int_equal(write(shown.terminal, keys, strlen(keys)), strlen(keys));
}

// Types a key until something happens. A key that comes in the moment in which the terminal changes
// its mode can be lost, for a person as for a test on a busy machine; a person presses it again.
static void type_until_shown(const char *key)
{
    struct pollfd ready = {.fd = shown.terminal, .events = POLLIN};
    for (int i = 0; i < SECONDS; i++) {
        type(key);
        if (poll(&ready, 1, 3000) == 1) {
            return;
        }
    }
}

// Takes in what the program shows. False when it has ended.
static bool read_more(void)
{
    struct pollfd ready = {.fd = shown.terminal, .events = POLLIN};
    if (poll(&ready, 1, SECONDS * 1000) != 1) {
        kill(shown.child, SIGKILL);
        fail_msg("nothing happens any more; shown so far:\n%s", shown.text);
    }
    ssize_t got = read(shown.terminal, shown.text + shown.size, sizeof shown.text - 1 - shown.size);
    if (got <= 0) {
        return false; // EIO: the other end is closed
    }
    shown.size += (size_t)got;
    return true;
}

// Waits until `part` has been shown behind what was expected before.
static void expect(const char *part)
{
    const char *found;
    while (
        !(found = memmem(shown.text + shown.seen, shown.size - shown.seen, part, strlen(part)))) {
        if (!read_more()) {
            fail_msg("\"%s\" was not shown:\n%s", part, shown.text);
        }
    }
    shown.seen = (size_t)(found - shown.text) + strlen(part);
}

static void expect_exit(int code)
{
    while (read_more()) {
    }
    int status;
    assert_int_equal(waitpid(shown.child, &status, 0), shown.child);
    close(shown.terminal);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void test_two_turns(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    expect("> ");
    type("again\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("generation  6 tokens");
    // <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n and abc: 21 tokens and 3. Then
    // <|im_end|>\n, 24 tokens of the same form for the second message, and 3.
    expect(" 53 of 256 positions");
    expect_exit(0);
}

// A template that leaves out past answers is followed: the sequence begins anew, without them.
static void test_template_that_changes_the_past(void **state)
{
    (void)state;
    start(program_path("forgetful.gguf"), NULL);
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    expect("> ");
    type("again\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    // hi;again;\n and abc.
    expect(" 13 of 256 positions");
    expect_exit(0);
}

static void test_editing_and_history(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("hello\r");
    expect("abc\r\n");
    expect("> ");
    type("\033[A"); // the line before
    expect("hello");
    type("\r");
    expect("abc\r\n");
    expect("> ");
    type("one\\\r"); // goes on
    expect("... ");
    type("two\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect_exit(0);
}

static void test_interrupts(void **state)
{
    (void)state;
    start(program_path("endless.gguf"), NULL);
    expect("> ");
    type("half a lin");
    expect("half a lin");
    type("\003");
    expect("(Ctrl-D or /exit ends the conversation)");
    expect("> ");
    type("hi\r");
    expect("abcdefghabcdefgh");
    type("\003");
    expect("(cancelled)");
    expect("> ");
    type("more\r"); // goes on with what was said
    expect("abcdefghabcdefgh");
    type("\003");
    expect("(cancelled)");
    expect("> ");
    type_until_shown("\004");
    expect("(cancelled)");
    expect_exit(0);
}

static void test_token_limit(void **state)
{
    (void)state;
    start(program_path("endless.gguf"), "-n3");
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    expect("(the answer reached -n)");
    expect("> ");
    type("\004");
    expect_exit(0);
}

// A message that does not fit is refused and forgotten; /clear makes room.
static void test_full_context(void **state)
{
    (void)state;
    start(program_path("short.gguf"), NULL);
    expect("> ");
    type("first\r");
    expect("abc\r\n");
    expect("> ");
    type("a message that is much too long for what is left of the context of this model\r");
    expect("kvern: the prompt has ");
    expect("(this message was forgotten; /clear begins a new conversation)\r\n");
    expect("> ");
    type("/clear\r");
    expect("> ");
    type("a message that has fifty bytes more or less, or so\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect_exit(0);
}

// What the end says of the latest answer is not about a message that was refused behind it.
static void test_refused_message_ends_no_answer(void **state)
{
    (void)state;
    start(program_path("short.gguf"), "-n2");
    expect("> ");
    type("first\r");
    expect("(the answer reached -n)");
    expect("> ");
    type("a message that is much too long for what is left of the context of this model\r");
    expect("(this message was forgotten; /clear begins a new conversation)\r\n");
    expect("> ");
    type("\004");
    expect("(token limit)");
    expect_exit(0);
}

// A line that begins with a slash is a command or nothing; two slashes send one.
static void test_commands(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    static const char *const UNKNOWN[] = {"/hlep\r", "/\r", "/clear now\r", "/etc is a folder\r"};
    static const char *const SAID[] = {"unknown command '/hlep', did you mean /help; nothing",
                                       "unknown command '/'; nothing was sent",
                                       "/clear takes no argument, and nothing was sent",
                                       "unknown command '/etc'"};
    for (size_t i = 0; i < sizeof UNKNOWN / sizeof UNKNOWN[0]; i++) {
        expect("> ");
        type(UNKNOWN[i]);
        expect(SAID[i]);
    }
    expect("there are /clear, /regen, /system, /save, /load, /help, /exit; //TEXT sends");
    expect("> ");
    type("/help \r");
    expect("  /clear ");
    expect("\r\n  //TEXT ");
    expect("> ");
    type("//ab\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("prompt      22 tokens"); // 19 around the message, and /ab
    expect(" 25 of 256 positions");
    expect_exit(0);
}

static void test_words_that_end_it(void **state)
{
    (void)state;
    static const char *const WORDS[] = {"/exit\r", "/quit\r", "/bye \r"};
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        start(program_path("chain.gguf"), NULL);
        expect("> ");
        type(WORDS[i]);
        expect("generation  0 tokens");
        expect_exit(0);
    }
}

// The bare word is no message, unless it is quoted.
static void test_bare_words_that_seem_to_end_it(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    static const char *const WORDS[] = {"exit\r", "quit\r"};
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        expect("> ");
        type(WORDS[i]);
        expect("(nothing was sent; /exit or Ctrl-D ends the conversation");
    }
    expect("> ");
    type("\"\"\"exit\"\"\"\r");
    expect("abc\r\n");
    expect("> ");
    type("/exit\r");
    expect("prompt      23 tokens"); // 19 around the word
    expect_exit(0);
}

// The same question and answer are there again, and nothing else.
static void test_another_answer(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("/regen\r");
    expect("(there is no answer yet)");
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    expect("> ");
    type("/regen\r");
    expect("abc\r\n");
    expect("> ");
    type("again\r"); // the conversation goes on behind the second answer
    expect("abc\r\n");
    expect("> ");
    type("\004");
    // 21 of the first message, its last one again, 26 of the second one; the newline of
    // <|im_end|> included.
    expect("prompt      48 tokens");
    expect("generation  9 tokens");
    expect(" 53 of 256 positions"); // as in test_two_turns
    expect_exit(0);
}

// It stands at the beginning of all that was said; without a text it goes away again.
static void test_system_message(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    expect("> ");
    type("/system  Be brief.\r");
    expect("> ");
    type("again\r");
    expect("abc\r\n");
    expect("> ");
    type("/system\r");
    expect("> ");
    type("third\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    // Three turns without a system message, all of them computed again at the last one.
    expect(" 82 of 256 positions");
    expect_exit(0);
}

// A conversation goes on from its file, in another process too; with a directory it is not computed
// again. What is no conversation changes nothing.
static void test_saved_conversations(void **state)
{
    (void)state;
    const char *file = program_path("talk.json"), *directory = program_path("prefixes");
    char save[4096], load[4096], cache[4096];
    snprintf(save, sizeof save, "/save %s\r", file);
    snprintf(load, sizeof load, "/load %s\r", file);
    snprintf(cache, sizeof cache, "--cache=%s", directory);
    start(program_path("chain.gguf"), cache);
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    expect("> ");
    type(save);
    expect("(messages in the file: 2)");
    expect("> ");
    type("/save /dev/null/talk\r");
    expect("/dev/null/talk");
    expect("> ");
    type(save); // in place of the conversation that is there
    expect("(messages in the file: 2)");
    expect("> ");
    type("\004");
    expect("reused      0 tokens");
    expect_exit(0);
    char *text = program_read(file, NULL);
    assert_string_equal(text, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
                              "{\"role\":\"assistant\",\"content\":\"abc\"}]}\n");
    free(text);

    start(program_path("chain.gguf"), cache);
    expect("> ");
    type("/load\r");
    expect("/save and /load take the name of a file");
    expect("> ");
    type("/load /nonexistent/talk\r");
    expect("/nonexistent/talk");
    expect("> ");
    type(load);
    expect("(messages from the file: 2)");
    expect("> ");
    type("again\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("reused      24 tokens from the directory");
    expect(" 53 of 256 positions"); // as in test_two_turns
    expect_exit(0);
}

static void test_unsound_conversations(void **state)
{
    (void)state;
    static const char *const TEXTS[][2] = {
        {"", "talk.json is empty"},
        {"[]", "it is no {\"messages\": [...]}"},
        {"{\"messages\": [], \"more\": 1}", "it is no"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", "message 1 is not"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 7}]}", "message 1 is not"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "has no answer"},
        {"{\"messages\": [", "talk.json, line 1"},
    };
    char load[4096];
    start(program_path("chain.gguf"), NULL);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        snprintf(load, sizeof load, "/load %s\r", program_write_text("talk.json", TEXTS[i][0]));
        expect("> ");
        type(load);
        expect(TEXTS[i][1]);
    }
    snprintf(load, sizeof load, "/save %s\r", program_path("talk.json"));
    expect("> ");
    type(load);
    expect("talk.json is there, and is no conversation");
    expect("> ");
    type("\004");
    expect_exit(0);
}

// Runs `kvern cache` with these arguments, NULL-terminated.
static void convert(const char *in, const char *out, const char *option, const char *value)
{
    program_result result = program_run_well(
        &(program_call){.arguments = {"cache", "convert", in, out, "--force", option, value}});
    program_free(&result);
}

// What a prompt left in a directory, as a prompt cache of mlx-lm, and as a file of rows again:
// NAME.safetensors and NAME.kv.
static void make_rows(const char *model, const char *prompt, const char *name)
{
    char directory[4096], entry[4096], cache[4096], rows[4096], part[128];
    snprintf(directory, sizeof directory, "%s", program_path("made"));
    program_remove(directory);
    program_result result = program_run_well(
        &(program_call){.arguments = {"run", model, "-p", prompt, "--temp", "0", "-n", "8", "-t",
                                      "1", "--cache", directory}});
    program_free(&result);
    result = program_run_well(&(program_call){.arguments = {"cache", "list", directory}});
    result.out[strcspn(result.out, " ")] = '\0';
    snprintf(part, sizeof part, "made/%.100s", result.out);
    snprintf(entry, sizeof entry, "%s", program_path(part));
    program_free(&result);
    snprintf(part, sizeof part, "%s.safetensors", name);
    snprintf(cache, sizeof cache, "%s", program_path(part));
    snprintf(part, sizeof part, "%s.kv", name);
    snprintf(rows, sizeof rows, "%s", program_path(part));
    convert(entry, cache, "--model", model);
    convert(cache, rows, "--model", model);
}

static void leave(void)
{
    expect("> ");
    type("\004");
}

static void type_load(const char *name)
{
    char load[4096];
    snprintf(load, sizeof load, "/load %s\r", program_path(name));
    expect("> ");
    type(load);
}

// Rows that were computed elsewhere: the prompt that begins as their tokens is not computed again,
// and the answer is the same.
static void test_rows_are_loaded(void **state)
{
    (void)state;
    char model[4096];
    snprintf(model, sizeof model, "%s", program_path("chain.gguf"));
    make_rows(model, "hi", "rows");
    start(model, NULL);
    type_load("rows.kv");
    expect("(tokens from the file: 24)");
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    leave();
    expect("prompt      1 token ");
    expect(" 24 of 256 positions");
    expect_exit(0);
    // Behind an open step of the sequence, and once more.
    start(model, NULL);
    expect("> ");
    type("something else\r");
    expect("abc\r\n");
    for (int i = 0; i < 2; i++) {
        type_load("rows.kv");
        expect("(tokens from the file: 24)");
    }
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    leave();
    expect(" 24 of 256 positions");
    expect_exit(0);
}

// A text without a template goes on behind the tokens.
static void test_loaded_rows_of_a_text(void **state)
{
    (void)state;
    char model[4096];
    snprintf(model, sizeof model, "%s", program_path("base.gguf"));
    make_rows(model, "a text that goes on", "text");
    start(model, "--template=chatml");
    type_load("text.kv");
    expect("(tokens from the file: ");
    leave();
    expect_exit(0);
    start(model, "--raw");
    type_load("text.kv");
    expect("(tokens from the file: ");
    expect("> ");
    type("on\r");
    leave();
    expect("prompt      2 tokens ");
    expect_exit(0);
}

static void test_rows_of_others_are_refused(void **state)
{
    (void)state;
    char model[4096];
    snprintf(model, sizeof model, "%s", program_path("chain.gguf"));
    make_rows(model, "hi", "rows");
    convert(program_path("rows.safetensors"), program_path("nobody.kv"), NULL, NULL);
    convert(KVERN_TESTS_DIR "/golden/mlx/states-batch.safetensors", program_path("many.kv"), NULL,
            NULL);
    convert(KVERN_TESTS_DIR "/golden/mlx/states-kv.safetensors", program_path("silent.kv"), NULL,
            NULL);
    start(model, NULL);
    type_load("rows.safetensors");
    expect("is a prompt cache of mlx-lm or mlx-bun: kvern cache convert makes");
    type_load("nobody.kv");
    expect("does not say of which model its rows are");
    type_load("many.kv");
    expect("has 3 rows, and a conversation is one");
    type_load("silent.kv");
    expect("has no tokens");
    leave();
    expect_exit(0);
    start(program_path("forgetful.gguf"), NULL);
    type_load("rows.kv");
    expect("rows of another model than");
    leave();
    expect_exit(0);
    start(model, "--kv=f32");
    type_load("rows.kv");
    expect("layer 0: rows of full");
    expect("> ");
    type("hi\r");
    expect("abc\r\n");
    leave();
    expect_exit(0);
}

// The model that a file of rows says it is of.
static void read_model(const char *path, char model[64])
{
    json_t *facts =
        program_json(&(program_call){.arguments = {"cache", "inspect", path, "--json"}}, 0);
    snprintf(model, 64, "%s", json_string_at(json_object_get(facts, "identity"), "model"));
    json_decref(facts);
}

static void save_rows(const char *path, const char *model, const kvern_file_key *keys, size_t count)
{
    const uint64_t sequence = 5;
    const kvern_layer layer = kvern_layer_default(1, 32);
    static const int32_t tokens[] = {1, 2, 3};
    const int32_t *const rows[] = {tokens};
    kvern_context *context = small_rows_context();
    kvern_composition *composition;
    kvern_state *s;
    kvern_file_identity identity = kvern_file_identity_default();
    kvern_file_content content = kvern_file_content_default();
    identity.model = model;
    identity.keys = keys;
    identity.key_count = count;
    content.identity = &identity;
    content.tokens = rows;
    assert_int_equal(KVERN_OK, kvern_composition_create(context, &layer, 1, &composition));
    assert_int_equal(KVERN_OK, kvern_state_create(composition, 1, &s));
    hybrid_step(s, KVERN_PHASE_WINDOW, &sequence, (int64_t[]){3}, NULL);
    assert_int_equal(KVERN_OK, kvern_file_save(s, &content, path));
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// Their numbers have other bits than those that would be computed now.
static void test_rows_of_other_builds_are_refused(void **state)
{
    (void)state;
    char path[4096], model[64];
    const kvern_file_key keys[] = {{"kvern", kvern_version()}, {"arithmetic", "0"}};
    snprintf(path, sizeof path, "%s", program_path("chain.gguf"));
    make_rows(path, "hi", "rows");
    read_model(program_path("rows.kv"), model);
    save_rows(program_path("earlier.kv"), model, keys, 1);
    save_rows(program_path("other.kv"), model, keys, 2);
    start(path, NULL);
    type_load("earlier.kv");
    expect("rows of an earlier build, which computed other bits");
    type_load("other.kv");
    expect("user.arithmetic is '0', which this conversation has not");
    leave();
    expect_exit(0);
}

static void test_quoted_messages(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("\"\"\"a\r");
    expect("... ");
    type("/b\r");
    expect("... ");
    type("\"\"\"\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("prompt      23 tokens"); // 19 around the message, and a\n/b
    expect_exit(0);
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("\"\"\"/x\"\"\"\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("prompt      21 tokens");
    expect_exit(0);
}

// Three lines that are pasted are one message, with what a terminal would act on left out.
static void test_pasting(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("\033[?2004h");
    expect("> ");
    type("\033[200~one\rtwo\007\rthree\r\033[201~");
    expect("three");
    type("!\r");
    expect("abc\r\n");
    expect("\033[?2004h");
    expect("> ");
    type("\004");
    expect("\033[?2004l");
    expect("prompt      33 tokens"); // 19 around the message, and one\ntwo\nthree!
    expect_exit(0);
}

static bool echoes(void)
{
    struct termios mode;
    assert_int_equal(tcgetattr(shown.terminal, &mode), 0);
    return (mode.c_lflag & (ECHO | ICANON)) == (ECHO | ICANON);
}

// Whatever ends the program at the prompt, the terminal is left as it was.
static void test_signals_give_the_terminal_back(void **state)
{
    (void)state;
    static const int SIGNALS[] = {SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof SIGNALS / sizeof SIGNALS[0]; i++) {
        int status;
        start(program_path("chain.gguf"), NULL);
        expect("> ");
        assert_false(echoes());
        kill(shown.child, SIGNALS[i]);
        assert_int_equal(waitpid(shown.child, &status, 0), shown.child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGNALS[i]);
        assert_true(echoes());
        close(shown.terminal);
    }
}

static void test_stop_and_continue(void **state)
{
    (void)state;
    int status;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("hel");
    expect("hel");
    kill(shown.child, SIGTSTP);
    assert_int_equal(waitpid(shown.child, &status, WUNTRACED), shown.child);
    assert_true(WIFSTOPPED(status));
    assert_true(echoes());
    kill(shown.child, SIGCONT);
    expect("\033[?2004h");
    expect("hel"); // the line is shown again
    assert_false(echoes());
    type("lo\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("prompt      22 tokens"); // 19 around the message, and he, ll, o
    expect_exit(0);
}

// A line that is longer than the new width goes on in the next row.
static void test_resize(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    const struct winsize narrow = {.ws_row = 24, .ws_col = 20};
    assert_int_equal(ioctl(shown.terminal, TIOCSWINSZ, &narrow), 0);
    poll(NULL, 0, 300);
    type("123456789012345678901234567890");
    expect("123456789012345678 \b901"); // which moves to the next row
    expect("890");
    type("\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect_exit(0);
}

// A model writes what it wants; a terminal does not act on it.
static void test_control_characters(void **state)
{
    (void)state;
    start(program_path("control.gguf"), NULL);
    expect("> ");
    type("hi\r");
    expect("a\xef\xbf\xbd[31mb\xef\xbf\xbd"
           "c\xef\xbf\xbd"
           "d");
    expect("> ");
    type("\004");
    expect_exit(0);
}

static void test_colors(void **state)
{
    (void)state;
    with_color = true;
    start(program_path("chain.gguf"), NULL);
    with_color = false;
    expect("\033[2m>\033[0m ");
    type("\004");
    expect_exit(0);
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("\004");
    expect_exit(0);
    assert_null(strstr(shown.text, "\033[2m"));
}

// Lines are remembered for the next conversation, in a file for their owner alone.
static void test_history_file(void **state)
{
    (void)state;
    struct stat info;
    char folder[100], file[120];
    snprintf(folder, sizeof folder, "%s/kvern", program_folder());
    snprintf(file, sizeof file, "%s/history", folder);
    setenv("XDG_STATE_HOME", program_folder(), 1);
    start(program_path("chain.gguf"), "--no-history");
    expect("> ");
    type("nothing\r");
    expect("abc\r\n");
    expect("> ");
    type_until_shown("\004");
    expect_exit(0);
    assert_int_not_equal(stat(file, &info), 0);
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("something\r");
    expect("abc\r\n");
    expect("> ");
    kill(shown.child, SIGKILL); // what was typed is there at once
    int status;
    assert_int_equal(waitpid(shown.child, &status, 0), shown.child);
    close(shown.terminal);
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    start(program_path("chain.gguf"), NULL);
    expect("> ");
    type("\033[A");
    expect("something");
    type("\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect_exit(0);
    unsetenv("XDG_STATE_HOME");
    assert_int_equal(remove(file), 0);
    assert_int_equal(remove(folder), 0);
}

// A model without a chat template continues texts.
static void test_conversation_needs_a_template(void **state)
{
    (void)state;
    start(program_path("base.gguf"), NULL);
    expect("no chat template");
    expect("cannot handle a conversation");
    expect_exit(1);
}

static void test_conversation_needs_a_terminal(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), "--json");
    expect("--json needs a prompt");
    expect_exit(2);
}

// Work that takes longer than a moment shows how far it is, and leaves the line empty.
static void test_progress(void **state)
{
    (void)state;
    const char *text = program_path("long.txt");
    FILE *file = fopen(text, "w");
    assert_non_null(file);
    for (int i = 0; i < 10000; i++) {
        putc('a', file);
    }
    assert_int_equal(fclose(file), 0);
    start_program((const char *[]){"kvern", "logits", program_path("endless.gguf"), "--file", text,
                                   "--out", "/dev/null", "--chunk", "1", "-t", "1", NULL});
    expect("\rlogits [");
    expect("/10000 tokens");
    expect("] ");
    expect("/10000 tokens");
    expect("\r\033[K10000 positions of 261 logits");
    expect_exit(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_turns),
        cmocka_unit_test(test_template_that_changes_the_past),
        cmocka_unit_test(test_editing_and_history),
        cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_token_limit),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_refused_message_ends_no_answer),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_words_that_end_it),
        cmocka_unit_test(test_bare_words_that_seem_to_end_it),
        cmocka_unit_test(test_another_answer),
        cmocka_unit_test(test_system_message),
        cmocka_unit_test(test_saved_conversations),
        cmocka_unit_test(test_unsound_conversations),
        cmocka_unit_test(test_rows_are_loaded),
        cmocka_unit_test(test_loaded_rows_of_a_text),
        cmocka_unit_test(test_rows_of_others_are_refused),
        cmocka_unit_test(test_rows_of_other_builds_are_refused),
        cmocka_unit_test(test_quoted_messages),
        cmocka_unit_test(test_pasting),
        cmocka_unit_test(test_signals_give_the_terminal_back),
        cmocka_unit_test(test_stop_and_continue),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_colors),
        cmocka_unit_test(test_history_file),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_conversation_needs_a_template),
        cmocka_unit_test(test_conversation_needs_a_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
