// SPDX-License-Identifier: MIT
// kvern run on a terminal: a pseudo-terminal plays the person.

#include "tests/support/program.h"
#include "tests/support/small_model.h"

#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>
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

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){.answer = "abc"}, program_path("chain.gguf"));
    small_model_save(&(small_model){.chat = ""}, program_path("base.gguf"));
    small_model_save(&(small_model){.answer = "abcdefgh", .endless = true, .context = 10000000},
                     program_path("endless.gguf"));
    small_model_save(&(small_model){.answer = "abc", .context = 100}, program_path("short.gguf"));
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
    expect("(Ctrl-D ends the conversation)");
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

// A line that begins with a slash is a command or nothing; two slashes send one.
static void test_commands(void **state)
{
    (void)state;
    start(program_path("chain.gguf"), NULL);
    static const char *const UNKNOWN[] = {"/hlep\r", "/\r", "/clear now\r", "/etc is a folder\r"};
    for (size_t i = 0; i < sizeof UNKNOWN / sizeof UNKNOWN[0]; i++) {
        expect("> ");
        type(UNKNOWN[i]);
        expect("(there is no such command, and nothing was sent)\r\n/clear ");
        expect("\r\n//TEXT ");
    }
    expect("> ");
    type("/help \r");
    expect("/help \r\n/clear ");
    expect("\r\n//TEXT ");
    expect("> ");
    type("//ab\r");
    expect("abc\r\n");
    expect("> ");
    type("\004");
    expect("prompt      22 tokens"); // 19 around the message, and /ab
    expect(" 25 of 256 positions");
    expect_exit(0);
}

// A model without a chat template continues texts.
static void test_conversation_needs_a_template(void **state)
{
    (void)state;
    start(program_path("base.gguf"), NULL);
    expect("no chat template");
    expect("knows no conversation");
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
        cmocka_unit_test(test_editing_and_history),
        cmocka_unit_test(test_interrupts),
        cmocka_unit_test(test_token_limit),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_conversation_needs_a_template),
        cmocka_unit_test(test_conversation_needs_a_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
