// SPDX-License-Identifier: MIT
// kvern run: answers a prompt, or converses on a terminal.

#include "cli/command.h"
#include "cli/converse.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_TEMPERATURE 100

// Used where the command line says nothing. Mild: a small model wanders off when it is left freer.
#define DEFAULT_TEMPERATURE 0.7
#define DEFAULT_TOP_K 40
#define DEFAULT_TOP_P 0.95
#define DEFAULT_MIN_P 0.05

enum {
    KEY_TEMPERATURE = OPTIONS_KEY_COMMAND,
    KEY_TOP_K,
    KEY_TOP_P,
    KEY_MIN_P,
    KEY_SEED,
    KEY_STOP,
    KEY_SYSTEM
};

static void add_stop(const struct argp_state *state, session_options *options, const char *text)
{
    if (!text[0]) {
        options_fail(state, "--stop takes a text that is not empty");
    }
    options->stops[options->stop_count++] = text;
}

static bool wants_conversation(const session_options *options)
{
    return prompt_is_missing(&options->common);
}

static void check_run(const struct argp_state *state, const session_options *options)
{
    if (options->system && options->common.raw) {
        options_fail(state, "--raw knows no --system message");
    }
    if (!wants_conversation(options)) {
        return;
    }
    if (options->common.json) {
        options_fail(state, "--json needs a prompt: -p TEXT, --file FILE or standard input");
    }
    if (!isatty(STDOUT_FILENO)) {
        options_fail(state, "a conversation needs a terminal for its output; otherwise give a "
                            "prompt: -p TEXT, --file FILE or standard input");
    }
}

// The options about sampling. False: another one.
static bool parse_sampling(int key, const char *argument, const struct argp_state *state,
                           sampler_options *sampling)
{
    switch (key) {
    case KEY_TEMPERATURE:
        options_once(state, key, "--temp");
        sampling->temperature = options_real(state, "--temp", argument, 0, MAX_TEMPERATURE);
        return true;
    case KEY_TOP_K:
        options_once(state, key, "--top-k");
        sampling->top_k = (uint32_t)options_number(state, "--top-k", argument, 0, INT32_MAX);
        return true;
    case KEY_TOP_P:
        options_once(state, key, "--top-p");
        sampling->top_p = options_real(state, "--top-p", argument, 0, 1);
        return true;
    case KEY_MIN_P:
        options_once(state, key, "--min-p");
        sampling->min_p = options_real(state, "--min-p", argument, 0, 1);
        return true;
    case KEY_SEED:
        options_once(state, key, "--seed");
        sampling->seed = options_number(state, "--seed", argument, 0, INT64_MAX);
        return true;
    default:
        return false;
    }
}

static const struct argp RUN_ARGP;

