// SPDX-License-Identifier: MIT
// The scheduler on a real model, the file that KVERN_TEST_MODEL names: every answer is that of its
// request alone, with drafts and without.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/real_model.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 256

#define COUNTING "one two three four five one two three four five one two three four five one two"

static const char *const TEXTS[] = {COUNTING " three", COUNTING " and then", "A hand mill is",
                                    "The capital of Norway is Oslo. The capital of Sweden is"};
#define REQUESTS (sizeof TEXTS / sizeof TEXTS[0])

static void fill(asked *a, const engine_fixture *f, size_t index, size_t tokens)
{
    token_buffer prompt = TOKEN_BUFFER_INIT;
    assert_ok(tokenizer_encode(model_tokenizer(f->model), TEXTS[index], strlen(TEXTS[index]), 0,
                               &prompt, NULL));
    assert_true(prompt.count <= ASKED_PROMPT);
    memcpy(a->prompt, prompt.ids, prompt.count * sizeof *prompt.ids);
    a->count = prompt.count;
    a->max_tokens = (int64_t)(tokens - index);
    a->vocabulary = f->facts->vocabulary;
    a->sampling = sampler_default_options();
    if (index % 2) {
        a->sampling.temperature = 0.8f;
        a->sampling.top_k = 40;
        a->sampling.seed = index;
    }
    token_buffer_free(&prompt);
}

static void serve(const engine_fixture *f, size_t draft_tokens)
{
    // The plain kernels take their time.
    const size_t tokens = kvern_cpu_features() != 0 || check_is_long() ? 24 : 6;
    const schedule_options options = {
        .context_length = CONTEXT, .chunk = 8, .most_rows = 3, .draft_tokens = draft_tokens};
    asked *requests = calloc(REQUESTS, sizeof *requests);
    schedule *s;
    assert_non_null(requests);
    assert_ok(schedule_create(f->model, f->composition, &options, &s, NULL));
    for (size_t i = 0; i < REQUESTS; i++) {
        fill(&requests[i], f, i, tokens);
        asked_submit(&requests[i], s);
    }
    while (schedule_step(s)) {
    }
    for (size_t i = 0; i < REQUESTS; i++) {
        asked_expect_alone(&requests[i], f, CONTEXT, 8);
        asked_free(&requests[i]);
    }
    assert_true(schedule_get_statistics(s).shared_tokens > 0);
    schedule_destroy(s);
    free(requests);
}

static void answers_are_those_of_requests_alone(void **state)
{
    (void)state;
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    options.path = real_model_path("KVERN_TEST_MODEL");
    options.kv = KVERN_BF16;
    engine_fixture f = engine_fixture_open(&options);
    serve(&f, 0);
    serve(&f, 5);
    engine_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_those_of_requests_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
