// SPDX-License-Identifier: MIT
#include "cli/session/session.h"

#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/io/text.h"
#include "cli/options/prompt.h"
#include "cli/options/storage_options.h"
#include "cli/session/sampling_options.h"

#include "engine/sampling/biases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A model without a template was not made to converse: it continues a text.
static kvern_status choose_completion(const session_options *options, bool conversation,
                                      engine_error *error)
{
    if (!conversation && !options->system) {
        return KVERN_OK;
    }
    return load_name_file(
        &options->common,
        engine_fail(error, KVERN_ERR_UNSUPPORTED,
                    "this file has no chat template, so its model continues a text (-p TEXT) and "
                    "cannot handle a %s; --template NAME makes it try",
                    conversation ? "conversation" : "system message"),
        error);
}

static kvern_status find_template(const session_options *options, const model *model,
                                  bool conversation, chat_template **out, engine_error *error)
{
    text_view text;
    const tokenizer *tokens = model_tokenizer(model);
    *out = NULL;
    if (options->common.raw) {
        return KVERN_OK;
    }
    if (options->common.template_name) {
        return chat_template_find(options->common.template_name, tokens, out, error);
    }
    if (!model_chat_template(model, &text)) {
        return choose_completion(options, conversation, error);
    }
    return load_name_file(&options->common, chat_template_of_text(text, tokens, out, error), error);
}

kvern_status session_template(const session_options *options, model *model, bool conversation,
                              chat_template **out, engine_error *error)
{
    kvern_status status = find_template(options, model, conversation, out, error);
    if (status == KVERN_OK && *out) {
        model_add_end(model, chat_turn_end(*out, model_tokenizer(model)));
    }
    return status;
}

