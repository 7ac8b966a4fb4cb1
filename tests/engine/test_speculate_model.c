// SPDX-License-Identifier: MIT
// Speculative decoding on a real model, the file that KVERN_TEST_MODEL names: the same tokens with
// drafts as without, and a model that drafts for itself is always right.

#include "engine/generation/generate.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/draft_ngram.h"
#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/real_model.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS 64
#define PLAIN_TOKENS 6 // the plain kernels take their time

static const char TEXT[] = "one two three four five one two three four five one two three";

typedef struct record {
    int32_t tokens[TOKENS];
    size_t count;
    generate_result result;
} record;

static void on_token(void *user, int32_t token)
{
    record *r = user;
    r->tokens[r->count++] = token;
}

static record run(const engine_fixture *f, drafts *d, const token_buffer *prompt, float temperature)
{
    const bool fast = kvern_cpu_features() != 0 || check_is_long();
    const generator_options options = {.context_length = 256, .drafts = d};
    const sampler_options sampling = {
        .temperature = temperature, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 5};
    record r = {0};
    generator *g;
    sampler *s;
    assert_ok(sampler_create(&sampling, f->facts->vocabulary, &s, NULL));
    assert_ok(generator_create(f->model, f->composition, &options, &g, NULL));
    const generate_request request = {.tokens = prompt->ids,
                                      .count = prompt->count,
                                      .max_tokens = fast ? TOKENS : PLAIN_TOKENS,
                                      .sampler = s,
                                      .user = &r,
                                      .on_token = on_token};
    assert_ok(generator_run(g, &request, &r.result, NULL));
    assert_int_equal(kvern_state_length(generator_state(g), 0), generator_length(g));
    generator_destroy(g);
    sampler_destroy(s);
    drafts_destroy(d);
    return r;
}

static void check_same(const record *plain, const record *drafted)
{
    assert_int_equal(drafted->count, plain->count);
    assert_memory_equal(drafted->tokens, plain->tokens, plain->count * sizeof *plain->tokens);
    assert_int_equal(drafted->result.reason, plain->result.reason);
}

static void drafts_change_no_token(void **state)
{
    (void)state;
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    options.path = real_model_path("KVERN_TEST_MODEL");
    options.kv = KVERN_BF16;
    engine_fixture f = engine_fixture_open(&options);
    token_buffer prompt = TOKEN_BUFFER_INIT;
    assert_ok(tokenizer_encode(model_tokenizer(f.model), TEXT, strlen(TEXT), 0, &prompt, NULL));
    for (int greedy = 0; greedy < 2; greedy++) {
        const float temperature = greedy ? 0 : 0.8f;
        // A model of the same size would not be worth it; as if it were smaller.
        const draft_model_options cheap = {.cost = 0.05f};
        drafts *own, *ngram;
        assert_ok(draft_model_create(f.model, f.composition, f.model, &cheap, &own, NULL));
        assert_ok(draft_ngram_create(1, 256, &ngram, NULL));
        const record plain = run(&f, NULL, &prompt, temperature);
        const record by_itself = run(&f, own, &prompt, temperature);
        const record by_ngram = run(&f, ngram, &prompt, temperature);
        check_same(&plain, &by_itself);
        check_same(&plain, &by_ngram);
        const draft_counts counts = by_itself.result.drafts;
        assert_true(counts.drafted > 0);
        assert_true(plain.result.reason == GENERATE_END || counts.accepted == counts.drafted);
        assert_true(by_ngram.result.drafts.drafted > 0);
        assert_true(!greedy || by_ngram.result.drafts.accepted > 0);
    }
    token_buffer_free(&prompt);
    engine_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_change_no_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
