// SPDX-License-Identifier: MIT
// Rows of windows near the last position that there is. Where a row begins within a span decides
// its bits, not how far it has come: what is done to a row of some thousand positions is done to
// one that is nearly full, and both answer the same, until one of them is full.

#include "tests/support/check.h"
#include "tests/support/random.h"
#include "tests/support/storages.h"

#include <kvern/experimental/padded.h>
#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define LAYERS 3
#define DIM 32
#define HEADS 2
#define WIDTH 150 // columns of the planes that rows begin with
#define MOST 64   // tokens of a step
#define FULL (INT64_C(1) << 40)
#define ROOM 300               // positions that the far row has left
#define FAR (FULL - ROOM)      // where it begins
#define NEAR (4 * 1024 - ROOM) // where the other one does: as far before the end of a span
#define SLACK 12

static const storage kinds[LAYERS] = {
    {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0},
    {"8 bits", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(8, 32), KVERN_NO_START, 0, 0},
    {"4 bits, from far on", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), FAR + 90, 0, 0},
};

typedef struct world {
    test_random random;
    kvern_context *context;
    kvern_composition *compositions[2]; // near, far
    kvern_state *states[2];
    float tokens[2 * MOST * DIM], queries[MOST * HEADS * DIM];
    float out[2][MOST * HEADS * DIM];
} world;

static void plan(kvern_layer *layers, int64_t shift)
{
    for (size_t l = 0; l < LAYERS; l++) {
        layers[l] = storage_window(&kinds[l], 1, DIM, 70 + 10 * (int64_t)l, (int64_t)l, SLACK);
        if (layers[l].start != KVERN_NO_START)
            layers[l].start -= shift;
    }
}

static void fill(world *w, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = test_random_signed(&w->random);
}

static void import(world *w, int which, int64_t offset, float *k, float *v)
{
    int64_t left = 0;
    kvern_padded_planes planes[LAYERS];
    for (size_t l = 0; l < LAYERS; l++) {
        planes[l] = kvern_padded_planes_default();
        planes[l].width = WIDTH;
        planes[l].k = k;
        planes[l].v = v;
        planes[l].k_type = planes[l].v_type = KVERN_F32;
        planes[l].left_padding = &left;
        planes[l].offsets = &offset;
    }
    assert_ok(kvern_state_import_padded(w->states[which], planes));
}

static void open_world(world *w)
{
    kvern_layer layers[LAYERS];
    float *k = malloc(2 * WIDTH * DIM * sizeof *k), *v = k + WIDTH * DIM;
    assert_non_null(k);
    memset(w, 0, sizeof *w);
    w->random = test_random_seed(1);
    fill(w, k, 2 * WIDTH * DIM);
    assert_ok(kvern_context_create(NULL, &w->context));
    for (int i = 0; i < 2; i++) {
        plan(layers, i ? 0 : FAR - NEAR);
        assert_ok(kvern_composition_create(w->context, layers, LAYERS, &w->compositions[i]));
        assert_ok(kvern_state_create(w->compositions[i], 1, &w->states[i]));
        import(w, i, i ? FAR : NEAR, k, v);
    }
    free(k);
}

static void close_world(world *w)
{
    for (int i = 0; i < 2; i++) {
        kvern_state_destroy(w->states[i]);
        kvern_composition_release(w->compositions[i]);
    }
    kvern_context_release(w->context);
}

static void append_layer(world *w, int which, size_t layer)
{
    const kvern_layer *l = kvern_composition_layer(w->compositions[which], layer);
    kvern_tokens tokens = kvern_tokens_default(l);
    kvern_queries queries = kvern_queries_default(l, HEADS);
    kvern_read *read;
    tokens.k = w->tokens;
    tokens.v = w->tokens + MOST * DIM;
    queries.q = w->queries;
    queries.out = w->out[which];
    memset(w->out[which], 0, sizeof w->out[which]);
    assert_ok(kvern_step_append(w->states[which], layer, &tokens, &read));
    assert_ok(kvern_read_attend(read, &queries));
    kvern_read_release(read);
}

