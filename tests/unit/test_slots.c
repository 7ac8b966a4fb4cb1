// SPDX-License-Identifier: MIT
// Decode slots: what a caller's kernel stores through pointers and strides, or hands over, is what
// an append stores; plans come true; a step that fails leaves everything as it was.

#include "src/attend/read.h"
#include "src/state/cache.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"
#include "tests/support/mixed_state.h"
#include "tests/support/slot_store.h"
#include "tests/support/storages.h"

#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define HEADS 4
#define MOST 600 // numbers of a token in one stream

static const uint64_t sequences[3] = {31, 32, 33};

static kvern_memory memory_of(const kvern_context *context)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(context, &memory));
    return memory;
}

// ---- A caller's kernel ----

static void token_of(const kvern_layer *layer, uint64_t sequence, int64_t position, float *k,
                     float *v)
{
    feed_values(sequence, position, FEED_K, layer->kv_heads * layer->k_dim, k);
    feed_values(sequence, position, FEED_V, layer->kv_heads * layer->v_dim, v);
}

// Puts a row's token where it belongs: in place where the plan said so, else by handing it over.
static void put(kvern_state *s, size_t layer, size_t row, bool in_place)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(s, layer));
    kvern_slot slot = {.size = sizeof slot};
    float k[MOST], v[MOST];
    token_of(plan, sequences[row], kvern_step_position(s, row), k, v);
    if (!in_place) {
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_slot(s, layer, row, &slot));
        assert_ok(kvern_step_write(s, layer, row, KVERN_F32, k, v));
        return;
    }
    assert_ok(kvern_step_slot(s, layer, row, &slot));
    slot_store(&slot.k, plan->kv_heads, plan->k_dim, k);
    slot_store(&slot.v, plan->kv_heads, plan->v_dim, v);
}

static void attend(kvern_state *s, size_t layer, kvern_read *read, const int64_t *counts,
                   float *out)
{
    const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(s, layer));
    float *q = malloc(3 * HEADS * plan->k_dim * sizeof *q);
    assert_non_null(q);
    size_t token = 0;
    for (size_t r = 0; r < kvern_state_rows(s); r++) {
        if (counts[r])
            feed_values(sequences[r], kvern_step_position(s, r), FEED_Q, HEADS * plan->k_dim,
                        q + token++ * HEADS * plan->k_dim);
    }
    kvern_queries queries = kvern_queries_default(plan, HEADS);
    queries.q = q;
    queries.out = out;
    assert_ok(kvern_read_attend(read, &queries));
    free(q);
}

// Latents have no slots.
static bool has_slots(const kvern_state *s, size_t layer)
{
    return !kvern_cache_can(kvern_state_cache(s, layer), KVERN_CAN_LATENT);
}

static uint64_t foreseen_bytes(const kvern_cache *cache, size_t row)
{
    const kvern_row *r = &cache->rows[row];
    return kvern_row_foresee(r, r->length + 1) * kvern_cache_planned(cache)->geometry.page_bytes;
}

static void finish_layer(kvern_state *s, size_t layer, const int64_t *counts, kvern_read **read)
{
    if (has_slots(s, layer)) {
        assert_ok(kvern_step_slots_done(s, layer, read));
        return;
    }
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_slots_done(s, layer, read));
    feed f = feed_create(kvern_state_cache(s, layer), sequences, counts, HEADS);
    assert_ok(feed_step_append(s, layer, &f, read));
    feed_destroy(&f);
}

// A decode of every layer by slots; the results of the last layer go to `out`.
static void slot_step(kvern_state *s, const int64_t *counts, float *out)
{
    const size_t layers = kvern_composition_layers(kvern_state_composition(s));
    bool in_place[MIXED_LAYERS][3] = {{false}};
    for (size_t l = 0; l < layers; l++) {
        for (size_t r = 0; has_slots(s, l) && r < kvern_state_rows(s); r++) {
            kvern_planned_slot plan = {.size = sizeof plan};
            assert_ok(kvern_slot_plan(s, l, r, &plan));
            in_place[l][r] = plan.in_place;
        }
    }
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, counts));
    for (size_t l = 0; l < layers; l++) {
        kvern_read *read;
        for (size_t r = 0; has_slots(s, l) && r < kvern_state_rows(s); r++) {
            if (counts[r])
                put(s, l, r, in_place[l][r]);
        }
        finish_layer(s, l, counts, &read);
        attend(s, l, read, counts, out);
        kvern_read_release(read);
    }
    assert_ok(kvern_step_end(s));
}

