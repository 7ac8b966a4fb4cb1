// SPDX-License-Identifier: MIT
// Conversations in a scheduler: every turn gives what the whole sequence gives alone, whatever runs
// beside it; a turn that ends in its prompt leaves the sequence as it was; a sequence goes back to
// what it has in common with others; and what is not possible is refused.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/family_case.h"
#include "tests/support/schedule_bed.h"
#include "tests/support/storages.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 256
#define TALKS 3
#define TURNS 6

// What is served: see schedule_bed_file; layers that recur beside others; latents.
typedef enum served { LLAMA, GEMMA, HYBRID, LATENTS } served;

static void *served_file(served kind, size_t *bytes)
{
    if (kind == LLAMA || kind == GEMMA) {
        return schedule_bed_file(kind == GEMMA, 0, 2, bytes);
    }
    family_case model =
        family_case_open(kind == HYBRID ? KVERN_TESTS_DIR "/golden/families/qwen3next.json"
                                        : KVERN_TESTS_DIR "/golden/families/deepseek-v3-gguf.json");
    void *data = family_case_gguf(&model, bytes);
    family_case_close(&model);
    return data;
}

typedef struct bed {
    void *data;
    engine_fixture engine;
    engine_fixture alone; // says what a sequence gives alone
    schedule *schedule;
    schedule_options options;
    uint64_t budget; // 0: none
} bed;

static bed open_within(served kind, const storage *s, size_t rows, size_t draft_tokens,
                       uint64_t budget)
{
    bed b = {0};
    size_t bytes;
    const kvern_storage wishes = schedule_bed_wishes(s);
    b.data = served_file(kind, &bytes);
    engine_fixture_options options = engine_fixture_default(b.data, bytes);
    b.alone = engine_fixture_open(&options);
    schedule_bed_store(&b.alone, &wishes);
    options.context.threads = 1;
    options.context.budget_bytes = b.budget = budget;
    b.engine = engine_fixture_open(&options);
    schedule_bed_store(&b.engine, &wishes);
    b.options = (schedule_options){.context_length = CONTEXT,
                                   .chunk = 16,
                                   .most_rows = rows,
                                   .most_kept = TALKS,
                                   .draft_tokens = draft_tokens};
    assert_ok(schedule_create(b.engine.model, b.engine.composition, &b.options, &b.schedule, NULL));
    return b;
}

static bed open_bed(served kind, const storage *s, size_t rows, size_t draft_tokens)
{
    return open_within(kind, s, rows, draft_tokens, 0);
}

static void close_bed(bed *b)
{
    schedule_destroy(b->schedule);
    engine_fixture_close(&b->engine);
    engine_fixture_close(&b->alone);
    free(b->data);
}

// ---- Conversations ----

typedef struct talk {
    kept_sequence *kept;
    int32_t tokens[CONTEXT]; // of the sequence, as it has to be
    size_t count;
    asked turn; // the running or the latest one; its prompt is the whole sequence
    size_t turns;
    size_t undone;  // turns that ended in their prompt
    size_t refused; // turns that the budget had no room for
    size_t returns; // to a position before its end that was not its beginning
    bool busy;
} talk;

// A conversation that has no room any more is emptied, and goes on with its next turn.
static void begin_again(const bed *b, talk *t)
{
    assert_true(b->budget > 0);
    assert_ok(schedule_reset_kept(t->kept, NULL));
    t->count = 0;
    t->turns++;
    t->refused++;
}

// Now and then the next turn has another end of what was said, of any length.
static void go_back(talk *t, test_random *random)
{
    if (t->count == 0 || test_random_below(random, 3) > 0) {
        return;
    }
    int32_t tokens[CONTEXT + 1];
    size_t left;
    const size_t most = t->count < 30 || test_random_below(random, 4) == 0 ? t->count : 30;
    const size_t common = t->count - test_random_below(random, most + 1);
    memcpy(tokens, t->tokens, t->count * sizeof *tokens);
    if (common < t->count) {
        tokens[common] = tokens[common] == 1 ? 2 : 1;
    }
    assert_ok(schedule_rewind_kept(t->kept, tokens, common + 1, &left, NULL));
    assert_true(left <= common);
    assert_int_equal(kept_sequence_length(t->kept) + kept_sequence_pending(t->kept), left);
    t->returns += left > 0 && left < t->count;
    t->count = left;
}

