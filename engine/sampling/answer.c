// SPDX-License-Identifier: MIT
#include "engine/sampling/answer.h"

const char *generate_reason_name(generate_reason reason)
{
    switch (reason) {
    case GENERATE_END:
        return "end of turn";
    case GENERATE_STOP_STRING:
        return "stop string";
    case GENERATE_MAX_TOKENS:
        return "token limit";
    case GENERATE_CONTEXT:
        return "context full";
    case GENERATE_CANCELLED:
        return "cancelled";
    }
    return "unknown";
}

void answer_begin(answer *a, const answer_options *options)
{
    a->options = *options;
    a->tokens = 0;
    a->reason = GENERATE_END;
    a->characters = (utf8_stream){0};
    text_buffer_clear(&a->passed);
    text_buffer_clear(&a->shown);
    if (options->stop) {
        stop_matcher_reset(options->stop);
    }
}

void answer_free(answer *a)
{
    text_buffer_free(&a->passed);
    text_buffer_free(&a->shown);
}

bool answer_cancelled(const answer *a)
{
    return a->options.cancel && atomic_load_explicit(a->options.cancel, memory_order_relaxed);
}

bool answer_finished(answer *a, size_t length)
{
    if (a->options.max_tokens >= 0 && a->tokens >= (uint64_t)a->options.max_tokens) {
        a->reason = GENERATE_MAX_TOKENS;
    } else if (length >= a->options.context_length) {
        a->reason = GENERATE_CONTEXT;
    } else if (answer_cancelled(a)) {
        a->reason = GENERATE_CANCELLED;
    } else {
        return false;
    }
    return true;
}

static kvern_status fail_text(kvern_status status, engine_error *error)
{
    return engine_fail(error, status, "no memory for the text of a token");
}

// Makes whole characters of what has been passed on.
static kvern_status show(answer *a, engine_error *error)
{
    kvern_status status =
        utf8_stream_push(&a->characters, a->passed.data, a->passed.size, &a->shown);
    text_buffer_clear(&a->passed);
    return status == KVERN_OK ? KVERN_OK : fail_text(status, error);
}

// Takes in the text of a token. *stopped: a stop string is complete.
static kvern_status take_text(answer *a, int32_t token, bool *stopped, engine_error *error)
{
    const answer_options *options = &a->options;
    tokenizer_text piece = {NULL, 0};
    if (options->tokenizer) {
        piece = tokenizer_piece(options->tokenizer, token);
    }
    kvern_status status;
    *stopped = false;
    if (options->stop) {
        status = stop_matcher_push(options->stop, piece.data, piece.size, &a->passed, stopped);
    } else {
        status = text_buffer_append(&a->passed, piece.data, piece.size);
    }
    return status == KVERN_OK ? show(a, error) : fail_text(status, error);
}

kvern_status answer_take(answer *a, int32_t token, bool *over, engine_error *error)
{
    const tokenizer *tokenizer = a->options.tokenizer;
    text_buffer_clear(&a->shown);
    *over = tokenizer && tokenizer_is_end(tokenizer, token);
    if (*over) {
        a->reason = GENERATE_END;
        return KVERN_OK;
    }
    a->tokens++;
    kvern_status status = take_text(a, token, over, error);
    if (*over) {
        a->reason = GENERATE_STOP_STRING;
    }
    return status;
}

kvern_status answer_flush(answer *a, engine_error *error)
{
    kvern_status status = KVERN_OK;
    text_buffer_clear(&a->shown);
    if (a->options.stop) {
        status = stop_matcher_flush(a->options.stop, &a->passed);
    }
    if (status != KVERN_OK) {
        return fail_text(status, error);
    }
    status = show(a, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = utf8_stream_flush(&a->characters, &a->shown);
    return status == KVERN_OK ? KVERN_OK : fail_text(status, error);
}
