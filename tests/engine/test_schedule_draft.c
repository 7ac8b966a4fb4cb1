// SPDX-License-Identifier: MIT
// The scheduler with drafts of a model: every answer is that of its request alone without drafts,
// whatever the drafts are worth, whatever runs beside it, and whatever the drafts lack.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/ledger.h"
#include "tests/support/sanitizer.h"
#include "tests/support/schedule_bed.h"
#include "tests/support/storages.h"
#include "tests/support/tiny_llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS 12
#define CONTEXT 256
#define CHUNK 32

// ---- Beds ----

typedef enum drafter { SELF, OTHER, NONE } drafter;

// A model that is scheduled, one that drafts for it in the same context, and a model that says what
// requests are alone.
typedef struct bed {
    bool gemma;
    void *data, *draft_data;
    engine_fixture engine, alone;
    model *other; // NULL: the model drafts for itself
    const model *draft;
    kvern_composition *draft_plan; // in bf16
    schedule *schedule;
    schedule_options options;
    asked *requests; // [REQUESTS]
} bed;

static kvern_composition *make_plan(const engine_fixture *f, const model *model, const storage *s)
{
    const kvern_storage wishes = schedule_bed_wishes(s);
    kvern_composition *plan;
    assert_ok(model_composition(model_get_facts(model), f->context, &wishes, &plan, NULL));
    return plan;
}

static model *load_beside(const engine_fixture *f, const void *data, size_t bytes)
{
    model *loaded;
    assert_ok(model_load(engine_fixture_source(data, bytes), NULL, f->context, NULL, NULL, &loaded,
                         NULL));
    return loaded;
}

static bed open_bed(bool gemma, const storage *s, drafter from,
                    const kvern_context_options *context)
{
    bed b = {.gemma = gemma};
    size_t bytes;
    const kvern_storage wishes = schedule_bed_wishes(s);
    b.data = schedule_bed_file(gemma, 0, 2, &bytes);
    engine_fixture_options options = engine_fixture_default(b.data, bytes);
    b.alone = engine_fixture_open(&options);
    schedule_bed_store(&b.alone, &wishes);
    if (context) {
        options.context = *context;
    }
    b.engine = engine_fixture_open(&options);
    schedule_bed_store(&b.engine, &wishes);
    if (from == OTHER) {
        b.draft_data = schedule_bed_file(gemma, 7, 1, &bytes);
        b.other = load_beside(&b.engine, b.draft_data, bytes);
    }
    b.draft = from == NONE ? NULL : b.other ? b.other : b.engine.model;
    b.draft_plan = b.draft ? make_plan(&b.engine, b.draft, NULL) : NULL;
    b.requests = calloc(REQUESTS, sizeof *b.requests);
    assert_non_null(b.requests);
    return b;
}

static bed open_with_budget(bool gemma, const storage *s, drafter from, uint64_t budget_bytes)
{
    kvern_context_options context = kvern_context_options_default();
    context.threads = 1;
    context.budget_bytes = budget_bytes;
    return open_bed(gemma, s, from, &context);
}

static void close_bed(bed *b)
{
    kvern_composition_release(b->draft_plan);
    model_close(b->other);
    engine_fixture_close(&b->engine);
    engine_fixture_close(&b->alone);
    free(b->requests);
    free(b->data);
    free(b->draft_data);
}

