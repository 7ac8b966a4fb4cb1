// SPDX-License-Identifier: MIT
// Memory of selections and of reads of selected positions: every allocation refused once, with
// nothing written; nothing taken once it has run, or where a plan has reserved it; and plans of
// bytes that hold under a budget of just as many.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/latent_feed.h"
#include "tests/support/ledger.h"
#include "tests/support/sanitizer.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 3
#define HEADS 40
#define INDEX_HEADS 20
#define INDEX_DIM 32
#define LATENT 64
#define ROPE 16
#define NOPE 24
#define VALUE 32
#define TOP_K 150
#define TOKENS (HAS_SANITIZER ? 320 : 700)
#define CHUNK 40
#define QUERIES (ROWS * CHUNK)
#define FILL 0x5a

typedef struct world {
    ledger books;
    kvern_context *context;
    kvern_layer layer;
    kvern_composition *composition;
    kvern_state *state;
    kvern_read *read;
    size_t queries;
    int64_t counts[ROWS];
    int64_t positions[QUERIES * TOP_K], counted[QUERIES];
    kvern_selection selection;
    float q[QUERIES * HEADS * (LATENT + ROPE)], out[QUERIES * HEADS * LATENT];
    float index_q[QUERIES * INDEX_HEADS * INDEX_DIM], weights[QUERIES * INDEX_HEADS];
    float rows[HEADS * (NOPE + VALUE) * LATENT];
} world;

static world *world_create(uint64_t budget, size_t threads)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    kvern_context_options options = kvern_context_options_default();
    ledger_init(&w->books);
    options.allocator = ledger_allocator(&w->books);
    options.threads = threads;
    options.budget_bytes = budget;
    w->layer = kvern_layer_latent(LATENT, ROPE, INDEX_DIM);
    w->layer.latent_codec = kvern_codec_dense(KVERN_BF16);
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, &w->layer, 1, &w->composition));
    feed_values(1, 0, FEED_Q, sizeof w->q / sizeof w->q[0], w->q);
    feed_values(2, 0, FEED_Q, sizeof w->index_q / sizeof w->index_q[0], w->index_q);
    feed_values(3, 0, FEED_V, sizeof w->weights / sizeof w->weights[0], w->weights);
    feed_values(4, 0, FEED_K, sizeof w->rows / sizeof w->rows[0], w->rows);
    w->selection = kvern_selection_default(w->positions, w->counted, QUERIES, TOP_K);
    return w;
}

static void world_destroy(world *w)
{
    kvern_read_release(w->read);
    kvern_state_destroy(w->state);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
    free(w);
}

static void open_state(world *w, const kvern_plan *plan)
{
    assert_ok(kvern_state_create(w->composition, ROWS, &w->state));
    for (size_t r = 0; plan && r < ROWS; r++)
        assert_ok(kvern_state_reserve_plan(w->state, r, plan));
}

static float lanes[3][QUERIES * LATENT];

// A step of as many tokens per row, whose read stays open.
static void step(world *w, int64_t count)
{
    kvern_latent_tokens tokens = kvern_latent_tokens_default(&w->layer);
    size_t at = 0;
    for (size_t r = 0; r < ROWS; r++) {
        w->counts[r] = count;
        for (int64_t i = 0; i < count; i++, at++) {
            const int64_t position = kvern_state_length(w->state, r) + i;
            latent_feed_values(r + 1, position, LATENT_LANE, LATENT, lanes[0] + at * LATENT);
            latent_feed_values(r + 1, position, ROPE_LANE, ROPE, lanes[1] + at * ROPE);
            latent_feed_values(r + 1, position, INDEX_LANE, INDEX_DIM, lanes[2] + at * INDEX_DIM);
        }
    }
    w->queries = at;
    tokens.latent = lanes[0], tokens.rope = lanes[1], tokens.index = lanes[2];
    assert_ok(kvern_step_begin(w->state, KVERN_PHASE_WINDOW, w->counts));
    assert_ok(kvern_step_append_latent(w->state, 0, &tokens, &w->read));
}

static void end_step(world *w)
{
    kvern_read_release(w->read);
    w->read = NULL;
    assert_ok(kvern_step_end(w->state));
}

// ---- Calls ----

static kvern_status select_positions(world *w)
{
    kvern_index_queries ask = kvern_index_queries_default(INDEX_HEADS, INDEX_DIM, TOP_K);
    ask.q = w->index_q, ask.weights = w->weights;
    return kvern_read_select(w->read, &ask, &w->selection);
}

static kvern_status attend_selected(world *w)
{
    kvern_queries queries = kvern_queries_default(&w->layer, HEADS);
    queries.q = w->q, queries.out = w->out, queries.selection = &w->selection;
    return kvern_read_attend(w->read, &queries);
}

