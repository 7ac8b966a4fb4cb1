// SPDX-License-Identifier: MIT
// kvern pull: fetches a model, with a script that is installed beside the program.

#include "cli/commands/command.h"
#include "cli/io/program_files.h"
#include "cli/io/report.h"
#include "cli/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Where it is installed, and where it is in a tree that the program was built in.
static const char *const SCRIPTS[] = {"../libexec/kvern/fetch-model", "../tools/fetch-model"};

enum { KEY_LIST = OPTIONS_KEY_COMMAND };

typedef struct pull_options {
    cli_options common; // first, as parsers want it
    char *name;
    bool list;
} pull_options;

static error_t parse_pull(int key, char *argument, struct argp_state *state)
{
    pull_options *options = state->input;
    switch (key) {
    case KEY_LIST:
        options->list = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->name) {
            options_fail(state, "unexpected argument '%s'", argument);
        }
        options->name = argument;
        return 0;
    case ARGP_KEY_END:
        if (!options->name && !options->list) {
            options_fail(state, "no model given; --list shows them");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option PULL_OPTIONS[] = {
    {.name = "list", .key = KEY_LIST, .doc = "Show the models that can be fetched"}, {0}};

static const struct argp PULL_ARGP = {
    .options = PULL_OPTIONS,
    .parser = parse_pull,
    .args_doc = "NAME",
    .doc = "Fetches a model, once, checks it, and prints its path. From then on NAME stands for it "
           "wherever a model file is asked for."
           "\v"
           "  kvern pull smollm2\n"
           "  kvern run smollm2\n\n"
           "Models are kept in $KVERN_MODELS, else $XDG_CACHE_HOME/kvern/models, else "
           "~/.cache/kvern/models. It takes bash, and python3 with pip or venv.",
};

static int run_pull(int argc, char **argv)
{
    pull_options options = {0};
    options_parse(&PULL_ARGP, argc, argv, &options.common);
    char path[PATH_MAX], list[] = "--list";
    bool found = false;
    for (size_t i = 0; !found && i < sizeof SCRIPTS / sizeof SCRIPTS[0]; i++) {
        found = program_file(SCRIPTS[i], path);
    }
    if (!found) {
        return report_error("the script that fetches models is not installed beside this program "
                            "(%s)",
                            SCRIPTS[0]);
    }
    char *const arguments[] = {path, options.list ? list : options.name, NULL};
    execv(path, arguments);
    return report_error("%s: %s", path, strerror(errno));
}

const command command_pull = {
    .name = "pull",
    .title = "kvern pull",
    .summary = "fetch a model, so that it can be used by name",
    .run = run_pull,
};
