// SPDX-License-Identifier: MIT
// Generation: the same tokens as forwarding by hand, whatever the chunks and turns; every reason to
// stop; cancellation and failures that leave a sequence in order.

#include "engine/base/utf8.h"
#include "engine/generation/generate.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROMPT 30
#define REPLY 20
#define START 12 // of the storage that has one
#define VOCABULARY 260
#define LONG_CONTEXT 16384

// What a generation gave, gathered by its callbacks.
typedef struct record {
    int32_t tokens[LONG_CONTEXT];
    size_t count;
    text_buffer text;
    size_t prompt_calls;
    size_t prompt_done;
    atomic_bool cancel;
    size_t cancel_after; // tokens; 0: never
} record;

static void on_token(void *user, int32_t token)
{
    record *r = user;
    r->tokens[r->count++] = token;
    if (r->count == r->cancel_after) {
        atomic_store(&r->cancel, true);
    }
}

static void on_text(void *user, const char *text, size_t bytes)
{
    record *r = user;
    assert_true(bytes > 0);
    for (size_t at = 0, length; at < bytes; at += length) { // whole characters only
        assert_int_equal(utf8_next(text + at, bytes - at, &length), UTF8_VALID);
    }
    assert_int_equal(text_buffer_append(&r->text, text, bytes), KVERN_OK);
}

static void on_prompt(void *user, size_t done, size_t total)
{
    record *r = user;
    assert_true(done > r->prompt_done && done <= total);
    r->prompt_done = done;
    r->prompt_calls++;
}

// A model, a greedy sampler and a prompt.
typedef struct fixture {
    void *data;
    engine_fixture engine;
    sampler *sampler;
    int32_t prompt[PROMPT];
    int32_t reply[REPLY]; // what greedy forwarding by hand gives
} fixture;

