// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_SESSION_H
#define KVERN_CLI_SESSION_H

// What `kvern run` works with: a loaded model, one sequence, how to sample, and how to show it.

#include "cli/io/progress.h"
#include "cli/options/options.h"
#include "cli/session/draft_options.h"
#include "cli/session/model_loading.h"
#include "cli/session/prefix_cache.h"

#include "engine/chat/chat.h"
#include "engine/generation/generate.h"

typedef struct session_options {
    cli_options common;
    sampler_options sampling;
    const char **stops; // owned
    size_t stop_count;
    logit_bias *biases; // owned; those of `sampling` are these
    bool ignore_eos;
    bool has_seed;      // somebody chose it
    int64_t max_tokens; // per answer; -1: no limit
    bool no_history;
    const char *system; // NULL: the template's own
} session_options;

typedef struct run_session {
    const session_options *options;
    loaded_model loaded;
    loaded_draft draft;
    chat_template *chat; // NULL: text is used as it is
    prefix_cache cache;  // with --cache
    generator *generator;
    logit_bias *biases; // of the sampler
    sampler *sampler;
    stop_matcher *stop;
    atomic_bool cancel; // set it to end the running answer

    progress bar;
    text_buffer answer;    // the text of the latest answer
    text_buffer shown;     // what a terminal gets of it now
    bool write_failed;     // stdout takes no more
    bool text_lost;        // there was no memory for all of it
    bool printable;        // stdout is a terminal: it gets no control characters
    generate_result last;  // of the latest answer
    generate_result total; // sums over all answers
} run_session;

// The template that prompts are written in: what --raw and --template say, else the file's own.
// *out NULL: text is used as it is. KVERN_ERR_UNSUPPORTED when a `conversation` or a system message
// needs one and there is none. What the template ends a turn with ends an answer of the model. On
// success *out is owned by the caller.
KVERN_CHECK kvern_status session_template(const session_options *options, model *model,
                                          bool conversation, chat_template **out,
                                          engine_error *error);

// Loads everything. On failure *session is all zero.
KVERN_CHECK kvern_status session_open(const session_options *options, run_session *session,
                                      engine_error *error);

// All zero is permitted.
void session_close(run_session *session);

// Continues the sequence with the tokens of a prompt and an answer, which is streamed to stdout
// unless --json was given.
KVERN_CHECK kvern_status session_answer(run_session *session, const token_buffer *prompt,
                                        engine_error *error);

// Prints speeds, the size of the KV cache and the way of sampling on stderr.
void session_print_facts(const run_session *session);

// Prints the latest answer and the same facts as one JSON object. Returns an exit code.
int session_print_json(const run_session *session);

#endif