// The drafts are as cheap as if their model were small.
static void start(bed *b, size_t rows, size_t chunk, size_t context_length)
{
    engine_error error;
    b->options = (schedule_options){.context_length = context_length,
                                    .chunk = chunk,
                                    .most_rows = rows,
                                    .draft_tokens = 6,
                                    .draft = b->draft,
                                    .draft_composition = b->draft_plan,
                                    .draft_cost = 0.01f};
    if (schedule_create(b->engine.model, b->engine.composition, &b->options, &b->schedule,
                        &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
}

static void finish(bed *b)
{
    schedule_destroy(b->schedule);
    b->schedule = NULL;
    for (size_t i = 0; i < REQUESTS; i++) {
        asked_free(&b->requests[i]);
        b->requests[i] = (asked){0};
    }
}

static void expect_alone(const bed *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        asked_expect_alone(&b->requests[i], &b->alone, b->options.context_length, b->options.chunk);
    }
}

static void run_all(bed *b)
{
    size_t steps = 0;
    while (schedule_step(b->schedule)) {
        assert_true(steps++ < 100000);
    }
    assert_int_equal(kvern_state_rows(schedule_state(b->schedule)), 0);
    assert_int_equal(schedule_bed_memory(&b->engine).page_bytes, 0); // the drafts' too
}

// ---- Same answers ----

static const size_t CHUNKS[] = {1, 7, 16, 64, 128};

static void answers_are_those_of_requests_alone(void **state)
{
    (void)state;
    const uint64_t rounds = check_is_long() ? 50 : 1;
    schedule_statistics sums[2] = {{0}, {0}};
    for (size_t i = 0; i < 4 * storage_count; i++) {
        const storage *s = &storages[i / 4];
        const bool gemma = i % 2;
        const bool every_third = i / 4 % 3 == 0;
        const bool few = HAS_SANITIZER && !check_is_long();
        if (!every_third && (few || (gemma && s->start == KVERN_NO_START))) {
            continue;
        }
        bed b = open_bed(gemma, s, i / 2 % 2 ? SELF : OTHER, NULL);
        for (uint64_t round = 0; round < rounds; round++) {
            test_random random = test_random_seed(check_seed() + 100 * i + round);
            const size_t chunk =
                CHUNKS[test_random_below(&random, sizeof CHUNKS / sizeof CHUNKS[0])];
            start(&b, 1 + test_random_below(&random, 5), chunk, CONTEXT);
            asked_serve(b.requests, REQUESTS, b.engine.model, b.schedule, &random);
            expect_alone(&b, REQUESTS);
            const schedule_statistics now = schedule_get_statistics(b.schedule);
            sums[i / 2 % 2].drafted += now.drafted;
            sums[i / 2 % 2].accepted += now.accepted;
            finish(&b);
        }
        close_bed(&b);
    }
    assert_true(sums[0].drafted > 0 && sums[1].drafted > 0);
    // Another storage than the model's own makes its drafts differ at times.
    assert_true(sums[1].accepted * 10 > sums[1].drafted * 6);
    assert_true(sums[0].accepted * 10 < sums[0].drafted * 6);
}

static void ask_long(bed *b, size_t count, size_t prompt, bool sampled)
{
    test_random random = test_random_seed(21);
    for (size_t i = 0; i < count; i++) {
        asked *a = &b->requests[i];
        asked_fill(a, b->engine.model, prompt + i, 0, &random);
        a->max_tokens = 60;
        a->sampling = sampler_default_options();
        if (sampled) {
            a->sampling.temperature = 0.8f;
            a->sampling.top_k = 20;
            a->sampling.seed = 5 + i;
        }
        asked_submit(a, b->schedule);
    }
}

// Guesses by the same model are right, all of them, sampled ones too, and each saves a step of its
// row. What runs beside a row takes nothing from that.
static void a_draft_that_is_the_model_is_always_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bed b = open_bed(i % 2, NULL, SELF, NULL);
        start(&b, 3, CHUNK, CONTEXT);
        ask_long(&b, 3, 40, i / 2);
        run_all(&b);
        expect_alone(&b, 3);
        const schedule_statistics sums = schedule_get_statistics(b.schedule);
        size_t ended = 0; // before a draft that would have followed
        for (size_t j = 0; j < 3; j++) {
            ended += b.requests[j].result.reason == GENERATE_END;
        }
        assert_true(sums.drafted > sums.generated_tokens / 3);
        assert_in_range(sums.accepted, sums.drafted - 6 * ended, sums.drafted);
        assert_true(sums.row_steps + sums.accepted <= sums.generated_tokens + 3 * 4);
        finish(&b);
        close_bed(&b);
    }
}

