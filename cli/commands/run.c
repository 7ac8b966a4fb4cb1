// SPDX-License-Identifier: MIT
// kvern run: answers a prompt, or converses on a terminal. kvern prefill: computes a prompt for a
// store alone.

#include "cli/commands/command.h"
#include "cli/conversation/converse.h"
#include "cli/io/report.h"
#include "cli/options/prompt.h"
#include "cli/session/sampling_options.h"
#include "cli/session/session.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static bool wants_conversation(const session_options *options)
{
    return prompt_is_missing(&options->common);
}

static void check_run(const struct argp_state *state, const session_options *options)
{
    if (!wants_conversation(options)) {
        return;
    }
    if (options->common.json) {
        options_fail(state, "--json needs a prompt: -p TEXT, -f FILE or standard input");
    }
    if (!isatty(STDOUT_FILENO)) {
        options_fail(state, "a conversation needs a terminal for its output; otherwise give a "
                            "prompt: -p TEXT, -f FILE or standard input");
    }
}

static error_t parse_run(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    session_options *options = state->input;
    switch (key) {
    case OPTIONS_KEY_NO_HISTORY:
        options->no_history = true;
        return 0;
    case ARGP_KEY_END:
        check_run(state, state->input);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option RUN_OPTIONS[] = {
    {.name = "no-history",
     .key = OPTIONS_KEY_NO_HISTORY,
     .doc = "Do not remember the lines of a conversation in a file"},
    {0}};

static const struct argp CONVERSATION_ARGP = {
    .options = RUN_OPTIONS, .parser = parse_run, .doc = "Conversation"};

static const struct argp_child RUN_CHILDREN[] = {
    {.argp = &options_model_argp},    {.argp = &options_text_argp},
    {.argp = &options_template_argp}, {.argp = &answer_argp},
    {.argp = &sampling_argp},         {.argp = &options_draft_argp},
    {.argp = &CONVERSATION_ARGP},     {.argp = &options_context_argp},
    {.argp = &options_budget_argp},   {.argp = &options_codec_argp},
    {.argp = &options_storage_argp},  {.argp = &options_cache_argp},
    {.argp = &options_threads_argp},  {.argp = &options_json_argp},
    {.argp = &options_quiet_argp},    {0}};

static const struct argp RUN_ARGP = {
    .args_doc = "MODEL",
    .doc = "Answers a prompt; the answer is streamed to standard output, speeds and the size of "
           "the KV cache follow on standard error."
           "\v"
           "  kvern run MODEL -p \"Why is the sky blue?\" -n 200\n"
           "  kvern run MODEL -c 4096 --kv q8           a conversation\n\n"
           "The prompt is put into the chat template of the model file, unless --raw or --template "
           "says otherwise; a model whose file has none continues the prompt. Without -p and -f it "
           "is read from standard input. When that is a terminal, a conversation begins; /help "
           "shows its commands.",
    .children = RUN_CHILDREN,
};

static kvern_status encode_prompt(const run_session *session, text_buffer *text, token_buffer *out,
                                  engine_error *error)
{
    const tokenizer *tokens = model_tokenizer(session->loaded.model);
    if (!session->chat) {
        return prompt_encode_raw(tokens, text, true, out, error);
    }
    prompt_end_message(&session->options->common, text);
    const char *system = session->options->system;
    chat_message messages[2] = {{"system", system, system ? strlen(system) : 0},
                                {"user", text->data ? text->data : "", text->size}};
    return prompt_encode_chat(tokens, session->chat, system ? messages : messages + 1,
                              system ? 2 : 1, 0, out, NULL, error);
}

static kvern_status answer_once(run_session *session, text_buffer *text, engine_error *error)
{
    token_buffer prompt = TOKEN_BUFFER_INIT;
    kvern_status status = encode_prompt(session, text, &prompt, error);
    if (status == KVERN_OK && prompt.count == 0) {
        status = engine_fail(error, KVERN_ERR_ARGUMENT, "the prompt is empty");
    }
    if (status == KVERN_OK) {
        status = session_answer(session, &prompt, error);
    }
    token_buffer_free(&prompt);
    return status;
}

static int answer_and_report(run_session *session, text_buffer *text)
{
    engine_error error;
    if (answer_once(session, text, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    if (session->write_failed) {
        return CLI_FAILURE; // reported at the end of the process
    }
    if (session->options->common.json) {
        return session_print_json(session);
    }
    if (!session->options->common.quiet) {
        session_print_facts(session);
    }
    return CLI_SUCCESS;
}

static int run_session_with(const session_options *options, text_buffer *text)
{
    engine_error error;
    run_session session;
    if (session_open(options, &session, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = text ? answer_and_report(&session, text) : converse(&session);
    session_close(&session);
    return code;
}

// The prompt is read before the model is loaded: a missing file is known at once.
static int run_prompt(const session_options *options)
{
    engine_error error;
    text_buffer text = TEXT_BUFFER_INIT;
    if (prompt_read(&options->common, &text, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = run_session_with(options, &text);
    text_buffer_free(&text);
    return code;
}

static int run_answer(int argc, char **argv)
{
    session_options options;
    if (!sampling_init(&options, argc)) {
        return report_error("no memory for the arguments");
    }
    options_parse(&RUN_ARGP, argc, argv, &options.common);
    int code =
        wants_conversation(&options) ? run_session_with(&options, NULL) : run_prompt(&options);
    sampling_free(&options);
    return code;
}

const command command_run = {
    .name = "run",
    .title = "kvern run",
    .summary = "answer a prompt, or hold a conversation",
    .run = run_answer,
};

// ---- kvern prefill ----

static error_t parse_prefill(int key, char *argument, struct argp_state *state)
{
    const cli_options *options = state->input;
    (void)argument;
    if (key != ARGP_KEY_END) {
        return ARGP_ERR_UNKNOWN;
    }
    if (!options->store && !options->cache) {
        options_fail(state, "where is the prompt to be kept? --store URL or --cache DIR");
    }
    if (prompt_is_missing(options)) {
        options_fail(state, "there is no prompt: -p TEXT, -f FILE or standard input");
    }
    return 0;
}

static const struct argp PREFILL_CHECK_ARGP = {.parser = parse_prefill};

static const struct argp_child PREFILL_CHILDREN[] = {{.argp = &options_model_argp},
                                                     {.argp = &options_text_argp},
                                                     {.argp = &options_template_argp},
                                                     {.argp = &PREFILL_CHECK_ARGP},
                                                     {.argp = &options_context_argp},
                                                     {.argp = &options_budget_argp},
                                                     {.argp = &options_codec_argp},
                                                     {.argp = &options_storage_argp},
                                                     {.argp = &options_cache_argp},
                                                     {.argp = &options_threads_argp},
                                                     {.argp = &options_json_argp},
                                                     {.argp = &options_quiet_argp},
                                                     {0}};

static const struct argp PREFILL_ARGP = {
    .args_doc = "MODEL",
    .doc = "Computes a prompt and keeps it in a store, for whoever asks something that begins so."
           "\v"
           "  kvern prefill MODEL --store redis://host -f system.txt --raw\n"
           "  kvern run MODEL --store redis://host -f longer.txt --raw      on any machine\n\n"
           "The prompt is treated as 'kvern run' does, so that the same options give the same "
           "beginning.",
    .children = PREFILL_CHILDREN,
};

// What waits is written before the counts are looked at.
static int report_kept(const run_session *session)
{
    kvern_remote_store_stats stats = kvern_remote_store_stats_default();
    if (!session->cache.remote) {
        return CLI_SUCCESS;
    }
    kvern_remote_store_flush(session->cache.remote);
    const kvern_status status = kvern_remote_store_get_stats(session->cache.remote, &stats);
    if (status != KVERN_OK || stats.publications == 0) {
        return report_error("the prompt is not at the shared store");
    }
    if (!session->options->common.quiet) {
        fprintf(stderr, "published   %" PRIu64 " bytes, %" PRIu64 " of %" PRIu64 " blocks new\n",
                stats.written_bytes, stats.blocks - stats.shared_blocks, stats.blocks);
    }
    return CLI_SUCCESS;
}

static int prefill(const session_options *options, text_buffer *text)
{
    engine_error error;
    run_session session;
    if (session_open(options, &session, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = CLI_FAILURE;
    if (session.cache.remote &&
        !prefix_cache_reaches_server(&session.cache, session.loaded.composition)) {
        report_error("the shared store does not answer, so the prompt is not computed");
    } else {
        code = answer_and_report(&session, text);
    }
    if (code == CLI_SUCCESS) {
        code = report_kept(&session);
    }
    session_close(&session);
    return code;
}

static int run_prefill(int argc, char **argv)
{
    session_options options;
    text_buffer text = TEXT_BUFFER_INIT;
    engine_error error;
    if (!sampling_init(&options, argc)) {
        return report_error("no memory for the arguments");
    }
    options_parse(&PREFILL_ARGP, argc, argv, &options.common);
    options.max_tokens = 0;
    const int code = prompt_read(&options.common, &text, &error) == KVERN_OK
                         ? prefill(&options, &text)
                         : report_engine_error(&error);
    text_buffer_free(&text);
    sampling_free(&options);
    return code;
}

const command command_prefill = {
    .name = "prefill",
    .title = "kvern prefill",
    .summary = "compute a prompt for a store",
    .run = run_prefill,
};
