// SPDX-License-Identifier: MIT
// kvern bench draft: generation with drafts beside generation without, token for token the same.

#include "bench/measure/clock.h"
#include "bench/program/bench.h"
#include "bench/program/bench_options.h"
#include "cli/io/json.h"
#include "cli/io/report.h"
#include "cli/options/prompt.h"
#include "cli/options/storage_options.h"
#include "cli/session/draft_options.h"
#include "engine/generation/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_GENERATE = OPTIONS_KEY_COMMAND };

typedef struct draft_bench_options {
    bench_options bench;
    uint64_t generate;
} draft_bench_options;

static error_t parse_draft(int key, char *argument, struct argp_state *state)
{
    draft_bench_options *options = state->input;
    switch (key) {
    case KEY_GENERATE:
        options->generate = options_number(state, "--generate", argument, 2, 1 << 16);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option DRAFT_OPTIONS[] = {
    {.name = "generate", .key = KEY_GENERATE, .arg = "N", .doc = "Tokens generated; default: 256"},
    {0}};

static const struct argp_child DRAFT_CHILDREN[] = {
    {.argp = &options_model_argp}, {.argp = &bench_repeat_once_argp},
    {.argp = &options_text_argp},  {.argp = &options_draft_argp},
    {.argp = &options_codec_argp}, {.argp = &options_storage_argp},
    {.argp = &options_json_argp},  {0}};

static const struct argp DRAFT_ARGP = {
    .options = DRAFT_OPTIONS,
    .parser = parse_draft,
    .args_doc = "MODEL",
    .doc = "Times generation with drafts (default: --draft ngram) and without, in turns, on a text "
           "that repeats itself, a program that is written again with one name changed, and on one "
           "that does not, a story sampled freely; or on a text of yours, -p or "
           "--file, greedily."
           "\vThe numbers are medians of --runs runs (default: 5). Every run has to give the same "
           "tokens. -t takes one number; the default is one per processor.",
    .children = DRAFT_CHILDREN,
};

#define PROGRAM                                                                                    \
    "#include <stdio.h>\n#include <stdlib.h>\n\n"                                                  \
    "static int total(const int *values, size_t count)\n{\n    int result = 0;\n"                  \
    "    for (size_t i = 0; i < count; i++) {\n        result += values[i];\n    }\n"              \
    "    return result;\n}\n\n"                                                                    \
    "static int largest(const int *values, size_t count)\n{\n    int result = values[0];\n"        \
    "    for (size_t i = 1; i < count; i++) {\n        if (values[i] > result) {\n"                \
    "            result = values[i];\n        }\n    }\n    return result;\n}\n\n"                 \
    "int main(int argc, char **argv)\n{\n    int values[8];\n    size_t count = 0;\n"              \
    "    for (int i = 1; i < argc && count < 8; i++) {\n"                                          \
    "        values[count++] = atoi(argv[i]);\n    }\n"                                            \
    "    printf(\"total %d\\n\", total(values, count));\n"                                         \
    "    printf(\"largest %d\\n\", largest(values, count));\n    return 0;\n}\n"

// A text to go on with, and how.
typedef struct draft_case {
    const char *name, *text; // text NULL: that of the options
    sampler_options sampling;
} draft_case;

static const draft_case CASES[] = {
    {"repeats itself",
     "# A program\n\n```c\n" PROGRAM "```\n\n# The same program with the function `total` renamed "
     "to `sum_of`\n\n```c\n#include <stdio.h>\n",
     {.top_p = 1}},
    {"does not",
     "The mill on the hill had not turned for a hundred years when",
     {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 2}},
};
static const draft_case OWN_CASE = {"given", NULL, {.top_p = 1}};

typedef struct draft_row {
    const char *name;
    size_t prompt, tokens;
    double plain, drafted, low, high; // tokens per second; of the ratio of each pair of runs
    generate_result last;             // with drafts
} draft_row;

typedef struct draft_bench {
    const draft_bench_options *options;
    loaded_model loaded;
    size_t runs;
    double *samples; // [3, runs] plain, with drafts, ratio
    int32_t *tokens; // [2, generate] of the latest two runs
} draft_bench;

// Where the tokens of a run go.
typedef struct token_sink {
    int32_t *tokens;
    size_t count;
} token_sink;

static void take_token(void *user, int32_t token)
{
    token_sink *sink = user;
    sink->tokens[sink->count++] = token;
}

// One generation from the start, by a generator of its own: nothing is learned from earlier ones.
static kvern_status run_once(draft_bench *bench, const cli_options *options,
                             const draft_case *chosen, const token_buffer *prompt, token_sink *sink,
                             generate_result *result, engine_error *error)
{
    const model *model = bench->loaded.model;
    loaded_draft draft;
    sampler *sampler = NULL;
    generator *g = NULL;
    kvern_status status = load_draft(options, &bench->loaded, &draft, error);
    if (!status)
        status =
            sampler_create(&chosen->sampling, model_get_facts(model)->vocabulary, &sampler, error);
    const generator_options wanted = {.context_length = bench->loaded.context_length,
                                      .drafts = draft.drafts,
                                      .draft_tokens = options->draft.tokens};
    if (!status)
        status = generator_create(model, bench->loaded.composition, &wanted, &g, error);
    const generate_request request = {.tokens = prompt->ids,
                                      .count = prompt->count,
                                      .max_tokens = (int64_t)bench->options->generate,
                                      .sampler = sampler,
                                      .user = sink,
                                      .on_token = take_token};
    sink->count = 0;
    if (!status)
        status = generator_run(g, &request, result, error);
    generator_destroy(g);
    sampler_destroy(sampler);
    unload_draft(&draft);
    return status;
}

// A run without drafts and one with, and whether they agree.
static kvern_status run_pair(draft_bench *bench, const draft_case *chosen,
                             const token_buffer *prompt, size_t run, draft_row *row,
                             engine_error *error)
{
    cli_options options = bench->options->bench.common, plain = options;
    token_sink sinks[2] = {{bench->tokens, 0}, {bench->tokens + bench->options->generate, 0}};
    generate_result without;
    plain.draft = (draft_options){0};
    kvern_status status = run_once(bench, &plain, chosen, prompt, &sinks[0], &without, error);
    if (!status)
        status = run_once(bench, &options, chosen, prompt, &sinks[1], &row->last, error);
    if (status)
        return status;
    if (sinks[0].count != sinks[1].count ||
        memcmp(sinks[0].tokens, sinks[1].tokens, sinks[0].count * sizeof(int32_t)) != 0)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "drafts changed the tokens");
    if (without.decode_tokens == 0)
        return engine_fail(error, KVERN_ERR_ARGUMENT, "the model has nothing to say to the text");
    double *at = bench->samples + run;
    at[0] = (double)without.decode_tokens / without.decode_seconds;
    at[bench->runs] = (double)row->last.decode_tokens / row->last.decode_seconds;
    at[2 * bench->runs] = at[bench->runs] / at[0];
    return KVERN_OK;
}

static kvern_status encode_case(const draft_bench *bench, const draft_case *chosen,
                                token_buffer *prompt, engine_error *error)
{
    const cli_options *options = &bench->options->bench.common;
    text_buffer text = TEXT_BUFFER_INIT;
    kvern_status status;
    if (chosen->text) {
        status = text_buffer_append(&text, chosen->text, strlen(chosen->text));
        if (status)
            status = engine_fail(error, status, "no memory for the text");
    } else {
        status = prompt_read(options, &text, error);
    }
    if (!status)
        status =
            prompt_encode_raw(model_tokenizer(bench->loaded.model), &text, true, prompt, error);
    text_buffer_free(&text);
    return status;
}

static kvern_status measure_case(draft_bench *bench, const draft_case *chosen, draft_row *row,
                                 engine_error *error)
{
    token_buffer prompt = TOKEN_BUFFER_INIT;
    kvern_status status = encode_case(bench, chosen, &prompt, error);
    for (size_t run = 0; run < bench->runs && !status; run++)
        status = run_pair(bench, chosen, &prompt, run, row, error);
    const size_t runs = bench->runs;
    double *ratios = bench->samples + 2 * runs;
    row->name = chosen->name;
    row->prompt = prompt.count;
    row->tokens = row->last.decode_tokens;
    row->plain = clock_quantile(bench->samples, runs, 0.5);
    row->drafted = clock_quantile(bench->samples + runs, runs, 0.5);
    row->low = clock_quantile(ratios, runs, 0);
    row->high = clock_quantile(ratios, runs, 1);
    token_buffer_free(&prompt);
    return status;
}

static json_t *row_json(const draft_row *row)
{
    return json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "text", row->name, "prompt_tokens",
        (json_int_t)row->prompt, "tokens", (json_int_t)row->tokens, "plain_tokens_per_s",
        row->plain, "draft_tokens_per_s", row->drafted, "ratio_low", row->low, "ratio_high",
        row->high, "drafted", (json_int_t)row->last.drafts.drafted, "accepted",
        (json_int_t)row->last.drafts.accepted, "steps", (json_int_t)row->last.decode_steps);
}

