// SPDX-License-Identifier: MIT
// Plans of bytes. Random models and plans: under a budget of exactly the planned bytes a random
// program that keeps to its plan is never refused; with reservations of the same plan it takes
// nothing at all from the allocator; and the number is close to what is taken.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/layers.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"

#include <kvern/kvern.h>

#include <inttypes.h>
#include <stdlib.h>

#define MOST_LAYERS 4
#define MOST_ROWS 4
#define GROUP 2 // query heads per KV head

typedef struct model {
    kvern_layer layers[MOST_LAYERS];
    size_t layer_count;
    kvern_plan plan;
    size_t threads;
} model;

typedef struct world {
    const model *m;
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
    uint64_t base; // held before there was a state
    bool attends;
} world;

static size_t below(test_random *random, size_t bound)
{
    return (size_t)test_random_below(random, bound);
}

// Pages of 8 KiB and more, for which the bound of closeness is stated.
static void choose_layer(test_random *random, kvern_layer *layer)
{
    *layer = kvern_layer_default(1 + below(random, 2), 64 + 64 * below(random, 2));
    layer_choose_storage(random, layer);
    if (layer->kind == KVERN_LAYER_WINDOW) {
        layer->window = 1 + (int64_t)below(random, 300);
        layer->keep = (int64_t)below(random, (size_t)layer->window);
        layer->slack = (int64_t)below(random, 70);
    } else if (layer->kind == KVERN_LAYER_CHUNKED) {
        layer->chunk = 1 + (int64_t)below(random, 300);
        layer->slack = (int64_t)below(random, 70);
    }
    const int64_t seen = layer->kind == KVERN_LAYER_CHUNKED ? layer->chunk : layer->window;
    if (layer->kind != KVERN_LAYER_FULL && layer->residual >= seen)
        layer->residual = seen - 1;
    if (layer->start != KVERN_NO_START)
        layer->start = (int64_t)below(random, 300);
}

static size_t most_kv_heads(const model *m)
{
    size_t most = 0;
    for (size_t l = 0; l < m->layer_count; l++)
        most = m->layers[l].kv_heads > most ? m->layers[l].kv_heads : most;
    return most;
}

static void choose_model(test_random *random, model *m)
{
    m->layer_count = 1 + below(random, MOST_LAYERS);
    for (size_t l = 0; l < m->layer_count; l++)
        choose_layer(random, &m->layers[l]);
    m->threads = 1 + below(random, 3);
    m->plan = kvern_plan_default();
    m->plan.rows = 1 + below(random, MOST_ROWS);
    m->plan.tokens = 1 + (int64_t)below(random, 1200);
    m->plan.chunk = 1 + (int64_t)below(random, below(random, 2) ? 300 : 3);
    m->plan.round = (int64_t)below(random, 40);
    const int64_t most = m->plan.chunk > m->plan.round ? m->plan.chunk : m->plan.round;
    m->plan.query_vectors = GROUP * most_kv_heads(m) * (size_t)most;
}

// ---- Worlds ----

static void open_world(world *w, const model *m, uint64_t budget)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_memory memory = {.size = sizeof memory};
    w->m = m;
    w->attends = true;
    w->state = NULL;
    ledger_init(&w->books);
    options.allocator = ledger_allocator(&w->books);
    options.budget_bytes = budget;
    options.threads = m->threads;
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, m->layers, m->layer_count, &w->composition));
    assert_ok(kvern_context_memory(w->context, &memory));
    w->base = memory.held_bytes;
}

