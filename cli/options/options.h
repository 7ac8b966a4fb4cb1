// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_OPTIONS_H
#define KVERN_CLI_OPTIONS_H

// The options that several commands share, each declared once: it means the same everywhere. A
// command lists the groups that it takes as argp children and parses with options_parse. When an
// option is given more than once, the last one counts.

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORAGE_NAME 12 // bytes of a codec's name

// What the options of the KV cache's storage say (cli/options/storage_options.h). All zero is the
// state before parsing: bf16.
typedef struct storage_options {
    char k[STORAGE_NAME], v[STORAGE_NAME]; // names of codecs; empty: not given
    char both[2][STORAGE_NAME];            // of --kv alone, while the options are parsed
    const char *preset;                    // of --kv (kvern_storage_preset); NULL: none
    uint32_t group;                        // 0: not given
    bool has_start;
    int64_t start;
    const char *config; // a kv_config.json; NULL: none
    size_t first, last; // layers that stay in bf16
    bool has_residual, has_sinks;
    int64_t residual, sinks; // newest and first positions that do
    bool rotated_latents;    // --kv-rotated-latents was given
} storage_options;

#define DRAFT_NGRAM "ngram" // a source of drafts that is no file

// What the options about drafts say (cli/session/draft_options.h).
typedef struct draft_options {
    const char *source; // DRAFT_NGRAM or a file; NULL: no drafts
    size_t tokens;      // most in one forward pass; 0: not given
} draft_options;

// What the shared options say. Strings belong to argv. All zero is the state before parsing.
typedef struct cli_options {
    const char *model;
    size_t threads;            // 0: one per processor
    int64_t context;           // 0: the model's own context length
    uint64_t budget;           // 0: no limit
    const char *pre;           // --pre; NULL: not given
    bool raw;                  // --raw was given
    const char *template_name; // NULL: not given
    const char *prompt;        // NULL: not given
    const char *file;          // NULL: not given
    bool json;
    bool quiet;
    bool no_cache;                       // --no-cache was given
    const char *cache;                   // --cache; NULL: not given
    uint64_t cache_bytes;                // 0: not given
    const char *store;                   // --store; NULL: not given
    uint64_t store_bytes;                // 0: not given
    uint64_t store_hours, store_seconds; // 0: not given
    // Files of TLS with the store: whom to trust, the own certificate and its key; NULL: not given.
    const char *store_ca, *store_cert, *store_key;
    storage_options storage;
    draft_options draft;
} cli_options;

// Groups for a list of argp children. Their doc is the heading that --help shows them under.
extern const struct argp options_model_argp;    // MODEL, or -m
extern const struct argp options_text_argp;     // -p, -f
extern const struct argp options_template_argp; // --raw, --template
extern const struct argp options_context_argp;  // --ctx
extern const struct argp options_budget_argp;   // --budget
extern const struct argp options_codec_argp;    // --kv, --kv-k, --kv-v, --kv-config
// --kv-group, --kv-start, --kv-first, --kv-last, --kv-residual, --kv-sinks, --kv-rotated-latents
extern const struct argp options_storage_argp;
extern const struct argp options_cache_argp;   // --cache, --store, --no-cache, ...
extern const struct argp options_draft_argp;   // --draft, --draft-tokens
extern const struct argp options_threads_argp; // -t
extern const struct argp options_json_argp;    // --json
extern const struct argp options_quiet_argp;   // --quiet

// Keys of options that have no letter. Those of a command's own begin at OPTIONS_KEY_COMMAND.
enum {
    OPTIONS_KEY_BUDGET = 256,
    OPTIONS_KEY_PRE,
    OPTIONS_KEY_RAW,
    OPTIONS_KEY_TEMPLATE,
    OPTIONS_KEY_STOP,
    OPTIONS_KEY_SYSTEM,
    OPTIONS_KEY_TEMPERATURE,
    OPTIONS_KEY_TOP_K,
    OPTIONS_KEY_TOP_P,
    OPTIONS_KEY_MIN_P,
    OPTIONS_KEY_REPEAT_PENALTY,
    OPTIONS_KEY_REPEAT_LAST_N,
    OPTIONS_KEY_PRESENCE_PENALTY,
    OPTIONS_KEY_FREQUENCY_PENALTY,
    OPTIONS_KEY_IGNORE_EOS,
    OPTIONS_KEY_NO_HISTORY,
    OPTIONS_KEY_LOGIT_BIAS,
    OPTIONS_KEY_JSON,
    OPTIONS_KEY_KV,
    OPTIONS_KEY_KV_K,
    OPTIONS_KEY_KV_V,
    OPTIONS_KEY_KV_GROUP,
    OPTIONS_KEY_KV_START,
    OPTIONS_KEY_KV_CONFIG,
    OPTIONS_KEY_KV_FIRST,
    OPTIONS_KEY_KV_LAST,
    OPTIONS_KEY_KV_RESIDUAL,
    OPTIONS_KEY_KV_SINKS,
    OPTIONS_KEY_KV_ROTATED_LATENTS,
    OPTIONS_KEY_CACHE,
    OPTIONS_KEY_CACHE_SIZE,
    OPTIONS_KEY_NO_CACHE,
    OPTIONS_KEY_STORE,
    OPTIONS_KEY_STORE_SIZE,
    OPTIONS_KEY_STORE_HOURS,
    OPTIONS_KEY_STORE_SECONDS,
    OPTIONS_KEY_STORE_CA,
    OPTIONS_KEY_STORE_CERT,
    OPTIONS_KEY_STORE_KEY,
    OPTIONS_KEY_DRAFT,
    OPTIONS_KEY_DRAFT_TOKENS,
    OPTIONS_KEY_COMMAND = 384
};

// Parses argv, whose first entry is the command's title ("kvern run"). Ends the program with code 0
// after help that was asked for, with code 2 after a message about wrong usage. `command` has
// options and a parser of its own (either may be missing) and the groups it takes as children;
// `options`, which every parser gets as its input, begins with a cli_options.
void options_parse(const struct argp *command, int argc, char **argv, cli_options *options);

// For parsers: reports wrong usage and ends the program with code 2.
void options_fail(const struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

// For parsers: an option's argument as a number in range; anything else is wrong usage.
uint64_t options_number(const struct argp_state *state, const char *name, const char *text,
                        uint64_t lowest, uint64_t highest);
// The same for a number from 0 to INT32_MAX that may be -1, which stands for `all`.
int64_t options_number_or_all(const struct argp_state *state, const char *name, const char *text,
                              const char *all);
float options_real(const struct argp_state *state, const char *name, const char *text,
                   double lowest, double highest);

#endif
