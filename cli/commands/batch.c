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
        options_fail(state, "no prompts given (--prompts FILE)");
    }
    if (!options->out) {
        options_fail(state, "no output file given (--out FILE)");
    }
    if (strcmp(options->out, "-") == 0) {
        options_fail(state, "--out takes a file that the job can be resumed from, not '-'");
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

static const struct argp_child BATCH_CHILDREN[] = {
    {.argp = &options_model_argp},   {.argp = &options_template_argp},
    {.argp = &answer_argp},          {.argp = &sampling_argp},
    {.argp = &options_draft_argp},   {.argp = &options_context_argp},
    {.argp = &options_budget_argp},  {.argp = &options_codec_argp},
    {.argp = &options_storage_argp}, {.argp = &options_cache_argp},
    {.argp = &options_threads_argp}, {.argp = &options_json_argp},
    {.argp = &options_quiet_argp},   {0}};

static const struct argp BATCH_ARGP = {
    .options = BATCH_OPTIONS,
    .parser = parse_batch,
    .args_doc = "MODEL",
    .doc = "Answers the prompts of a file, many at once. Each answer is the one that kvern run "
           "gives with the same options, whatever runs beside it."
           "\v"
           "  kvern batch MODEL --prompts in.jsonl --out out.jsonl -n 200\n"
           "  kvern batch MODEL --prompts in.jsonl --out out.jsonl --parallel 32 --budget 4G -n "
           "200\n\n"
           "A prompt is a line {\"id\": ..., \"prompt\": \"...\"}, or with \"messages\" "
           "[{\"role\": \"user\", \"content\": \"...\"}] instead; the id is a string or a number. "
           "\"max_tokens\", \"temperature\", \"top_p\", \"seed\", \"stop\" and the other keys of "
           "sampling go before the options. An answer is a line {\"id\", \"text\", \"finish\", "
           "\"prompt_tokens\", "
           "\"generated_tokens\"}, written when it is finished. A job that was interrupted goes "
           "on when it is started again. Bad lines are reported and left out; the "
           "exit code is 1 then. With --budget, "
           "give -n: a prompt that may fill the whole context "
           "takes the room for it.",
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
            "tokens      %" PRIu64 " of prompts, %" PRIu64 " shared and %" PRIu64
            " stored, %" PRIu64 " generated in %.2f s, %.1f tokens/s\n",
            sums->prompt_tokens, sums->shared_tokens - sums->stored_tokens, sums->stored_tokens,
            sums->generated_tokens, sums->seconds,
            number_per_second(sums->generated_tokens, sums->seconds));
    fprintf(stderr, "rows        %.1f of %zu in a forward pass, %zu at most\n", rows_per_step(sums),
            job->options->parallel, sums->peak_rows);
    if (job->options->session.common.draft.source) {
        fprintf(stderr, "drafts      %" PRIu64 " of %" PRIu64 " were right\n", sums->accepted,
                sums->drafted);
    }
    fprintf(stderr, "KV cache    %" PRIu64 " bytes (%s) of %s at most\n", sums->peak_kv_bytes,
            number_format_bytes(sums->peak_kv_bytes, bytes),
            storage_text(&job->options->session.common.storage,
                         model_get_facts(job->served.loaded.model), storage));
    sampling_print(&job->options->session.sampling);
}

// null without --store. What is queued is written after this.
static json_t *shared_json(const batch_job *job)
{
    const kvern_remote_store_stats *stats = &job->remote;
    if (!job->served.cache.remote) {
        return json_null();
    }
    return json_pack("{s:b, s:I, s:I, s:I, s:I}", "reachable", (int)stats->is_reachable, "loans",
                     (json_int_t)stats->lookups.loans, "tokens_lent",
                     (json_int_t)stats->lookups.tokens_lent, "fetched_bytes",
                     (json_int_t)stats->fetched_bytes, "publications",
                     (json_int_t)stats->publications);
}

// Lookups by the reason why they found no more; null without a store.
static json_t *reuse_json(const batch_job *job)
{
    if (!job->served.cache.store) {
        return json_null();
    }
    const kvern_store_stats *stats = &job->store;
    json_t *reasons = json_object();
    for (int why = 0; why < KVERN_STORE_WHY_COUNT; why++) {
        if (stats->lookups.why[why] > 0) {
            json_put_size(&reasons, kvern_store_why_text((kvern_store_why)why),
                          stats->lookups.why[why]);
        }
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "entries", (json_int_t)stats->entries, "bytes",
                     (json_int_t)stats->bytes, "evictions", (json_int_t)stats->evictions, "why",
                     reasons);
}

static int print_batch_json(const batch_job *job)
{
    const schedule_statistics *sums = &job->statistics;
    const sampler_options *sampling = &job->options->session.sampling;
    char storage[STORAGE_TEXT];
    json_t *object = json_object();
    json_put_size(&object, "answered", job->done);
    json_put_size(&object, "skipped", job->skipped);
    json_put_size(&object, "bad_lines", job->bad);
    json_put_size(&object, "failed", job->failed);
    json_put_bool(&object, "interrupted", job->interrupted != 0);
    json_put_size(&object, "prompt_tokens", sums->prompt_tokens);
    json_put_size(&object, "shared_tokens", sums->shared_tokens - sums->stored_tokens);
    json_put_size(&object, "stored_tokens", sums->stored_tokens);
    json_put(&object, "cache", reuse_json(job));
    json_put(&object, "shared_store", shared_json(job));
    json_put_size(&object, "generated_tokens", sums->generated_tokens);
    json_put_real(&object, "seconds", sums->seconds);
    json_put_real(&object, "tokens_per_s",
                  number_per_second(sums->generated_tokens, sums->seconds));
    json_put_size(&object, "forward_passes", sums->steps);
    json_put_real(&object, "rows_per_pass", rows_per_step(sums));
    json_put_size(&object, "most_rows", sums->peak_rows);
    json_put_real(&object, "queue_seconds", sums->queue_seconds);
    json_put_size(&object, "drafted", sums->drafted);
    json_put_size(&object, "accepted", sums->accepted);
    json_put_text(&object, "kv",
                  storage_text(&job->options->session.common.storage,
                               model_get_facts(job->served.loaded.model), storage));
    json_put_size(&object, "kv_bytes", sums->peak_kv_bytes);
    json_put_size(&object, "context", job->served.loaded.context_length);
    json_put_float(&object, "temperature", sampling->temperature);
    json_put_size(&object, "seed", sampling->seed);
    return json_print(object);
}

// What a job came to, as an exit code; what was not reported yet is.
static int conclude(const batch_job *job)
{
    int code = CLI_SUCCESS;
    if (job->options->session.common.json) {
        code = print_batch_json(job);
    } else if (!job->options->session.common.quiet) {
        print_facts(job);
    }
    if (job->broken.status != KVERN_OK) {
        code = report_engine_error(&job->broken);
    } else if (job->interrupted) {
        report_error("interrupted; run the same command again to resume");
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

static int run_answers(int argc, char **argv)
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
    .run = run_answers,
};
