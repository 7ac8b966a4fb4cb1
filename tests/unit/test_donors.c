// SPDX-License-Identifier: MIT
// Layers that share the keys and values of others, and readers that borrow rows: what is planned,
// what is refused by name, and which numbers are read when.

#include "src/state/walk.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"

#include <kvern/experimental/padded.h>
#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define LAYERS 7
#define DIM 32
#define HEADS 2
#define ROWS 2

// The last full and the last window layer, and what shares them.
#define FULL 1
#define WINDOW 2
#define STARTS 3
#define SHARES_FULL 4
#define SHARES_STARTS 5
#define SHARES_WINDOW 6

static const uint64_t sequences[ROWS] = {8, 9};

typedef struct world {
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
} world;

static void plan(kvern_layer layers[LAYERS])
{
    layers[0] = kvern_layer_delta(1, 1, 16, 16, 2);
    layers[FULL] = kvern_layer_default(1, DIM);
    layers[FULL].v_dim = 24;
    layers[WINDOW] = kvern_layer_window(2, DIM, 20);
    layers[WINDOW].keep = 3;
    layers[STARTS] = kvern_layer_default(1, DIM);
    layers[STARTS].k_codec = layers[STARTS].v_codec = kvern_codec_affine(4, 32);
    layers[STARTS].start = 40;
    layers[SHARES_FULL] = kvern_layer_shared(layers, FULL);
    layers[SHARES_STARTS] = kvern_layer_shared(layers, STARTS);
    layers[SHARES_WINDOW] = kvern_layer_shared(layers, WINDOW);
}

static int set_up(void **state)
{
    kvern_layer layers[LAYERS];
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    plan(layers);
    layers[0] = kvern_layer_default(1, DIM); // the recurrent one is for plans alone
    assert_ok(kvern_context_create(NULL, &w->context));
    assert_ok(kvern_composition_create(w->context, layers, LAYERS, &w->composition));
    assert_ok(kvern_state_create(w->composition, ROWS, &w->s));
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    assert_null(kvern_state_walk(w->s));
    kvern_state_destroy(w->s);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    free(w);
    return 0;
}

static void append(kvern_state *s, size_t layer, const int64_t *counts, kvern_read **read)
{
    feed f = feed_create(kvern_state_cache(s, layer), sequences, counts, HEADS);
    assert_ok(kvern_step_append(s, layer, &f.tokens, read));
    feed_destroy(&f);
}

static void run(kvern_state *s, const int64_t *counts)
{
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < 4; l++)
        append(s, l, counts, NULL);
    assert_ok(kvern_step_end(s)); // shared layers need not have been read
}

// Results of the same queries in each of counts[r] positions of the rows.
typedef struct answer {
    size_t count;
    float *out;
} answer;

static answer attend(const kvern_read *read, const kvern_layer *layer, const int64_t *counts)
{
    const size_t tokens = (size_t)(counts[0] + counts[1]), floats = HEADS * layer->k_dim;
    answer a = {.count = tokens * HEADS * layer->v_dim};
    float *q = malloc((tokens * floats + 1) * sizeof *q);
    a.out = malloc((a.count + 1) * sizeof *a.out);
    assert_true(q && a.out);
    for (size_t t = 0; t < tokens; t++)
        feed_values(77, (int64_t)t, FEED_Q, floats, q + t * floats);
    kvern_queries queries = kvern_queries_default(layer, HEADS);
    queries.q = q;
    queries.out = a.out;
    assert_ok(kvern_read_attend(read, &queries));
    free(q);
    return a;
}

static void expect_same(answer wanted, answer got, const char *what)
{
    assert_int_equal(wanted.count, got.count);
    check_same_floats(wanted.out, got.out, wanted.count, what);
    free(wanted.out);
    free(got.out);
}

// ---- Plans ----