static int print_rows(const draft_bench *bench, const draft_row *rows, size_t count)
{
    const cli_options *options = &bench->options->bench.common;
    char storage[STORAGE_TEXT];
    storage_text(&options->storage, model_get_facts(bench->loaded.model), storage);
    if (options->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(list, row_json(&rows[i]));
        const kvern_executor executor = kvern_context_executor(model_context(bench->loaded.model));
        return json_print(json_pack("{s:s, s:s, s:I, s:o}", "kv", storage, "draft",
                                    options->draft.source, "threads", (json_int_t)executor.threads,
                                    "texts", list));
    }
    printf("%-16s %6s %6s %9s %9s %7s %11s %9s %9s %6s\n", "text", "prompt", "tokens", "plain/s",
           "drafts/s", "ratio", "low-high", "drafted", "accepted", "steps");
    for (size_t i = 0; i < count; i++) {
        const draft_row *row = &rows[i];
        printf("%-16s %6zu %6zu %9.1f %9.1f %6.2fx %5.2f-%-5.2f %9zu %9zu %6zu\n", row->name,
               row->prompt, row->tokens, row->plain, row->drafted, row->drafted / row->plain,
               row->low, row->high, row->last.drafts.drafted, row->last.drafts.accepted,
               row->last.decode_steps);
    }
    printf("KV cache: %s; drafts: %s\n", storage, options->draft.source);
    return CLI_SUCCESS;
}

