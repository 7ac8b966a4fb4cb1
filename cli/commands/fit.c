// SPDX-License-Identifier: MIT
// kvern fit: what a context takes, and whether it fits.

#include "cli/commands/command.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/options/storage_options.h"
#include "cli/session/memory_fit.h"
#include "cli/session/model_loading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_child FIT_CHILDREN[] = {
    {.argp = &options_model_argp},   {.argp = &options_context_argp},
    {.argp = &options_budget_argp},  {.argp = &options_codec_argp},
    {.argp = &options_storage_argp}, {.argp = &options_threads_argp},
    {.argp = &options_json_argp},    {0}};

static const struct argp FIT_ARGP = {
    .args_doc = "MODEL",
    .doc =
        "Shows the bytes of a KV cache of --ctx tokens (default: what the model was made for) by "
        "kind of layer, whether it fits --budget, and the longest context that does. Without "
        "--budget the memory of this machine or container counts, the weights taken off. No weight "
        "is read. "
        "The exit code is 3 when the context does not fit."
        "\v"
        "  kvern fit MODEL -c 32768 --kv q4\n"
        "  kvern fit MODEL --budget 8G",
    .children = FIT_CHILDREN,
};

// Layers that are stored alike.
typedef struct fit_group {
    const char *signature; // of the composition
    size_t layers;
    uint64_t token_bytes, context_bytes;
} fit_group;

typedef struct fit_report {
    cli_options options; // with the budget that counts
    model_facts facts;
    kvern_context *context;
    kvern_composition *composition;
    kvern_composition *undrafted; // the same, whose recurrent layers have no rounds
    size_t tokens;
    fit_group groups[KVERN_MAX_LAYERS];
    size_t group_count;
    uint64_t needed; // bytes of the KV cache and its scratch
    bool fits;
    size_t longest;
} fit_report;

// Memory of the machine, or of the container that this runs in, without the weights; half a
// gigabyte is left for everything else.
static uint64_t machine_budget(const model_facts *facts)
{
    const uint64_t memory = kvern_memory_limit();
    const uint64_t taken = facts->tensor_bytes + (UINT64_C(512) << 20);
    return memory > taken ? memory - taken : 1;
}

static fit_group *find_group(fit_report *report, const char *signature)
{
    for (size_t i = 0; i < report->group_count; i++) {
        if (strcmp(report->groups[i].signature, signature) == 0) {
            return &report->groups[i];
        }
    }
    fit_group *group = &report->groups[report->group_count++];
    *group = (fit_group){.signature = signature};
    return group;
}

// What a recurrent layer keeps for rounds is more than its state; the plan that is measured here
// has no drafts, and so no rounds.
static kvern_status plan_undrafted(fit_report *report, engine_error *error)
{
    const kvern_composition *plan = report->composition;
    const size_t count = kvern_composition_layers(plan);
    kvern_layer *layers = malloc(count * sizeof *layers);
    if (!layers) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to plan %zu layers", count);
    }
    for (size_t l = 0; l < count; l++) {
        layers[l] = *kvern_composition_layer(plan, l);
        layers[l].slack = layers[l].kind == KVERN_LAYER_RECURRENT ? 0 : layers[l].slack;
    }
    const kvern_status status =
        kvern_composition_create(report->context, layers, count, &report->undrafted);
    free(layers);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "planning the KV cache");
}

static void collect_groups(fit_report *report)
{
    const kvern_composition *plan = report->composition;
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        fit_group *group = find_group(report, kvern_composition_signature(plan, l));
        group->layers++;
        group->token_bytes += kvern_composition_layer_bytes_per_token(plan, l);
        group->context_bytes +=
            kvern_composition_layer_row_bytes(report->undrafted, l, report->tokens);
    }
}

static kvern_status check_fit(fit_report *report, engine_error *error)
{
    const cli_options *options = &report->options;
    const size_t most = report->facts.context_length;
    kvern_status status =
        memory_fit_bytes(options, &report->facts, report->tokens, &report->needed, error);
    if (status != KVERN_OK) {
        return status;
    }
    report->fits = report->needed <= options->budget;
    return memory_fit_longest(options, &report->facts, most, &report->longest, error);
}