static int32_t argmax(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < VOCABULARY; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

// The prompt in one window, or cut at `start` (0: nowhere), then token by token.
static void reply_by_hand(fixture *f, int64_t start)
{
    static float logits[PROMPT * VOCABULARY];
    const int64_t rest = PROMPT - start;
    kvern_state *state = engine_fixture_state(&f->engine, 1);
    if (start) {
        engine_fixture_forward(&f->engine, state, KVERN_PHASE_WINDOW, f->prompt, &start, logits);
    }
    engine_fixture_forward(&f->engine, state, KVERN_PHASE_WINDOW, f->prompt + start, &rest, logits);
    f->reply[0] = argmax(logits + (size_t)(rest - 1) * VOCABULARY);
    for (size_t i = 1; i < REPLY; i++) {
        engine_fixture_forward(&f->engine, state, KVERN_PHASE_DECODE, &f->reply[i - 1],
                               &(int64_t){1}, logits);
        f->reply[i] = argmax(logits);
    }
    kvern_state_destroy(state);
}

static fixture open_long_fixture(uint32_t end_token, size_t context_length, uint64_t budget_bytes)
{
    fixture f = {0};
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    engine_error error;
    model.vocabulary = VOCABULARY;
    model.byte_tokenizer = true;
    model.separate_output = true; // a tied one repeats its last token
    model.end_token = end_token;
    model.head_dim = 32; // which the smallest group of affine codes divides
    model.context_length = context_length;
    f.data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(f.data, bytes);
    options.context.budget_bytes = budget_bytes;
    f.engine = engine_fixture_open(&options);
    sampler_options greedy = sampler_default_options();
    assert_int_equal(sampler_create(&greedy, VOCABULARY, &f.sampler, &error), KVERN_OK);
    for (int i = 0; i < PROMPT; i++) {
        f.prompt[i] = 'a' + i * 7 % 26;
    }
    reply_by_hand(&f, 0);
    return f;
}

static fixture open_fixture(uint32_t end_token)
{
    return open_long_fixture(end_token, 512, 0);
}

static void close_fixture(fixture *f)
{
    sampler_destroy(f->sampler);
    engine_fixture_close(&f->engine);
    free(f->data);
}

static generator *make_generator(const fixture *f, size_t context_length, size_t chunk)
{
    generator_options options = {.context_length = context_length, .chunk = chunk};
    generator *g;
    engine_error error;
    assert_int_equal(generator_create(f->engine.model, f->engine.composition, &options, &g, &error),
                     KVERN_OK);
    return g;
}

static generate_request make_request(const fixture *f, record *r, int64_t max_tokens)
{
    return (generate_request){.tokens = f->prompt,
                              .count = PROMPT,
                              .max_tokens = max_tokens,
                              .sampler = f->sampler,
                              .cancel = &r->cancel,
                              .user = r,
                              .on_prompt = on_prompt,
                              .on_token = on_token,
                              .on_text = on_text};
}

static generate_result must_run(generator *g, const generate_request *request)
{
    generate_result result;
    engine_error error = {KVERN_OK, ""};
    if (generator_run(g, request, &result, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return result;
}

static void greedy_equals_forwarding_by_hand(void **state)
{
    (void)state;
    static const size_t chunks[] = {0, 1, 7, PROMPT};
    fixture f = open_fixture(TINY_LLAMA_END);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        record r = {0};
        generator *g = make_generator(&f, 0, chunks[i]);
        generate_request request = make_request(&f, &r, REPLY);
        generate_result result = must_run(g, &request);
        assert_int_equal(result.reason, GENERATE_MAX_TOKENS);
        assert_int_equal(r.count, REPLY);
        assert_memory_equal(r.tokens, f.reply, sizeof f.reply);
        assert_int_equal(result.generated_tokens, REPLY);
        assert_int_equal(result.decode_steps, REPLY - 1);
        assert_int_equal(result.prompt_tokens, PROMPT);
        assert_int_equal(r.prompt_done, PROMPT);
        size_t chunk = chunks[i] ? chunks[i] : SCHEDULE_CHUNK;
        assert_int_equal(r.prompt_calls, (PROMPT + chunk - 1) / chunk);
        assert_int_equal(generator_length(g), PROMPT + REPLY - 1);
        assert_true(generator_pending(g));
        text_buffer_free(&r.text);
        generator_destroy(g);
    }
    close_fixture(&f);
}

// Stores keys in 2 bits from START on; the reply by hand follows. Keys alone: valgrind runs this
// test, and takes the bits that slots of values share for unwritten (docs/TESTING.md).
static void store_from_a_start(fixture *f)
{
    kvern_storage storage = kvern_storage_default();
    engine_error error;
    storage.k = kvern_codec_affine(2, 32);
    storage.start = START;
    kvern_composition_release(f->engine.composition);
    assert_int_equal(model_composition(f->engine.facts, f->engine.context, &storage,
                                       &f->engine.composition, &error),
                     KVERN_OK);
    reply_by_hand(f, START);
}

// A prompt that crosses a start is converted there, however it is cut, and the reply follows.
static void a_start_is_where_it_is(void **state)
{
    (void)state;
    static const size_t chunks[] = {0, 1, 7, START, PROMPT};
    fixture f = open_fixture(TINY_LLAMA_END);
    int32_t exact[REPLY];
    memcpy(exact, f.reply, sizeof exact);
    store_from_a_start(&f);
    assert_memory_not_equal(f.reply, exact, sizeof exact);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        record r = {0};
        generator *g = make_generator(&f, 0, chunks[i]);
        generate_request request = make_request(&f, &r, REPLY);
        must_run(g, &request);
        assert_true(r.count > REPLY / 2); // it may end its turn
        assert_memory_equal(r.tokens, f.reply, r.count * sizeof *r.tokens);
        text_buffer_free(&r.text);
        generator_destroy(g);
    }
    close_fixture(&f);
}

// The text is that of the tokens, with faulty UTF-8 replaced.
static void text_is_that_of_the_tokens(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    record r = {0};
    generator *g = make_generator(&f, 0, 0);
    generate_request request = make_request(&f, &r, REPLY);
    must_run(g, &request);
    text_buffer expected = TEXT_BUFFER_INIT;
    utf8_stream stream = {0};
    for (size_t i = 0; i < REPLY; i++) {
        tokenizer_text piece = tokenizer_piece(model_tokenizer(f.engine.model), f.reply[i]);
        assert_int_equal(utf8_stream_push(&stream, piece.data, piece.size, &expected), KVERN_OK);
    }
    assert_int_equal(utf8_stream_flush(&stream, &expected), KVERN_OK);
    assert_true(expected.size > 0);
    assert_int_equal(r.text.size, expected.size);
    assert_memory_equal(r.text.data, expected.data, expected.size);
    text_buffer_free(&expected);
    text_buffer_free(&r.text);
    generator_destroy(g);
    close_fixture(&f);
}

// Going on without a new prompt gives what one long generation gives, and forwards only the token
// that waited.
static void turns_continue_where_they_ended(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    record r = {0};
    generator *g = make_generator(&f, 0, 0);
    generate_request request = make_request(&f, &r, 5);
    must_run(g, &request);
    request.count = 0;
    for (int i = 0; i < 3; i++) {
        r.prompt_done = 0;
        generate_result result = must_run(g, &request);
        assert_int_equal(result.prompt_tokens, 1);
    }
    assert_int_equal(r.count, REPLY);
    assert_memory_equal(r.tokens, f.reply, sizeof f.reply);

    // A new prompt after the turns equals all of it in one prompt.
    int32_t whole[2 * PROMPT + REPLY];
    memcpy(whole, f.prompt, sizeof f.prompt);
    memcpy(whole + PROMPT, f.reply, sizeof f.reply);
    memcpy(whole + PROMPT + REPLY, f.prompt, sizeof f.prompt);
    record second = {0};
    request = make_request(&f, &second, REPLY);
    generate_result result = must_run(g, &request);
    assert_int_equal(result.prompt_tokens, PROMPT + 1);

    record fresh = {0};
    assert_int_equal(generator_reset(g, NULL), KVERN_OK);
    assert_int_equal(generator_length(g), 0);
    request = make_request(&f, &fresh, REPLY);
    request.tokens = whole;
    request.count = sizeof whole / sizeof whole[0];
    must_run(g, &request);
    assert_memory_equal(second.tokens, fresh.tokens, REPLY * sizeof *fresh.tokens);
    text_buffer_free(&r.text);
    text_buffer_free(&second.text);
    text_buffer_free(&fresh.text);
    generator_destroy(g);
    close_fixture(&f);
}

static void the_end_token_ends(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    int32_t reply[REPLY];
    memcpy(reply, f.reply, sizeof reply);
    close_fixture(&f);
    size_t at = 0;
    for (size_t i = 0; i < REPLY; i++) { // the token that comes first the latest
        size_t first = 0;
        while (reply[first] != reply[i]) {
            first++;
        }
        at = first > at ? first : at;
    }
    f = open_fixture((uint32_t)reply[at]);
    record r = {0};
    generator *g = make_generator(&f, 0, 0);
    generate_request request = make_request(&f, &r, -1);
    generate_result result = must_run(g, &request);
    assert_int_equal(result.reason, GENERATE_END);
    assert_int_equal(result.generated_tokens, at);
    assert_int_equal(r.count, at + 1); // told to the caller, but neither counted nor kept
    assert_false(generator_pending(g));
    assert_int_equal(generator_length(g), PROMPT + (int64_t)at);
    text_buffer_free(&r.text);
    generator_destroy(g);
    close_fixture(&f);
}

static void a_stop_string_ends(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    const tokenizer *tokenizer = model_tokenizer(f.engine.model);
    char stop[16] = "";
    size_t last = REPLY / 2;
    for (size_t i = last - 2; i <= last; i++) { // it spans three tokens
        tokenizer_text piece = tokenizer_piece(tokenizer, f.reply[i]);
        memcpy(stop + strlen(stop), piece.data, piece.size);
    }
    record r = {0}, whole = {0};
    generator *g = make_generator(&f, 0, 0);
    generate_request request = make_request(&f, &whole, REPLY);
    must_run(g, &request);
    assert_int_equal(generator_reset(g, NULL), KVERN_OK);
    request = make_request(&f, &r, -1);
    assert_int_equal(stop_matcher_create((const char *[]){stop}, 1, &request.stop, NULL), KVERN_OK);
    generate_result result = must_run(g, &request);
    assert_int_equal(result.reason, GENERATE_STOP_STRING);
    assert_string_equal(stop_matcher_found(request.stop), stop);
    assert_true(result.generated_tokens <= last + 1);
    assert_true(result.generated_tokens >= 3);
    assert_true(r.text.size < whole.text.size);
    if (r.text.size > 0) {
        assert_memory_equal(r.text.data, whole.text.data, r.text.size);
    }
    stop_matcher_destroy(request.stop);
    text_buffer_free(&r.text);
    text_buffer_free(&whole.text);
    generator_destroy(g);
    close_fixture(&f);
}

static void the_context_is_a_limit(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    record r = {0};
    generator *g = make_generator(&f, PROMPT + 4, 0);
    generate_request request = make_request(&f, &r, -1);
    generate_result result = must_run(g, &request);
    assert_int_equal(result.reason, GENERATE_CONTEXT);
    assert_int_equal(result.generated_tokens, 4);
    assert_memory_equal(r.tokens, f.reply, 4 * sizeof *f.reply);
    engine_error error;
    int64_t length = generator_length(g);
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_ERR_RANGE);
    assert_non_null(strstr(error.text, "context"));
    assert_int_equal(generator_length(g), length);
    generator_destroy(g);
    generator_options options = {.context_length = 513};
    assert_int_equal(generator_create(f.engine.model, f.engine.composition, &options, &g, &error),
                     KVERN_ERR_RANGE);
    assert_null(g);
    text_buffer_free(&r.text);
    close_fixture(&f);
}

