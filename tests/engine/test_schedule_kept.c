// SPDX-License-Identifier: MIT
// Conversations in a scheduler: every turn gives what the whole sequence gives alone, whatever runs
// beside it; a turn that ends in its prompt leaves the sequence as it was; and what is not possible
// is refused.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/storages.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 256
#define TALKS 3
#define TURNS 6
#define VOCABULARY 260

typedef struct bed {
    void *data;
    engine_fixture engine; // serves, and says what a sequence gives alone
    schedule *schedule;
    schedule_options options;
} bed;

static void *build_file(bool gemma, size_t *bytes)
{
    if (gemma) {
        tiny_gemma3 options = tiny_gemma3_default(GGUF_TYPE_F32);
        options.head_dim = 64;
        return tiny_gemma3_build(&options, bytes);
    }
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    options.vocabulary = VOCABULARY;
    options.byte_tokenizer = options.separate_output = true;
    options.head_dim = 64;
    return tiny_llama_build(&options, bytes);
}

static bed open_bed(bool gemma, const storage *s, size_t rows, size_t draft_tokens)
{
    bed b = {0};
    size_t bytes;
    kvern_storage wishes = kvern_storage_default();
    b.data = build_file(gemma, &bytes);
    const engine_fixture_options options = engine_fixture_default(b.data, bytes);
    b.engine = engine_fixture_open(&options);
    kvern_composition_release(b.engine.composition);
    wishes.k = s->k_codec;
    wishes.v = s->v_codec;
    wishes.start = s->start;
    assert_ok(
        model_composition(b.engine.facts, b.engine.context, &wishes, &b.engine.composition, NULL));
    b.options = (schedule_options){.context_length = CONTEXT,
                                   .chunk = 16,
                                   .most_rows = rows,
                                   .most_kept = TALKS,
                                   .draft_tokens = draft_tokens};
    assert_ok(schedule_create(b.engine.model, b.engine.composition, &b.options, &b.schedule, NULL));
    return b;
}

static void close_bed(bed *b)
{
    schedule_destroy(b->schedule);
    engine_fixture_close(&b->engine);
    free(b->data);
}

// ---- Conversations ----

typedef struct talk {
    kept_sequence *kept;
    int32_t tokens[CONTEXT]; // of the sequence, as it has to be
    size_t count;
    asked turn; // the running or the latest one; its prompt is the whole sequence
    size_t turns;
    size_t undone; // turns that ended in their prompt
    bool busy;
} talk;

// A turn of up to 40 new tokens, or of none where one waits. False: the context is too full.
static bool begin_turn(const bed *b, talk *t, test_random *random)
{
    asked *a = &t->turn;
    const bool pending = kept_sequence_pending(t->kept);
    const size_t fresh =
        pending && test_random_below(random, 3) == 0 ? 0 : 1 + test_random_below(random, 40);
    if (t->count + fresh >= CONTEXT) {
        return false;
    }
    asked_free(a);
    *a = (asked){0};
    asked_fill(a, b->engine.model, t->count + fresh, 0, random);
    memcpy(a->prompt, t->tokens, t->count * sizeof *a->prompt);
    a->cancel_after = test_random_below(random, 4) ? 0 : 1 + test_random_below(random, 9);
    a->refuse_token = test_random_below(random, 8) ? 0 : 1 + test_random_below(random, 5);
    schedule_request request = asked_request(a);
    request.tokens += t->count;
    request.count = fresh;
    request.kept = t->kept;
    assert_ok(schedule_submit(b->schedule, &request, &a->id, NULL));
    t->busy = true;
    return true;
}

static void end_turn(const bed *b, talk *t)
{
    const asked *a = &t->turn;
    asked_expect_alone(a, &b->engine, CONTEXT, b->options.chunk);
    t->busy = false;
    t->turns++;
    if (a->result.prompt_whole) {
        memcpy(t->tokens, a->prompt, a->count * sizeof *t->tokens);
        memcpy(t->tokens + a->count, a->tokens, a->result.generated_tokens * sizeof *t->tokens);
        t->count = a->count + a->result.generated_tokens;
    } else {
        t->undone++;
    }
    const size_t waiting = kept_sequence_pending(t->kept);
    assert_int_equal(kept_sequence_length(t->kept) + (int64_t)waiting, t->count);
}

// Conversations of random turns and other requests beside them; some are cancelled, at any time.
static void talk_on(const bed *b, talk *talks, asked *others, size_t count, test_random *random)
{
    size_t submitted = 0;
    for (size_t steps = 0, over = 0; over < TALKS || submitted < count; steps++) {
        assert_true(steps < 100000);
        over = 0;
        for (size_t i = 0; i < TALKS; i++) {
            talk *t = &talks[i];
            if (t->busy && t->turn.ends) {
                end_turn(b, t);
            }
            const bool more = !t->busy && t->turns < TURNS && begin_turn(b, t, random);
            over += !t->busy && !more;
            if (t->busy && test_random_below(random, 25) == 0) {
                schedule_cancel(b->schedule, t->turn.id);
            }
        }
        if (submitted < count && test_random_below(random, 5) == 0) {
            asked_fill(&others[submitted], b->engine.model, 1 + test_random_below(random, 60), 40,
                       random);
            asked_submit(&others[submitted++], b->schedule);
        }
        schedule_step(b->schedule);
        assert_true(kvern_state_rows(schedule_state(b->schedule)) <=
                    b->options.most_rows + b->options.most_kept);
    }
    while (schedule_step(b->schedule)) {
    }
}