// A turn of up to 40 new tokens, or of none where one waits. False: the context is too full.
static bool begin_turn(const bed *b, talk *t, test_random *random)
{
    asked *a = &t->turn;
    go_back(t, random);
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
    const kvern_status status = schedule_submit(b->schedule, &request, &a->id, NULL);
    if (status == KVERN_ERR_BUDGET) {
        begin_again(b, t);
        return true;
    }
    assert_ok(status);
    t->busy = true;
    return true;
}

static void end_turn(const bed *b, talk *t)
{
    const asked *a = &t->turn;
    asked_expect_alone(a, &b->alone, CONTEXT, b->options.chunk);
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

static void submit_other(const bed *b, asked *a, test_random *random)
{
    asked_fill(a, b->engine.model, 1 + test_random_below(random, 60), 40, random);
    const schedule_request request = asked_request(a);
    const kvern_status status = schedule_submit(b->schedule, &request, &a->id, NULL);
    if (b->budget == 0 || status != KVERN_ERR_BUDGET) {
        assert_ok(status);
    }
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
            submit_other(b, &others[submitted++], random);
        }
        schedule_step(b->schedule);
        assert_true(kvern_state_checkpoint_bytes(schedule_state(b->schedule)) <=
                    2 * TALKS * kvern_composition_row_bytes(b->engine.composition, 1));
        assert_true(kvern_state_rows(schedule_state(b->schedule)) <=
                    b->options.most_rows + b->options.most_kept);
    }
    while (schedule_step(b->schedule)) {
    }
}

typedef struct ends {
    size_t turns;
    size_t undone;  // ended in their prompt
    size_t refused; // by a budget
    size_t returns;
} ends;

static void check_bed(bed *b, uint64_t seed, ends *sums)
{
    enum { OTHERS = 5 };
    talk *talks = calloc(TALKS, sizeof *talks);
    asked *others = calloc(OTHERS, sizeof *others);
    test_random random = test_random_seed(seed);
    assert_true(talks && others);
    for (size_t i = 0; i < TALKS; i++) {
        assert_ok(schedule_keep(b->schedule, &talks[i].kept, NULL));
    }
    talk_on(b, talks, others, OTHERS, &random);
    for (size_t i = 0; i < OTHERS; i++) {
        if (others[i].ends > 0 || b->budget == 0) {
            asked_expect_alone(&others[i], &b->alone, CONTEXT, b->options.chunk);
        }
        asked_free(&others[i]);
    }
    for (size_t i = 0; i < TALKS; i++) {
        sums->turns += talks[i].turns;
        sums->undone += talks[i].undone;
        sums->refused += talks[i].refused;
        sums->returns += talks[i].returns;
        assert_true(talks[i].turns > 1);
        assert_ok(schedule_drop_kept(talks[i].kept, NULL));
        asked_free(&talks[i].turn);
    }
    schedule_step(b->schedule);
    assert_int_equal(kvern_state_rows(schedule_state(b->schedule)), 0);
    assert_int_equal(schedule_bed_memory(&b->engine).page_bytes, 0);
    free(talks);
    free(others);
}

static void turns_are_those_of_the_sequence_alone(void **state)
{
    (void)state;
    const size_t stride = check_is_long() ? 1 : 3;
    ends sums = {0};
    for (size_t i = 0; i < storage_count; i++) {
        // A start of 0 converts after the first turn, wherever that ends.
        if (storages[i].start == 0 || (storages[i].start < 0 && i % stride)) {
            continue;
        }
        for (served kind = LLAMA; kind <= GEMMA; kind++) {
            bed b = open_bed(kind, &storages[i], 1 + i % 3, i % 2 ? 5 : 0);
            check_bed(&b, check_seed() + 10 * i + kind, &sums);
            close_bed(&b);
        }
    }
    assert_true(sums.undone > 3 && sums.returns > 3);
}