static void append_step(kvern_state *s, kvern_phase phase, const int64_t *counts, float *out)
{
    assert_ok(kvern_step_begin(s, phase, counts));
    for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(s)); l++) {
        kvern_read *read = NULL;
        feed f = feed_create(kvern_state_cache(s, l), sequences, counts, HEADS);
        assert_ok(kvern_step_append(s, l, &f.tokens, out ? &read : NULL));
        if (out)
            attend(s, l, read, counts, out);
        kvern_read_release(read);
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
}

// ---- Equal to appends ----

typedef struct one_layer {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *by_slots, *by_appends;
} one_layer;

static void open_layer(one_layer *w, kvern_layer layer)
{
    memset(w, 0, sizeof *w);
    ledger_init(&w->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, &layer, 1, &w->composition));
    assert_ok(kvern_state_create(w->composition, 3, &w->by_slots));
    assert_ok(kvern_state_create(w->composition, 3, &w->by_appends));
}

static void close_layer(one_layer *w)
{
    kvern_state_destroy(w->by_slots);
    kvern_state_destroy(w->by_appends);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

static void check_equal(kvern_layer layer, const char *name)
{
    static const int64_t first[3] = {40, 0, 127};
    one_layer w;
    float wanted[3 * HEADS * 256], got[3 * HEADS * 256];
    open_layer(&w, layer);
    append_step(w.by_slots, KVERN_PHASE_WINDOW, first, NULL);
    append_step(w.by_appends, KVERN_PHASE_WINDOW, first, NULL);
    for (int64_t i = 0; i < 100; i++) {
        const int64_t counts[3] = {i % 5 != 0, 1, i % 3 == 0};
        slot_step(w.by_slots, counts, got);
        append_step(w.by_appends, KVERN_PHASE_DECODE, counts, wanted);
        const size_t tokens = (size_t)(counts[0] + counts[1] + counts[2]);
        check_same_bytes(wanted, got, tokens * HEADS * layer.v_dim * sizeof *got, name);
    }
    for (size_t r = 0; r < 3; r++)
        assert_int_equal(kvern_state_length(w.by_slots, r), kvern_state_length(w.by_appends, r));
    assert_int_equal(kvern_state_bytes(w.by_slots), kvern_state_bytes(w.by_appends));
    close_layer(&w);
}

static void slots_equal_appends_in_every_storage(void **state)
{
    (void)state;
    for_every_storage(check_equal, 2, 64, 20);
}

// Every panel of values: whole ones, a narrower last one, and none but that.
static void slots_equal_appends_at_every_width(void **state)
{
    (void)state;
    static const size_t dims[][2] = {{8, 8}, {64, 40}, {40, 72}, {128, 136}, {16, 200}};
    for (size_t i = 0; i < 5; i++) {
        for (int types = 0; types < 9; types++) {
            kvern_layer layer = kvern_layer_default(2, dims[i][0]);
            layer.v_dim = dims[i][1];
            layer.k_codec = kvern_codec_dense((kvern_type)(types / 3));
            layer.v_codec = kvern_codec_dense((kvern_type)(types % 3));
            check_equal(layer, "another width");
        }
    }
}

// ---- Plans ----

static void plans_come_true(void **state)
{
    (void)state;
    static const int64_t first[2] = {60, 100}, one[2] = {1, 1};
    static const size_t both[2] = {0, 1};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 2), *fork = NULL;
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    for (int i = 0; i < 140; i++) {
        if (i % 50 == 7) { // tables and last pages are shared for a while
            kvern_state_destroy(fork);
            assert_ok(kvern_state_fork(s, both, 2, &fork));
        }
        if (i == 30)
            assert_ok(kvern_state_reserve(s, 0, 150, 0));
        const kvern_memory before = memory_of(w.context);
        uint64_t bytes = 0;
        bool converts[MIXED_LAYERS][2];
        for (size_t l = 0; l < MIXED_LAYERS; l++) {
            for (size_t r = 0; r < 2; r++) {
                kvern_planned_slot plan = {.size = sizeof plan};
                if (!has_slots(s, l)) {
                    assert_status(KVERN_ERR_UNSUPPORTED, kvern_slot_plan(s, l, r, &plan));
                    bytes += foreseen_bytes(kvern_state_cache(s, l), r);
                    continue;
                }
                assert_ok(kvern_slot_plan(s, l, r, &plan));
                assert_int_equal(plan.position, kvern_state_length(s, r));
                const bool dense =
                    plan.k_codec.kind <= KVERN_CODEC_F16 && plan.v_codec.kind <= KVERN_CODEC_F16;
                assert_int_equal(plan.in_place, dense);
                bytes += plan.page_bytes;
                converts[l][r] = plan.converts;
                const kvern_layer *layer = kvern_composition_layer(w.composition, l);
                if (layer->start > 0 && !layer->residual)
                    assert_int_equal(plan.k_codec.kind == KVERN_CODEC_BF16,
                                     !kvern_cache_converted(kvern_state_cache(s, l), r));
                converts[l][r] = plan.converts != kvern_cache_converted(kvern_state_cache(s, l), r);
            }
        }
        const kvern_memory planned = memory_of(w.context);
        assert_memory_equal(&planned, &before, sizeof before);
        assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, one));
        assert_int_equal(memory_of(w.context).page_bytes - before.page_bytes, bytes);
        kvern_step_abandon(s);
        mixed_step(s, KVERN_PHASE_DECODE, sequences, one, NULL);
        for (size_t l = 0; l < MIXED_LAYERS; l++) {
            for (size_t r = 0; r < 2; r++)
                if (kvern_composition_layer(w.composition, l)->start > 0)
                    assert_int_equal(kvern_cache_converted(kvern_state_cache(s, l), r),
                                     converts[l][r]);
        }
    }
    kvern_state_destroy(fork);
    kvern_state_destroy(s);
    mixed_close(&w);
}