static void close_world(world *w)
{
    kvern_state_destroy(w->state);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

static uint64_t plan_bytes(const world *w)
{
    uint64_t bytes = 0;
    assert_ok(kvern_composition_plan_bytes(w->composition, &w->m->plan, &bytes));
    return bytes;
}

// ---- Programs ----

static bool has_tokens(const world *w, const int64_t *counts)
{
    for (size_t r = 0; r < w->m->plan.rows; r++) {
        if (counts[r])
            return true;
    }
    return false;
}

// Counts of a step: each row up to `most`, and up to the tokens of the plan.
static void choose_counts(world *w, test_random *random, int64_t most, int64_t *counts)
{
    for (size_t r = 0; r < w->m->plan.rows; r++) {
        const int64_t left = w->m->plan.tokens - kvern_state_length(w->state, r);
        const int64_t count = below(random, 3) ? (int64_t)below(random, (size_t)most + 1) : most;
        counts[r] = count < left ? count : left;
    }
}

// A step that is attended; all reads are open at once, and released before it ends.
static void run_step(world *w, const int64_t *counts)
{
    static const uint64_t sequences[MOST_ROWS] = {1, 2, 3, 4};
    kvern_read *reads[MOST_LAYERS] = {NULL};
    assert_ok(kvern_step_begin(w->state, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < w->m->layer_count; l++) {
        const kvern_cache *cache = kvern_state_cache(w->state, l);
        feed f = feed_create(cache, sequences, counts, GROUP * w->m->layers[l].kv_heads);
        assert_ok(feed_step_append(w->state, l, &f, &reads[l]));
        if (w->attends)
            assert_ok(kvern_read_attend(reads[l], &f.queries));
        feed_destroy(&f);
    }
    for (size_t l = 0; l < w->m->layer_count; l++)
        kvern_read_release(reads[l]);
    assert_ok(kvern_step_end(w->state));
}

static void run_round(world *w, test_random *random)
{
    int64_t most[MOST_ROWS], keep[MOST_ROWS], counts[MOST_ROWS];
    choose_counts(w, random, w->m->plan.round, most);
    for (size_t r = 0; r < w->m->plan.rows; r++) {
        const int64_t limit = kvern_state_round_limit(w->state, r);
        most[r] = most[r] < limit ? most[r] : limit;
        counts[r] = most[r] < w->m->plan.chunk ? most[r] : w->m->plan.chunk;
    }
    if (!has_tokens(w, most))
        return;
    assert_ok(kvern_round_begin(w->state, most));
    run_step(w, counts);
    for (size_t r = 0; r < w->m->plan.rows; r++)
        keep[r] = (int64_t)below(random, (size_t)counts[r] + 1);
    assert_ok(kvern_round_rollback(w->state, keep));
}

static void trim_some(world *w, test_random *random)
{
    const size_t row = below(random, w->m->plan.rows);
    const int64_t most = kvern_state_trimmable(w->state, row);
    if (most > 0)
        assert_ok(kvern_state_trim(w->state, row, (int64_t)below(random, (size_t)most + 1)));
}

static void run_program(world *w, test_random *random)
{
    int64_t counts[MOST_ROWS];
    for (int i = 0; i < 25; i++) {
        if (w->m->plan.round && below(random, 3) == 0)
            run_round(w, random);
        if (below(random, 9) == 0)
            trim_some(w, random);
        choose_counts(w, random, below(random, 2) ? w->m->plan.chunk : 1, counts);
        run_step(w, counts);
    }
}

// ---- Properties ----

// Not reserved, under a budget of what was planned. Idle scratch of smaller attends would lie in
// the way of larger ones; a reservation has it once.
static void check_budget(const model *m, uint64_t seed)
{
    world w;
    test_random random = test_random_seed(seed);
    open_world(&w, m, UINT64_MAX);
    const uint64_t budget = w.base + plan_bytes(&w);
    close_world(&w);
    open_world(&w, m, budget);
    w.attends = false;
    assert_ok(kvern_state_create(w.composition, m->plan.rows, &w.state));
    run_program(&w, &random);
    close_world(&w);
}

// Reserved: then the allocator refuses everything.
static void check_reserved(const model *m, uint64_t seed, double *ratio)
{
    world w;
    test_random random = test_random_seed(seed);
    open_world(&w, m, UINT64_MAX);
    const uint64_t bytes = plan_bytes(&w);
    close_world(&w);
    open_world(&w, m, w.base + bytes);
    assert_ok(kvern_state_create(w.composition, m->plan.rows, &w.state));
    for (size_t r = 0; r < m->plan.rows; r++)
        assert_ok(kvern_state_reserve_plan(w.state, r, &m->plan));
    const uint64_t taken = w.books.held_bytes - w.base;
    assert_true(taken <= bytes);
    assert_true((double)bytes <= 1.04 * (double)taken + 65536);
    *ratio = (double)bytes / (double)taken;
    ledger_refuse_rest(&w.books, 0);
    run_program(&w, &random);
    (void)ledger_relent(&w.books);
    assert_true(w.books.most_bytes <= w.base + bytes);
    close_world(&w);
}

static void planned_bytes_are_enough(void **state)
{
    (void)state;
    const int programs = check_repetitions(60, 3000);
    double sum = 0;
    for (int i = 0; i < programs; i++) {
        const uint64_t seed = check_seed() + (uint64_t)i * 1000003;
        test_random random = test_random_seed(seed);
        model m;
        double ratio;
        choose_model(&random, &m);
        check_budget(&m, seed);
        check_reserved(&m, seed, &ratio);
        sum += ratio;
    }
    print_message("planned bytes are %.3f of what is reserved\n", sum / programs);
}

// ---- Single cases ----

static kvern_composition *make(kvern_context *context, const kvern_layer *layers, size_t count)
{
    kvern_composition *composition;
    assert_ok(kvern_composition_create(context, layers, count, &composition));
    return composition;
}

// A plan for a context of 2^31 in 64 layers is arithmetic: it takes no memory.
static void plans_take_no_memory(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_context_options options = kvern_context_options_default();
    kvern_layer layers[64];
    kvern_context *context;
    uint64_t bytes;
    for (size_t l = 0; l < 64; l++)
        layers[l] = kvern_layer_default(8, 128);
    options.allocator = ledger_allocator(&books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &context));
    kvern_composition *composition = make(context, layers, 64);
    kvern_plan plan = kvern_plan_default();
    plan.tokens = INT64_C(1) << 31;
    plan.chunk = 512;
    plan.query_vectors = 32 * 512;
    ledger_refuse_rest(&books, 0);
    assert_ok(kvern_composition_plan_bytes(composition, &plan, &bytes));
    assert_false(ledger_relent(&books));
    const double exact = 2147483648.0 * 64 * 8 * 128 * 2 * 2;
    assert_true((double)bytes >= exact && (double)bytes <= 1.04 * exact);
    plan.tokens = INT64_C(1) << 40;
    plan.rows = KVERN_MAX_ROWS;
    assert_status(KVERN_ERR_OVERFLOW, kvern_composition_plan_bytes(composition, &plan, &bytes));
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// A row that has read its prompt gives the room of chunks back.
static void a_shorter_chunk_gives_room_back(void **state)
{
    (void)state;
    kvern_context *context;
    const kvern_layer layer = kvern_layer_window(1, 64, 128);
    assert_ok(kvern_context_create(NULL, &context));
    kvern_composition *composition = make(context, &layer, 1);
    kvern_state *s;
    kvern_plan plan = kvern_plan_default();
    assert_ok(kvern_state_create(composition, 1, &s));
    plan.tokens = 100000;
    plan.chunk = 5120;
    assert_ok(kvern_state_reserve_plan(s, 0, &plan));
    const uint64_t page = 64 * 64 * 2 * 2, prompt = kvern_state_bytes(s);
    assert_true(prompt >= 83 * page && prompt <= 85 * page);
    plan.chunk = 1;
    assert_ok(kvern_state_reserve_plan(s, 0, &plan));
    assert_true(kvern_state_bytes(s) >= 4 * page && kvern_state_bytes(s) <= 5 * page);
    plan.tokens = -1;
    assert_status(KVERN_ERR_RANGE, kvern_state_reserve_plan(s, 0, &plan));
    plan = kvern_plan_default();
    plan.rows = 0;
    assert_status(KVERN_ERR_RANGE, kvern_state_reserve_plan(s, 0, &plan));
    plan = kvern_plan_default();
    assert_status(KVERN_ERR_RANGE, kvern_state_reserve_plan(s, 1, &plan));
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static uint64_t page_bytes(const world *w)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w->context, &memory));
    return memory.page_bytes;
}

