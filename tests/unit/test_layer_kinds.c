// SPDX-License-Identifier: MIT
// A layer of a kind that the library does not have yet: what works on keys and values alone refuses
// it by name, and all else goes by the layer's operations. The kind is attention's own operations
// in a list of their own, so its rows are sound and only the name differs.

#include "src/layer/attention/attention.h"
#include "src/state/state.h"
#include "src/state/walk.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/padded_tensors.h"

#include <kvern/experimental/padded.h>
#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM 64
#define TOKENS 100
#define OTHER 1 // the layer of that kind, of two
#define OTHER_KIND 77

static const uint64_t sequences[1] = {5};

typedef struct world {
    kvern_context *context;
    kvern_composition *composition;
    kvern_layer_ops ops;
    int rooms; // plans that the kind was asked about
} world;

static world *now; // for operations, which have no argument of ours

static void write_other(const kvern_layer *plan, char *text, size_t bytes)
{
    snprintf(text, bytes, "other:h%zu", plan->kv_heads);
}

static kvern_row_room count_room(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                 size_t row, const kvern_plan *plan)
{
    now->rooms++;
    return kvern_attention_layer.room(layer, rows, row, plan);
}

static int set_up(void **state)
{
    const kvern_layer layers[2] = {kvern_layer_default(2, DIM), kvern_layer_default(2, DIM)};
    world *w = now = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_ok(kvern_context_create(NULL, &w->context));
    assert_ok(kvern_composition_create(w->context, layers, 2, &w->composition));
    w->ops = kvern_attention_layer;
    w->ops.write_kind = write_other;
    w->ops.room = count_room;
    kvern_planned_layer *other = &w->composition->layers[OTHER];
    other->ops = &w->ops;
    other->plan.kind = (kvern_layer_kind)OTHER_KIND;
    w->ops.write_kind(&other->plan, other->signature, sizeof other->signature);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    free(w);
    return 0;
}

// The call refuses the layer, and says which one and what it is.
#define assert_refused(call)                                                                       \
    do {                                                                                           \
        assert_status(KVERN_ERR_UNSUPPORTED, call);                                                \
        if (!strstr(kvern_error_detail(), "layer 1: of kind 77, other:h2"))                        \
            fail_msg("%s: \"%s\"", #call, kvern_error_detail());                                   \
    } while (0)

static kvern_cache *filled_cache(const world *w, size_t layer)
{
    kvern_cache *cache;
    assert_ok(kvern_cache_create(w->composition, layer, 1, &cache));
    feed_one(cache, KVERN_PHASE_WINDOW, sequences[0], TOKENS, 2, NULL);
    return cache;
}

static void exports_and_adoption_refuse_it(void **state)
{
    const world *w = *state;
    kvern_cache *from = filled_cache(w, OTHER), *known = filled_cache(w, 0), *to, *to_known;
    float *k = calloc(TOKENS * 2 * DIM, sizeof *k);
    assert_non_null(k);
    assert_ok(kvern_cache_create(w->composition, OTHER, 1, &to));
    assert_ok(kvern_cache_create(w->composition, 0, 1, &to_known));
    assert_refused(kvern_cache_export(from, 0, 0, TOKENS, k, NULL));
    assert_refused(kvern_cache_export_affine(from, 0, 0, TOKENS, NULL, NULL));
    assert_refused(kvern_cache_adopt(to, 0, known, 0));
    assert_refused(kvern_cache_adopt(to_known, 0, from, 0));
    assert_int_equal(kvern_cache_length(to, 0), 0);
    assert_int_equal(kvern_cache_length(to_known, 0), 0);
    assert_ok(kvern_cache_adopt(to_known, 0, known, 0)); // the neighbour's kind is none of its own
    assert_ok(kvern_cache_export(known, 0, 0, TOKENS, k, NULL));
    kvern_cache_destroy(from);
    kvern_cache_destroy(known);
    kvern_cache_destroy(to);
    kvern_cache_destroy(to_known);
    free(k);
}

static void padded_planes_refuse_it(void **state)
{
    const world *w = *state;
    kvern_cache *other = filled_cache(w, OTHER), *known = filled_cache(w, 0), *empty;
    kvern_state *s;
    assert_ok(kvern_cache_create(w->composition, OTHER, 1, &empty));
    assert_ok(kvern_state_create(w->composition, 1, &s));
    padded_tensors t = padded_export(known);
    const kvern_padded_planes layers[2] = {t.planes, t.planes};
    assert_refused(kvern_cache_export_padded(other, &t.planes));
    assert_refused(kvern_cache_import_padded(empty, &t.planes));
    assert_refused(kvern_state_import_padded(s, layers));
    assert_int_equal(kvern_cache_length(empty, 0), 0);
    assert_int_equal(kvern_state_length(s, 0), 0);
    assert_null(kvern_state_walk(s));
    padded_destroy(&t);
    kvern_state_destroy(s);
    kvern_cache_destroy(empty);
    kvern_cache_destroy(known);
    kvern_cache_destroy(other);
}

static void slots_refuse_it(void **state)
{
    const world *w = *state;
    kvern_state *s;
    assert_ok(kvern_state_create(w->composition, 1, &s));
    kvern_planned_slot planned = {.size = sizeof planned};
    kvern_slot slot = {.size = sizeof slot};
    const float values[2 * DIM] = {0};
    assert_ok(kvern_slot_plan(s, 0, 0, &planned));
    assert_refused(kvern_slot_plan(s, OTHER, 0, &planned));
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, &(int64_t){1}));
    assert_ok(kvern_step_slot(s, 0, 0, &slot));
    assert_refused(kvern_step_slot(s, OTHER, 0, &slot));
    assert_refused(kvern_step_write(s, OTHER, 0, KVERN_F32, values, values));
    assert_refused(kvern_step_slots_done(s, OTHER, NULL));
    kvern_step_abandon(s);
    assert_null(kvern_state_walk(s));
    kvern_state_destroy(s);
}

// Plans, reservations and steps ask the kind.
static void plans_and_steps_go_by_its_operations(void **state)
{
    world *w = *state;
    kvern_plan plan = kvern_plan_default();
    kvern_state *s;
    uint64_t bytes;
    plan.tokens = TOKENS;
    assert_ok(kvern_composition_plan_bytes(w->composition, &plan, &bytes));
    assert_true(w->rooms > 0);
    assert_ok(kvern_state_create(w->composition, 1, &s));
    w->rooms = 0;
    assert_ok(kvern_state_reserve_plan(s, 0, &plan));
    assert_true(w->rooms > 0);
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, &(int64_t){1}));
    for (size_t l = 0; l < 2; l++) {
        feed f = feed_create(kvern_state_cache(s, l), sequences, &(int64_t){1}, 2);
        assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
    assert_int_equal(kvern_state_length(s, 0), 1);
    assert_null(kvern_state_walk(s));
    kvern_state_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exports_and_adoption_refuse_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(padded_planes_refuse_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slots_refuse_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plans_and_steps_go_by_its_operations, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