// ---- Memory, failures, rounds ----

static void slots_take_nothing_in_reserved_room(void **state)
{
    (void)state;
    static const int64_t one[3] = {1, 1, 1};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 3);
    float out[3 * HEADS * 32];
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[3]){120, 95, 200}, NULL);
    for (size_t r = 0; r < 3; r++)
        assert_ok(kvern_state_reserve(s, r, 400, HEADS));
    const uint64_t allocations = w.books.allocations;
    for (int i = 0; i < 100; i++) {
        if (i % 3 == 0)
            assert_ok(kvern_round_begin(s, one));
        slot_step(s, one, out);
        if (i % 3 == 0)
            assert_ok(kvern_round_rollback(s, (int64_t[3]){0, 1, i % 2}));
    }
    assert_int_equal(w.books.allocations, allocations);
    kvern_state_destroy(s);
    mixed_close(&w);
}

// An abandoned step, slots handed out and written or not, leaves no trace; a round neither.
static void abandoned_slots_leave_no_trace(void **state)
{
    (void)state;
    static const int64_t first[3] = {68, 128, 40}, one[3] = {1, 1, 1}, none[3] = {0, 0, 0};
    for (int way = 0; way < 3; way++) {
        mixed_world w;
        mixed_open(&w, 1);
        kvern_state *s = mixed_state(&w, 3), *twin = mixed_state(&w, 3);
        float out[3 * HEADS * 32];
        mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
        mixed_step(twin, KVERN_PHASE_WINDOW, sequences, first, NULL);
        if (way < 2) {
            assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, one));
            put(s, 0, 0, true);
            put(s, 1, 2, false);
            if (way) {
                put(s, 0, 1, true);
                put(s, 0, 2, true);
                assert_ok(kvern_step_slots_done(s, 0, NULL));
            }
            kvern_step_abandon(s);
        } else {
            assert_ok(kvern_round_begin(s, one));
            slot_step(s, one, out);
            assert_ok(kvern_round_rollback(s, none));
        }
        mixed_expect_state(twin, s, "after slots that came to nothing");
        assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, one));
        assert_status(KVERN_ERR_BUSY, kvern_step_slots_done(s, 0, NULL)); // none is written now
        kvern_step_abandon(s);
        slot_step(s, one, out);
        mixed_step(twin, KVERN_PHASE_DECODE, sequences, one, NULL);
        mixed_expect_state(twin, s, "the same tokens again");
        kvern_state_destroy(s);
        kvern_state_destroy(twin);
        mixed_close(&w);
    }
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    static const int64_t first[3] = {10, 20, 30}, some[3] = {1, 0, 1};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 3);
    kvern_planned_slot plan = {.size = sizeof plan}, wrong_plan = {.size = 1};
    kvern_slot slot = {.size = sizeof slot}, wrong_slot = {.size = 1};
    float k[MOST] = {0}, v[MOST] = {0};
    kvern_read *read;
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    assert_status(KVERN_ERR_ARGUMENT, kvern_slot_plan(NULL, 0, 0, &plan));
    assert_status(KVERN_ERR_ARGUMENT, kvern_slot_plan(s, 0, 0, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_slot_plan(s, 0, 0, &wrong_plan));
    assert_status(KVERN_ERR_RANGE, kvern_slot_plan(s, MIXED_LAYERS, 0, &plan));
    assert_status(KVERN_ERR_RANGE, kvern_slot_plan(s, 0, 3, &plan));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_slot(NULL, 0, 0, &slot));
    assert_status(KVERN_ERR_BUSY, kvern_step_slot(s, 0, 0, &slot));
    assert_status(KVERN_ERR_BUSY, kvern_step_write(s, 0, 0, KVERN_F32, k, v));
    assert_status(KVERN_ERR_BUSY, kvern_step_slots_done(s, 0, &read));

    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, some));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_slot(s, 0, 0, &slot));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_slots_done(s, 0, &read));
    kvern_step_abandon(s);

    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, some));
    assert_status(KVERN_ERR_BUSY, kvern_slot_plan(s, 0, 0, &plan));
    assert_status(KVERN_ERR_RANGE, kvern_step_slot(s, 0, 1, &slot)); // no token
    assert_status(KVERN_ERR_RANGE, kvern_step_slot(s, 0, 3, &slot));
    assert_status(KVERN_ERR_RANGE, kvern_step_slot(s, MIXED_LAYERS, 0, &slot));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_slot(s, 0, 0, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_slot(s, 0, 0, &wrong_slot));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_slot(s, 1, 0, &slot)); // affine
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_write(s, 0, 0, KVERN_F32, NULL, v));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_write(s, 0, 0, KVERN_F32, k, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_write(s, 0, 0, (kvern_type)9, k, v));
    assert_ok(kvern_step_write(s, 0, 0, KVERN_F32, k, v));
    assert_status(KVERN_ERR_BUSY, kvern_step_slots_done(s, 0, &read));
    assert_null(read);
    assert_non_null(strstr(kvern_error_detail(), "row 2"));
    assert_ok(kvern_step_slot(s, 0, 2, &slot));
    assert_ok(kvern_step_slots_done(s, 0, NULL));
    assert_status(KVERN_ERR_BUSY, kvern_step_slots_done(s, 0, NULL));
    assert_status(KVERN_ERR_BUSY, kvern_step_slot(s, 0, 0, &slot));
    assert_status(KVERN_ERR_BUSY, kvern_step_write(s, 0, 0, KVERN_F32, k, v));
    kvern_state_destroy(s);
    mixed_close(&w);
}