static kvern_status attend_materialized_with(world *w, const kvern_selection *selection)
{
    kvern_queries queries = kvern_queries_default(&w->layer, HEADS);
    kvern_latent_weights weights = kvern_latent_weights_default(&w->layer, NOPE, VALUE);
    weights.weights = w->rows;
    queries.q_head_stride = NOPE + ROPE, queries.q_token_stride = HEADS * (NOPE + ROPE);
    queries.out_head_stride = VALUE, queries.out_token_stride = HEADS * VALUE;
    queries.q = w->q, queries.out = w->out, queries.selection = selection;
    return kvern_read_attend_materialized(w->read, &queries, &weights);
}

static kvern_status attend_materialized(world *w)
{
    return attend_materialized_with(w, NULL);
}

static kvern_status attend_materialized_selected(world *w)
{
    return attend_materialized_with(w, &w->selection);
}

static const struct {
    const char *name;
    kvern_status (*call)(world *w);
} calls[] = {{"select", select_positions},
             {"attend selected", attend_selected},
             {"attend materialized", attend_materialized},
             {"attend materialized, selected", attend_materialized_selected}};
#define CALLS (sizeof calls / sizeof calls[0])

// ---- Refusals ----

// A world with rows of `length` positions before a step of `count`, and a selection.
static world *world_ready(int64_t length, int64_t count)
{
    world *w = world_create(0, 2);
    open_state(w, NULL);
    for (int64_t at = 0; at < length; at += CHUNK) {
        step(w, CHUNK);
        end_step(w);
    }
    step(w, count);
    assert_ok(select_positions(w));
    (void)kvern_context_trim(w->context);
    return w;
}

static bool is_filled(const void *memory, size_t bytes)
{
    const unsigned char *at = memory;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != FILL)
            return false;
    return true;
}

static bool try_refusal(size_t call, int64_t granted, bool rest)
{
    world *w = world_ready(HAS_SANITIZER ? 320 : 640, 3);
    static int64_t positions[QUERIES * TOP_K];
    memcpy(positions, w->positions, sizeof positions);
    memset(w->out, FILL, sizeof w->out);
    const uint64_t held = w->books.held_bytes;
    const size_t queries = w->selection.queries;
    if (rest)
        ledger_refuse_rest(&w->books, granted);
    else
        ledger_refuse(&w->books, granted);
    kvern_status status = calls[call].call(w);
    const bool refused = ledger_relent(&w->books);
    assert_int_equal(status != KVERN_OK, refused);
    if (refused) {
        assert_status(KVERN_ERR_MEMORY, status);
        assert_int_equal(w->selection.queries, queries);
        check_same_bytes(positions, w->positions, sizeof positions, calls[call].name);
        assert_true(is_filled(w->out, sizeof w->out));
        assert_int_equal(w->books.held_bytes, held);
        assert_ok(calls[call].call(w));
    }
    world_destroy(w);
    return refused;
}

static void every_allocation_may_be_refused(void **state)
{
    (void)state;
    for (size_t c = 0; c < CALLS; c++) {
        int64_t refused = 0;
        while (try_refusal(c, refused, refused % 2 == 1))
            refused++;
        assert_true(refused > 0);
    }
}

// ---- Nothing per token ----

static void what_has_run_takes_nothing(void **state)
{
    (void)state;
    world *w = world_ready(HAS_SANITIZER ? 320 : 640, 1);
    for (size_t c = 0; c < CALLS; c++)
        assert_ok(calls[c].call(w));
    const uint64_t allocations = w->books.allocations;
    for (int i = 0; i < 3; i++)
        for (size_t c = 0; c < CALLS; c++)
            assert_ok(calls[c].call(w));
    assert_int_equal(w->books.allocations, allocations);
    world_destroy(w);
}

// ---- Plans ----

static kvern_plan plan_of(int64_t chunk)
{
    kvern_plan plan = kvern_plan_default();
    plan.rows = ROWS;
    plan.tokens = TOKENS;
    plan.chunk = chunk;
    plan.query_vectors = HEADS * (size_t)chunk;
    plan.selected = TOP_K;
    plan.index_heads = INDEX_HEADS;
    plan.nope_dim = NOPE;
    plan.value_dim = VALUE;
    return plan;
}

// Rows grow to TOKENS positions in chunks of any size up to the plan's.
static void run_plan(world *w, int64_t chunk)
{
    for (int64_t length = 0, next = 0; length < TOKENS; length += next) {
        next = 1 + length / 3 % chunk;
        next = next < TOKENS - length ? next : TOKENS - length;
        if (length + next > 3 * TOP_K && length + chunk < TOKENS)
            next = chunk;
        step(w, next);
        // Materialized reads take their time: of the rows at their longest.
        const size_t all = length + next + 2 * chunk > TOKENS ? CALLS : 2;
        for (size_t c = 0; c < all; c++)
            assert_ok(calls[c].call(w));
        end_step(w);
    }
}

