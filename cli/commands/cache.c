// SPDX-License-Identifier: MIT
// kvern cache: files of rows, and directories of them.

#include "cli/commands/cache_convert.h"
#include "cli/commands/cache_directory.h"
#include "cli/commands/command.h"
#include "cli/commands/prompt_cache.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/options/options.h"

#include <kvern/kvern.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cache_options {
    cli_options common;
    const char *action, *path;
    bool has_bytes;
    uint64_t bytes;
    convert_options convert; // its IN is `path`
    const char *of_convert;  // an option that was given and is for convert alone; NULL: none
} cache_options;

enum {
    KEY_BYTES = OPTIONS_KEY_COMMAND,
    KEY_TO,
    KEY_TOKENS,
    KEY_KEY_PAIRS,
    KEY_MLX_MODEL,
    KEY_ROW,
    KEY_RECODE,
    KEY_FORCE
};

#define ACTIONS "inspect, verify, convert, list or prune"

static bool is_action(const cache_options *options, const char *action)
{
    return strcmp(options->action, action) == 0;
}

static void check_action(const cache_options *options, const struct argp_state *state)
{
    static const char *const actions[] = {"inspect", "verify", "convert", "list", "prune"};
    bool known = false;
    if (!options->action)
        options_fail(state, "no action given: " ACTIONS);
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        known = known || is_action(options, actions[i]);
    if (!known)
        options_fail(state, "unknown action '%s': " ACTIONS, options->action);
    if (!options->path)
        options_fail(state, "no %s given",
                     is_action(options, "list") || is_action(options, "prune") ? "directory"
                                                                               : "file");
}

// Options of the KV cache's storage were given.
static bool has_storage(const cache_options *options)
{
    static const storage_options none;
    return memcmp(&options->common.storage, &none, sizeof none) != 0;
}

static void check_convert(const cache_options *options, const struct argp_state *state)
{
    const convert_options *convert = &options->convert;
    if (options->common.model && !is_action(options, "convert") && !is_action(options, "list"))
        options_fail(state, "--model is for convert and list");
    if (!is_action(options, "convert")) {
        if (convert->out)
            options_fail(state, "more than one file: %s", convert->out);
        if (options->of_convert || has_storage(options))
            options_fail(state, "%s is for convert",
                         options->of_convert ? options->of_convert : "storage (--kv)");
        return;
    }
    if (!convert->out)
        options_fail(state, "convert wants two files: what is converted, and what becomes of it");
    if (has_storage(options) && !options->common.model)
        options_fail(state, "how rows are stored (--kv) needs --model");
    if (convert->has_pairs && options->common.model)
        options_fail(state, "--key-pairs and --model cannot be used together");
}

static void check_options(const cache_options *options, struct argp_state *state)
{
    check_action(options, state);
    check_convert(options, state);
    if (options->has_bytes != is_action(options, "prune"))
        options_fail(state, options->has_bytes ? "--bytes is for prune"
                                               : "prune wants --bytes: how many may stay");
}

static convert_target parse_target(const struct argp_state *state, const char *text)
{
    if (strcmp(text, "kvern") == 0)
        return CONVERT_KVERN;
    if (strcmp(text, "mlx") == 0)
        return CONVERT_MLX;
    if (strcmp(text, "mlx-0.31") != 0)
        options_fail(state, "--to takes kvern, mlx or mlx-0.31, not '%s'", text);
    return CONVERT_MLX_OLD;
}

// Options of convert. False: it is none.
static bool parse_convert(int key, char *argument, const struct argp_state *state,
                          cache_options *options)
{
    convert_options *convert = &options->convert;
    switch (key) {
    case 'm':
        options->common.model = argument;
        return true;
    case KEY_TO:
        convert->to = parse_target(state, argument);
        options->of_convert = "--to";
        return true;
    case KEY_TOKENS:
        convert->tokens = argument;
        options->of_convert = "--tokens";
        return true;
    case KEY_KEY_PAIRS:
        convert->pairs = options_number(state, "--key-pairs", argument, 0, KVERN_MAX_HEAD_DIM);
        convert->has_pairs = true;
        options->of_convert = "--key-pairs";
        return true;
    case KEY_MLX_MODEL:
        convert->mlx_model = argument;
        options->of_convert = "--mlx-model";
        return true;
    case KEY_ROW:
        convert->row = options_number(state, "--row", argument, 0, KVERN_MAX_ROWS - 1);
        convert->has_row = true;
        options->of_convert = "--row";
        return true;
    case KEY_RECODE:
        convert->recode = true;
        options->of_convert = "--recode";
        return true;
    case KEY_FORCE:
        convert->force = true;
        options->of_convert = "--force";
        return true;
    default:
        return false;
    }
}

static void take_argument(cache_options *options, const struct argp_state *state, char *argument)
{
    const char **const places[] = {&options->action, &options->path, &options->convert.out};
    if (state->arg_num > 2)
        options_fail(state, "too many files: %s", argument);
    *places[state->arg_num] = argument;
}