// Whoever decodes by slots goes on with them when the last row has left.
static void fault_a_step_without_rows_was_refused(void **state)
{
    (void)state;
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 0);
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, NULL));
    for (size_t l = 0; l < MIXED_LAYERS; l++) {
        kvern_read *read;
        finish_layer(s, l, NULL, &read);
        assert_int_equal(kvern_read_rows(read), 0);
        kvern_read_release(read);
    }
    assert_status(KVERN_ERR_RANGE, kvern_step_slots_done(s, MIXED_LAYERS, NULL));
    assert_ok(kvern_step_end(s));
    kvern_state_destroy(s);
    mixed_close(&w);
}

// The page that a read finds a row's position in.
static const void *page_of(const kvern_read *read, size_t row, int64_t position)
{
    const kvern_table *table = read->rows[row].table;
    return kvern_table_page(table, (size_t)position / KVERN_PAGE_POSITIONS)->data;
}

// A read that is made between two slots keeps its pages, every byte of them: it may be attended on
// another thread. So a token that is handed over again goes to another page. While a slot's address
// is out, no read is made that could see its page.
static void reads_between_slots(void **state)
{
    (void)state;
    static const int64_t first[3] = {100, 30, 64}, one[3] = {1, 1, 1};
    one_layer w;
    float wanted[3 * HEADS * 64], got[3 * HEADS * 64], before[2 * 64], after[2 * 64];
    open_layer(&w, kvern_layer_default(2, 64));
    append_step(w.by_slots, KVERN_PHASE_WINDOW, first, NULL);
    append_step(w.by_appends, KVERN_PHASE_WINDOW, first, NULL);
    const kvern_layer *layer = kvern_composition_layer(w.composition, 0);
    const kvern_cache *cache = kvern_state_cache(w.by_slots, 0);
    kvern_read *donor, *refused = NULL, *read;
    float k[MOST], v[MOST], other[MOST] = {0}, q[HEADS * 64], donor_out[2][3 * HEADS * 64];
    static char page[64 * 2 * (64 + 64) * 2];
    assert_ok(kvern_step_begin(w.by_slots, KVERN_PHASE_DECODE, one));
    assert_ok(kvern_step_write(w.by_slots, 0, 0, KVERN_F32, other, other));
    assert_ok(kvern_cache_read_donor(cache, one, &donor));
    kvern_queries queries = kvern_queries_default(layer, HEADS);
    const int64_t only[3] = {0, 1, 0};
    feed_values(9, 9, FEED_Q, HEADS * 64, q);
    queries.q = q;
    queries.counts = only;
    queries.out = donor_out[0];
    assert_ok(kvern_read_attend(donor, &queries));
    memcpy(page, page_of(donor, 0, 99), sizeof page);
    assert_ok(kvern_cache_export(cache, 0, 99, 1, NULL, before));
    put(w.by_slots, 0, 1, true); // the page is the read's as well
    assert_status(KVERN_ERR_BUSY, kvern_cache_read_donor(cache, one, &refused));
    assert_null(refused);
    token_of(layer, sequences[0], 100, k, v);
    assert_ok(kvern_step_write(w.by_slots, 0, 0, KVERN_F32, k, v)); // and so is this one
    check_same_bytes(page, page_of(donor, 0, 99), sizeof page, "a page that a read holds");
    put(w.by_slots, 0, 2, true);
    assert_ok(kvern_step_slots_done(w.by_slots, 0, &read));
    attend(w.by_slots, 0, read, one, got);
    kvern_read_release(read);
    assert_ok(kvern_cache_read_donor(cache, one, &read)); // all addresses have been given back
    assert_ok(kvern_step_end(w.by_slots));
    append_step(w.by_appends, KVERN_PHASE_DECODE, one, wanted);
    check_same_bytes(wanted, got, sizeof got, "slots around a read");
    queries.out = donor_out[1];
    assert_ok(kvern_read_attend(donor, &queries));
    check_same_bytes(donor_out[0], donor_out[1], HEADS * 64 * sizeof(float), "the read between");
    assert_ok(kvern_cache_export(cache, 0, 99, 1, NULL, after));
    check_same_bytes(before, after, sizeof before, "the neighbour of a slot");
    kvern_read_release(read);
    kvern_read_release(donor);
    close_layer(&w);
}

