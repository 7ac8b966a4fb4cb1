// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_PROGRAM_H
#define KVERN_TESTS_SUPPORT_PROGRAM_H

// Runs the kvern program (its path is in the environment variable KVERN_PROGRAM) and keeps what it
// wrote. Failures of the machinery itself end the test program.

#include <stdbool.h>
#include <stddef.h>

#define PROGRAM_MAX_ARGUMENTS 32

// Where stdout goes instead of being kept.
typedef enum program_output {
    PROGRAM_KEEP = 0,
    PROGRAM_FULL,        // a device that is always full
    PROGRAM_BROKEN_PIPE, // nobody reads
    PROGRAM_CLOSED       // the descriptor is not open
} program_output;

typedef struct program_call {
    const char *arguments[PROGRAM_MAX_ARGUMENTS]; // without the program itself; NULL-terminated
    const char *input;                            // stdin; NULL: empty
    program_output output;
    const char *cpu;     // KVERN_CPU; NULL: unset
    bool all_processors; // otherwise it runs on one, so that tests beside it do not slow it down
} program_call;

typedef struct program_result {
    int code;  // the exit code, or 128 + the signal that ended it
    char *out; // zero-terminated
    char *err;
    size_t out_size, err_size;
} program_result;

program_result program_run(const program_call *call);

// The same for a call that must end with code 0.
program_result program_run_well(const program_call *call);

void program_free(program_result *result);

// Fails the test when `part` is not in `text`.
void program_expect_part(const char *text, const char *part);

// Fails the test unless the call ends with code 1 and one line on stderr: "kvern: " and something
// that holds `message`.
void program_expect_failure(const program_call *call, const char *message);

// Fails the test unless the call is wrong usage: code 2, nothing on stdout, and on stderr a message
// of the program that holds `message`, and the way to the help.
void program_expect_usage(const program_call *call, const char *message);

// A folder of its own for the files of a test program, and paths in it (the next 16 calls of
// program_path leave a path intact).
const char *program_folder(void);
const char *program_path(const char *name);
// Removes a file, or a folder with all that is in it; one that is not there is no failure.
void program_remove(const char *path);
// Removes the folder of the test program; the tear-down of a group does no more.
void program_remove_folder(void);
int program_tear_down(void **state);

// Writes a file of the folder, and returns its path.
const char *program_write(const char *name, const void *data, size_t bytes);
const char *program_write_text(const char *name, const char *text);

// Reads a whole file, and puts a zero byte behind it; free(). `bytes` may be NULL.
char *program_read(const char *path, size_t *bytes);

#endif
