// SPDX-License-Identifier: MIT
// kvern bench store: what keeping and finding prefixes costs. Its parts stand in one table.

#include "bench/measure/store_lookup.h"
#include "bench/program/bench.h"
#include "bench/program/bench_options.h"
#include "bench/program/bench_store_directory.h"
#include "bench/program/bench_store_file.h"
#include "bench/program/bench_store_remote.h"
#include "bench/program/bench_store_token.h"
#include "cli/io/json.h"
#include "cli/io/nearest.h"
#include "cli/io/report.h"

#include <stdio.h>
#include <string.h>

enum {
    KEY_ENTRIES = OPTIONS_KEY_COMMAND,
    KEY_COMMON,
    KEY_MIB,
    KEY_DIR,
    KEY_FILES,
    KEY_PREFIX,
    KEY_URL
};

// Rounds with a file, which take seconds.
#define MOST_FILE_RUNS 5

typedef struct store_options {
    bench_options bench;
    number_list entries, common, files;
    uint64_t mib, prefix;
    const char *folder;
    const char *url;  // NULL: nothing is measured there
    const char *part; // NULL: all of them that need no model
} store_options;

typedef struct store_part {
    const char *name;
    // Prints its table, or returns it as JSON in *cells. The result is an exit code.
    int (*run)(const store_options *options, json_t **cells);
} store_part;

// ---- Lookups ----

static json_t *times_json(const quartiles *times)
{
    return json_pack("{s:f, s:f, s:f}", "us", 1e6 * times->median, "us_low", 1e6 * times->low,
                     "us_high", 1e6 * times->high);
}

static void print_lookup(const store_lookup_case *c, const store_lookup_result *r)
{
    printf("%8zu %7zu %9.2f %6.2f-%-7.2f %9.2f %6.2f-%-7.2f %9.2f %6.2f-%-7.2f %9.1f\n", c->entries,
           c->common, 1e6 * r->found.median, 1e6 * r->found.low, 1e6 * r->found.high,
           1e6 * r->missed.median, 1e6 * r->missed.low, 1e6 * r->missed.high,
           1e6 * r->published.median, 1e6 * r->published.low, 1e6 * r->published.high,
           (double)r->index_bytes / (double)c->entries);
    fflush(stdout);
}

static bool add_lookup(json_t *cells, const store_lookup_case *c, const store_lookup_result *r)
{
    json_t *cell = json_pack("{s:I, s:I, s:o, s:o, s:o, s:I}", "entries", (json_int_t)c->entries,
                             "common", (json_int_t)c->common, "found", times_json(&r->found),
                             "missed", times_json(&r->missed), "published",
                             times_json(&r->published), "index_bytes", (json_int_t)r->index_bytes);
    return json_array_append_new(cells, cell) == 0;
}

static int measure_lookup(const store_options *options, const store_lookup_case *c, json_t *cells)
{
    store_lookup_result r = {0};
    const kvern_status status = store_lookup_measure(c, options->bench.runs, &r);
    if (status)
        return report_error("lookups: %s", kvern_error_detail());
    if (r.allocations)
        return report_error("lookups took memory");
    if (!cells)
        print_lookup(c, &r);
    else if (!add_lookup(cells, c, &r))
        return report_error("no memory for the table");
    return CLI_SUCCESS;
}

static int run_lookup(const store_options *options, json_t **cells)
{
    int code = CLI_SUCCESS;
    if (options->bench.common.json && !(*cells = json_array()))
        return report_error("no memory");
    if (!*cells)
        printf("%8s %7s %9s %14s %9s %14s %9s %14s %9s\n", "entries", "common", "found us",
               "quartiles", "missed us", "quartiles", "put us", "quartiles", "B/entry");
    const size_t count = options->entries.count * options->common.count;
    for (size_t i = 0; i < count && code == CLI_SUCCESS; i++) {
        size_t at = i;
        store_lookup_case c = {.threads = options->bench.threads.value[0]};
        c.common = options->common.value[bench_index(&at, options->common.count)];
        c.entries = options->entries.value[at];
        code = measure_lookup(options, &c, *cells);
    }
    return code;
}