static void another_draft_is_hardly_ever_right(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bed b = open_bed(false, NULL, OTHER, NULL);
        start(&b, 3, CHUNK, CONTEXT);
        ask_long(&b, 6, 40, i);
        run_all(&b);
        expect_alone(&b, 6);
        const schedule_statistics sums = schedule_get_statistics(b.schedule);
        assert_true(sums.drafted > 0);

        finish(&b);
        close_bed(&b);
    }
}

// Prompts that begin alike share the beginning as they do without drafts, and go on being guessed.
static void common_beginnings_are_shared_too(void **state)
{
    (void)state;
    test_random random = test_random_seed(3);
    for (size_t i = 0; i < 2; i++) {
        bed b = open_bed(i, NULL, SELF, NULL);
        start(&b, 4, CHUNK, CONTEXT);
        for (size_t j = 0; j < 4; j++) {
            asked_fill(&b.requests[j], b.engine.model, 120, 100, &random);
            b.requests[j].max_tokens = 40;
            asked_submit(&b.requests[j], b.schedule);
        }
        run_all(&b);
        expect_alone(&b, 4);
        const schedule_statistics sums = schedule_get_statistics(b.schedule);
        assert_true(b.gemma || sums.shared_tokens == 3 * 100);
        assert_true(sums.drafted > 0 && sums.accepted * 10 > sums.drafted * 8);
        finish(&b);
        close_bed(&b);
    }
}

// The model's context is longer than the draft's: what has no place in it is not guessed.
static void a_shorter_draft_context(void **state)
{
    (void)state;
    size_t bytes;
    bed b = open_bed(false, NULL, NONE, NULL);
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    options.vocabulary = SCHEDULE_BED_VOCABULARY;
    options.byte_tokenizer = options.separate_output = true;
    options.head_dim = 64;
    options.context_length = 80; // everything else is as in the model
    b.draft_data = tiny_llama_build(&options, &bytes);
    b.draft = b.other = load_beside(&b.engine, b.draft_data, bytes);
    b.draft_plan = make_plan(&b.engine, b.draft, NULL);
    start(&b, 3, CHUNK, CONTEXT);
    test_random random = test_random_seed(22);
    for (size_t i = 0; i < 3; i++) { // below, at and beyond the end of the draft's context
        asked_fill(&b.requests[i], b.engine.model, 40 + 40 * i, 0, &random);
        b.requests[i].max_tokens = 60;
        asked_submit(&b.requests[i], b.schedule);
    }
    run_all(&b);
    expect_alone(&b, 3);
    const schedule_statistics sums = schedule_get_statistics(b.schedule);
    assert_true(sums.accepted > 10 && sums.accepted <= 42);
    finish(&b);
    close_bed(&b);
}

// A draft model whose logits are no numbers for one row: that row has no drafts, the others do.
static void a_row_that_nothing_can_be_guessed_for(void **state)
{
    (void)state;
    size_t bytes;
    bed b = open_bed(false, NULL, NONE, NULL);
    b.draft_data = schedule_bed_file(false, 0, 2, &bytes);
    schedule_bed_poison(b.draft_data, bytes);
    b.draft = b.other = load_beside(&b.engine, b.draft_data, bytes);
    b.draft_plan = make_plan(&b.engine, b.draft, NULL);
    start(&b, 3, CHUNK, CONTEXT);
    test_random random = test_random_seed(23);
    for (size_t i = 0; i < 3; i++) {
        asked_fill(&b.requests[i], b.engine.model, 30, 0, &random);
        b.requests[i].max_tokens = 40;
        b.requests[i].sampling = sampler_default_options();
        b.requests[i].prompt[7] = i == 1 ? SCHEDULE_BED_POISON : 7;
        asked_submit(&b.requests[i], b.schedule);
    }
    run_all(&b);
    expect_alone(&b, 3);
    const schedule_statistics sums = schedule_get_statistics(b.schedule);
    assert_true(sums.accepted > 10);
    assert_int_equal(sums.accepted, sums.drafted);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(b.requests[i].result.reason, GENERATE_MAX_TOKENS);
    }
    finish(&b);
    close_bed(&b);
}