static void a_shared_layer_takes_nothing(void **state)
{
    const world *w = *state;
    const kvern_composition *c = w->composition;
    assert_string_equal(kvern_composition_signature(c, SHARES_FULL),
                        "shared:1:full:h1:k32=bf16:v24=bf16");
    assert_string_equal(kvern_composition_signature(c, SHARES_WINDOW),
                        "shared:2:window20+3+64:h2:k32=bf16:v32=bf16");
    assert_int_equal(kvern_composition_layer(c, SHARES_STARTS)->donor, STARTS);
    for (size_t l = SHARES_FULL; l <= SHARES_WINDOW; l++) {
        assert_int_equal(kvern_composition_layer_bytes_per_token(c, l), 0);
        assert_int_equal(kvern_composition_layer_row_bytes(c, l, 1000), 0);
        assert_true(kvern_composition_can(c, l, KVERN_CAN_SHARE));
        assert_true(kvern_composition_can(c, l, KVERN_CAN_DECODE));
        assert_true(kvern_composition_can(c, l, KVERN_CAN_FORK));
        assert_false(kvern_composition_can(c, l, KVERN_CAN_LATENT));
        assert_int_equal(kvern_composition_can(c, l, KVERN_CAN_TRIM), l != SHARES_WINDOW);
    }
    assert_false(kvern_composition_can(c, FULL, KVERN_CAN_SHARE));
    assert_int_equal(kvern_composition_last_layer(c, KVERN_LAYER_FULL), STARTS);
    assert_int_equal(kvern_composition_last_layer(c, KVERN_LAYER_WINDOW), WINDOW);
    assert_int_equal(kvern_composition_last_layer(c, KVERN_LAYER_LATENT), KVERN_NO_LAYER);
}

static void refuse(const world *w, const kvern_layer *layers, kvern_status wanted,
                   const char *words)
{
    kvern_composition *composition;
    assert_status(wanted, kvern_composition_create(w->context, layers, LAYERS, &composition));
    if (!strstr(kvern_error_detail(), words))
        fail_msg("\"%s\" does not say \"%s\"", kvern_error_detail(), words);
}

static void plans_that_make_no_sense_are_refused(void **state)
{
    kvern_layer layers[LAYERS];
    plan(layers);
    layers[SHARES_FULL].donor = SHARES_FULL;
    refuse(*state, layers, KVERN_ERR_RANGE, "layer 4: donor is 4, which is no earlier layer");
    layers[SHARES_FULL].donor = 900;
    refuse(*state, layers, KVERN_ERR_RANGE, "layer 4: donor is 900");
    layers[SHARES_FULL].donor = 0;
    refuse(*state, layers, KVERN_ERR_UNSUPPORTED, "layer 4: its donor, layer 0, is delta");
    plan(layers);
    layers[SHARES_STARTS] = kvern_layer_shared(layers, SHARES_FULL);
    refuse(*state, layers, KVERN_ERR_UNSUPPORTED,
           "layer 5: its donor, layer 4, is shared itself and reads layer 1");
    plan(layers);
    layers[0] = kvern_layer_latent(24, 8, 0);
    layers[SHARES_FULL] = kvern_layer_shared(layers, 0);
    refuse(*state, layers, KVERN_ERR_UNSUPPORTED, "layer 4: its donor, layer 0, is latent");
    plan(layers);
    layers[SHARES_FULL].v_dim = DIM;
    refuse(*state, layers, KVERN_ERR_ARGUMENT, "layer 4: 1 heads of 32 and 32 dims, and layer 1");
    plan(layers);
    layers[SHARES_FULL].k_codec = kvern_codec_dense(KVERN_BF16);
    refuse(*state, layers, KVERN_ERR_UNSUPPORTED, "layer 4: k_codec, v_codec or start");
    plan(layers);
    layers[SHARES_FULL].start = 0;
    refuse(*state, layers, KVERN_ERR_UNSUPPORTED, "layer 4: k_codec, v_codec or start");
    plan(layers);
    layers[SHARES_WINDOW].window = 20;
    refuse(*state, layers, KVERN_ERR_ARGUMENT, "layer 6: window");
    plan(layers);
    layers[FULL].donor = 1;
    refuse(*state, layers, KVERN_ERR_ARGUMENT, "layer 1: a donor");
}