// A caller may ask for a slot once for the keys and once for the values, or hand the token over
// after all: it stays where it is.
static void fault_a_slot_moved_when_asked_for_again(void **state)
{
    (void)state;
    static const int64_t lengths[2][3] = {{64, 0, 0}, {70, 0, 0}}, one[3] = {1, 0, 0};
    for (size_t i = 0; i < 2; i++) {
        one_layer w;
        float wanted[HEADS * 64], got[HEADS * 64], k[MOST], v[MOST];
        open_layer(&w, kvern_layer_default(2, 64));
        append_step(w.by_slots, KVERN_PHASE_WINDOW, lengths[i], NULL);
        append_step(w.by_appends, KVERN_PHASE_WINDOW, lengths[i], NULL);
        append_step(w.by_appends, KVERN_PHASE_DECODE, one, wanted);
        kvern_slot first = {.size = sizeof first}, second = first;
        kvern_read *read;
        assert_ok(kvern_step_begin(w.by_slots, KVERN_PHASE_DECODE, one));
        assert_ok(kvern_step_slot(w.by_slots, 0, 0, &first));
        token_of(kvern_composition_layer(w.composition, 0), sequences[0], lengths[i][0], k, v);
        assert_ok(kvern_step_write(w.by_slots, 0, 0, KVERN_F32, v, k)); // the wrong way round
        assert_ok(kvern_step_slot(w.by_slots, 0, 0, &second));
        slot_store(&first.k, 2, 64, k);
        slot_store(&second.v, 2, 64, v);
        assert_ok(kvern_step_slots_done(w.by_slots, 0, &read));
        attend(w.by_slots, 0, read, one, got);
        assert_ok(kvern_step_end(w.by_slots));
        check_same_bytes(wanted, got, sizeof got, "a slot that was asked for twice");
        kvern_read_release(read);
        close_layer(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_equal_appends_in_every_storage),
        cmocka_unit_test(slots_equal_appends_at_every_width),
        cmocka_unit_test(plans_come_true),
        cmocka_unit_test(slots_take_nothing_in_reserved_room),
        cmocka_unit_test(abandoned_slots_leave_no_trace),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(fault_a_step_without_rows_was_refused),
        cmocka_unit_test(reads_between_slots),
        cmocka_unit_test(fault_a_slot_moved_when_asked_for_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
