// SPDX-License-Identifier: MIT
#include "cli/session/sampling_options.h"

#include "cli/io/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

#define MAX_PENALTY 100
#define DEFAULT_REPEAT_LAST_N 64

static uint64_t random_seed(void)
{
    uint32_t seed = 0; // short enough to be typed again
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = (uint32_t)getpid();
    }
    return seed;
}

static void add_stop(const struct argp_state *state, session_options *options, const char *text)
{
    if (!text[0]) {
        options_fail(state, "--stop takes a text that is not empty");
    }
    options->stops[options->stop_count++] = text;
}

static void parse_seed(const struct argp_state *state, const char *text, session_options *options)
{
    options->has_seed = strcmp(text, "-1") != 0;
    if (!options->has_seed) {
        options->sampling.seed = random_seed();
    } else if (!number_parse(text, INT64_MAX, &options->sampling.seed)) {
        options_fail(state,
                     "--seed takes a whole number from 0 to %" PRId64
                     ", or -1 for a random one, not '%s'",
                     INT64_MAX, text);
    }
}

static error_t parse_answer(int key, char *argument, struct argp_state *state)
{
    session_options *options = state->input;
    switch (key) {
    case 'n':
        options->max_tokens = options_number_or_all(state, "-n", argument, "no limit");
        return 0;
    case OPTIONS_KEY_STOP:
        add_stop(state, options, argument);
        return 0;
    case OPTIONS_KEY_SYSTEM:
        options->system = argument;
        return 0;
    case OPTIONS_KEY_IGNORE_EOS:
        options->ignore_eos = true;
        return 0;
    case ARGP_KEY_END:
        if (options->system && options->common.raw) {
            options_fail(state, "--system needs a chat template, and --raw uses none");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option ANSWER_OPTIONS[] = {
    {.name = "max-tokens",
     .key = 'n',
     .arg = "N",
     .doc = "End an answer after N tokens; -1 (default) is when the model ends it or the context "
            "is full"},
    {.name = "n-predict", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "predict", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "stop",
     .key = OPTIONS_KEY_STOP,
     .arg = "TEXT",
     .doc = "End an answer before this text; may be given several times"},
    {.name = "system",
     .key = OPTIONS_KEY_SYSTEM,
     .arg = "TEXT",
     .doc = "The system message (default: the template's own, if it has one)"},
    {.name = "system-prompt", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "sys", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "ignore-eos",
     .key = OPTIONS_KEY_IGNORE_EOS,
     .doc = "Never choose a token that ends the turn"},
    {0}};

const struct argp answer_argp = {
    .options = ANSWER_OPTIONS, .parser = parse_answer, .doc = "Answer"};

// "15043+1.5", "15043-2" or "15043-inf".
static void add_bias(const struct argp_state *state, session_options *options, const char *text)
{
    char number[16] = "";
    uint64_t token = 0;
    float bias = 0;
    const size_t digits = strspn(text, "0123456789");
    const char *rest = text + digits;
    const bool never = strcmp(rest, "-inf") == 0;
    if (digits < sizeof number) {
        memcpy(number, text, digits);
    }
    if (!number_parse(number, INT32_MAX, &token) || (*rest != '+' && *rest != '-') ||
        (!never && !number_parse_real(rest, -MAX_PENALTY, MAX_PENALTY, &bias))) {
        options_fail(state,
                     "--logit-bias takes a token number and what to add, from -%d to +%d or -inf, "
                     "such as 15043-2.5, not '%s'",
                     MAX_PENALTY, MAX_PENALTY, text);
    }
    options->biases[options->sampling.bias_count++] =
        (logit_bias){(int32_t)token, never ? -INFINITY : bias};
}

static bool parse_penalty(int key, const char *argument, const struct argp_state *state,
                          penalty_options *penalties)
{
    switch (key) {
    case OPTIONS_KEY_REPEAT_PENALTY:
        penalties->repeat = options_real(state, "--repeat-penalty", argument, 0.01, MAX_PENALTY);
        return true;
    case OPTIONS_KEY_REPEAT_LAST_N:
        // -1 is PENALTY_WINDOW_ALL.
        penalties->window =
            (size_t)options_number_or_all(state, "--repeat-last-n", argument, "all tokens");
        return true;
    case OPTIONS_KEY_PRESENCE_PENALTY:
        penalties->presence =
            options_real(state, "--presence-penalty", argument, -MAX_PENALTY, MAX_PENALTY);
        return true;
    case OPTIONS_KEY_FREQUENCY_PENALTY:
        penalties->frequency =
            options_real(state, "--frequency-penalty", argument, -MAX_PENALTY, MAX_PENALTY);
        return true;
    default:
        return false;
    }
}

static error_t parse_sampling(int key, char *argument, struct argp_state *state)
{
    session_options *options = state->input;
    sampler_options *sampling = &options->sampling;
    switch (key) {
    case OPTIONS_KEY_TEMPERATURE:
        sampling->temperature = options_real(state, "--temp", argument, 0, MAX_TEMPERATURE);
        return 0;
    case OPTIONS_KEY_TOP_K:
        sampling->top_k = (uint32_t)options_number(state, "--top-k", argument, 0, INT32_MAX);
        return 0;
    case OPTIONS_KEY_TOP_P:
        sampling->top_p = options_real(state, "--top-p", argument, 0, 1);
        return 0;
    case OPTIONS_KEY_MIN_P:
        sampling->min_p = options_real(state, "--min-p", argument, 0, 1);
        return 0;
    case 's':
        parse_seed(state, argument, options);
        return 0;
    case OPTIONS_KEY_LOGIT_BIAS:
        add_bias(state, options, argument);
        return 0;
    default:
        return parse_penalty(key, argument, state, &sampling->penalties) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

static const struct argp_option SAMPLING_OPTIONS[] = {
    {.name = "temp",
     .key = OPTIONS_KEY_TEMPERATURE,
     .arg = "T",
     .doc = "Temperature (default: " TEXT_OF(
         DEFAULT_TEMPERATURE) "); 0 always takes the most likely token"},
    {.name = "temperature", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "top-k",
     .key = OPTIONS_KEY_TOP_K,
     .arg = "K",
     .doc = "Keep only the K most likely tokens (default: " TEXT_OF(DEFAULT_TOP_K) "); 0 is off"},
    {.name = "top-p",
     .key = OPTIONS_KEY_TOP_P,
     .arg = "P",
     .doc = "Keep only the most likely tokens that together reach probability P "
            "(default: " TEXT_OF(DEFAULT_TOP_P) "); 1 is off"},
    {.name = "min-p",
     .key = OPTIONS_KEY_MIN_P,
     .arg = "P",
     .doc = "Keep only tokens with at least P times the largest probability (default: " TEXT_OF(
         DEFAULT_MIN_P) "); 0 is off"},
    {.name = "seed",
     .key = 's',
     .arg = "N",
     .doc = "Seed of the random choices; -1 (default) is a random one, shown at the end"},
    {.name = "repeat-penalty",
     .key = OPTIONS_KEY_REPEAT_PENALTY,
     .arg = "X",
     .doc = "Divide the logits of tokens that the text has already by X (default: 1, off)"},
    {.name = "repetition-penalty", .flags = OPTION_ALIAS | OPTION_HIDDEN},
    {.name = "presence-penalty",
     .key = OPTIONS_KEY_PRESENCE_PENALTY,
     .arg = "X",
     .doc = "Subtract X from the logits of such tokens (default: 0)"},
    {.name = "frequency-penalty",
     .key = OPTIONS_KEY_FREQUENCY_PENALTY,
     .arg = "X",
     .doc = "Subtract X for each time that such a token occurs (default: 0)"},
    {.name = "repeat-last-n",
     .key = OPTIONS_KEY_REPEAT_LAST_N,
     .arg = "N",
     .doc = "Penalties look at the last N tokens, prompt included (default: " TEXT_OF(
         DEFAULT_REPEAT_LAST_N) "); -1 is all of them"},
    {.name = "logit-bias",
     .key = OPTIONS_KEY_LOGIT_BIAS,
     .arg = "TOKEN+X",
     .doc = "Add X to the logit of a token, given by its number; TOKEN-X subtracts, TOKEN-inf "
            "forbids it. May be given several times"},
    {0}};

const struct argp sampling_argp = {
    .options = SAMPLING_OPTIONS, .parser = parse_sampling, .doc = "Sampling"};

bool sampling_init(session_options *options, int argc)
{
    *options = (session_options){
        .sampling = {.temperature = DEFAULT_TEMPERATURE,
                     .top_k = DEFAULT_TOP_K,
                     .top_p = DEFAULT_TOP_P,
                     .min_p = DEFAULT_MIN_P,
                     .seed = random_seed(),
                     .penalties = {.repeat = 1, .window = DEFAULT_REPEAT_LAST_N}},
        // Every argument may be one of these.
        .stops = calloc((size_t)argc, sizeof *options->stops),
        .biases = calloc((size_t)argc, sizeof *options->biases),
        .max_tokens = -1,
    };
    if (!options->stops || !options->biases) {
        sampling_free(options);
        return false;
    }
    options->sampling.biases = options->biases;
    return true;
}

void sampling_free(session_options *options)
{
    free(options->stops);
    free(options->biases);
    options->stops = NULL;
    options->biases = NULL;
    options->sampling.biases = NULL;
    options->sampling.bias_count = 0;
}

static void print_penalties(const penalty_options *penalties)
{
    if (!penalties_active(penalties)) {
        return;
    }
    fprintf(stderr, " --repeat-penalty %g --presence-penalty %g --frequency-penalty %g",
            (double)penalties->repeat, (double)penalties->presence, (double)penalties->frequency);
    if (penalties->window == PENALTY_WINDOW_ALL) {
        fputs(" --repeat-last-n -1", stderr);
    } else {
        fprintf(stderr, " --repeat-last-n %zu", penalties->window);
    }
}

void sampling_print(const sampler_options *sampling)
{
    if (sampling->temperature == 0) {
        fputs("sampling    greedy", stderr);
    } else {
        fprintf(stderr,
                "sampling    --temp %g --top-k %" PRIu32 " --top-p %g --min-p %g --seed %" PRIu64,
                (double)sampling->temperature, sampling->top_k, (double)sampling->top_p,
                (double)sampling->min_p, sampling->seed);
    }
    print_penalties(&sampling->penalties);
    fputs("\n", stderr);
}