static void storage_passes_shared_layers_by(void **state)
{
    (void)state;
    kvern_layer layers[LAYERS];
    kvern_storage storage = kvern_storage_default();
    const kvern_codec eight = kvern_codec_affine(8, 32), bf16 = kvern_codec_dense(KVERN_BF16);
    const kvern_layer_storage other = {.layer = SHARES_FULL, .k = eight, .v = eight};
    plan(layers);
    storage.k = storage.v = eight;
    storage.precise_last = 2; // of the four layers that keep something
    assert_ok(kvern_storage_apply(&storage, layers, LAYERS));
    assert_int_equal(layers[FULL].k_codec.kind, eight.kind);
    assert_int_equal(layers[WINDOW].k_codec.kind, bf16.kind);
    assert_int_equal(layers[STARTS].k_codec.kind, bf16.kind);
    assert_int_equal(layers[SHARES_FULL].k_codec.kind, KVERN_CODEC_F32);
    assert_int_equal(layers[SHARES_FULL].start, KVERN_NO_START);
    storage.precise_last = 5;
    assert_status(KVERN_ERR_RANGE, kvern_storage_apply(&storage, layers, LAYERS));
    storage.precise_last = 0;
    storage.layers = &other;
    storage.layer_count = 1;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, LAYERS));
    assert_non_null(strstr(kvern_error_detail(), "layer 4"));
}

// ---- Steps ----

static void reads_come_after_the_donors_append(void **state)
{
    const world *w = *state;
    const int64_t counts[ROWS] = {5, 0};
    kvern_read *read = (kvern_read *)w;
    assert_status(KVERN_ERR_BUSY, kvern_step_read_donor(w->s, SHARES_FULL, &read));
    assert_null(read);
    assert_ok(kvern_step_begin(w->s, KVERN_PHASE_WINDOW, counts));
    assert_status(KVERN_ERR_BUSY, kvern_step_read_donor(w->s, SHARES_FULL, &read));
    assert_non_null(strstr(kvern_error_detail(), "layer 4: its donor, layer 1"));
    assert_status(KVERN_ERR_RANGE, kvern_step_read_donor(w->s, LAYERS, &read));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_read_donor(NULL, SHARES_FULL, &read));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_read_donor(w->s, SHARES_FULL, NULL));
    append(w->s, FULL, counts, NULL);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_read_donor(w->s, FULL, &read));
    assert_null(read);
    assert_ok(kvern_step_read_donor(w->s, SHARES_FULL, &read));
    assert_int_equal(kvern_read_length(read, 0), 5);
    assert_int_equal(kvern_read_length(read, 1), 0);
    kvern_read_release(read);
    assert_status(KVERN_ERR_BUSY, kvern_step_read_donor(w->s, SHARES_WINDOW, &read));
    const kvern_tokens tokens = kvern_tokens_default(kvern_composition_layer(w->composition, 4));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_step_append(w->s, SHARES_FULL, &tokens, NULL));
    assert_non_null(strstr(kvern_error_detail(), "layer 4: of kind 5, shared:1:full"));
    assert_status(KVERN_ERR_BUSY, kvern_step_end(w->s));
    kvern_step_abandon(w->s);
    assert_status(KVERN_ERR_BUSY, kvern_step_read_donor(w->s, SHARES_FULL, &read));
}

// The donor of layer 5 is converted by the end of the step: until then its sharer reads bf16, as
// the donor's own read does; a read that is made afterwards has the codes.
static void a_step_that_converts_is_read_as_it_was_appended(void **state)
{
    const world *w = *state;
    const int64_t counts[ROWS] = {45, 7};
    const kvern_layer *layer = kvern_composition_layer(w->composition, STARTS);
    kvern_read *own, *shared, *late;
    assert_ok(kvern_step_begin(w->s, KVERN_PHASE_WINDOW, counts));
    for (size_t l = 0; l < 4; l++)
        append(w->s, l, counts, l == STARTS ? &own : NULL);
    assert_ok(kvern_step_read_donor(w->s, SHARES_STARTS, &shared));
    const answer wanted = attend(own, layer, counts);
    kvern_read_release(own); // the other one has its own hold
    expect_same(wanted, attend(shared, layer, counts), "a shared layer's read");
    const answer before = attend(shared, layer, counts);
    assert_ok(kvern_step_end(w->s));
    assert_true(kvern_cache_converted(kvern_state_cache(w->s, SHARES_STARTS), 0));
    assert_false(kvern_cache_converted(kvern_state_cache(w->s, SHARES_STARTS), 1));
    run(w->s, (int64_t[ROWS]){30, 3});
    assert_ok(kvern_state_trim(w->s, 0, 20));
    const answer after = attend(shared, layer, counts);
    assert_ok(kvern_state_read_donors(w->s, (size_t[]){STARTS}, 1, (int64_t[ROWS]){45, 7}, &late));
    const answer codes = attend(late, layer, counts);
    assert_memory_not_equal(codes.out, after.out, after.count * sizeof(float));
    free(codes.out);
    expect_same(before, after, "a read that outlives its step");
    kvern_read_release(shared);
    kvern_read_release(late);
}