static kvern_status make_generator(run_session *session, engine_error *error)
{
    const draft_options *draft = &session->options->common.draft;
    kvern_status status =
        load_draft(&session->options->common, &session->loaded, &session->draft, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (session->options->common.cache || session->options->common.store) {
        status =
            prefix_cache_open(&session->options->common, &session->loaded, &session->cache, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    generator_options options = {.context_length = session->loaded.context_length,
                                 .drafts = session->draft.drafts,
                                 .draft_tokens = draft->tokens,
                                 .store = session->cache.store,
                                 .disk = session->cache.disk,
                                 .remote = session->cache.remote,
                                 .store_key = session->cache.key};
    return generator_create(session->loaded.model, session->loaded.composition, &options,
                            &session->generator, error);
}

static kvern_status make_sampling(run_session *session, engine_error *error)
{
    const session_options *options = session->options;
    const tokenizer *tokens = model_tokenizer(session->loaded.model);
    size_t vocabulary = model_get_facts(session->loaded.model)->vocabulary;
    sampler_options sampling = options->sampling;
    if (!sampling_biases(sampling.biases, sampling.bias_count, options->ignore_eos ? tokens : NULL,
                         &session->biases, &sampling.bias_count)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to sample with");
    }
    sampling.biases = session->biases;
    kvern_status status = sampler_create(&sampling, vocabulary, &session->sampler, error);
    if (status != KVERN_OK) {
        return status;
    }
    return stop_matcher_create(options->stops, options->stop_count, &session->stop, error);
}

kvern_status session_open(const session_options *options, run_session *session, engine_error *error)
{
    *session = (run_session){.options = options, .printable = isatty(STDOUT_FILENO)};
    kvern_status status = check_draft(&options->common, error);
    if (status == KVERN_OK) {
        status = load_model(&options->common, &session->loaded, error);
    }
    if (status == KVERN_OK && !model_tokenizer(session->loaded.model)) {
        status =
            engine_fail(error, KVERN_ERR_UNSUPPORTED, "%s has no tokenizer", options->common.model);
    }
    if (status == KVERN_OK) {
        status = session_template(options, session->loaded.model,
                                  prompt_is_missing(&options->common), &session->chat, error);
    }
    if (status == KVERN_OK) {
        status = make_sampling(session, error);
    }
    if (status == KVERN_OK) {
        status = make_generator(session, error);
    }
    if (status != KVERN_OK) {
        session_close(session);
    }
    return status;
}

void session_close(run_session *session)
{
    generator_destroy(session->generator);
    prefix_cache_close(&session->cache);
    unload_draft(&session->draft);
    stop_matcher_destroy(session->stop);
    sampler_destroy(session->sampler);
    free(session->biases);
    chat_template_destroy(session->chat);
    text_buffer_free(&session->answer);
    text_buffer_free(&session->shown);
    unload_model(&session->loaded);
    *session = (run_session){0};
}

static void show_prompt_progress(void *user, size_t done, size_t total)
{
    run_session *session = user;
    progress_update(&session->bar, done, total);
}

static void end_prompt_progress(void *user, int32_t token)
{
    (void)token;
    run_session *session = user;
    progress_end(&session->bar);
}

static void show_text(run_session *session, const char *text, size_t bytes)
{
    if (!session->printable) {
        session->write_failed = !report_write(text, bytes);
        return;
    }
    text_buffer *shown = &session->shown;
    text_buffer_clear(shown);
    if (text_append_printable(shown, text, bytes) != KVERN_OK) {
        session->text_lost = true;
    } else {
        session->write_failed = !report_write(shown->data, shown->size);
    }
}

// A reader that is gone, a full disk or a lack of memory ends the answer.
static void stream_text(void *user, const char *text, size_t bytes)
{
    run_session *session = user;
    if (!session->options->common.json && !session->write_failed) {
        show_text(session, text, bytes);
    }
    if (text_buffer_append(&session->answer, text, bytes) != KVERN_OK) {
        session->text_lost = true;
    }
    if (session->write_failed || session->text_lost) {
        atomic_store(&session->cancel, true);
    }
}

static void add_up(run_session *session)
{
    generate_result *total = &session->total;
    const generate_result *last = &session->last;
    total->prompt_tokens += last->prompt_tokens;
    total->prompt_seconds += last->prompt_seconds;
    total->generated_tokens += last->generated_tokens;
    total->decode_steps += last->decode_steps;
    total->decode_tokens += last->decode_tokens;
    total->decode_seconds += last->decode_seconds;
    total->drafts.rounds += last->drafts.rounds;
    total->drafts.drafted += last->drafts.drafted;
    total->drafts.accepted += last->drafts.accepted;
}

kvern_status session_answer(run_session *session, const token_buffer *prompt, engine_error *error)
{
    generate_request request = {
        .tokens = prompt->ids,
        .count = prompt->count,
        .max_tokens = session->options->max_tokens,
        .sampler = session->sampler,
        .stop = session->stop,
        .cancel = &session->cancel,
        .user = session,
        .on_prompt = show_prompt_progress,
        .on_token = end_prompt_progress,
        .on_text = stream_text,
    };
    text_buffer_clear(&session->answer);
    session->text_lost = false;
    session->bar = progress_start("prompt", "tokens");
    kvern_status status = generator_run(session->generator, &request, &session->last, error);
    progress_end(&session->bar);
    add_up(session);
    if (status == KVERN_OK) { // else no answer has ended
        session->total.reason = session->last.reason;
    }
    const text_buffer *answer = &session->answer;
    bool open = answer->size > 0 && answer->data[answer->size - 1] != '\n';
    if (open && !session->options->common.json && !session->write_failed) {
        session->write_failed = !report_write("\n", 1);
    }
    if (status == KVERN_OK && session->text_lost) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the text of the answer");
    }
    return status;
}

// What of the latest sequence was not computed again, and why it was no more.
static void print_reuse(const run_session *session)
{
    const generate_result *last = &session->last;
    if (session->cache.store) {
        fprintf(stderr, "reused      %zu %s%s; %s\n", last->reused_tokens,
                number_noun(last->reused_tokens, "token", "tokens"),
                last->from_remote ? " from the shared store"
                : last->from_disk ? " from the directory"
                                  : "",
                last->why ? last->why : "");
    }
}

static void print_drafts(const run_session *session)
{
    const generate_result *total = &session->total;
    if (!session->draft.drafts) {
        return;
    }
    fprintf(stderr, "drafts      %zu of %zu accepted in %zu rounds, %.2f tokens per step (%s)\n",
            total->drafts.accepted, total->drafts.drafted, total->drafts.rounds,
            total->decode_steps ? (double)total->decode_tokens / (double)total->decode_steps : 0,
            session->options->common.draft.source);
}

void session_print_facts(const run_session *session)
{
    const generate_result *total = &session->total;
    char bytes[NUMBER_BYTES_TEXT];
    uint64_t kv_bytes = kvern_state_bytes(generator_state(session->generator));
    fprintf(stderr, "prompt      %zu %s in %.2f s, %.1f tokens/s\n", total->prompt_tokens,
            number_noun(total->prompt_tokens, "token", "tokens"), total->prompt_seconds,
            number_per_second(total->prompt_tokens, total->prompt_seconds));
    const bool generates = session->options->max_tokens != 0;
    if (generates) {
        fprintf(stderr, "generation  %zu %s in %.2f s, %.1f tokens/s (%s)\n",
                total->generated_tokens, number_noun(total->generated_tokens, "token", "tokens"),
                total->decode_seconds,
                number_per_second(total->decode_tokens, total->decode_seconds),
                generate_reason_name(total->reason));
    }
    print_reuse(session);
    print_drafts(session);
    char storage[STORAGE_TEXT];
    fprintf(stderr, "KV cache    %" PRIu64 " bytes (%s) of %s, %" PRId64 " of %zu positions\n",
            kv_bytes, number_format_bytes(kv_bytes, bytes),
            storage_text(&session->options->common.storage, model_get_facts(session->loaded.model),
                         storage),
            generator_length(session->generator), session->loaded.context_length);
    if (generates) {
        sampling_print(&session->options->sampling);
    }
}

// null without drafts.
static json_t *drafts_json(const run_session *session)
{
    const generate_result *last = &session->last;
    if (!session->draft.drafts) {
        return json_null();
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:I}", "source",
                     json_text(session->options->common.draft.source,
                               strlen(session->options->common.draft.source)),
                     "drafted", (json_int_t)last->drafts.drafted, "accepted",
                     (json_int_t)last->drafts.accepted, "rounds", (json_int_t)last->drafts.rounds,
                     "steps", (json_int_t)last->decode_steps);
}

// The store that the latest sequence began with; NULL: none.
static const char *session_reused_from(const generate_result *last)
{
    if (last->reused_tokens == 0 || !last->why) {
        return NULL;
    }
    return last->from_remote ? "shared store" : last->from_disk ? "directory" : "memory";
}

int session_print_json(const run_session *session)
{
    const generate_result *last = &session->last;
    const sampler_options *sampling = &session->options->sampling;
    char storage[STORAGE_TEXT];
    uint64_t kv_bytes = kvern_state_bytes(generator_state(session->generator));
    json_t *object = json_object();
    json_put(&object, "text", json_text(session->answer.data, session->answer.size));
    json_put_text(&object, "finish", generate_reason_name(last->reason));
    json_put_size(&object, "prompt_tokens", last->prompt_tokens);
    json_put_size(&object, "reused_tokens", last->reused_tokens);
    json_put_text(&object, "reuse_reason", last->why);
    json_put_text(&object, "reused_from", session_reused_from(last));
    json_put_real(&object, "prompt_seconds", last->prompt_seconds);
    json_put_real(&object, "prompt_tokens_per_s",
                  number_per_second(last->prompt_tokens, last->prompt_seconds));
    json_put_size(&object, "generated_tokens", last->generated_tokens);
    json_put_real(&object, "generation_seconds", last->decode_seconds);
    json_put_real(&object, "generation_tokens_per_s",
                  number_per_second(last->decode_tokens, last->decode_seconds));
    json_put_text(&object, "kv",
                  storage_text(&session->options->common.storage,
                               model_get_facts(session->loaded.model), storage));
    json_put_size(&object, "kv_bytes", kv_bytes);
    json_put_size(&object, "kv_positions", (uint64_t)generator_length(session->generator));
    json_put_size(&object, "context", session->loaded.context_length);
    json_put_text(&object, "template", session->chat ? chat_template_name(session->chat) : NULL);
    json_put_float(&object, "temperature", sampling->temperature);
    json_put_size(&object, "seed", sampling->seed);
    json_put(&object, "drafts", drafts_json(session));
    return json_print(object);
}