// ---- Refusals ----

static void expect_refusal(const bed *b, const model *draft, kvern_composition *plan,
                           kvern_status status, const char *reason)
{
    const schedule_options options = {.draft_tokens = 4, .draft = draft, .draft_composition = plan};
    schedule *s;
    engine_error error;
    assert_status(status,
                  schedule_create(b->engine.model, b->engine.composition, &options, &s, &error));
    assert_null(s);
    if (!strstr(error.text, reason)) {
        fail_msg("%s", error.text);
    }
}

static void drafts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    bed b = open_bed(false, NULL, NONE, NULL);
    expect_refusal(&b, b.alone.model, b.alone.composition, KVERN_ERR_ARGUMENT, "another context");
    b.draft_data = schedule_bed_file(true, 0, 0, &bytes);
    b.other = load_beside(&b.engine, b.draft_data, bytes);
    b.draft_plan = make_plan(&b.engine, b.other, NULL);
    expect_refusal(&b, b.other, b.draft_plan, KVERN_ERR_UNSUPPORTED, "it cannot draft for it");
    close_bed(&b);
}

// ---- Memory ----

// Serves long requests, all of which must come to their end.
static void serve_long(bed *b, size_t rows)
{
    test_random random = test_random_seed(12);
    start(b, rows, 128, 512);
    for (size_t i = 0; i < REQUESTS; i++) {
        asked_fill(&b->requests[i], b->engine.model, 160 + 12 * i, i % 2 ? 100 : 0, &random);
        b->requests[i].max_tokens = 70;
        asked_submit(&b->requests[i], b->schedule);
    }
    run_all(b);
    for (size_t i = 0; i < REQUESTS; i++) {
        assert_string_equal(b->requests[i].error, "");
    }
}

// What one row at a time needs beside an empty scheduler of 6 rows with drafts, and `more` rows.
static uint64_t budget_of(bool gemma, const storage *s, drafter from, uint64_t more)
{
    bed b = open_with_budget(gemma, s, SELF, (uint64_t)1 << 30);
    start(&b, 6, 128, 512);
    const size_t heads = b.engine.facts->heads;
    uint64_t bytes = schedule_bed_memory(&b.engine).held_bytes;
    bytes += asked_row_bytes(b.engine.composition, 362, heads, 1 + b.options.draft_tokens);
    if (from != NONE) {
        bytes += asked_row_bytes(b.draft_plan, 362, heads, 0);
    }
    bytes += more * kvern_composition_row_bytes(b.engine.composition, 362);
    finish(&b);
    close_bed(&b);
    return bytes;
}

// However the budget lies, from one that hardly holds the model's own row to one that holds many
// with their drafts: no request fails for it, and it is kept.
static void no_request_fails_for_the_drafts_budget(void **state)
{
    (void)state;
    static const storage late = {
        "8 bits from 70 on", STORAGE_AFFINE(8, 64), STORAGE_AFFINE(8, 64), 70, 0, 0};
    const uint64_t steps = check_is_long() ? 64 : HAS_SANITIZER ? 3 : 6;
    for (size_t i = 0; i < 4; i++) {
        const bool gemma = i % 2;
        const storage *s = i / 2 ? &late : &storages[0];
        const uint64_t least = budget_of(gemma, s, NONE, 0), most = budget_of(gemma, s, SELF, 10);
        uint64_t drafted = 0;
        for (uint64_t at = 0; at <= steps; at++) {
            const uint64_t budget = least + (most - least) * at * at / (steps * steps);
            bed b = open_with_budget(gemma, s, SELF, budget);
            serve_long(&b, 6);
            assert_true(schedule_bed_memory(&b.engine).peak_bytes <= budget);
            if (at % 3 == 0) { // comparing is what takes the time
                expect_alone(&b, REQUESTS);
            }
            drafted = schedule_get_statistics(b.schedule).drafted;
            finish(&b);
            close_bed(&b);
        }
        assert_true(drafted > 0); // with the largest of them
    }
}