// What recurs goes back to checkpoints, which take no more than they may.
static void so_are_those_of_other_layers(void **state)
{
    (void)state;
    ends sums[LATENTS + 1] = {0};
    for (uint64_t i = 0; i < (check_is_long() ? 32 : 12); i++) {
        const served kind = i % 2 ? LATENTS : HYBRID;
        bed b = open_bed(kind, &storages[0], 1 + i % 3, i % 4 ? 0 : 5);
        check_bed(&b, check_seed() + 100 * i, &sums[kind]);
        close_bed(&b);
    }
    print_message("%zu and %zu returns in %zu and %zu turns\n", sums[HYBRID].returns,
                  sums[LATENTS].returns, sums[HYBRID].turns, sums[LATENTS].turns);
    assert_true(sums[HYBRID].returns > 3 && sums[LATENTS].returns > 3);
}

// What the context holds with an empty scheduler.
static uint64_t empty_bytes(served kind, const storage *s)
{
    bed b = open_bed(kind, s, 2, 4);
    const uint64_t bytes = schedule_bed_memory(&b.engine).held_bytes;
    close_bed(&b);
    return bytes;
}

// However the budget lies, from one that hardly holds a row to one that holds them all: a turn that
// has no room beside what is kept is refused, or fails alone, and every other turn is right,
// cancelled or not. Rows that were made for turns which then had no room once stayed to the end of
// a step, and there were more of them than a scheduler has places for.
static void budgets_refuse_turns_and_break_none(void **state)
{
    (void)state;
    static const size_t which[] = {0, 6};
    ends sums = {0};
    for (size_t i = 0; i < 5; i++) {
        const storage *s = &storages[which[i / 2 % 2]];
        const served kind = i == 4 ? HYBRID : i % 2 ? GEMMA : LLAMA;
        const uint64_t empty = empty_bytes(kind, s);
        for (uint64_t more = 100000; more < 3000000; more += more / (check_is_long() ? 20 : 3)) {
            bed b = open_within(kind, s, 2, 4, empty + more);
            check_bed(&b, check_seed() + more, &sums);
            close_bed(&b);
        }
    }
    print_message("%zu turns, %zu refused, %zu ended in their prompt\n", sums.turns, sums.refused,
                  sums.undone);
    assert_true(sums.refused > 10 && sums.turns > 2 * sums.refused);
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
    bed b = open_bed(LLAMA, &storages[0], 2, 0);
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
    a.vocabulary = second.vocabulary = SCHEDULE_BED_VOCABULARY;
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

// ---- Going back ----

static void run_turn(const bed *b, kept_sequence *kept, asked *a, size_t from, size_t count)
{
    schedule_request request = asked_request(a);
    request.tokens += from;
    request.count = count - from;
    request.kept = kept;
    assert_ok(schedule_submit(b->schedule, &request, &a->id, NULL));
    while (schedule_step(b->schedule)) {
    }
}

// A conversation whose template leaves out what was thought: of each turn only the new tokens, the
// answer before them and the end of the prompt before that are forwarded.
static void little_is_forwarded_again(void **state)
{
    (void)state;
    bed b = open_bed(HYBRID, &storages[0], 1, 0);
    kept_sequence *kept;
    test_random random = test_random_seed(7);
    size_t left;
    engine_error error;
    assert_ok(schedule_keep(b.schedule, &kept, NULL));
    static asked turn;
    asked_fill(&turn, b.engine.model, 200, 0, &random);
    turn.max_tokens = 6;
    assert_int_equal(schedule_rewind_kept(kept, turn.prompt, 0, &left, &error), KVERN_ERR_ARGUMENT);
    for (size_t count = 30; count <= 180; count += 50) {
        asked a = turn;
        a.count = count;
        assert_ok(schedule_rewind_kept(kept, a.prompt, count, &left, NULL));
        assert_int_equal(left, count == 30 ? 0 : count - 50 - SCHEDULE_TAIL);
        run_turn(&b, kept, &a, left, count);
        assert_int_equal(a.result.shared_tokens, left);
        asked_expect_alone(&a, &b.alone, CONTEXT, b.options.chunk);
        // The same once more, and then with another end: no token but the tail is forwarded again.
        assert_ok(schedule_rewind_kept(kept, a.prompt, count, &left, NULL));
        assert_int_equal(left, count - SCHEDULE_TAIL);
        asked_free(&a);
    }
    close_bed(&b);
}

// A row that was computed elsewhere, here in another sequence: what follows is what the whole
// sequence gives alone, and whatever was kept before has gone.
static void go_on_from_elsewhere(served kind, size_t draft_tokens)
{
    bed b = open_bed(kind, &storages[0], 1, draft_tokens);
    kept_sequence *from, *kept;
    kvern_state *row;
    test_random random = test_random_seed(11);
    static asked first, other, turn;
    assert_ok(schedule_keep(b.schedule, &from, NULL));
    assert_ok(schedule_keep(b.schedule, &kept, NULL));
    asked_fill(&turn, b.engine.model, 100, 0, &random);
    asked_fill(&other, b.engine.model, 90, 0, &random);
    turn.max_tokens = other.max_tokens = 12;
    first = turn;
    first.max_tokens = 0;
    run_turn(&b, from, &first, 0, 60);
    for (int i = 0; i < 2; i++) { // an empty sequence, and one that has answered
        asked a = turn;
        assert_ok(kvern_state_extract(schedule_state(b.schedule), 0, &row));
        assert_int_equal(60, kvern_state_length(row, 0));
        assert_ok(schedule_adopt_kept(kept, row, a.prompt, 60, NULL));
        assert_int_equal(0, kvern_state_rows(row));
        kvern_state_destroy(row);
        assert_int_equal(60, kept_sequence_length(kept));
        run_turn(&b, kept, &a, 60, 100);
        assert_int_equal(60, a.result.shared_tokens);
        asked_expect_alone(&a, &b.alone, CONTEXT, b.options.chunk);
        asked_free(&a);
        assert_ok(schedule_reset_kept(kept, NULL));
        asked b_turn = other;
        run_turn(&b, kept, &b_turn, 0, 90);
        asked_free(&b_turn);
    }
    asked_free(&first);
    close_bed(&b);
}

static void rows_from_elsewhere_go_on(void **state)
{
    (void)state;
    go_on_from_elsewhere(LLAMA, 0);
    go_on_from_elsewhere(LLAMA, 4);
    go_on_from_elsewhere(GEMMA, 0);
    go_on_from_elsewhere(HYBRID, 0);
    go_on_from_elsewhere(LATENTS, 0);
}

// Fails the test unless nothing is taken over, and nothing has changed.
static void expect_no_adoption(kept_sequence *kept, kvern_state *row, const int32_t *tokens,
                               size_t count, kvern_status wanted)
{
    const int64_t length = kept_sequence_length(kept);
    engine_error error;
    assert_int_equal(wanted, schedule_adopt_kept(kept, row, tokens, count, &error));
    assert_int_equal(length, kept_sequence_length(kept));
    assert_int_equal(1, kvern_state_rows(row));
}

static void what_cannot_be_taken_over_is_refused(void **state)
{
    (void)state;
    static asked a, busy;
    bed b = open_bed(LLAMA, &storages[0], 1, 0), other = open_bed(GEMMA, &storages[0], 1, 0);
    kept_sequence *kept, *foreign;
    kvern_state *row;
    test_random random = test_random_seed(12);
    assert_ok(schedule_keep(b.schedule, &kept, NULL));
    assert_ok(schedule_keep(other.schedule, &foreign, NULL));
    asked_fill(&a, b.engine.model, 40, 0, &random);
    a.max_tokens = 0;
    run_turn(&b, kept, &a, 0, 40);
    assert_ok(kvern_state_extract(schedule_state(b.schedule), 0, &row));
    expect_no_adoption(kept, row, a.prompt, 39, KVERN_ERR_RANGE);
    expect_no_adoption(kept, row, a.prompt, 0, KVERN_ERR_RANGE);
    expect_no_adoption(foreign, row, a.prompt, 40, KVERN_ERR_ARGUMENT); // another context
    a.prompt[39] = SCHEDULE_BED_VOCABULARY;
    expect_no_adoption(kept, row, a.prompt, 40, KVERN_ERR_RANGE);
    a.prompt[39] = -1;
    expect_no_adoption(kept, row, a.prompt, 40, KVERN_ERR_RANGE);
    a.prompt[39] = 0;
    busy.vocabulary = SCHEDULE_BED_VOCABULARY;
    submit_turn(&b, kept, &busy, 1);
    expect_no_adoption(kept, row, a.prompt, 40, KVERN_ERR_BUSY);
    while (schedule_step(b.schedule)) {
    }
    assert_ok(schedule_adopt_kept(kept, row, a.prompt, 40, NULL));
    kvern_state_destroy(row);
    asked_free(&a);
    close_bed(&b);
    close_bed(&other);
}

// Under a budget that holds its row and no second one, a turn goes without a checkpoint.
static void checkpoints_take_no_room_from_turns(void **state)
{
    (void)state;
    const uint64_t empty = empty_bytes(HYBRID, &storages[0]);
    bool served = false;
    for (uint64_t more = 50000; !served; more += more / 16) {
        static asked first, second;
        kept_sequence *kept;
        test_random random = test_random_seed(9);
        bed b = open_within(HYBRID, &storages[0], 1, 0, empty + more);
        schedule_destroy(b.schedule);
        b.options.chunk = 64; // the second prompt is one step then
        assert_ok(
            schedule_create(b.engine.model, b.engine.composition, &b.options, &b.schedule, NULL));
        assert_ok(schedule_keep(b.schedule, &kept, NULL));
        asked_fill(&first, b.engine.model, 100, 0, &random);
        first.max_tokens = 60;
        first.cancel_after = 1;
        schedule_request request = asked_request(&first);
        request.kept = kept;
        served = schedule_submit(b.schedule, &request, &first.id, NULL) == KVERN_OK;
        while (served && schedule_step(b.schedule)) {
        }
        served = served && first.result.status == KVERN_OK;
        if (served) { // so a row of 160 tokens fits
            const size_t count = (size_t)kept_sequence_length(kept);
            asked_fill(&second, b.engine.model, 40, 0, &random);
            second.max_tokens = 10;
            run_turn(&b, kept, &second, 0, 40);
            assert_int_equal(second.result.status, KVERN_OK);
            assert_int_equal(second.result.shared_tokens, count);
        }
        asked_free(&first);
        asked_free(&second);
        memset(&first, 0, sizeof first);
        memset(&second, 0, sizeof second);
        close_bed(&b);
    }
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
    bed b = open_bed(LLAMA, &storages[0], 1, 0);
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
        cmocka_unit_test(so_are_those_of_other_layers),
        cmocka_unit_test(budgets_refuse_turns_and_break_none),
        cmocka_unit_test(what_is_not_possible_is_refused),
        cmocka_unit_test(little_is_forwarded_again),
        cmocka_unit_test(rows_from_elsewhere_go_on),
        cmocka_unit_test(what_cannot_be_taken_over_is_refused),
        cmocka_unit_test(checkpoints_take_no_room_from_turns),
        cmocka_unit_test(a_step_within_a_callback_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
