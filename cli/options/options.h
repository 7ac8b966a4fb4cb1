// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_OPTIONS_H
#define KVERN_CLI_OPTIONS_H

// The options that several commands share, each declared once: it means the same everywhere. A
// command lists the groups that it takes as argp children and parses with options_parse.

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORAGE_NAME 12 // bytes of a codec's name

// What the options of the KV cache's storage say (cli/options/storage_options.h). All zero is the
// state before parsing: bf16.
typedef struct storage_options {
    char k[STORAGE_NAME], v[STORAGE_NAME]; // names of codecs; empty: not given
    uint32_t group;                        // 0: not given
    bool has_start;
    int64_t start;
    const char *config; // a kv_config.json; NULL: none
    size_t first, last; // layers that stay in bf16
} storage_options;

// What the options about drafts say (cli/session/draft_options.h).
typedef struct draft_options {
    const char *source; // "ngram" or a file; NULL: no drafts
    size_t tokens;      // most in one forward pass; 0: not given
} draft_options;

// What the shared options say. Strings belong to argv. All zero is the state before parsing.
typedef struct cli_options {
    const char *model;
    size_t threads;            // 0: one per processor
    int64_t context;           // 0: the model's own context length
    uint64_t budget;           // 0: no limit
    bool raw;                  // --raw was given
    const char *template_name; // NULL: not given
    const char *prompt;        // NULL: not given
    const char *file;          // NULL: not given
    bool json;
    storage_options storage;
    draft_options draft;
    bool seen[512]; // by option key: given already
} cli_options;

// Groups for a list of argp children.
extern const struct argp options_model_argp;    // MODEL
extern const struct argp options_compute_argp;  // -t, --budget
extern const struct argp options_context_argp;  // --ctx
extern const struct argp options_template_argp; // --raw, --template
extern const struct argp options_text_argp;     // -p, --file
extern const struct argp options_json_argp;     // --json
extern const struct argp options_codec_argp;    // --kv, --kv-k, --kv-v, --kv-config
extern const struct argp options_storage_argp;  // --kv-group, --kv-start, --kv-first, --kv-last
extern const struct argp options_draft_argp;    // --draft, --draft-tokens

// Keys of options that have no letter. Those of a command's own begin at OPTIONS_KEY_COMMAND.
enum {
    OPTIONS_KEY_CONTEXT = 256,
    OPTIONS_KEY_BUDGET,
    OPTIONS_KEY_RAW,
    OPTIONS_KEY_TEMPLATE,
    OPTIONS_KEY_FILE,
    OPTIONS_KEY_STOP,
    OPTIONS_KEY_SYSTEM,
    OPTIONS_KEY_TEMPERATURE,
    OPTIONS_KEY_TOP_K,
    OPTIONS_KEY_TOP_P,
    OPTIONS_KEY_MIN_P,
    OPTIONS_KEY_SEED,
    OPTIONS_KEY_JSON,
    OPTIONS_KEY_KV,
    OPTIONS_KEY_KV_K,
    OPTIONS_KEY_KV_V,
    OPTIONS_KEY_KV_GROUP,
    OPTIONS_KEY_KV_START,
    OPTIONS_KEY_KV_CONFIG,
    OPTIONS_KEY_KV_FIRST,
    OPTIONS_KEY_KV_LAST,
    OPTIONS_KEY_DRAFT,
    OPTIONS_KEY_DRAFT_TOKENS,
    OPTIONS_KEY_COMMAND = 384
};

// Parses argv, whose first entry is the command's title ("kvern run"). Ends the program with code 0
// after help that was asked for, with code 2 after a message about wrong usage. Every parser's
// input is `options`: a command with options of its own embeds cli_options first in its struct.
void options_parse(const struct argp *argp, int argc, char **argv, cli_options *options);

// To be called by a command's parser at ARGP_KEY_INIT, with its own argp: hands its input to all
// its children.
void options_init(struct argp_state *state, const struct argp *argp);

// For parsers: reports wrong usage and ends the program with code 2.
void options_fail(const struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

// For parsers: refuses the second use of an option; `name` is how messages call it.
void options_once(const struct argp_state *state, int key, const char *name);

// For parsers: an option's argument as a number in range; anything else is wrong usage.
uint64_t options_number(const struct argp_state *state, const char *name, const char *text,
                        uint64_t lowest, uint64_t highest);
float options_real(const struct argp_state *state, const char *name, const char *text,
                   double lowest, double highest);

#endif
