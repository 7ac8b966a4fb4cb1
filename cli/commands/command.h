// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_COMMAND_H
#define KVERN_CLI_COMMAND_H

// The subcommands of the program. Each file cli/commands/<name>.c defines `command_<name>`.

typedef struct command {
    const char *name;
    const char *title;   // argv[0] of its messages and help: "kvern NAME"
    const char *summary; // one line of `kvern --help`
    // Runs the command. argv[0] is `title`; the result is an exit code of cli/io/report.h.
    int (*run)(int argc, char **argv);
} command;

extern const command command_run;
extern const command command_prefill;
extern const command command_inspect;
extern const command command_tokenize;
extern const command command_logits;
extern const command command_fit;
extern const command command_eval;
extern const command command_batch;
extern const command command_serve;
extern const command command_bench;
extern const command command_pull;
extern const command command_cache;

#endif