static void cancelling_keeps_order(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    record r = {.cancel = true};
    generator *g = make_generator(&f, 0, 8);
    generate_request request = make_request(&f, &r, REPLY);
    generate_result result = must_run(g, &request);
    assert_int_equal(result.reason, GENERATE_CANCELLED);
    assert_int_equal(generator_length(g), 0);

    r = (record){.cancel_after = 6};
    request = make_request(&f, &r, REPLY);
    result = must_run(g, &request);
    assert_int_equal(result.reason, GENERATE_CANCELLED);
    assert_int_equal(r.count, 6);
    r.cancel = false;
    r.cancel_after = 0;
    r.prompt_done = 0;
    request = make_request(&f, &r, REPLY - 6); // and on
    request.count = 0;
    must_run(g, &request);
    assert_memory_equal(r.tokens, f.reply, sizeof f.reply);
    text_buffer_free(&r.text);
    generator_destroy(g);
    close_fixture(&f);
}

static atomic_bool cancel_midway;

static void cancel_in_prompt(void *user, size_t done, size_t total)
{
    (void)user;
    (void)total;
    atomic_store(&cancel_midway, done >= 16);
}

// A prompt is forwarded whole or not at all, and what waited before it still waits.
static void a_prompt_that_ends_early_leaves_nothing(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    record r = {0};
    generator *g = make_generator(&f, 0, 8);
    generate_request request = make_request(&f, &r, 6);
    must_run(g, &request);
    int64_t length = generator_length(g);

    request.on_prompt = cancel_in_prompt;
    request.cancel = &cancel_midway;
    generate_result result = must_run(g, &request);
    assert_int_equal(result.reason, GENERATE_CANCELLED);
    assert_int_equal(result.prompt_tokens, 0);
    assert_int_equal(generator_length(g), length);

    engine_error error;
    f.prompt[PROMPT - 1] = VOCABULARY;
    request.on_prompt = NULL;
    request.cancel = NULL;
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_ERR_RANGE);
    assert_int_equal(generator_length(g), length);

    assert_true(generator_pending(g));
    request.count = 0;
    request.max_tokens = REPLY - 6;
    must_run(g, &request);
    assert_memory_equal(r.tokens, f.reply, sizeof f.reply);
    text_buffer_free(&r.text);
    generator_destroy(g);
    close_fixture(&f);
}

