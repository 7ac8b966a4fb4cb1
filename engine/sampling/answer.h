// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_ANSWER_H
#define KVERN_ENGINE_ANSWER_H

// What becomes of the tokens of one answer: which of them end it, when it is too long, and the text
// to show of it. The generator (engine/generation/generate.h) and the scheduler
// (engine/generation/schedule.h) both sample and forward; this is what they share.
//
// An answer calls nobody: after answer_take and answer_flush its `shown` holds what is to be shown
// now.

#include "engine/base/error.h"
#include "engine/base/text_buffer.h"
#include "engine/base/utf8.h"
#include "engine/sampling/stop.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdatomic.h>

// Why a generation ended.
typedef enum generate_reason {
    GENERATE_END = 0,         // the model gave a token that ends its turn
    GENERATE_STOP_STRING = 1, // stop_matcher_found names it
    GENERATE_MAX_TOKENS = 2,
    GENERATE_CONTEXT = 3, // the sequence is as long as the context
    GENERATE_CANCELLED = 4
} generate_reason;

// "end of turn", "stop string", ...; static.
const char *generate_reason_name(generate_reason reason);

// Borrowed until the answer's end.
typedef struct answer_options {
    const tokenizer *tokenizer; // NULL: tokens without texts, none of which ends a turn
    stop_matcher *stop;         // NULL: none
    const atomic_bool *cancel;  // NULL: none
    int64_t max_tokens;         // most tokens; -1: no limit
    size_t context_length;      // most positions of the sequence
} answer_options;

// All zero is an answer that answer_begin may be called on.
typedef struct answer {
    answer_options options;
    size_t tokens;          // taken, the one that ended the turn excluded
    generate_reason reason; // why it ended, once it has
    utf8_stream characters;
    text_buffer passed; // bytes that no stop string holds back
    text_buffer shown;  // whole characters of them: to be shown now
} answer;

// Begins an answer of no tokens, and resets the stop matcher. Keeps the buffers of an earlier one.
void answer_begin(answer *a, const answer_options *options);

// Gives the buffers back. All zero is permitted.
void answer_free(answer *a);

// Whether `cancel` is set.
bool answer_cancelled(const answer *a);

// Whether the answer is over before another token is sampled, the sequence having `length` tokens:
// too many tokens, a full context, or cancelled, in this order; then a->reason says which.
bool answer_finished(answer *a, size_t length);

// Takes a sampled token in. *over: it ended the answer, and a->reason says why. Errors, for which
// the token counts all the same: KVERN_ERR_MEMORY, KVERN_ERR_OVERFLOW (of its text).
KVERN_CHECK kvern_status answer_take(answer *a, int32_t token, bool *over, engine_error *error);

// The answer is over: what stop strings and unfinished characters held back is to be shown. Same
// errors.
KVERN_CHECK kvern_status answer_flush(answer *a, engine_error *error);

#endif
