// SPDX-License-Identifier: MIT
// kvern batch: answers the prompts of a file, many at once, into another file.

#include "cli/batch/batch_job.h"
#include "cli/commands/command.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/options/storage_options.h"
#include "cli/session/sampling_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_PARALLEL 1024

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

enum { KEY_PROMPTS = OPTIONS_KEY_COMMAND, KEY_OUT, KEY_PARALLEL };

static void check_batch(const struct argp_state *state, const batch_options *options)
{
    if (!options->prompts) {
        options_fail(state, "--prompts FILE is missing");
    }
    if (!options->out) {
        options_fail(state, "--out FILE is missing");
    }
    if (strcmp(options->out, "-") == 0) {
        options_fail(state, "--out takes a file that a job can go on with, not '-'");
    }
}

static error_t parse_batch(int key, char *argument, struct argp_state *state)
{
    batch_options *options = state->input;
    switch (key) {
    case KEY_PROMPTS:
        options->prompts = argument;
        return 0;
    case KEY_OUT:
        options->out = argument;
        return 0;
    case KEY_PARALLEL:
        options->parallel = options_number(state, "--parallel", argument, 1, MOST_PARALLEL);
        return 0;
    case ARGP_KEY_END:
        check_batch(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option BATCH_OPTIONS[] = {
    {.name = "prompts",
     .key = KEY_PROMPTS,
     .arg = "FILE",
     .doc = "The prompts, a JSON object in each line; - is standard input"},
    {.name = "out",
     .key = KEY_OUT,
     .arg = "FILE",
     .doc = "Where the answers go; what it holds already is not done again"},
    {.name = "parallel",
     .key = KEY_PARALLEL,
     .arg = "N",
     .doc = "Answer N prompts at once (default: " TEXT_OF(SCHEDULE_ROWS) "), as far as the budget "
                                                                         "holds them"},
    {0}};

static const struct argp_child BATCH_CHILDREN[] = {{.argp = &options_model_argp},
                                                   {.argp = &options_template_argp},
                                                   {.argp = &answer_argp},
                                                   {.argp = &sampling_argp},
                                                   {.argp = &options_draft_argp},
                                                   {.argp = &options_context_argp},
                                                   {.argp = &options_budget_argp},
                                                   {.argp = &options_codec_argp},
                                                   {.argp = &options_storage_argp},
                                                   {.argp = &options_threads_argp},
                                                   {.argp = &options_json_argp},
                                                   {.argp = &options_quiet_argp},
                                                   {0}};

static const struct argp BATCH_ARGP = {
    .options = BATCH_OPTIONS,
    .parser = parse_batch,
    .args_doc = "MODEL",
    .doc = "Answers the prompts of a file, many at once. Each answer is the one that kvern run "
           "gives with the same options, whatever runs beside it."
           "\vA prompt is a line {\"id\": ..., \"prompt\": \"...\"}, or with \"messages\" "
           "[{\"role\": \"user\", \"content\": \"...\"}] instead; the id is a string or a number. "
           "\"max_tokens\", \"temperature\", \"seed\" and \"stop\" go before the options. An "
           "answer is a line {\"id\", \"text\", \"finish\", \"prompt_tokens\", "
           "\"generated_tokens\"}, written when it is finished. A job that was interrupted goes "
           "on when it is started again. Lines that are no prompts are reported and left out; the "
           "exit code is 1 then. With --budget, "
           "give -n: a prompt that may fill the whole context "
           "takes the room of it.",
    .children = BATCH_CHILDREN,
};

static double rows_per_step(const schedule_statistics *sums)
{
    return sums->steps ? (double)sums->row_steps / (double)sums->steps : 0;
}

static void print_facts(const batch_job *job)
{
    const schedule_statistics *sums = &job->statistics;
    char bytes[NUMBER_BYTES_TEXT], storage[STORAGE_TEXT];
    fprintf(stderr, "prompts     %zu answered, %zu there before, %zu bad lines, %zu failed\n",
            job->done, job->skipped, job->bad, job->failed);
    fprintf(stderr,
            "tokens      %" PRIu64 " of prompts and %" PRIu64 " shared, %" PRIu64
            " generated in %.2f s, %.1f tokens/s\n",
            sums->prompt_tokens, sums->shared_tokens, sums->generated_tokens, sums->seconds,
            number_per_second(sums->generated_tokens, sums->seconds));
    fprintf(stderr, "rows        %.1f of %zu in a forward pass, %zu at most\n", rows_per_step(sums),
            job->options->parallel, sums->peak_rows);
    if (job->options->session.common.draft.source) {
        fprintf(stderr, "drafts      %" PRIu64 " of %" PRIu64 " were right\n", sums->accepted,
                sums->drafted);
    }
    fprintf(stderr, "KV cache    %" PRIu64 " bytes (%s) of %s at most\n", sums->peak_kv_bytes,
            number_format_bytes(sums->peak_kv_bytes, bytes),
            storage_text(&job->options->session.common.storage, storage));
    sampling_print(&job->options->session.sampling);
}

static int print_json(const batch_job *job)
{
    const schedule_statistics *sums = &job->statistics;
    const sampler_options *sampling = &job->options->session.sampling;
    char storage[STORAGE_TEXT];
    return json_print(json_pack(
        "{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:f, s:I, s:I, s:s, "
        "s:I, s:I, "
        "s:f, s:I}",
        "answered", (json_int_t)job->done, "skipped", (json_int_t)job->skipped, "bad_lines",
        (json_int_t)job->bad, "failed", (json_int_t)job->failed, "interrupted",
        job->interrupted != 0, "prompt_tokens", (json_int_t)sums->prompt_tokens, "shared_tokens",
        (json_int_t)sums->shared_tokens, "generated_tokens", (json_int_t)sums->generated_tokens,
        "seconds", sums->seconds, "tokens_per_s",
        number_per_second(sums->generated_tokens, sums->seconds), "forward_passes",
        (json_int_t)sums->steps, "rows_per_pass", rows_per_step(sums), "most_rows",
        (json_int_t)sums->peak_rows, "queue_seconds", sums->queue_seconds, "drafted",
        (json_int_t)sums->drafted, "accepted", (json_int_t)sums->accepted, "kv",
        storage_text(&job->options->session.common.storage, storage), "kv_bytes",
        (json_int_t)sums->peak_kv_bytes, "context", (json_int_t)job->loaded.context_length,
        "temperature", (double)sampling->temperature, "seed", (json_int_t)sampling->seed));
}

// What a job came to, as an exit code; what was not reported yet is.
static int conclude(const batch_job *job)
{
    int code = CLI_SUCCESS;
    if (job->options->session.common.json) {
        code = print_json(job);
    } else if (!job->options->session.common.quiet) {
        print_facts(job);
    }
    if (job->broken.status != KVERN_OK) {
        code = report_engine_error(&job->broken);
    } else if (job->interrupted) {
        report_error("interrupted; run the same command again to go on");
        return CLI_SIGNAL + job->interrupted;
    }
    return job->bad + job->failed > 0 ? CLI_FAILURE : code;
}

static int run_batch(const batch_options *options)
{
    engine_error error;
    batch_job job;
    if (batch_job_open(options, &job, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    batch_job_run(&job);
    int code = conclude(&job);
    if (batch_job_close(&job, &error) != KVERN_OK) {
        code = report_engine_error(&error);
    }
    return code;
}

static int run(int argc, char **argv)
{
    batch_options options = {.parallel = SCHEDULE_ROWS};
    if (!sampling_init(&options.session, argc)) {
        return report_error("no memory for the arguments");
    }
    options_parse(&BATCH_ARGP, argc, argv, &options.session.common);
    int code = run_batch(&options);
    sampling_free(&options.session);
    return code;
}

const command command_batch = {
    .name = "batch",
    .title = "kvern batch",
    .summary = "answer the prompts of a file, many at once",
    .run = run,
};
