// SPDX-License-Identifier: MIT
#include "cli/batch/batch_fingerprint.h"

#include "cli/io/text.h"
#include "cli/options/storage_options.h"
#include "cli/session/model_fingerprint.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static kvern_status add(text_buffer *facts, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return text_buffer_append(facts, line,
                              (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

// A text of any length, so that no two lists of texts look alike.
static kvern_status add_text(text_buffer *facts, const char *name, const char *text)
{
    kvern_status status = add(facts, "%s %zd ", name, text ? (ssize_t)strlen(text) : (ssize_t)-1);
    if (status == KVERN_OK && text) {
        status = text_buffer_append(facts, text, strlen(text));
    }
    return status == KVERN_OK ? text_buffer_append(facts, "\n", 1) : status;
}

static kvern_status add_sampling(text_buffer *facts, const session_options *options)
{
    const sampler_options *s = &options->sampling;
    const penalty_options *p = &s->penalties;
    kvern_status status =
        add(facts, "filters %a %" PRIu32 " %a %a\npenalties %a %a %a %zu\n", (double)s->temperature,
            s->top_k, (double)s->top_p, (double)s->min_p, (double)p->repeat, (double)p->presence,
            (double)p->frequency, p->window);
    if (status == KVERN_OK && options->has_seed) {
        status = add(facts, "seed %" PRIu64 "\n", s->seed);
    }
    for (size_t i = 0; status == KVERN_OK && i < s->bias_count; i++) {
        status = add(facts, "bias %d %a\n", (int)s->biases[i].token, (double)s->biases[i].bias);
    }
    return status;
}

static kvern_status add_answer(text_buffer *facts, const session_options *options,
                               const chat_template *chat)
{
    kvern_status status =
        add(facts, "answer %" PRId64 " %d\n", options->max_tokens, (int)options->ignore_eos);
    if (status == KVERN_OK) {
        status = add_text(facts, "template", chat ? chat_template_name(chat) : NULL);
    }
    if (status == KVERN_OK) {
        status = add_text(facts, "system", options->system);
    }
    for (size_t i = 0; status == KVERN_OK && i < options->stop_count; i++) {
        status = add_text(facts, "stop", options->stops[i]);
    }
    return status;
}

// Signatures say how a layer is stored, whatever option said so.
static kvern_status add_storage(text_buffer *facts, const loaded_model *loaded)
{
    const kvern_composition *plan = loaded->composition;
    kvern_status status =
        add(facts, "arithmetic %s\ncontext %zu\n", MODEL_ARITHMETIC, loaded->context_length);
    for (size_t l = 0; status == KVERN_OK && l < kvern_composition_layers(plan); l++) {
        status = add_text(facts, "layer", kvern_composition_signature(plan, l));
        if (status == KVERN_OK) {
            status = add(facts, "start %" PRId64 "\n", kvern_composition_layer(plan, l)->start);
        }
    }
    return status;
}

kvern_status batch_fingerprint(const session_options *options, const loaded_model *loaded,
                               const chat_template *chat, char text[BATCH_FINGERPRINT_TEXT],
                               engine_error *error)
{
    text_buffer facts = TEXT_BUFFER_INIT;
    XXH3_state_t *hash = XXH3_createState();
    kvern_status status = hash ? add_sampling(&facts, options) : KVERN_ERR_MEMORY;
    if (status == KVERN_OK) {
        status = add_answer(&facts, options, chat);
    }
    if (status == KVERN_OK) {
        status = add_storage(&facts, loaded);
    }
    if (status != KVERN_OK) {
        status = engine_fail(error, status, "no memory for the job");
    } else {
        XXH3_64bits_reset(hash);
        XXH3_64bits_update(hash, facts.data, facts.size);
        status = model_fingerprint_add(hash, options->common.model, false, error);
    }
    if (status == KVERN_OK) {
        snprintf(text, BATCH_FINGERPRINT_TEXT, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(hash));
    }
    XXH3_freeState(hash);
    text_buffer_free(&facts);
    return status;
}