static void cancel_at_once(void *user, size_t done, size_t total)
{
    (void)user;
    (void)done;
    (void)total;
    atomic_store(&cancel_midway, true);
}

// A prompt that is cancelled behind the start of a layer leaves no conversion behind: whether the
// sequence was empty, or has some tokens that are not at the start yet.
static void a_cancelled_prompt_leaves_no_conversion(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    store_from_a_start(&f);
    for (size_t before = 0; before < START; before += 5) {
        record r = {0};
        generator *g = make_generator(&f, 0, 0);
        generate_request request = make_request(&f, &r, 0);
        request.count = before;
        if (before) {
            must_run(g, &request);
        }
        r.prompt_done = 0;
        request = make_request(&f, &r, REPLY);
        request.tokens += before;
        request.count -= before;
        request.on_prompt = cancel_at_once;
        request.cancel = &cancel_midway;
        atomic_store(&cancel_midway, false);
        assert_int_equal(must_run(g, &request).reason, GENERATE_CANCELLED);
        assert_int_equal(generator_length(g), before);
        assert_false(kvern_cache_converted(kvern_state_cache(generator_state(g), 0), 0));
        request.on_prompt = on_prompt;
        request.cancel = NULL;
        must_run(g, &request);
        assert_memory_equal(r.tokens, f.reply, r.count * sizeof *r.tokens);
        text_buffer_free(&r.text);
        generator_destroy(g);
    }
    close_fixture(&f);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    fixture f = open_fixture(TINY_LLAMA_END);
    record r = {0};
    generator *g = make_generator(&f, 0, 0);
    generate_request request = make_request(&f, &r, 1);
    generate_result result;
    engine_error error;
    request.count = 0;
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_ERR_ARGUMENT);
    request = make_request(&f, &r, 1);
    request.sampler = NULL;
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_ERR_ARGUMENT);
    request.max_tokens = 0; // the prompt alone needs no sampler
    result = must_run(g, &request);
    assert_int_equal(result.generated_tokens, 0);
    assert_int_equal(generator_length(g), PROMPT);
    generator_destroy(g);
    close_fixture(&f);
}