// What an empty scheduler holds.
static uint64_t least_bytes(size_t rows)
{
    bed b = open_with_budget(false, NULL, SELF, 0);
    start(&b, rows, CHUNK, 512);
    const uint64_t bytes = schedule_bed_memory(&b.engine).held_bytes;
    finish(&b);
    close_bed(&b);
    return bytes;
}

// A row that fits only without drafts goes without them, beside one that has some.
static void a_budget_for_the_model_alone(void **state)
{
    (void)state;
    test_random random = test_random_seed(30);
    bed b = open_bed(false, NULL, SELF, NULL);
    const uint64_t large = kvern_composition_row_bytes(b.engine.composition, 384);
    close_bed(&b);
    b = open_with_budget(false, NULL, SELF, least_bytes(3) + 2 * large - 1);
    start(&b, 3, CHUNK, 512);
    asked_fill(&b.requests[0], b.engine.model, 24, 0, &random);
    asked_fill(&b.requests[1], b.engine.model, 324, 0, &random);
    for (size_t i = 0; i < 2; i++) {
        b.requests[i].max_tokens = i == 0 ? 40 : 60;
        b.requests[i].sampling = sampler_default_options();
        asked_submit(&b.requests[i], b.schedule);
    }
    run_all(&b);
    expect_alone(&b, 2);
    const schedule_statistics sums = schedule_get_statistics(b.schedule);
    assert_int_equal(sums.peak_rows, 2);
    assert_int_equal(b.requests[0].taken, 40);
    assert_in_range(sums.drafted, 1, 40);
    assert_string_equal(b.requests[0].error, "");
    assert_string_equal(b.requests[1].error, "");
    finish(&b);
    close_bed(&b);
}

// Every allocation of a run is refused once. When it was the drafts', nobody fails.
static void refused_allocations_leave_it_usable(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_context_options context = kvern_context_options_default();
    context.threads = 1;
    context.allocator = ledger_allocator(&books);
    bed b = open_bed(false, NULL, SELF, &context);
    bool refused = true;
    size_t failed = 0, unharmed = 0;
    for (int64_t at = 0; refused; at++) {
        test_random random = test_random_seed(14);
        start(&b, 3, CHUNK, CONTEXT);
        ledger_refuse(&books, at);
        for (size_t i = 0; i < 4; i++) {
            asked_fill(&b.requests[i], b.engine.model, 50 + i, 40, &random);
            b.requests[i].max_tokens = 30;
            asked_submit(&b.requests[i], b.schedule);
        }
        run_all(&b);
        refused = ledger_relent(&books);
        asked_fill(&b.requests[4], b.engine.model, 50, 40, &random);
        asked_submit(&b.requests[4], b.schedule);
        run_all(&b);
        assert_int_equal(b.requests[4].result.status, KVERN_OK);
        size_t failures = 0;
        for (size_t i = 0; i < 4; i++) {
            const kvern_status status = b.requests[i].result.status;
            assert_true(status == KVERN_OK || status == KVERN_ERR_MEMORY);
            failures += status != KVERN_OK;
        }
        failed += failures;
        unharmed += refused && failures == 0;
        assert_true(schedule_get_statistics(b.schedule).drafted > 0);
        if (at % 7 == 0 || !refused) { // comparing is what takes the time
            expect_alone(&b, 5);
        }
        finish(&b);
    }
    assert_true(failed > 0 && unharmed > failed);
    close_bed(&b);
    ledger_finish(&books);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_requests_alone),
        cmocka_unit_test(a_draft_that_is_the_model_is_always_right),
        cmocka_unit_test(another_draft_is_hardly_ever_right),
        cmocka_unit_test(common_beginnings_are_shared_too),
        cmocka_unit_test(a_shorter_draft_context),
        cmocka_unit_test(a_row_that_nothing_can_be_guessed_for),
        cmocka_unit_test(drafts_that_cannot_be_are_refused),
        cmocka_unit_test(no_request_fails_for_the_drafts_budget),
        cmocka_unit_test(a_budget_for_the_model_alone),
        cmocka_unit_test(refused_allocations_leave_it_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