static void slots_are_read_when_they_are_done(void **state)
{
    const world *w = *state;
    const int64_t counts[ROWS] = {1, 1};
    float values[64];
    kvern_read *own, *shared;
    run(w->s, (int64_t[ROWS]){10, 30});
    assert_ok(kvern_step_begin(w->s, KVERN_PHASE_DECODE, counts));
    for (size_t r = 0; r < ROWS; r++) {
        feed_values(5, (int64_t)r, FEED_K, 64, values);
        assert_ok(kvern_step_write(w->s, WINDOW, r, KVERN_F32, values, values));
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_step_write(w->s, SHARES_WINDOW, r, KVERN_F32, values, values));
    }
    assert_status(KVERN_ERR_BUSY, kvern_step_read_donor(w->s, SHARES_WINDOW, &shared));
    assert_ok(kvern_step_slots_done(w->s, WINDOW, &own));
    assert_ok(kvern_step_read_donor(w->s, SHARES_WINDOW, &shared));
    const kvern_layer *layer = kvern_composition_layer(w->composition, SHARES_WINDOW);
    expect_same(attend(own, layer, counts), attend(shared, layer, counts), "slots");
    kvern_read_release(own);
    kvern_read_release(shared);
    kvern_step_abandon(w->s);
}

// ---- What passes shared layers by, and what they refuse ----

static void a_shared_layer_answers_for_its_donor(void **state)
{
    const world *w = *state;
    run(w->s, (int64_t[ROWS]){100, 7});
    for (size_t l = SHARES_FULL; l <= SHARES_WINDOW; l++) {
        const kvern_cache *cache = kvern_state_cache(w->s, l);
        const kvern_cache *donor =
            kvern_state_cache(w->s, kvern_composition_layer(w->composition, l)->donor);
        for (size_t r = 0; r < ROWS; r++) {
            assert_int_equal(kvern_cache_length(cache, r), kvern_cache_length(donor, r));
            assert_int_equal(kvern_cache_trimmable(cache, r), kvern_cache_trimmable(donor, r));
            assert_int_equal(kvern_cache_trim_length(cache, r, 7),
                             kvern_cache_trim_length(donor, r, 7));
            assert_int_equal(kvern_cache_max_append(cache, r), kvern_cache_max_append(donor, r));
            assert_int_equal(kvern_cache_min_reusable(cache, r),
                             kvern_cache_min_reusable(donor, r));
            assert_int_equal(kvern_cache_converted(cache, r), kvern_cache_converted(donor, r));
        }
        assert_int_equal(kvern_cache_bytes(cache), 0);
        assert_int_equal(kvern_cache_length(cache, ROWS), -1);
    }
}