// A budget that cannot hold all of the answer is noticed before anything is forwarded; one that it
// does hold is enough.
static void a_budget_is_looked_at_first(void **state)
{
    (void)state;
    fixture f = open_long_fixture(TINY_LLAMA_END, LONG_CONTEXT, 0);
    kvern_memory memory = {.size = sizeof memory};
    assert_int_equal(kvern_context_memory(f.engine.context, &memory), KVERN_OK);
    close_fixture(&f);
    // What the short reply needed, and not enough for the whole context's 8 MB.
    f = open_long_fixture(TINY_LLAMA_END, LONG_CONTEXT, memory.peak_bytes + (1 << 20));
    static record r;
    generator *g = make_generator(&f, 0, 0);
    generate_request request = make_request(&f, &r, -1);
    generate_result result;
    engine_error error;
    assert_int_equal(generator_run(g, &request, &result, &error), KVERN_ERR_BUDGET);
    assert_non_null(strstr(error.text, "budget"));
    assert_int_equal(result.generated_tokens + r.count + r.prompt_calls, 0);
    assert_int_equal(generator_length(g), 0);
    request.max_tokens = REPLY;
    must_run(g, &request);
    assert_memory_equal(r.tokens, f.reply, sizeof f.reply);
    text_buffer_free(&r.text);
    generator_destroy(g);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_equals_forwarding_by_hand),
        cmocka_unit_test(a_start_is_where_it_is),
        cmocka_unit_test(text_is_that_of_the_tokens),
        cmocka_unit_test(turns_continue_where_they_ended),
        cmocka_unit_test(the_end_token_ends),
        cmocka_unit_test(a_stop_string_ends),
        cmocka_unit_test(the_context_is_a_limit),
        cmocka_unit_test(cancelling_keeps_order),
        cmocka_unit_test(a_prompt_that_ends_early_leaves_nothing),
        cmocka_unit_test(a_cancelled_prompt_leaves_no_conversion),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(a_budget_is_looked_at_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
