// SPDX-License-Identifier: MIT
// Drafts by a model: what was not accepted leaves no trace in it, it stays within its context, and
// other vocabularies are refused.

#include "engine/draft_model.h"
#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <stdlib.h>
#include <string.h>

#define DRAFTS 6

typedef struct fixture {
    void *data;
    engine_fixture engine;
} fixture;

static fixture open_data(void *data, size_t bytes)
{
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.max_tokens = options.max_rows = 1;
    return (fixture){data, engine_fixture_open(&options)};
}

// A model with a vocabulary of bytes, and of `vocabulary` tokens in all.
static fixture open_llama(size_t vocabulary)
{
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    size_t bytes;
    options.vocabulary = vocabulary;
    options.byte_tokenizer = options.separate_output = true;
    void *data = tiny_llama_build(&options, &bytes);
    return open_data(data, bytes);
}

// A model with windows of 12 positions.
static fixture open_gemma(void)
{
    const tiny_gemma3 options = tiny_gemma3_default(GGUF_TYPE_F32);
    size_t bytes;
    void *data = tiny_gemma3_build(&options, &bytes);
    return open_data(data, bytes);
}

static void close_fixture(fixture *f)
{
    engine_fixture_close(&f->engine);
    free(f->data);
}

// Drafts of a model for itself, as if it were cheap.
static drafts *create_drafts(const fixture *f, size_t context_length)
{
    const draft_model_options options = {.context_length = context_length, .cost = 0.01f};
    drafts *d;
    assert_ok(draft_model_create(f->engine.model, f->engine.composition, f->engine.model, &options,
                                 &d, NULL));
    return d;
}

static sampler *create_sampler(const fixture *f)
{
    const sampler_options options = {.temperature = 2, .top_k = 50, .top_p = 1, .seed = 4};
    sampler *s;
    assert_ok(sampler_create(&options, f->engine.facts->vocabulary, &s, NULL));
    return s;
}

static size_t propose(drafts *d, const sampler *s, const int32_t *tokens, size_t count,
                      int32_t out[DRAFTS])
{
    const draft_request request = {.tokens = tokens, .count = count, .most = DRAFTS, .sampler = s};
    size_t proposed;
    assert_ok(drafts_propose(d, &request, out, &proposed, NULL));
    assert_true(proposed <= DRAFTS);
    return proposed;
}

// However many of its drafts were accepted, it goes on as one that has seen nothing but the
// sequence.
static void rejected_drafts_leave_no_trace(void **state)
{
    (void)state;
    fixture fixtures[] = {open_llama(260), open_gemma()};
    for (size_t i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        sampler *s = create_sampler(f);
        for (size_t accepted = 0; accepted <= DRAFTS; accepted++) {
            drafts *d = create_drafts(f, 0), *fresh = create_drafts(f, 0);
            int32_t tokens[64], out[DRAFTS], expected[DRAFTS];
            size_t count = 20;
            for (size_t t = 0; t < count; t++) {
                tokens[t] = 30 + (int32_t)(t * t % 41);
            }
            for (int round = 0; round < 3; round++) {
                const size_t proposed = propose(d, s, tokens, count, out);
                assert_true(proposed > 1);
                const size_t kept = accepted < proposed ? accepted : proposed;
                assert_ok(drafts_accept(d, kept, NULL));
                memcpy(tokens + count, out, kept * sizeof *out);
                count += kept;
                tokens[count++] = 90 + round; // the model's own
            }
            const size_t proposed = propose(d, s, tokens, count, out);
            assert_true(proposed > 0);
            // How many is a matter of what became of the others.
            const size_t wanted = propose(fresh, s, tokens, count, expected);
            const size_t common = proposed < wanted ? proposed : wanted;
            assert_memory_equal(out, expected, common * sizeof *out);
            drafts_destroy(d);
            drafts_destroy(fresh);
        }
        sampler_destroy(s);
        close_fixture(&fixtures[i]);
    }
}

// A sequence that was cut and goes on otherwise, within windows and past them.
static void trimmed_sequences_are_read_again(void **state)
{
    (void)state;
    fixture f = open_gemma();
    sampler *s = create_sampler(&f);
    for (size_t length = 0; length < 200; length += 33) {
        drafts *d = create_drafts(&f, 0), *fresh = create_drafts(&f, 0);
        int32_t tokens[200], out[DRAFTS], expected[DRAFTS];
        for (size_t t = 0; t < 200; t++) {
            tokens[t] = 30 + (int32_t)(t % 50);
        }
        assert_ok(drafts_read(d, tokens, 200, NULL));
        assert_ok(drafts_trim(d, length, NULL));
        tokens[length] = 99;
        assert_int_equal(propose(d, s, tokens, length + 1, out),
                         propose(fresh, s, tokens, length + 1, expected));
        assert_memory_equal(out, expected, sizeof out[0]);
        drafts_destroy(d);
        drafts_destroy(fresh);
    }
    sampler_destroy(s);
    close_fixture(&f);
}

// What has no place in its context is left out. A token that is proposed last needs none.
static void a_full_draft_model_proposes_nothing(void **state)
{
    (void)state;
    fixture f = open_llama(260);
    const int32_t tokens[12] = {30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41};
    static const size_t most[] = {[8] = 3, [9] = 2, [10] = 1, [11] = 0};
    sampler *s = create_sampler(&f);
    drafts *d = create_drafts(&f, 10);
    for (size_t count = 8; count <= 11; count++) {
        int32_t out[DRAFTS];
        const size_t proposed = propose(d, s, tokens, count, out);
        assert_int_equal(proposed, most[count]);
        if (proposed > 0) {
            assert_ok(drafts_accept(d, 0, NULL));
        }
    }
    assert_ok(drafts_read(d, tokens, 12, NULL));
    drafts_destroy(d);
    sampler_destroy(s);
    close_fixture(&f);
}

static void expect_refusal(const fixture *draft, const fixture *model, const char *reason)
{
    drafts *d;
    engine_error error;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  draft_model_create(draft->engine.model, draft->engine.composition,
                                     model->engine.model, NULL, &d, &error));
    assert_null(d);
    if (!strstr(error.text, reason)) {
        fail_msg("%s", error.text);
    }
}

static void other_vocabularies_are_refused(void **state)
{
    (void)state;
    fixture llama = open_llama(260), gemma = open_gemma();
    fixture same_size = open_llama(gemma.engine.facts->vocabulary);
    expect_refusal(&gemma, &llama, "a vocabulary of 274 tokens and the model one of 260");
    expect_refusal(&same_size, &gemma, "token 0 of the draft model is");
    close_fixture(&same_size);
    close_fixture(&gemma);
    close_fixture(&llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejected_drafts_leave_no_trace),
        cmocka_unit_test(trimmed_sequences_are_read_again),
        cmocka_unit_test(a_full_draft_model_proposes_nothing),
        cmocka_unit_test(other_vocabularies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