#define assert_refused(call)                                                                       \
    do {                                                                                           \
        assert_status(KVERN_ERR_UNSUPPORTED, call);                                                \
        if (!strstr(kvern_error_detail(), "shared:1:full"))                                        \
            fail_msg("%s: \"%s\"", #call, kvern_error_detail());                                   \
    } while (0)

static void what_would_store_or_fetch_is_refused(void **state)
{
    const world *w = *state;
    kvern_cache *made = (kvern_cache *)w, *alone;
    kvern_read *read;
    float k[DIM];
    kvern_padded_planes planes = kvern_padded_planes_default();
    kvern_planned_slot slot = {.size = sizeof slot};
    run(w->s, (int64_t[ROWS]){20, 7});
    const kvern_cache *cache = kvern_state_cache(w->s, SHARES_FULL);
    assert_refused(kvern_cache_create(w->composition, SHARES_FULL, 1, &made));
    assert_null(made);
    assert_refused(kvern_cache_extract(cache, 0, &made));
    assert_refused(kvern_cache_export(cache, 0, 0, 1, k, NULL));
    assert_refused(kvern_cache_export_affine(cache, 0, 0, 1, NULL, NULL));
    assert_refused(kvern_cache_read_donor(cache, (int64_t[ROWS]){1, 1}, &read));
    assert_refused(
        kvern_state_read_donors(w->s, (size_t[]){SHARES_FULL}, 1, (int64_t[ROWS]){1, 1}, &read));
    assert_refused(kvern_cache_export_padded(cache, &planes));
    assert_refused(kvern_slot_plan(w->s, SHARES_FULL, 0, &slot));
    assert_ok(kvern_cache_create(w->composition, FULL, 1, &alone));
    assert_refused(kvern_cache_adopt(alone, 0, cache, 0));
    kvern_cache_destroy(alone);
}

// Of no rows either (there is none to find it out by).
static void a_layer_without_keys_has_no_donor_read_of_no_rows(void **state)
{
    const world *w = *state;
    const kvern_layer layer = kvern_layer_delta(1, 1, 16, 16, 2);
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    assert_ok(kvern_composition_create(w->context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 0, &cache));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_read_donor(cache, NULL, &read));
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
}

static kvern_padded_planes planes_of(const kvern_cache *cache)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    kvern_padded_planes p = kvern_padded_planes_default();
    p.width = kvern_cache_padded_width(cache);
    const size_t vectors = ROWS * layer->kv_heads * (size_t)p.width;
    p.k_type = p.v_type = KVERN_F32;
    p.k = calloc(vectors * layer->k_dim, sizeof(float));
    p.v = calloc(vectors * layer->v_dim, sizeof(float));
    p.left_padding = calloc(2 * ROWS, sizeof(int64_t));
    p.offsets = p.left_padding + ROWS;
    assert_true(p.k && p.v && p.left_padding);
    assert_ok(kvern_cache_export_padded(cache, &p));
    return p;
}

static void planes_are_imported_without_those_of_shared_layers(void **state)
{
    const world *w = *state;
    const int64_t counts[ROWS] = {1, 1};
    kvern_padded_planes planes[LAYERS];
    kvern_state *to;
    kvern_read *reads[2];
    run(w->s, (int64_t[ROWS]){20, 7});
    for (size_t l = 0; l < LAYERS; l++)
        planes[l] = l < 4 ? planes_of(kvern_state_cache(w->s, l)) : kvern_padded_planes_default();
    assert_ok(kvern_state_create(w->composition, ROWS, &to));
    planes[SHARES_FULL].k = planes[0].k;
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_import_padded(to, planes));
    assert_int_equal(kvern_state_length(to, 0), 0);
    planes[SHARES_FULL].k = NULL;
    assert_ok(kvern_state_import_padded(to, planes));
    assert_null(kvern_state_walk(to));
    kvern_state *const both[2] = {w->s, to};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(kvern_step_begin(both[i], KVERN_PHASE_DECODE, counts));
        append(both[i], FULL, counts, NULL);
        assert_ok(kvern_step_read_donor(both[i], SHARES_FULL, &reads[i]));
        kvern_step_abandon(both[i]);
    }
    const kvern_layer *layer = kvern_composition_layer(w->composition, SHARES_FULL);
    expect_same(attend(reads[0], layer, counts), attend(reads[1], layer, counts), "planes");
    kvern_read_release(reads[0]);
    kvern_read_release(reads[1]);
    kvern_state_destroy(to);
    for (size_t l = 0; l < 4; l++) {
        free(planes[l].k);
        free(planes[l].v);
        free(planes[l].left_padding);
    }
}

// ---- Borrowed rows ----