static void a_plan_reserves_selections(void **state)
{
    (void)state;
    static const int64_t chunks[] = {7, CHUNK, 1};
    for (size_t i = 0; i < (HAS_SANITIZER ? 2 : 3); i++) {
        for (size_t threads = 1; threads <= 5; threads += 4) {
            const kvern_plan plan = plan_of(chunks[i]);
            world *w = world_create(0, threads);
            open_state(w, &plan);
            const uint64_t allocations = w->books.allocations;
            run_plan(w, chunks[i]);
            assert_int_equal(w->books.allocations, allocations);
            world_destroy(w);
        }
    }
}

static void a_budget_of_the_plan_is_enough(void **state)
{
    (void)state;
    static const int64_t chunks[] = {7, CHUNK, 1};
    for (size_t i = 0; i < (HAS_SANITIZER ? 2 : 3); i++) {
        const kvern_plan plan = plan_of(chunks[i]);
        uint64_t bytes, without;
        kvern_plan dense = plan;
        dense.selected = 0, dense.index_heads = 0, dense.value_dim = 0;
        world *probe = world_create(0, 2);
        const uint64_t base = probe->books.held_bytes;
        assert_ok(kvern_composition_plan_bytes(probe->composition, &plan, &bytes));
        assert_ok(kvern_composition_plan_bytes(probe->composition, &dense, &without));
        assert_true(bytes > without); // selections are counted
        world_destroy(probe);
        world *w = world_create(base + bytes, 2);
        open_state(w, &plan);
        run_plan(w, chunks[i]);
        assert_true(w->books.most_bytes <= base + bytes);
        world_destroy(w);
    }
}

// Rows of 600 positions in steps without selections, the last of which is open.
static world *world_under(uint64_t budget)
{
    kvern_plan plan = plan_of(CHUNK);
    plan.selected = 0, plan.index_heads = 0, plan.query_vectors = 0, plan.value_dim = 0;
    world *w = world_create(budget, 2);
    open_state(w, &plan);
    for (int64_t length = 0; length < 560; length += CHUNK) {
        step(w, CHUNK);
        end_step(w);
    }
    step(w, CHUNK);
    return w;
}

// A budget without room for a selection refuses it, and keeps its books.
static void a_budget_refuses_selections(void **state)
{
    (void)state;
    world *probe = world_under(UINT64_C(1) << 30); // under a budget arenas are small
    const uint64_t most = probe->books.most_bytes;
    world_destroy(probe);
    world *w = world_under(most);
    memset(w->out, FILL, sizeof w->out);
    assert_status(KVERN_ERR_BUDGET, select_positions(w));
    assert_int_equal(w->selection.queries, 0);
    for (size_t n = 0; n < w->queries; n++) { // a selection from elsewhere
        w->counted[n] = TOP_K;
        for (int64_t j = 0; j < TOP_K; j++)
            w->positions[n * TOP_K + (size_t)j] = 3 * j;
    }
    w->selection.queries = w->queries;
    assert_status(KVERN_ERR_BUDGET, attend_selected(w));
    assert_status(KVERN_ERR_BUDGET, attend_materialized(w));
    assert_true(is_filled(w->out, sizeof w->out));
    assert_true(w->books.most_bytes <= most);
    world_destroy(w);
}

static void plans_out_of_range_are_refused(void **state)
{
    (void)state;
    world *w = world_create(0, 1);
    uint64_t bytes;
    kvern_plan plan = plan_of(1);
    plan.selected = -1;
    assert_status(KVERN_ERR_RANGE, kvern_composition_plan_bytes(w->composition, &plan, &bytes));
    plan = plan_of(1);
    plan.index_heads = KVERN_MAX_INDEX_HEADS + 1;
    assert_status(KVERN_ERR_RANGE, kvern_composition_plan_bytes(w->composition, &plan, &bytes));
    plan = plan_of(1);
    plan.value_dim = KVERN_MAX_HEAD_DIM + 8;
    assert_status(KVERN_ERR_RANGE, kvern_composition_plan_bytes(w->composition, &plan, &bytes));
    plan = plan_of(1);
    plan.query_vectors = SIZE_MAX / 2;
    assert_status(KVERN_ERR_OVERFLOW, kvern_composition_plan_bytes(w->composition, &plan, &bytes));
    world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_be_refused),
        cmocka_unit_test(what_has_run_takes_nothing),
        cmocka_unit_test(a_plan_reserves_selections),
        cmocka_unit_test(a_budget_of_the_plan_is_enough),
        cmocka_unit_test(a_budget_refuses_selections),
        cmocka_unit_test(plans_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