static kvern_status open_bench(draft_bench *bench, engine_error *error)
{
    const draft_bench_options *options = bench->options;
    cli_options common = options->bench.common;
    common.threads = options->bench.threads.count ? options->bench.threads.value[0] : 0;
    kvern_status status = check_draft(&common, error);
    if (!status)
        status = load_model(&common, &bench->loaded, error);
    if (status)
        return status;
    bench->samples = calloc(3 * bench->runs, sizeof *bench->samples);
    bench->tokens = calloc(2 * options->generate, sizeof *bench->tokens);
    if (!bench->samples || !bench->tokens)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory");
    if (!model_tokenizer(bench->loaded.model))
        return engine_fail(error, KVERN_ERR_UNSUPPORTED, "%s has no tokenizer", common.model);
    return KVERN_OK;
}

int bench_draft(int argc, char **argv)
{
    draft_bench_options options = {.bench = {.common.draft.source = DRAFT_NGRAM, .runs = 5},
                                   .generate = 256};
    engine_error error;
    options_parse(&DRAFT_ARGP, argc, argv, &options.bench.common);
    const cli_options *common = &options.bench.common;
    const bool own = common->prompt || common->file;
    const draft_case *cases = own ? &OWN_CASE : CASES;
    const size_t count = own ? 1 : sizeof CASES / sizeof CASES[0];
    draft_row rows[sizeof CASES / sizeof CASES[0]] = {0};
    draft_bench bench = {.options = &options, .runs = options.bench.runs};
    kvern_status status = open_bench(&bench, &error);
    for (size_t i = 0; i < count && !status; i++)
        status = measure_case(&bench, &cases[i], &rows[i], &error);
    const int code = status ? report_engine_error(&error) : print_rows(&bench, rows, count);
    free(bench.samples);
    free(bench.tokens);
    unload_model(&bench.loaded);
    return code;
}
