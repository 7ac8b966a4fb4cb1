// SPDX-License-Identifier: MIT
// kvern bench: the benchmarks are a program of their own, kvern-bench, which this starts.

#include "cli/commands/command.h"
#include "cli/io/program_files.h"
#include "cli/io/report.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define BENCH_PROGRAM "kvern-bench"

static int run_bench(int argc, char **argv)
{
    char path[PATH_MAX], program[] = BENCH_PROGRAM;
    (void)argc;
    argv[0] = program;
    if (program_file(BENCH_PROGRAM, path)) {
        execv(path, argv);
    } else {
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