// Returns how many turns ended in their prompt.
static size_t check_bed(bed *b, uint64_t seed)
{
    enum { OTHERS = 5 };
    talk *talks = calloc(TALKS, sizeof *talks);
    asked *others = calloc(OTHERS, sizeof *others);
    test_random random = test_random_seed(seed);
    size_t undone = 0;
    assert_true(talks && others);
    for (size_t i = 0; i < TALKS; i++) {
        assert_ok(schedule_keep(b->schedule, &talks[i].kept, NULL));
    }
    talk_on(b, talks, others, OTHERS, &random);
    for (size_t i = 0; i < OTHERS; i++) {
        asked_expect_alone(&others[i], &b->engine, CONTEXT, b->options.chunk);
        asked_free(&others[i]);
    }
    for (size_t i = 0; i < TALKS; i++) {
        undone += talks[i].undone;
        assert_true(talks[i].turns > 1);
        assert_ok(schedule_drop_kept(talks[i].kept, NULL));
        asked_free(&talks[i].turn);
    }
    schedule_step(b->schedule);
    assert_int_equal(kvern_state_rows(schedule_state(b->schedule)), 0);
    free(talks);
    free(others);
    return undone;
}

static void turns_are_those_of_the_sequence_alone(void **state)
{
    (void)state;
    const size_t stride = check_is_long() ? 1 : 3;
    size_t undone = 0;
    for (size_t i = 0; i < storage_count; i++) {
        // A start of 0 converts after the first turn, wherever that ends.
        if (storages[i].start == 0 || (storages[i].start < 0 && i % stride)) {
            continue;
        }
        for (int gemma = 0; gemma < 2; gemma++) {
            bed b = open_bed(gemma, &storages[i], 1 + i % 3, i % 2 ? 5 : 0);
            undone += check_bed(&b, check_seed() + 10 * i + (uint64_t)gemma);
            close_bed(&b);
        }
    }
    assert_true(undone > 3);
}

// ---- One request at a time, and nothing impossible ----

static void submit_turn(const bed *b, kept_sequence *kept, asked *a, size_t count)
{
    schedule_request request = asked_request(a);
    request.count = count;
    request.kept = kept;
    assert_ok(schedule_submit(b->schedule, &request, &a->id, NULL));
}

static void what_is_not_possible_is_refused(void **state)
{
    (void)state;
    static asked a, second;
    bed b = open_bed(false, &storages[0], 2, 0);
    engine_error error;
    uint64_t id;
    kept_sequence *kept[TALKS], *more;
    for (size_t i = 0; i < TALKS; i++) {
        assert_ok(schedule_keep(b.schedule, &kept[i], NULL));
    }
    assert_int_equal(schedule_keep(b.schedule, &more, &error), KVERN_ERR_RANGE);
    assert_null(more);

    schedule_request request = asked_request(&a);
    request.kept = kept[0];
    request.count = 0; // nothing waits in an empty sequence
    assert_int_equal(schedule_submit(b.schedule, &request, &id, &error), KVERN_ERR_ARGUMENT);

    a.max_tokens = 4;
    a.vocabulary = second.vocabulary = VOCABULARY;
    submit_turn(&b, kept[0], &a, 3);
    request.count = 3;
    assert_int_equal(schedule_submit(b.schedule, &request, &id, &error), KVERN_ERR_BUSY);
    assert_int_equal(schedule_reset_kept(kept[0], &error), KVERN_ERR_BUSY);
    assert_int_equal(schedule_drop_kept(kept[0], &error), KVERN_ERR_BUSY);
    while (schedule_step(b.schedule)) {
    }
    assert_int_equal(kept_sequence_length(kept[0]), 6); // the newest waits
    assert_true(kept_sequence_pending(kept[0]));

    request.count = CONTEXT - 6; // with the one that waits one too many
    assert_int_equal(schedule_submit(b.schedule, &request, &id, &error), KVERN_ERR_RANGE);
    assert_non_null(strstr(error.text, "249 of the context of 256 are free"));
    assert_int_equal(kept_sequence_length(kept[0]), 6);

    assert_ok(schedule_reset_kept(kept[0], NULL));
    assert_int_equal(kept_sequence_length(kept[0]), 0);
    submit_turn(&b, kept[0], &second, 1); // max_tokens 0: the prompt alone
    while (schedule_step(b.schedule)) {
    }
    assert_int_equal(kept_sequence_length(kept[0]), 1);
    assert_false(kept_sequence_pending(kept[0]));
    close_bed(&b); // with sequences that are kept
}

// ---- Callbacks ----

typedef struct stepper {
    schedule *schedule;
    size_t steps; // of the scheduler, from within
    size_t calls;
} stepper;

static void step_within(void *user, size_t done, size_t total)
{
    stepper *s = user;
    assert_true(done <= total);
    const uint64_t before = schedule_get_statistics(s->schedule).steps;
    assert_true(schedule_step(s->schedule));
    s->steps += schedule_get_statistics(s->schedule).steps - before;
    s->calls++;
}

static void a_step_within_a_callback_does_nothing(void **state)
{
    (void)state;
    bed b = open_bed(false, &storages[0], 1, 0);
    stepper within = {.schedule = b.schedule};
    int32_t tokens[40] = {0};
    uint64_t id;
    const schedule_request request = {.tokens = tokens,
                                      .count = 40,
                                      .sampling = sampler_default_options(),
                                      .user = &within,
                                      .on_prompt = step_within};
    assert_ok(schedule_submit(b.schedule, &request, &id, NULL));
    while (schedule_step(b.schedule)) {
    }
    assert_int_equal(within.calls, 3); // 16, 16 and 8 tokens
    assert_int_equal(within.steps, 0);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_are_those_of_the_sequence_alone),
        cmocka_unit_test(what_is_not_possible_is_refused),
        cmocka_unit_test(a_step_within_a_callback_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