static void expect_same(const world *w)
{
    for (size_t l = 0; l < LAYERS; l++) {
        const kvern_cache *near = kvern_state_cache(w->states[0], l);
        const kvern_cache *far = kvern_state_cache(w->states[1], l);
        assert_int_equal(kvern_cache_length(far, 0) - kvern_cache_length(near, 0), FAR - NEAR);
        assert_int_equal(kvern_cache_trimmable(far, 0), kvern_cache_trimmable(near, 0));
        assert_int_equal(kvern_cache_converted(far, 0), kvern_cache_converted(near, 0));
        assert_int_equal(kvern_cache_bytes(far), kvern_cache_bytes(near));
        assert_int_equal(kvern_cache_padded_width(far), kvern_cache_padded_width(near));
        assert_int_equal(kvern_cache_min_reusable(far, 0) - kvern_cache_min_reusable(near, 0),
                         FAR - NEAR);
    }
}

static void step(world *w, kvern_phase phase, int64_t count)
{
    fill(w, w->tokens, sizeof w->tokens / sizeof w->tokens[0]);
    fill(w, w->queries, sizeof w->queries / sizeof w->queries[0]);
    for (int i = 0; i < 2; i++)
        assert_ok(kvern_step_begin(w->states[i], phase, &count));
    for (size_t l = 0; l < LAYERS; l++) {
        for (int i = 0; i < 2; i++)
            append_layer(w, i, l);
        check_same_floats(w->out[0], w->out[1], MOST * HEADS * DIM, kinds[l].name);
    }
    for (int i = 0; i < 2; i++)
        assert_ok(kvern_step_end(w->states[i]));
}

static void speculate(world *w, int64_t count, int64_t keep)
{
    for (int i = 0; i < 2; i++)
        assert_ok(kvern_round_begin(w->states[i], &count));
    step(w, KVERN_PHASE_WINDOW, count - 1);
    step(w, KVERN_PHASE_DECODE, 1);
    for (int i = 0; i < 2; i++)
        assert_ok(kvern_round_rollback(w->states[i], &keep));
    expect_same(w);
}

static void trim(world *w, int64_t tokens)
{
    for (int i = 0; i < 2; i++)
        assert_ok(kvern_state_trim(w->states[i], 0, tokens));
    expect_same(w);
}

// The states go on as their own forks.
static void fork_states(world *w)
{
    for (int i = 0; i < 2; i++) {
        kvern_state *fork;
        assert_ok(kvern_state_extract(w->states[i], 0, &fork));
        kvern_state_destroy(w->states[i]);
        w->states[i] = fork;
    }
}

static void expect_full(world *w)
{
    kvern_state *far = w->states[1];
    kvern_planned_slot slot = {.size = sizeof slot};
    const int64_t one = 1;
    assert_int_equal(kvern_state_length(far, 0), FULL);
    assert_int_equal(kvern_state_max_append(far, 0), 0);
    assert_status(KVERN_ERR_RANGE, kvern_step_begin(far, KVERN_PHASE_DECODE, &one));
    assert_status(KVERN_ERR_RANGE, kvern_round_begin(far, &one));
    assert_status(KVERN_ERR_RANGE, kvern_slot_plan(far, 0, 0, &slot));
    assert_ok(kvern_state_reserve(far, 0, FULL, HEADS));
    assert_ok(kvern_state_trim(far, 0, 1));
    assert_ok(kvern_slot_plan(far, 0, 0, &slot));
    assert_int_equal(slot.position, FULL - 1);
    assert_ok(kvern_state_trim(far, 0, FULL - 1)); // all
    assert_int_equal(kvern_state_length(far, 0), 0);
}

static void far_rows_are_like_near_ones(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    expect_same(&w);
    step(&w, KVERN_PHASE_WINDOW, 50);
    speculate(&w, SLACK, 5);
    trim(&w, 3);
    fork_states(&w);
    step(&w, KVERN_PHASE_WINDOW, MOST); // over the start
    expect_same(&w);
    assert_true(kvern_cache_converted(kvern_state_cache(w.states[1], 2), 0));
    speculate(&w, SLACK, 0);
    speculate(&w, SLACK, SLACK);
    trim(&w, SLACK);
    while (kvern_state_length(w.states[1], 0) < FULL) {
        const int64_t rest = FULL - kvern_state_length(w.states[1], 0);
        step(&w, KVERN_PHASE_KNOWN, rest < 33 ? rest : 33);
        expect_same(&w);
    }
    expect_full(&w);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(far_rows_are_like_near_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