// A drafter's reads stay as they are through appends, trims and conversions, and may be attended
// for each token that it drafts; copies are what they were made of.
static void borrowed_rows_outlive_what_becomes_of_them(void **state)
{
    const world *w = *state;
    const size_t layers[2] = {WINDOW, STARTS};
    const int64_t one[ROWS] = {1, 1};
    kvern_read *reads[2];
    answer before[2];
    float copies[2][ROWS * 2 * 8 * DIM];
    kvern_newest_planes planes = kvern_newest_planes_default();
    planes.width = 8;
    run(w->s, (int64_t[ROWS]){38, 9});
    assert_ok(kvern_state_read_donors(w->s, layers, 2, one, reads));
    for (size_t i = 0; i < 2; i++) {
        before[i] = attend(reads[i], kvern_composition_layer(w->composition, layers[i]), one);
        planes.k = copies[0];
        assert_ok(kvern_read_export_newest(reads[i], &planes));
    }
    run(w->s, (int64_t[ROWS]){50, 9}); // converts row 0, and its window moves on
    assert_ok(kvern_state_trim(w->s, 1, 12));
    assert_ok(kvern_state_reset(w->s, 0));
    for (size_t i = 0; i < 2; i++) {
        const kvern_layer *layer = kvern_composition_layer(w->composition, layers[i]);
        for (int drafts = 0; drafts < 3; drafts++) {
            const answer again = attend(reads[i], layer, one);
            check_same_floats(before[i].out, again.out, again.count, "a borrowed row");
            free(again.out);
        }
        free(before[i].out);
    }
    planes.k = copies[1];
    assert_ok(kvern_read_export_newest(reads[1], &planes));
    check_same_bytes(copies[0], copies[1], ROWS * 8 * DIM * sizeof(float), "copies");
    kvern_read_release(reads[0]);
    kvern_read_release(reads[1]);
}

static void copies_of_newest_positions_are_refused(void **state)
{
    const world *w = *state;
    kvern_read *read;
    kvern_newest_planes planes = kvern_newest_planes_default();
    float k[ROWS * DIM];
    int64_t end;
    run(w->s, (int64_t[ROWS]){3, 0});
    assert_ok(kvern_state_read_donors(w->s, (size_t[]){FULL}, 1, (int64_t[ROWS]){1, 0}, &read));
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_export_newest(NULL, &planes));
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_export_newest(read, NULL));
    planes.width = -1;
    assert_status(KVERN_ERR_RANGE, kvern_read_export_newest(read, &planes));
    planes.width = (INT64_C(1) << 40) + 1;
    assert_status(KVERN_ERR_RANGE, kvern_read_export_newest(read, &planes));
    planes.width = 1;
    planes.k = k;
    planes.k_type = (kvern_type)9;
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_export_newest(read, &planes));
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_range(NULL, 0, 0, NULL, &end, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_read_range(read, ROWS, 0, NULL, &end, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_read_range(read, 1, 0, NULL, &end, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_read_range(read, 0, -1, NULL, &end, NULL));
    kvern_read_release(read);
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_state_read_donors(NULL, (size_t[]){FULL}, 1, NULL, &read));
    assert_null(read);
    assert_status(KVERN_ERR_RANGE, kvern_state_read_donors(w->s, (size_t[]){LAYERS}, 1,
                                                           (int64_t[ROWS]){1, 0}, &read));
    assert_status(KVERN_ERR_RANGE,
                  kvern_state_read_donors(w->s, (size_t[]){FULL}, 1, (int64_t[ROWS]){4, 0}, &read));
}

#define donor_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        donor_test(a_shared_layer_takes_nothing),
        donor_test(plans_that_make_no_sense_are_refused),
        donor_test(storage_passes_shared_layers_by),
        donor_test(reads_come_after_the_donors_append),
        donor_test(a_step_that_converts_is_read_as_it_was_appended),
        donor_test(slots_are_read_when_they_are_done),
        donor_test(a_shared_layer_answers_for_its_donor),
        donor_test(what_would_store_or_fetch_is_refused),
        donor_test(a_layer_without_keys_has_no_donor_read_of_no_rows),
        donor_test(planes_are_imported_without_those_of_shared_layers),
        donor_test(borrowed_rows_outlive_what_becomes_of_them),
        donor_test(copies_of_newest_positions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
