// SPDX-License-Identifier: MIT
// kvern-bench, which `kvern bench` starts: finds what is to be measured.

#include "bench/program/bench.h"
#include "cli/io/nearest.h"
#include "cli/io/report.h"
#include "cli/options/help.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

typedef struct measurement {
    const char *name;
    char *title; // argv[0] of its messages and help
    const char *summary;
    int (*run)(int argc, char **argv);
} measurement;

static const measurement MEASUREMENTS[] = {
    {"attention", (char[]){"kvern bench attention"},
     "reads of the KV cache, beside what the machine can do at most", bench_attention},
    {"draft", (char[]){"kvern bench draft"}, "generation with drafts and without", bench_draft},
    {"model", (char[]){"kvern bench model"}, "a model's prompt and generation", bench_model},
    {"overhead", (char[]){"kvern bench overhead"}, "loading, and the calls around the arithmetic",
     bench_overhead},
    {"recurrent", (char[]){"kvern bench recurrent"},
     "recurrent layers, beside what the machine can do at most", bench_recurrent},
    {"select", (char[]){"kvern bench select"}, "selections of positions, and reads of them",
     bench_select},
    {"sharing", (char[]){"kvern bench sharing"}, "what rows gain that share a prefix",
     bench_sharing},
    {"store", (char[]){"kvern bench store"}, "keeping prefixes, and finding them among many",
     bench_store},
};
#define MEASUREMENT_COUNT (sizeof MEASUREMENTS / sizeof MEASUREMENTS[0])

static int print_measurements(void)
{
    static const char doc[] = "Measures the speed of this machine.\n\n";
    fputs("Usage: kvern bench MEASUREMENT [OPTION...]\n\n", stdout);
    help_fill(stdout, doc, sizeof doc - 1);
    fputs("Measurements:\n", stdout);
    for (size_t i = 0; i < MEASUREMENT_COUNT; i++) {
        printf("  %-10s %s\n", MEASUREMENTS[i].name, MEASUREMENTS[i].summary);
    }
    fputs("\nEach of them takes --help.\n", stdout);
    return CLI_SUCCESS;
}

static int fail_measurement(const char *word)
{
    const char *names[MEASUREMENT_COUNT];
    for (size_t i = 0; i < MEASUREMENT_COUNT; i++) {
        names[i] = MEASUREMENTS[i].name;
    }
    const char *meant = word ? nearest_name(word, names, MEASUREMENT_COUNT) : NULL;
    if (!word) {
        report_error("no measurement given: attention, draft, model, overhead, recurrent, select, "
                     "sharing or store");
    } else {
        report_error("unknown measurement '%s'%s%s%s", word, meant ? ", did you mean '" : "",
                     meant ? meant : "", meant ? "'?" : "");
    }
    fputs("Try 'kvern bench --help' for more information.\n", stderr);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    report_start();
    argp_err_exit_status = CLI_USAGE;
    const char *word = argc > 1 ? argv[1] : NULL;
    if (word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
        return print_measurements();
    }
    for (size_t i = 0; word && i < MEASUREMENT_COUNT; i++) {
        if (strcmp(word, MEASUREMENTS[i].name) == 0) {
            argv[1] = MEASUREMENTS[i].title;
            return MEASUREMENTS[i].run(argc - 1, argv + 1);
        }
    }
    return fail_measurement(word);
}
