// SPDX-License-Identifier: MIT
#include "cli/session/sampling_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_TEMPERATURE 100

// Used where the command line says nothing. Mild: a small model wanders off when it is left freer.
#define DEFAULT_TEMPERATURE 0.7
#define DEFAULT_TOP_K 40
#define DEFAULT_TOP_P 0.95
#define DEFAULT_MIN_P 0.05

static void add_stop(const struct argp_state *state, session_options *options, const char *text)
{
    if (!text[0]) {
        options_fail(state, "--stop takes a text that is not empty");
    }
    options->stops[options->stop_count++] = text;
}

// The options about sampling. False: another one.
static bool parse_sampling(int key, const char *argument, const struct argp_state *state,
                           sampler_options *sampling)
{
    switch (key) {
    case OPTIONS_KEY_TEMPERATURE:
        options_once(state, key, "--temp");
        sampling->temperature = options_real(state, "--temp", argument, 0, MAX_TEMPERATURE);
        return true;
    case OPTIONS_KEY_TOP_K:
        options_once(state, key, "--top-k");
        sampling->top_k = (uint32_t)options_number(state, "--top-k", argument, 0, INT32_MAX);
        return true;
    case OPTIONS_KEY_TOP_P:
        options_once(state, key, "--top-p");
        sampling->top_p = options_real(state, "--top-p", argument, 0, 1);
        return true;
    case OPTIONS_KEY_MIN_P:
        options_once(state, key, "--min-p");
        sampling->min_p = options_real(state, "--min-p", argument, 0, 1);
        return true;
    case OPTIONS_KEY_SEED:
        options_once(state, key, "--seed");
        sampling->seed = options_number(state, "--seed", argument, 0, INT64_MAX);
        return true;
    default:
        return false;
    }
}

static error_t parse_answer(int key, char *argument, struct argp_state *state)
{
    session_options *options = state->input;
    switch (key) {
    case 'n':
        options_once(state, key, "-n");
        options->max_tokens = (int64_t)options_number(state, "-n", argument, 0, INT32_MAX);
        return 0;
    case OPTIONS_KEY_STOP:
        add_stop(state, options, argument);
        return 0;
    case OPTIONS_KEY_SYSTEM:
        options_once(state, key, "--system");
        options->system = argument;
        return 0;
    case ARGP_KEY_END:
        if (options->system && options->common.raw) {
            options_fail(state, "--raw knows no --system message");
        }
        return 0;
    default:
        return parse_sampling(key, argument, state, &options->sampling) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

static const struct argp_option ANSWER_OPTIONS[] = {
    {.name = "max-tokens",
     .key = 'n',
     .arg = "N",
     .doc = "End an answer after N tokens (default: when the model ends it, or the context is "
            "full)"},
    {.name = "stop",
     .key = OPTIONS_KEY_STOP,
     .arg = "TEXT",
     .doc = "End an answer before this text; may be given several times"},
    {.name = "system",
     .key = OPTIONS_KEY_SYSTEM,
     .arg = "TEXT",
     .doc = "The system message (default: the template's own, if it has one)"},
    {.doc = "Sampling:", .group = 1},
    {.name = "temp",
     .key = OPTIONS_KEY_TEMPERATURE,
     .arg = "T",
     .doc = "Temperature (default: " TEXT_OF(
         DEFAULT_TEMPERATURE) "); 0 always takes the most likely token"},
    {.name = "top-k",
     .key = OPTIONS_KEY_TOP_K,
     .arg = "K",
     .doc = "Only the K most likely tokens (default: " TEXT_OF(DEFAULT_TOP_K) "); 0 is off"},
    {.name = "top-p",
     .key = OPTIONS_KEY_TOP_P,
     .arg = "P",
     .doc = "Only the most likely tokens that reach probability P together (default: " TEXT_OF(
         DEFAULT_TOP_P) "); 1 is off"},
    {.name = "min-p",
     .key = OPTIONS_KEY_MIN_P,
     .arg = "P",
     .doc = "Only tokens with at least P times the largest probability (default: " TEXT_OF(
         DEFAULT_MIN_P) "); 0 is off"},
    {.name = "seed",
     .key = OPTIONS_KEY_SEED,
     .arg = "N",
     .doc = "Seed of the random choices (default: a random one, shown at the end)"},
    {0}};

const struct argp sampling_argp = {.options = ANSWER_OPTIONS, .parser = parse_answer};

static uint64_t random_seed(void)
{
    uint32_t seed = 0; // short enough to be typed again
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = (uint32_t)getpid();
    }
    return seed;
}

bool sampling_init(session_options *options, int argc)
{
    *options = (session_options){
        .sampling = {.temperature = DEFAULT_TEMPERATURE,
                     .top_k = DEFAULT_TOP_K,
                     .top_p = DEFAULT_TOP_P,
                     .min_p = DEFAULT_MIN_P,
                     .seed = random_seed()},
        .stops = calloc((size_t)argc, sizeof *options->stops), // every argument may be one
        .max_tokens = -1,
    };
    return options->stops;
}

void sampling_free(session_options *options)
{
    free(options->stops);
    options->stops = NULL;
}

void sampling_print(const sampler_options *sampling)
{
    if (sampling->temperature == 0) {
        fprintf(stderr, "sampling    greedy\n");
        return;
    }
    fprintf(stderr,
            "sampling    --temp %g --top-k %" PRIu32 " --top-p %g --min-p %g --seed %" PRIu64 "\n",
            (double)sampling->temperature, sampling->top_k, (double)sampling->top_p,
            (double)sampling->min_p, sampling->seed);
}
