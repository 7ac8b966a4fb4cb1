// SPDX-License-Identifier: MIT
// kvern bench: the benchmarks are a program of their own, kvern-bench, which this starts.

#include "cli/commands/command.h"
#include "cli/io/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BENCH_PROGRAM "kvern-bench"

// The program beside this one. False: it is not known where this one is.
static bool find_beside(char path[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - sizeof BENCH_PROGRAM);
    if (length <= 0) {
        return false;
    }
    path[length] = 0;
    char *slash = strrchr(path, '/');
    if (!slash) {
        return false;
    }
    strcpy(slash + 1, BENCH_PROGRAM);
    return true;
}

static int run_bench(int argc, char **argv)
{
    char path[PATH_MAX], program[] = BENCH_PROGRAM;
    (void)argc;
    argv[0] = program;
    if (find_beside(path)) {
        execv(path, argv);
    }
    if (errno == ENOENT) {
        execvp(program, argv);
    }
    if (errno == ENOENT) {
        return report_error("the benchmarks are a program of their own, " BENCH_PROGRAM
                            ", which is neither beside kvern nor in PATH");
    }
    return report_error(BENCH_PROGRAM ": %s", strerror(errno));
}

const command command_bench = {
    .name = "bench",
    .title = "kvern bench",
    .summary = "measure the speed of attention reads or of a model",
    .run = run_bench,
};