static error_t parse_cache(int key, char *argument, struct argp_state *state)
{
    cache_options *options = state->input;
    switch (key) {
    case KEY_BYTES:
        if (!number_parse_bytes(argument, &options->bytes))
            options_fail(state, "--bytes: '%s' is no number of bytes", argument);
        options->has_bytes = true;
        return 0;
    case ARGP_KEY_ARG:
        take_argument(options, state, argument);
        return 0;
    case ARGP_KEY_END:
        check_options(options, state);
        return 0;
    default:
        return parse_convert(key, argument, state, options) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option CACHE_OPTIONS[] = {
    {"bytes", KEY_BYTES, "N", 0, "prune: what may stay, as 8GiB", 0},
    {"model", 'm', "MODEL", 0, "convert: the model whose rows they are; list: its entries alone",
     0},
    {"to", KEY_TO, "FORMAT", 0, "convert: kvern, mlx, or mlx-0.31 (default: what FILE is not)", 0},
    {"tokens", KEY_TOKENS, "FILE", 0,
     "convert: the tokens of a prompt cache, as of kvern tokenize --json, or numbers", 0},
    {"key-pairs", KEY_KEY_PAIRS, "N", 0,
     "convert, without a model: the first N dims of keys lie in pairs of neighbours here (0: as "
     "mlx-lm has them)",
     0},
    {"mlx-model", KEY_MLX_MODEL, "NAME", 0,
     "convert: what mlx_lm.generate calls the model, to take the file", 0},
    {"row", KEY_ROW, "N", 0, "convert: this row alone (default: all)", 0},
    {"recode", KEY_RECODE, NULL, 0,
     "convert: store values anew where the other side stores them otherwise", 0},
    {"force", KEY_FORCE, NULL, 0, "convert: replace OUT where it is there", 0},
    {0}};

static const struct argp_child CACHE_CHILDREN[] = {{.argp = &options_json_argp},
                                                   {.argp = &options_codec_argp},
                                                   {.argp = &options_storage_argp},
                                                   {0}};

static const struct argp CACHE_ARGP = {
    .options = CACHE_OPTIONS,
    .parser = parse_cache,
    .args_doc = "ACTION PATH [OUT]",
    .doc =
        "Looks at files and directories with rows of a KV cache, without their model, and "
        "converts files."
        "\v"
        "  kvern cache inspect FILE         what is in it: rows, layers, whose they are\n"
        "  kvern cache verify FILE          whether all of it is as it was saved\n"
        "  kvern cache convert FILE OUT     to a prompt cache of mlx-lm, or from one\n"
        "  kvern cache list DIR             the entries of a directory, the last used first\n"
        "  kvern cache prune DIR --bytes N  remove those that were unused for the longest\n\n"
        "In any case the header and all tables are checked; verify reads the pages as well. "
        "A file that is damaged or of another version is refused with the reason, and the exit "
        "code is 1. In a directory, list passes it over and prune moves it to the folder `aside`. "
        "While another process has the directory open for writing, prune is refused. inspect "
        "takes prompt caches of mlx-lm and mlx-bun as well.\n\n"
        "convert goes from a file of rows to a prompt cache of mlx-lm, and from one of these, or "
        "of mlx-bun, to a file of rows, which /load takes in kvern run. What no file says is the "
        "model's: its recurrent layers and latents, its windows, and the order of its keys. With "
        "--model the rows are stored as kvern run stores them with the same --kv options. What the "
        "other side has no place for is refused by name.",
    .children = CACHE_CHILDREN,
};

// ---- Inspecting ----

static json_t *rows_json(const kvern_file *file, size_t rows)
{
    json_t *list = json_array();
    for (size_t r = 0; r < rows; r++) {
        const size_t count = kvern_file_checkpoints(file, r, NULL, 0);
        int64_t *positions = calloc(count + 1, sizeof *positions);
        json_t *checkpoints = json_array();
        if (positions)
            (void)kvern_file_checkpoints(file, r, positions, count);
        for (size_t i = 0; positions && i < count; i++)
            json_array_append_new(checkpoints, json_integer((json_int_t)positions[i]));
        free(positions);
        json_array_append_new(list, json_pack("{s:I, s:b, s:o}", "positions",
                                              (json_int_t)kvern_file_length(file, r), "tokens",
                                              kvern_file_tokens(file, r) != NULL, "checkpoints",
                                              checkpoints));
    }
    return list;
}

static int inspect_json(const kvern_file *file, const kvern_file_facts *facts)
{
    json_t *identity = json_object(), *layers = json_array();
    for (size_t i = 0; i < facts->keys; i++) {
        const char *name, *value = kvern_file_identity_at(file, i, &name);
        json_put_text(&identity, name, value);
    }
    for (size_t l = 0; l < facts->layers; l++)
        json_array_append_new(layers, json_string(kvern_file_signature(file, l)));
    return json_print(
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "version", (json_int_t)facts->version,
                  "file_bytes", (json_int_t)facts->file_bytes, "page_bytes",
                  (json_int_t)facts->page_bytes, "pages", (json_int_t)facts->pages, "identity",
                  identity, "rows", rows_json(file, facts->rows), "layers", layers));
}

static void print_text(const char *name, const char *value)
{
    printf("%-12s ", name);
    for (; *value; value++) // a file's words may be anything
        putchar((unsigned char)*value < 0x20 || *value == 0x7f ? '?' : *value);
    putchar('\n');
}

// Neighbours of one signature are one line.
static void print_layers(const kvern_file *file, size_t layers)
{
    for (size_t l = 0; l < layers;) {
        size_t end = l + 1;
        char name[64];
        while (end < layers &&
               strcmp(kvern_file_signature(file, l), kvern_file_signature(file, end)) == 0)
            end++;
        if (end == l + 1)
            snprintf(name, sizeof name, "layer %zu", l);
        else
            snprintf(name, sizeof name, "layers %zu-%zu", l, end - 1);
        print_text(name, kvern_file_signature(file, l));
        l = end;
    }
}

static void print_row(const kvern_file *file, size_t row)
{
    const int64_t length = kvern_file_length(file, row);
    const size_t checkpoints = kvern_file_checkpoints(file, row, NULL, 0);
    printf("row %-8zu %" PRId64 " %s%s, %zu %s\n", row, length,
           number_noun((uint64_t)length, "position", "positions"),
           kvern_file_tokens(file, row) ? " with tokens" : "", checkpoints,
           number_noun(checkpoints, "checkpoint", "checkpoints"));
}

static int inspect_text(const kvern_file *file, const kvern_file_facts *facts)
{
    printf("%-12s kvern-cache, version %" PRIu64 "\n", "format", facts->version);
    printf("%-12s %" PRIu64 " bytes, %" PRIu64 " %s of %" PRIu64 " bytes together\n", "file",
           facts->file_bytes, facts->pages, number_noun(facts->pages, "page", "pages"),
           facts->page_bytes);
    for (size_t i = 0; i < facts->keys; i++) {
        const char *name, *value = kvern_file_identity_at(file, i, &name);
        print_text(name, value);
    }
    for (size_t r = 0; r < facts->rows; r++)
        print_row(file, r);
    print_layers(file, facts->layers);
    return CLI_SUCCESS;
}

// ---- The command ----

static int look(const cache_options *options, const kvern_file *file)
{
    kvern_file_facts facts = kvern_file_facts_default();
    if (kvern_file_get_facts(file, &facts))
        return report_error("%s", kvern_error_detail());
    if (is_action(options, "inspect"))
        return options->common.json ? inspect_json(file, &facts) : inspect_text(file, &facts);
    if (kvern_file_verify(file))
        return report_error("%s", kvern_error_detail());
    if (options->common.json)
        return json_print(json_pack("{s:b, s:I}", "verified", 1, "pages", (json_int_t)facts.pages));
    printf("%s: %" PRIu64 " %s and all else are as they were saved\n", options->path, facts.pages,
           number_noun(facts.pages, "page", "pages"));
    return CLI_SUCCESS;
}

// What is none of our own files is perhaps a prompt cache of mlx-lm, and else what it was before.
static int look_elsewhere(const cache_options *options, kvern_context *context)
{
    kvern_mlx_file *file;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", kvern_error_detail());
    if (kvern_mlx_open(context, options->path, &file)) {
        const bool neither = strstr(kvern_error_detail(), "is no prompt cache of mlx-lm") != NULL;
        return report_error("%s", neither ? reason : kvern_error_detail());
    }
    int code = strcmp(options->action, "inspect") == 0
                   ? prompt_cache_inspect(file, options->common.json)
                   : report_error("%s is a prompt cache of mlx-lm, which has no checksums: \"kvern "
                                  "cache inspect\" reads all of it",
                                  options->path);
    kvern_mlx_close(file);
    return code;
}

static int run_file(const cache_options *options, kvern_context *context)
{
    kvern_file *file;
    if (kvern_file_open(context, options->path, &file))
        return look_elsewhere(options, context);
    const int code = look(options, file);
    kvern_file_close(file);
    return code;
}

static int run_cache(int argc, char **argv)
{
    cache_options options = {0};
    kvern_context *context;
    options_parse(&CACHE_ARGP, argc, argv, &options.common);
    options.convert.common = &options.common;
    options.convert.in = options.path;
    options.convert.has_storage = has_storage(&options);
    if (kvern_context_create(NULL, &context))
        return report_error("%s", kvern_error_detail());
    int code;
    if (is_action(&options, "list"))
        code = cache_list(context, options.path, options.common.model, options.common.json);
    else if (is_action(&options, "convert"))
        code = cache_convert(context, &options.convert);
    else if (is_action(&options, "prune"))
        code = cache_prune(context, options.path, options.bytes, options.common.json);
    else
        code = run_file(&options, context);
    kvern_context_release(context);
    return code;
}

const command command_cache = {
    .name = "cache",
    .title = "kvern cache",
    .summary = "look at files of the rows of a KV cache, and directories of them",
    .run = run_cache,
};