// A row that shares a window with another one has pages for both of them to go on alone: neither
// the allocator is asked nor a page taken that an arena has left.
static void shared_windows_are_reserved_for(void **state)
{
    (void)state;
    world w;
    model m = {.layer_count = 2, .threads = 1, .plan = kvern_plan_default()};
    m.layers[0] = kvern_layer_window(1, 64, 128);
    m.layers[1] = kvern_layer_default(1, 64);
    m.plan.tokens = 2000;
    m.plan.chunk = 64;
    m.plan.query_vectors = GROUP * 64;
    open_world(&w, &m, 0);
    kvern_state *fork;
    assert_ok(kvern_state_create(w.composition, 1, &w.state));
    for (int i = 0; i < 8; i++)
        run_step(&w, &m.plan.chunk);
    assert_ok(kvern_state_fork(w.state, &(size_t){0}, 1, &fork));
    assert_ok(kvern_state_reserve_plan(fork, 0, &m.plan));
    kvern_state *first = w.state;
    w.state = fork;
    const uint64_t reserved = page_bytes(&w);
    ledger_refuse_rest(&w.books, 0);
    for (int i = 0; i < 20; i++) {
        run_step(&w, &m.plan.chunk);
        assert_true(page_bytes(&w) <= reserved);
    }
    (void)ledger_relent(&w.books);
    kvern_state_destroy(first);
    close_world(&w);
}