// ---- Files ----

static int run_file(const store_options *options, json_t **cells)
{
    const size_t runs = options->bench.runs;
    const store_file what = {options->mib, options->folder, options->bench.threads.value[0],
                             runs < MOST_FILE_RUNS ? runs : MOST_FILE_RUNS,
                             options->bench.common.json};
    return bench_store_file(&what, cells);
}

static int run_directory(const store_options *options, json_t **cells)
{
    const size_t runs = options->bench.runs;
    const store_directories what = {
        &options->files, options->folder, options->bench.threads.value[0],
        runs < MOST_FILE_RUNS ? runs : MOST_FILE_RUNS, options->bench.common.json};
    return bench_store_directories(&what, cells);
}

// ---- A model ----

// Tokens of the prompts behind what is stored.
#define TOKENS_BEHIND 16

static int run_token(const store_options *options, json_t **cells)
{
    const size_t runs = options->bench.runs;
    const store_token what = {options->bench.common.model,
                              options->folder,
                              options->prefix,
                              TOKENS_BEHIND,
                              options->bench.threads.value[0],
                              runs < MOST_FILE_RUNS ? runs : MOST_FILE_RUNS,
                              options->bench.common.json};
    return what.model ? bench_store_token(&what, cells) : CLI_SUCCESS;
}

// ---- A server ----

static int run_remote(const store_options *options, json_t **cells)
{
    const size_t runs = options->bench.runs;
    if (!options->url)
        return options->part ? report_error("remote: where? --url URL") : CLI_SUCCESS;
    const store_remote what = {options->url, options->mib,
                               runs < MOST_FILE_RUNS ? runs : MOST_FILE_RUNS,
                               options->bench.common.json};
    return bench_store_remote(&what, cells);
}

// ---- Parts ----

#define TOKEN_PART "first-token"

static const store_part PARTS[] = {
    {"lookup", run_lookup},  {"file", run_file},     {"directory", run_directory},
    {TOKEN_PART, run_token}, {"remote", run_remote},
};
#define PART_COUNT (sizeof PARTS / sizeof PARTS[0])

static void choose_part(store_options *options, const struct argp_state *state, const char *word)
{
    const char *names[PART_COUNT];
    for (size_t p = 0; p < PART_COUNT; p++) {
        names[p] = PARTS[p].name;
        if (strcmp(word, names[p]) == 0)
            options->part = names[p];
    }
    const char *meant = nearest_name(word, names, PART_COUNT);
    if (!options->part)
        options_fail(state, "unknown part '%s'%s%s%s", word, meant ? ", did you mean '" : "",
                     meant ? meant : "", meant ? "'?" : "");
}

static bool needs_model(const store_options *options)
{
    return options->part && strcmp(options->part, TOKEN_PART) == 0;
}

