// SPDX-License-Identifier: MIT
#include "tests/support/program.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(99);
    }
}

static int open_input(const char *text)
{
    int fd = memfd_create("input", 0);
    check(fd >= 0, "memfd_create");
    size_t size = text ? strlen(text) : 0;
    check(write(fd, text ? text : "", size) == (ssize_t)size, "write");
    check(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    return fd;
}

static int open_output(program_output output)
{
    int ends[2];
    switch (output) {
    case PROGRAM_FULL:
        return open("/dev/full", O_WRONLY);
    case PROGRAM_BROKEN_PIPE:
        check(pipe(ends) == 0, "pipe");
        close(ends[0]);
        return ends[1];
    default:
        return memfd_create("output", 0);
    }
}

static char *read_back(int fd, size_t *size)
{
    struct stat info;
    check(fstat(fd, &info) == 0, "fstat");
    bool kept = S_ISREG(info.st_mode); // no device, no pipe
    *size = kept ? (size_t)info.st_size : 0;
    char *text = calloc(1, *size + 1);
    check(text != NULL, "calloc");
    check(!kept || pread(fd, text, *size, 0) == (ssize_t)*size, "pread");
    close(fd);
    return text;
}

// Threads that wait for each other on a busy machine are slow; small models need one.
static void stay_on_one_processor(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return;
    }
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
        }
    }
    sched_setaffinity(0, sizeof one, &one);
}

static void start(const program_call *call, const int fds[3])
{
    const char *program = getenv("KVERN_PROGRAM");
    char *arguments[PROGRAM_MAX_ARGUMENTS + 2] = {(char *)program};
    for (size_t i = 0; i < PROGRAM_MAX_ARGUMENTS && call->arguments[i]; i++) {
        arguments[i + 1] = (char *)call->arguments[i];
    }
    for (int i = 0; i < 3; i++) {
        dup2(fds[i], i);
    }
    if (call->output == PROGRAM_CLOSED) {
        close(STDOUT_FILENO);
    }
    if (call->cpu) {
        setenv("KVERN_CPU", call->cpu, 1);
    }
    if (!call->all_processors) {
        stay_on_one_processor();
    }
    execv(program, arguments);
    _exit(98);
}

program_result program_run(const program_call *call)
{
    check(getenv("KVERN_PROGRAM") != NULL, "KVERN_PROGRAM"); // or a test could wait for ever
    int fds[3] = {open_input(call->input), open_output(call->output), memfd_create("errors", 0)};
    check(fds[1] >= 0 && fds[2] >= 0, "open");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        start(call, fds);
    }
    int status;
    check(waitpid(child, &status, 0) == child, "waitpid");
    program_result result = {0};
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    close(fds[0]);
    result.out = read_back(fds[1], &result.out_size);
    result.err = read_back(fds[2], &result.err_size);
    return result;
}

program_result program_run_well(const program_call *call)
{
    program_result result = program_run(call);
    if (result.code != 0) {
        fail_msg("code %d; stderr: %s", result.code, result.err);
    }
    return result;
}

void program_free(program_result *result)
{
    free(result->out);
    free(result->err);
    *result = (program_result){0};
}

void program_expect_part(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" is not in:\n%s", part, text);
    }
}

void program_expect_failure(const program_call *call, const char *message)
{
    program_result result = program_run(call);
    if (result.code != 1) {
        fail_msg("code %d instead of 1; stderr: %s", result.code, result.err);
    }
    program_expect_part(result.err, message);
    assert_memory_equal(result.err, "kvern: ", 7);
    const char *newline = strchr(result.err, '\n');
    assert_ptr_equal(newline, result.err + result.err_size - 1);
    program_free(&result);
}

void program_expect_usage(const program_call *call, const char *message)
{
    program_result result = program_run(call);
    if (result.code != 2) {
        fail_msg("code %d instead of 2; stderr: %s", result.code, result.err);
    }
    assert_string_equal(result.out, "");
    assert_memory_equal(result.err, "kvern", 5);
    program_expect_part(result.err, message);
    program_expect_part(result.err, "--help");
    program_free(&result);
}

const char *program_folder(void)
{
    static char folder[] = "/tmp/kvern-test-XXXXXX";
    static int made;
    if (!made) {
        check(mkdtemp(folder) != NULL, "mkdtemp");
        made = 1;
    }
    return folder;
}

const char *program_path(const char *name)
{
    static char paths[16][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 16];
    snprintf(path, PATH_MAX, "%s/%s", program_folder(), name);
    return path;
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *where)
{
    (void)facts;
    (void)kind;
    (void)where;
    return remove(path);
}

void program_remove(const char *path)
{
    struct stat facts;
    check(stat(path, &facts) != 0 || nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0, path);
}

void program_remove_folder(void)
{
    program_remove(program_folder());
}

int program_tear_down(void **state)
{
    (void)state;
    program_remove_folder();
    return 0;
}

const char *program_write(const char *name, const void *data, size_t bytes)
{
    const char *path = program_path(name);
    FILE *file = fopen(path, "wb");
    check(file != NULL, path);
    check(fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, path);
    return path;
}

const char *program_write_text(const char *name, const char *text)
{
    return program_write(name, text, strlen(text));
}

char *program_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    check(file != NULL && fstat(fileno(file), &info) == 0, path);
    const size_t size = (size_t)info.st_size;
    char *data = malloc(size + 1);
    check(data != NULL && fread(data, 1, size, file) == size, path);
    fclose(file);
    data[size] = 0;
    if (bytes) {
        *bytes = size;
    }
    return data;
}