// Room is made for one row, and then for another one that is added and does less. An attend of both
// needs more scratch than either alone.
static void rows_of_different_plans(void **state)
{
    (void)state;
    for (size_t threads = 1; threads < 4; threads++) {
        const int64_t counts[] = {128, 1};
        world w;
        model m = {.layer_count = 1, .threads = threads, .plan = kvern_plan_default()};
        m.layers[0] = kvern_layer_default(1, 64);
        m.plan.tokens = m.plan.chunk = 128;
        m.plan.query_vectors = GROUP * 128;
        open_world(&w, &m, 0);
        assert_ok(kvern_state_create(w.composition, 1, &w.state));
        assert_ok(kvern_state_reserve_plan(w.state, 0, &m.plan));
        assert_ok(kvern_state_add_rows(w.state, 1));
        kvern_plan less = kvern_plan_default();
        less.tokens = 1;
        less.query_vectors = GROUP;
        assert_ok(kvern_state_reserve_plan(w.state, 1, &less));
        ledger_refuse_rest(&w.books, 0);
        run_step(&w, counts);
        assert_false(ledger_relent(&w.books));
        close_world(&w);
    }
}

// The limit of a round is what begin accepts, and one more is refused.
static void round_limits_are_exact(void **state)
{
    (void)state;
    const int programs = check_repetitions(60, 2000);
    for (int i = 0; i < programs; i++) {
        test_random random = test_random_seed(check_seed() + (uint64_t)i * 7919);
        model m;
        world w;
        int64_t counts[MOST_ROWS], none[MOST_ROWS] = {0};
        choose_model(&random, &m);
        open_world(&w, &m, 0);
        assert_ok(kvern_state_create(w.composition, m.plan.rows, &w.state));
        for (int step = 0; step < 6; step++) {
            for (size_t r = 0; r < m.plan.rows; r++) {
                int64_t one[MOST_ROWS] = {0};
                one[r] = kvern_state_round_limit(w.state, r);
                assert_true(one[r] >= 0);
                assert_ok(kvern_round_begin(w.state, one));
                assert_ok(kvern_round_rollback(w.state, none));
                one[r]++;
                const kvern_status status = kvern_round_begin(w.state, one);
                assert_true(status == KVERN_ERR_UNSUPPORTED || status == KVERN_ERR_RANGE);
            }
            choose_counts(&w, &random, m.plan.chunk, counts);
            run_step(&w, counts);
            trim_some(&w, &random);
        }
        assert_int_equal(kvern_state_round_limit(w.state, m.plan.rows), -1);
        close_world(&w);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_bytes_are_enough),
        cmocka_unit_test(plans_take_no_memory),
        cmocka_unit_test(a_shorter_chunk_gives_room_back),
        cmocka_unit_test(shared_windows_are_reserved_for),
        cmocka_unit_test(rows_of_different_plans),
        cmocka_unit_test(round_limits_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