static error_t take_argument(store_options *options, const struct argp_state *state, char *argument)
{
    if (!options->part)
        choose_part(options, state, argument);
    else if (needs_model(options) && !options->bench.common.model)
        options->bench.common.model = argument;
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static error_t parse_store(int key, char *argument, struct argp_state *state)
{
    store_options *options = state->input;
    switch (key) {
    case KEY_ENTRIES:
        options_list(state, "--entries", argument, 1, 10000000, &options->entries);
        return 0;
    case KEY_COMMON:
        options_list(state, "--common", argument, 1, 1 << 20, &options->common);
        return 0;
    case KEY_MIB:
        options->mib = options_number(state, "--mib", argument, 1, 1 << 20);
        return 0;
    case KEY_DIR:
        if (strlen(argument) > 400)
            options_fail(state, "--dir is a path of more than 400 bytes");
        options->folder = argument;
        return 0;
    case KEY_FILES:
        options_list(state, "--files", argument, 1, 10000000, &options->files);
        return 0;
    case KEY_PREFIX:
        options->prefix = options_number(state, "--prefix", argument, 16, 1 << 20);
        return 0;
    case KEY_URL:
        options->url = argument;
        return 0;
    case ARGP_KEY_ARG:
        return take_argument(options, state, argument);
    case ARGP_KEY_END:
        if (needs_model(options) && !options->bench.common.model)
            options_fail(state, "no model file given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option STORE_OPTIONS[] = {
    {.name = "entries",
     .key = KEY_ENTRIES,
     .arg = "LIST",
     .doc = "lookup: entries of the store; default: 1000,100000"},
    {.name = "common",
     .key = KEY_COMMON,
     .arg = "LIST",
     .doc = "lookup: tokens that all of them begin with; default: 1024,8192"},
    {.name = "mib",
     .key = KEY_MIB,
     .arg = "N",
     .doc = "file, remote: MiB of the row; default: 1024"},
    {.name = "dir",
     .key = KEY_DIR,
     .arg = "DIR",
     .doc = "Where files go; default: the present directory"},
    {.name = "files",
     .key = KEY_FILES,
     .arg = "LIST",
     .doc = "directory: entries of it; default: 1000"},
    {.name = "prefix",
     .key = KEY_PREFIX,
     .arg = "N",
     .doc = "first-token: tokens of the prompt that are stored; default: 4096"},
    {.name = "url",
     .key = KEY_URL,
     .arg = "URL",
     .doc = "remote: a server, as for 'kvern run --store'"},
    {0}};

static const struct argp_child STORE_CHILDREN[] = {
    {.argp = &bench_repeat_once_argp}, {.argp = &options_json_argp}, {0}};

static const struct argp STORE_ARGP = {
    .options = STORE_OPTIONS,
    .parser = parse_store,
    .args_doc = "[PART [MODEL]]",
    .doc = "Times what keeping and finding prefixes costs. The part is:\n"
           "lookup: finding an entry among many that begin alike, behind its own tokens and with a "
           "token that none has; and publishing one.\n"
           "file: a row of 16 layers that is saved, loaded and verified, in turns with a plain "
           "write of as many bytes that is synced, and a loop that reads memory.\n"
           "directory: a store on disk of many entries: opening it, finding in it, and looking "
           "again.\n"
           "first-token: the first token of an answer of MODEL to a prompt whose beginning is "
           "stored, in memory or on disk, beside one of which nothing is.\n"
           "remote: a row of 16 layers that is written to a server, asked for and fetched."
           "\vTimes are medians of --runs samples (default: 21) and their quartiles, a sample of "
           "lookups being the mean of a hundred. Lookups that take memory are an error. With files "
           "there are 5 runs at most; a load maps the file, and behind it are the first decode, "
           "with its page faults, and the second one. A directory takes as long to make as the "
           "disk takes to sync its files. Without a part all are measured that need no model.",
    .children = STORE_CHILDREN,
};

int bench_store(int argc, char **argv)
{
    store_options options = {
        .bench = {.threads = {1, {1}}, .runs = 21},
        .entries = {2, {1000, 100000}},
        .common = {2, {1024, 8192}},
        .files = {1, {1000}},
        .mib = 1024,
        .prefix = 4096,
        .folder = ".",
    };
    options_parse(&STORE_ARGP, argc, argv, &options.bench.common);
    json_t *all = NULL;
    if (options.bench.common.json && !(all = json_object()))
        return report_error("no memory");
    int code = CLI_SUCCESS;
    for (size_t p = 0; p < PART_COUNT && code == CLI_SUCCESS; p++) {
        json_t *cells = NULL;
        if (options.part && strcmp(options.part, PARTS[p].name) != 0)
            continue;
        code = PARTS[p].run(&options, &cells);
        if (cells && json_object_set_new(all, PARTS[p].name, cells))
            code = report_error("no memory");
    }
    if (all && code == CLI_SUCCESS)
        return json_print(all);
    json_decref(all);
    return code;
}