static error_t parse_run(int key, char *argument, struct argp_state *state)
{
    session_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        options_init(state, &RUN_ARGP);
        return 0;
    case 'n':
        options_once(state, key, "-n");
        options->max_tokens = (int64_t)options_number(state, "-n", argument, 0, INT32_MAX);
        return 0;
    case KEY_STOP:
        add_stop(state, options, argument);
        return 0;
    case KEY_SYSTEM:
        options_once(state, key, "--system");
        options->system = argument;
        return 0;
    case ARGP_KEY_END:
        check_run(state, options);
        return 0;
    default:
        return parse_sampling(key, argument, state, &options->sampling) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

static const struct argp_option RUN_OPTIONS[] = {
    {.name = "max-tokens",
     .key = 'n',
     .arg = "N",
     .doc = "End an answer after N tokens (default: when the model ends it, or the context is "
            "full)"},
    {.name = "stop",
     .key = KEY_STOP,
     .arg = "TEXT",
     .doc = "End an answer before this text; may be given several times"},
    {.name = "system",
     .key = KEY_SYSTEM,
     .arg = "TEXT",
     .doc = "The system message (default: the template's own, if it has one)"},
    {.doc = "Sampling:", .group = 1},
    {.name = "temp",
     .key = KEY_TEMPERATURE,
     .arg = "T",
     .doc = "Temperature (default: " TEXT_OF(
         DEFAULT_TEMPERATURE) "); 0 always takes the most likely token"},
    {.name = "top-k",
     .key = KEY_TOP_K,
     .arg = "K",
     .doc = "Only the K most likely tokens (default: " TEXT_OF(DEFAULT_TOP_K) "); 0 is off"},
    {.name = "top-p",
     .key = KEY_TOP_P,
     .arg = "P",
     .doc = "Only the most likely tokens that reach probability P together (default: " TEXT_OF(
         DEFAULT_TOP_P) "); 1 is off"},
    {.name = "min-p",
     .key = KEY_MIN_P,
     .arg = "P",
     .doc = "Only tokens with at least P times the largest probability (default: " TEXT_OF(
         DEFAULT_MIN_P) "); 0 is off"},
    {.name = "seed",
     .key = KEY_SEED,
     .arg = "N",
     .doc = "Seed of the random choices (default: a random one, shown at the end)"},
    {0}};

static const struct argp_child RUN_CHILDREN[] = {{&options_model_argp, 0, NULL, 0},
                                                 {&options_text_argp, 0, NULL, 0},
                                                 {&options_template_argp, 0, NULL, 0},
                                                 {&options_compute_argp, 0, NULL, 0},
                                                 {&options_context_argp, 0, NULL, 0},
                                                 {&options_json_argp, 0, NULL, 0},
                                                 {&options_codec_argp, 0, NULL, 0},
                                                 {&options_storage_argp, 0, NULL, 0},
                                                 {0}};

static const struct argp RUN_ARGP = {
    .options = RUN_OPTIONS,
    .parser = parse_run,
    .args_doc = "MODEL",
    .doc = "Answers a prompt; the answer is streamed to standard output, speeds and the size of "
           "the KV cache follow on standard error."
           "\vThe prompt is put into the chat template of the model file, unless --raw or "
           "--template says otherwise; a model whose file has none continues the prompt. Without "
           "-p and --file it is read from standard input; when "
           "that is a terminal, a conversation begins: Ctrl-C ends the running answer, Ctrl-D the "
           "conversation, a line that ends in a backslash goes on in the next one, /clear "
           "forgets everything said so far.",
    .children = RUN_CHILDREN,
};

static kvern_status encode_prompt(const run_session *session, const text_buffer *text,
                                  token_buffer *out, engine_error *error)
{
    const tokenizer *tokens = model_tokenizer(session->loaded.model);
    if (!session->chat) {
        return prompt_encode_raw(tokens, text, true, out, error);
    }
    const char *system = session->options->system;
    chat_message messages[2] = {{"system", system, system ? strlen(system) : 0},
                                {"user", text->data ? text->data : "", text->size}};
    return prompt_encode_chat(tokens, session->chat, system ? messages : messages + 1,
                              system ? 2 : 1, 0, out, error);
}

static kvern_status answer_once(run_session *session, const text_buffer *text, engine_error *error)
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

static int run_once(run_session *session, const text_buffer *text)
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
    session_print_facts(session);
    return CLI_SUCCESS;
}

static int run_session_with(const session_options *options, const text_buffer *text)
{
    engine_error error;
    run_session session;
    if (session_open(options, &session, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = text ? run_once(&session, text) : converse(&session);
    session_close(&session);
    return code;
}

// The prompt is read before the model is loaded: a missing file is known at once.
static int run_prompt(const session_options *options)
{
    engine_error error;
    text_buffer text = TEXT_BUFFER_INIT;
    bool in_template = !options->common.raw;
    if (prompt_read(&options->common, in_template, &text, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = run_session_with(options, &text);
    text_buffer_free(&text);
    return code;
}

static uint64_t random_seed(void)
{
    uint32_t seed = 0; // short enough to be typed again
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = (uint32_t)getpid();
    }
    return seed;
}

static int run(int argc, char **argv)
{
    session_options options = {
        .sampling = {.temperature = DEFAULT_TEMPERATURE,
                     .top_k = DEFAULT_TOP_K,
                     .top_p = DEFAULT_TOP_P,
                     .min_p = DEFAULT_MIN_P,
                     .seed = random_seed()},
        .stops = calloc((size_t)argc, sizeof *options.stops), // every argument may be one
        .max_tokens = -1,
    };
    if (!options.stops) {
        return report_error("no memory for the arguments");
    }
    options_parse(&RUN_ARGP, argc, argv, &options.common);
    int code =
        wants_conversation(&options) ? run_session_with(&options, NULL) : run_prompt(&options);
    free(options.stops);
    return code;
}

const command command_run = {
    .name = "run",
    .title = "kvern run",
    .summary = "answer a prompt, or converse on a terminal",
    .run = run,
};