static kvern_status make_report(const model_source *source, fit_report *report, engine_error *error)
{
    cli_options *options = &report->options;
    kvern_status status = model_read_facts(source, &report->facts, error);
    if (status != KVERN_OK) {
        return status;
    }
    report->tokens = options->context ? (size_t)options->context : report->facts.context_length;
    if (report->tokens > report->facts.context_length) {
        return engine_fail(error, KVERN_ERR_RANGE,
                           "--ctx %zu is beyond the model's context of %zu tokens", report->tokens,
                           report->facts.context_length);
    }
    options->budget = options->budget ? options->budget : machine_budget(&report->facts);
    const cli_options unlimited = {.threads = 1, .storage = options->storage};
    status = load_context(&unlimited, &report->context, error);
    if (status == KVERN_OK) {
        status = storage_composition(&options->storage, &report->facts, report->context, true,
                                     &report->composition, error);
    }
    if (status == KVERN_OK) {
        status = plan_undrafted(report, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    collect_groups(report);
    return check_fit(report, error);
}

static void print_bytes(const char *name, uint64_t bytes)
{
    char text[NUMBER_BYTES_TEXT];
    printf("%-14s %16" PRIu64 " (%s)\n", name, bytes, number_format_bytes(bytes, text));
}

static void print_fit_text(const fit_report *report)
{
    printf("%-6s %-63s %12s %16s\n", "layers", "storage", "bytes/token", "bytes");
    for (size_t i = 0; i < report->group_count; i++) {
        const fit_group *group = &report->groups[i];
        printf("%6zu %-63s %12" PRIu64 " %16" PRIu64 "\n", group->layers, group->signature,
               group->token_bytes, group->context_bytes);
    }
    printf("\n%-14s %16zu tokens\n", "context", report->tokens);
    print_bytes("KV cache", kvern_composition_row_bytes(report->undrafted, report->tokens));
    print_bytes("with scratch", report->needed);
    print_bytes("weights", report->facts.tensor_bytes);
    print_bytes("budget", report->options.budget);
    printf("%-14s %16s\n", "fits", report->fits ? "yes" : "no");
    printf("%-14s %16zu tokens\n", "longest", report->longest);
}

static int print_fit_json(const fit_report *report)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < report->group_count; i++) {
        const fit_group *group = &report->groups[i];
        json_array_append_new(groups,
                              json_pack("{s:I, s:s, s:I, s:I}", "layers", (json_int_t)group->layers,
                                        "storage", group->signature, "bytes_per_token",
                                        (json_int_t)group->token_bytes, "bytes",
                                        (json_int_t)group->context_bytes));
    }
    json_t *object = json_object();
    json_put_size(&object, "context", report->tokens);
    json_put(&object, "layers", groups);
    json_put_size(&object, "kv_bytes",
                  kvern_composition_row_bytes(report->undrafted, report->tokens));
    json_put_size(&object, "needed_bytes", report->needed);
    json_put_size(&object, "weight_bytes", report->facts.tensor_bytes);
    json_put_size(&object, "budget_bytes", report->options.budget);
    json_put_bool(&object, "fits", report->fits);
    json_put_size(&object, "longest_context", report->longest);
    return json_print(object);
}

static int run_fit(int argc, char **argv)
{
    static fit_report report;
    model_source *source;
    engine_error error = {0};
    options_parse(&FIT_ARGP, argc, argv, &report.options);
    if (model_source_open(report.options.model, &source, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = CLI_SUCCESS;
    if (make_report(source, &report, &error) != KVERN_OK) {
        (void)load_name_file(&report.options, KVERN_ERR_FORMAT, &error);
        code = report_engine_error(&error);
    } else {
        if (report.options.json) {
            code = print_fit_json(&report);
        } else {
            print_fit_text(&report);
        }
        code = report.fits || code != CLI_SUCCESS ? code : CLI_NO_FIT;
    }
    kvern_composition_release(report.undrafted);
    kvern_composition_release(report.composition);
    kvern_context_release(report.context);
    model_source_close(source);
    return code;
}

const command command_fit = {
    .name = "fit",
    .title = "kvern fit",
    .summary = "show what a context takes, and whether it fits",
    .run = run_fit,
};
