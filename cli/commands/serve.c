// SPDX-License-Identifier: MIT
// kvern serve: answers requests over HTTP.

#include "cli/commands/command.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/io/signals.h"
#include "cli/options/storage_options.h"
#include "cli/session/sampling_options.h"
#include "cli/session/served_model.h"

#include "server/server.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MOST_PARALLEL 1024
#define MOST_QUEUE 65536
#define MOST_CONNECTIONS 100000
#define MOST_SECONDS 1000000

#define DEFAULT_HOST "127.0.0.1"
#define DEFAULT_PORT 8080
#define DEFAULT_QUEUE 64
#define DEFAULT_CONNECTIONS 512
#define DEFAULT_READ_SECONDS 60
#define DEFAULT_REQUEST_SECONDS 600
#define DEFAULT_DRAIN_SECONDS 30
#define DEFAULT_BODY (UINT64_C(8) << 20)
#define DEFAULT_WAITING (UINT64_C(4) << 20)

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

enum {
    KEY_HOST = OPTIONS_KEY_COMMAND,
    KEY_PORT,
    KEY_ALIAS,
    KEY_PARALLEL,
    KEY_QUEUE,
    KEY_API_KEYS,
    KEY_CONNECTIONS,
    KEY_ADDRESS_CONNECTIONS,
    KEY_MAX_BODY,
    KEY_MAX_WAITING,
    KEY_READ_TIME,
    KEY_REQUEST_TIME,
    KEY_DRAIN_TIME
};

typedef struct serve_options {
    session_options session; // first, as parsers want it
    const char *host, *alias, *api_keys;
    uint16_t port;
    size_t parallel, queue, connections, address_connections;
    uint64_t body, waiting;
    uint64_t read_seconds, request_seconds, drain_seconds;
} serve_options;

static void parse_bytes(const struct argp_state *state, const char *name, const char *argument,
                        uint64_t *value)
{
    if (!number_parse_bytes(argument, value) || *value == 0 || *value > UINT64_C(1) << 30) {
        options_fail(state, "%s takes a number of bytes up to 1G, not '%s'", name, argument);
    }
}

static bool parse_limit(int key, const char *argument, const struct argp_state *state,
                        serve_options *options)
{
    switch (key) {
    case KEY_CONNECTIONS:
        options->connections =
            options_number(state, "--connections", argument, 1, MOST_CONNECTIONS);
        return true;
    case KEY_ADDRESS_CONNECTIONS:
        options->address_connections =
            options_number(state, "--address-connections", argument, 0, MOST_CONNECTIONS);
        return true;
    case KEY_MAX_BODY:
        parse_bytes(state, "--max-body", argument, &options->body);
        return true;
    case KEY_MAX_WAITING:
        parse_bytes(state, "--max-waiting", argument, &options->waiting);
        return true;
    case KEY_READ_TIME:
        options->read_seconds = options_number(state, "--read-time", argument, 1, MOST_SECONDS);
        return true;
    case KEY_REQUEST_TIME:
        options->request_seconds =
            options_number(state, "--request-time", argument, 0, MOST_SECONDS);
        return true;
    case KEY_DRAIN_TIME:
        options->drain_seconds = options_number(state, "--drain-time", argument, 0, MOST_SECONDS);
        return true;
    default:
        return false;
    }
}

static error_t parse_serve(int key, char *argument, struct argp_state *state)
{
    serve_options *options = state->input;
    switch (key) {
    case KEY_HOST:
        options->host = argument;
        return 0;
    case KEY_PORT:
        options->port = (uint16_t)options_number(state, "--port", argument, 0, UINT16_MAX);
        return 0;
    case KEY_ALIAS:
        if (!argument[0]) {
            options_fail(state, "--alias takes a name");
        }
        options->alias = argument;
        return 0;
    case KEY_API_KEYS:
        options->api_keys = argument;
        return 0;
    case KEY_PARALLEL:
        options->parallel = options_number(state, "--parallel", argument, 1, MOST_PARALLEL);
        return 0;
    case KEY_QUEUE:
        options->queue = options_number(state, "--queue", argument, 0, MOST_QUEUE);
        return 0;
    default:
        return parse_limit(key, argument, state, options) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option SERVE_OPTIONS[] = {
    {.name = "host",
     .key = KEY_HOST,
     .arg = "A",
     .doc =
         "Listen at this address (default: " DEFAULT_HOST ", which other machines cannot reach)"},
    {.name = "port",
     .key = KEY_PORT,
     .arg = "N",
     .doc = "and this port (default: " TEXT_OF(DEFAULT_PORT) "); 0 is any that is free, which "
                                                             "standard output tells"},
    {.name = "alias",
     .key = KEY_ALIAS,
     .arg = "NAME",
     .doc = "What clients call the model (default: the file's name)"},
    {.name = "api-keys",
     .key = KEY_API_KEYS,
     .arg = "FILE",
     .doc = "Ask for one of the keys in this file, one in each line"},
    {.name = "parallel",
     .key = KEY_PARALLEL,
     .arg = "N",
     .doc = "Make N answers at once (default: " TEXT_OF(SCHEDULE_ROWS) "), as far as the budget "
                                                                       "holds them"},
    {.name = "queue",
     .key = KEY_QUEUE,
     .arg = "N",
     .doc = "Let N more wait (default: " TEXT_OF(DEFAULT_QUEUE) "); others are told to come again"},
    {0}};

static const struct argp_option LIMIT_OPTIONS[] = {
    {.name = "connections",
     .key = KEY_CONNECTIONS,
     .arg = "N",
     .doc = "Connections at once (default: " TEXT_OF(DEFAULT_CONNECTIONS) ")"},
    {.name = "address-connections",
     .key = KEY_ADDRESS_CONNECTIONS,
     .arg = "N",
     .doc = "and of one address; 0 (default) is no limit"},
    {.name = "max-body",
     .key = KEY_MAX_BODY,
     .arg = "BYTES",
     .doc = "The largest body of a request (default: 8M)"},
    {.name = "max-waiting",
     .key = KEY_MAX_WAITING,
     .arg = "BYTES",
     .doc = "End a stream that has so much for a client that does not read it (default: 4M)"},
    {.name = "read-time",
     .key = KEY_READ_TIME,
     .arg = "SECONDS",
     .doc = "Time for a request to arrive (default: " TEXT_OF(DEFAULT_READ_SECONDS) ")"},
    {.name = "request-time",
     .key = KEY_REQUEST_TIME,
     .arg = "SECONDS",
     .doc = "and from there to the end of its answer (default: " TEXT_OF(
         DEFAULT_REQUEST_SECONDS) "); 0 is no limit"},
    {.name = "drain-time",
     .key = KEY_DRAIN_TIME,
     .arg = "SECONDS",
     .doc = "Time for running answers after SIGTERM (default: " TEXT_OF(DEFAULT_DRAIN_SECONDS) ")"},
    {0}};

static const struct argp LIMIT_ARGP = {
    .options = LIMIT_OPTIONS, .parser = parse_serve, .doc = "Limits"};

static const struct argp_child SERVE_CHILDREN[] = {
    {.argp = &options_model_argp},   {.argp = &options_template_argp},
    {.argp = &LIMIT_ARGP},           {.argp = &answer_argp},
    {.argp = &sampling_argp},        {.argp = &options_draft_argp},
    {.argp = &options_context_argp}, {.argp = &options_budget_argp},
    {.argp = &options_codec_argp},   {.argp = &options_storage_argp},
    {.argp = &options_cache_argp},   {.argp = &options_threads_argp},
    {.argp = &options_quiet_argp},   {0}};

static const struct argp SERVE_ARGP = {
    .options = SERVE_OPTIONS,
    .parser = parse_serve,
    .args_doc = "MODEL",
    .doc = "Answers requests over HTTP, in the words of OpenAI's interface (/v1/chat/completions, "
           "/v1/completions), many at once. Each answer is the one that kvern run gives with the "
           "same options and seed, whatever runs beside it."
           "\v"
           "  kvern serve MODEL --port 8080\n"
           "  kvern serve MODEL --parallel 32 --budget 8G --api-keys keys.txt\n\n"
           "The options for answers and sampling say what holds where a request says nothing. "
           "SIGTERM or Ctrl-C ends it in order: what runs is finished first. docs/server.md has "
           "all that requests may ask, and how to put TLS in front.",
    .children = SERVE_CHILDREN,
};

// ---- Life ----

// Whether nobody but users of this machine can ask, so that they may see each other's prompts.
static bool is_private(const serve_options *options)
{
    const char *host = options->host;
    return !options->api_keys && (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
                                  strcmp(host, "localhost") == 0);
}

static server_options options_of(const serve_options *options, const served_model *m,
                                 const char *kv, api_keys *keys)
{
    const session_options *session = &options->session;
    const char *name = options->alias ? options->alias : m->name;
    return (server_options){
        .host = options->host,
        .is_private = is_private(options),
        .port = options->port,
        .model_name = name,
        .worker = {.model = m->loaded.model,
                   .composition = m->loaded.composition,
                   .schedule = served_model_schedule(m, session, options->parallel),
                   .most_queued = options->queue,
                   .model_name = name,
                   .kv = kv,
                   .chats = m->chat,
                   .shows_texts = is_private(options)},
        .chat = m->chat,
        .defaults = {.system = session->system,
                     .max_tokens = session->max_tokens,
                     .sampling = session->sampling,
                     .stops = session->stops,
                     .stop_count = session->stop_count,
                     .ignore_eos = session->ignore_eos},
        .fixed_seed = session->has_seed,
        .keys = keys,
        .most_choices = options->parallel + options->queue,
        .most_body = options->body,
        .most_waiting = options->waiting,
        .connections = options->connections,
        .connections_each = options->address_connections,
        .read_seconds = (double)options->read_seconds,
        .request_seconds = (double)options->request_seconds};
}

// Signals come to any thread; so this one looks every now and then.
static void await_signal(void)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    while (!signals_noted()) {
        nanosleep(&moment, NULL);
    }
}

static bool announce(const serve_options *options, const server *s)
{
    char text[300];
    const bool number = strchr(options->host, ':');
    snprintf(text, sizeof text, number ? "http://[%.200s]:%u\n" : "http://%.200s:%u\n",
             options->host, server_port(s));
    return report_write(text, strlen(text));
}

// A prompt has a token at least, and so has an answer.
static bool has_context(const served_model *m)
{
    const bool enough = m->loaded.context_length > 1;
    if (!enough) {
        report_error("a context of 1 token has no room for an answer behind a prompt");
    }
    return enough;
}

static int serve_with(const serve_options *options, const served_model *m, api_keys *keys)
{
    engine_error error;
    server *s;
    char kv[STORAGE_TEXT];
    storage_text(&options->session.common.storage, model_get_facts(m->loaded.model), kv);
    const server_options wanted = options_of(options, m, kv, keys);
    signals_note_interrupts();
    if (server_start(&wanted, &s, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = announce(options, s) ? CLI_SUCCESS : CLI_FAILURE;
    if (code == CLI_SUCCESS) {
        await_signal();
        if (!server_drain(s, (double)options->drain_seconds) && !options->session.common.quiet) {
            report_error("some answers were ended after %" PRIu64 " s", options->drain_seconds);
        }
    }
    server_stop(s);
    return code;
}

static int serve(const serve_options *options)
{
    engine_error error;
    served_model m;
    api_keys *keys = NULL;
    if (options->api_keys && api_keys_read(options->api_keys, &keys, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = CLI_FAILURE;
    if (served_model_open(&options->session, &m, &error) != KVERN_OK) {
        report_engine_error(&error);
    } else {
        code = has_context(&m) ? serve_with(options, &m, keys) : CLI_FAILURE;
        served_model_close(&m);
    }
    api_keys_free(keys);
    return code;
}

static int run_serve(int argc, char **argv)
{
    serve_options options = {.host = DEFAULT_HOST,
                             .port = DEFAULT_PORT,
                             .parallel = SCHEDULE_ROWS,
                             .queue = DEFAULT_QUEUE,
                             .connections = DEFAULT_CONNECTIONS,
                             .body = DEFAULT_BODY,
                             .waiting = DEFAULT_WAITING,
                             .read_seconds = DEFAULT_READ_SECONDS,
                             .request_seconds = DEFAULT_REQUEST_SECONDS,
                             .drain_seconds = DEFAULT_DRAIN_SECONDS};
    if (!sampling_init(&options.session, argc)) {
        return report_error("no memory for the arguments");
    }
    options_parse(&SERVE_ARGP, argc, argv, &options.session.common);
    const int code = serve(&options);
    sampling_free(&options.session);
    return code;
}

const command command_serve = {
    .name = "serve",
    .title = "kvern serve",
    .summary = "answer requests over HTTP",
    .run = run_serve,
};
