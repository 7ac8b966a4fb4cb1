// SPDX-License-Identifier: MIT
// Tokens that see each other both ways, and blocks that are read without being appended: what is
// refused and named, what rows remember of them, and what they carry to forks and other caches.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define DIM 64
#define HEADS 2 // query heads

static const uint64_t id = 7;

static void expect_detail(const char *words)
{
    if (!strstr(kvern_error_detail(), words))
        fail_msg("\"%s\" does not mention \"%s\"", kvern_error_detail(), words);
}

#define REFUSED(status, call, words)                                                               \
    do {                                                                                           \
        assert_status(status, call);                                                               \
        expect_detail(words);                                                                      \
    } while (0)

// Appends `count` tokens to the row of a cache, one range of them or `phase` as a whole, and
// attends them; `out` may be NULL.
static void append(kvern_cache *cache, kvern_phase phase, int64_t count, kvern_range range,
                   float *out)
{
    const size_t one = range.end > range.begin;
    uint8_t flags[4096] = {0};
    feed f = feed_create(cache, &id, &count, HEADS);
    for (int64_t i = range.begin; i < range.end; i += 2)
        flags[i] = 1;
    f.tokens.ranges = phase == KVERN_PHASE_RANGES ? &range : NULL;
    f.tokens.range_counts = phase == KVERN_PHASE_RANGES ? &one : NULL;
    f.tokens.flags = phase == KVERN_PHASE_BIDIRECTIONAL ? flags : NULL;
    kvern_read *read;
    assert_ok(kvern_cache_append(cache, phase, &f.tokens, &read));
    f.queries.out = out ? out : f.out;
    assert_ok(kvern_read_attend(read, &f.queries));
    kvern_read_release(read);
    feed_destroy(&f);
    expect_sound_cache(cache);
}

static const kvern_range none = {0, 0};

// ---- What is refused ----

static void ranges_that_cannot_be(void **state)
{
    (void)state;
    static const int64_t ten = 10;
    static const struct {
        kvern_range ranges[2];
        size_t count;
        const char *words;
    } bad[] = {{{{3, 3}}, 1, "range 0: tokens 3 to 3"},
               {{{5, 2}}, 1, "range 0: tokens 5 to 2"},
               {{{-1, 2}}, 1, "range 0: tokens -1 to 2"},
               {{{0, 4}, {3, 6}}, 2, "range 1: tokens 3 to 6"},
               {{{4, 6}, {0, 2}}, 2, "range 1: tokens 0 to 2"},
               {{{8, 11}}, 1, "a range lies within one append"},
               {{{10, 12}}, 1, "a range lies within one append"},
               {{{0, 2}}, 65537, "65537 ranges"}};
    bed *b = bed_create(storage_layer(&storages[0], 1, DIM), 1);
    append(b->cache, KVERN_PHASE_WINDOW, 5, none, NULL);
    const uint64_t held = b->books.held_bytes;
    feed f = feed_create(b->cache, &id, &ten, HEADS);
    kvern_read *read;
    for (size_t i = 0; i < COUNT(bad); i++) {
        f.tokens.ranges = bad[i].ranges;
        f.tokens.range_counts = &bad[i].count;
        REFUSED(KVERN_ERR_RANGE, kvern_cache_append(b->cache, KVERN_PHASE_RANGES, &f.tokens, &read),
                bad[i].words);
        assert_null(read);
    }
    f.tokens.ranges = NULL;
    f.tokens.range_counts = &bad[0].count;
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_append(b->cache, KVERN_PHASE_RANGES, &f.tokens, &read),
            "ranges is NULL");
    f.tokens.range_counts = NULL;
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_append(b->cache, KVERN_PHASE_RANGES, &f.tokens, &read),
            "range_counts is NULL");
    f.tokens.range_counts = &bad[0].count;
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_append(b->cache, KVERN_PHASE_WINDOW, &f.tokens, &read),
            "ranges in an append of phase 1");
    f.tokens.range_counts = NULL;
    f.tokens.flags = (const uint8_t[10]){1, 1};
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_append(b->cache, KVERN_PHASE_ENCODER, &f.tokens, &read),
            "flags in an append of phase 5");
    REFUSED(KVERN_ERR_UNSUPPORTED,
            kvern_cache_append(b->cache, KVERN_PHASE_BIDIRECTIONAL, &f.tokens, &read),
            "a bidirectional append at position 5: it is a row's first");
    assert_ok(kvern_cache_reset(b->cache, 0));
    f.tokens.counts = &(int64_t){1};
    REFUSED(KVERN_ERR_RANGE,
            kvern_cache_append(b->cache, KVERN_PHASE_BIDIRECTIONAL, &f.tokens, &read),
            "a bidirectional append of one token");
    f.tokens.counts = &ten;
    f.tokens.flags = NULL;
    REFUSED(KVERN_ERR_ARGUMENT,
            kvern_cache_append(b->cache, KVERN_PHASE_BIDIRECTIONAL, &f.tokens, &read),
            "flags is NULL");
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_cache_append(b->cache, (kvern_phase)6, &f.tokens, &read));
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_cache_append(b->cache, (kvern_phase)-1, &f.tokens, &read));
    assert_int_equal(kvern_cache_length(b->cache, 0), 0);
    assert_true(b->books.held_bytes <= held);
    feed_destroy(&f);
    bed_destroy(b);
}

// Latents and recurrent states have no such tokens and read no blocks; chunks read none, either.
static void other_layers_refuse_by_name(void **state)
{
    (void)state;
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL,
                                         KVERN_PHASE_ENCODER};
    const kvern_layer others[] = {kvern_layer_latent(64, 16, 0),
                                  kvern_layer_delta(1, 1, 16, 16, 0)};
    static const int64_t two = 2;
    for (size_t i = 0; i < COUNT(others) * COUNT(phases); i++) {
        const kvern_layer *other = &others[i % COUNT(others)];
        const kvern_phase phase = phases[i / COUNT(others)];
        const kvern_layer layers[2] = {kvern_layer_default(1, DIM), *other};
        kvern_context *context;
        kvern_composition *c;
        kvern_state *s;
        kvern_read *read;
        assert_ok(kvern_context_create(NULL, &context));
        assert_ok(kvern_composition_create(context, layers, 2, &c));
        assert_ok(kvern_state_create(c, 1, &s));
        assert_true(kvern_composition_can(c, 0, KVERN_CAN_BIDIRECTIONAL));
        assert_true(kvern_composition_can(c, 0, KVERN_CAN_BLOCK));
        assert_false(kvern_composition_can(c, 1, KVERN_CAN_BIDIRECTIONAL));
        assert_false(kvern_composition_can(c, 1, KVERN_CAN_BLOCK));
        REFUSED(KVERN_ERR_UNSUPPORTED, kvern_step_begin(s, phase, &two), "layer 1: of kind");
        expect_detail("see each other both ways");
        bed *b = bed_create(*other, 1);
        if (other->kind == KVERN_LAYER_LATENT) {
            feed f = feed_create(b->cache, &id, &two, HEADS);
            REFUSED(KVERN_ERR_UNSUPPORTED,
                    kvern_cache_append_latent(b->cache, phase, &f.latents, &read),
                    "see each other both ways");
            REFUSED(KVERN_ERR_UNSUPPORTED, kvern_cache_read_block(b->cache, &f.tokens, &read),
                    "which reads no blocks");
            feed_destroy(&f);
        }
        bed_destroy(b);
        kvern_state_destroy(s);
        kvern_composition_release(c);
        kvern_context_release(context);
    }
    bed *b = bed_create(kvern_layer_chunked(1, DIM, 40), 1);
    kvern_read *read;
    feed f = feed_create(b->cache, &id, &two, HEADS);
    assert_true(kvern_cache_can(b->cache, KVERN_CAN_BIDIRECTIONAL));
    assert_false(kvern_cache_can(b->cache, KVERN_CAN_BLOCK));
    REFUSED(KVERN_ERR_UNSUPPORTED, kvern_cache_read_block(b->cache, &f.tokens, &read), "chunk40");
    feed_destroy(&f);
    bed_destroy(b);
}

// Layers that keep positions precise have all of it; a row that is precise as a whole reads as one
// in bf16 does.
static void precise_positions_see_both_ways(void **state)
{
    (void)state;
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL,
                                         KVERN_PHASE_ENCODER};
    static const int64_t count = 90;
    for (size_t i = 0; i < 2 * COUNT(phases); i++) {
        float out[2][90 * HEADS * DIM];
        for (int split = 0; split < 2; split++) {
            kvern_layer layer = storage_layer(&storages[split ? 6 : 0], 1, DIM);
            if (split && i < COUNT(phases))
                layer.residual = 400;
            else if (split)
                layer.precise_sinks = 300;
            bed *b = bed_create(layer, 1);
            assert_true(kvern_cache_can(b->cache, KVERN_CAN_BIDIRECTIONAL));
            assert_true(kvern_cache_can(b->cache, KVERN_CAN_BLOCK));
            append(b->cache, phases[i % COUNT(phases)], count, (kvern_range){10, 80}, out[split]);
            feed f = feed_create(b->cache, &id, &count, HEADS);
            kvern_read *read;
            assert_ok(kvern_cache_read_block(b->cache, &f.tokens, &read));
            assert_ok(kvern_read_attend(read, &f.queries));
            for (size_t n = 0; n < f.out_count; n++)
                out[split][n] += 2 * f.out[n]; // both are compared
            kvern_read_release(read);
            feed_destroy(&f);
            bed_destroy(b);
        }
        check_same_bytes(out[0], out[1], sizeof out[0], "all is precise");
    }
}

static void selections_refuse_them(void **state)
{
    (void)state;
    static const int64_t ten = 10;
    bed *b = bed_create(storage_layer(&storages[0], 1, DIM), 1);
    int64_t positions[10] = {0}, counts[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    kvern_selection selection;
    kvern_selection_init(&selection, sizeof selection, positions, counts, 10, 1);
    selection.queries = 10;
    for (int block = 0; block < 2; block++) {
        feed f = feed_create(b->cache, &id, &ten, HEADS);
        kvern_read *read;
        if (block)
            assert_ok(kvern_cache_read_block(b->cache, &f.tokens, &read));
        else
            assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_ENCODER, &f.tokens, &read));
        f.queries.selection = &selection;
        REFUSED(KVERN_ERR_UNSUPPORTED, kvern_read_attend(read, &f.queries), "both ways");
        kvern_read_release(read);
        feed_destroy(&f);
        assert_ok(kvern_cache_reset(b->cache, 0));
    }
    bed_destroy(b);
}

// ---- What rows remember ----

// A range, an encoder's window, and what lies between the first and the last flagged position are
// not cut by a trim; the detail names them, and kvern_cache_trim_length what is allowed.
static void trims_cut_no_range(void **state)
{
    (void)state;
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL};
    for (size_t i = 0; i < 2; i++) {
        bed *b = bed_create(storage_layer(&storages[6], 1, DIM), 1);
        append(b->cache, phases[i], 100, (kvern_range){20, 51}, NULL);
        append(b->cache, KVERN_PHASE_ENCODER, 30, none, NULL); // positions 100 to 129
        append(b->cache, KVERN_PHASE_WINDOW, 10, none, NULL);
        assert_int_equal(kvern_cache_trimmable(b->cache, 0), 140);
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 0);
        for (int64_t length = 0; length <= 140; length++) {
            const int64_t allowed = length > 20 && length < 51     ? 20
                                    : length > 100 && length < 130 ? 100
                                                                   : length;
            assert_int_equal(kvern_cache_trim_length(b->cache, 0, length), allowed);
        }
        assert_int_equal(kvern_cache_trim_length(b->cache, 0, 1000), 140);
        assert_int_equal(kvern_cache_trim_length(b->cache, 0, -1), -1);
        assert_int_equal(kvern_cache_trim_length(b->cache, 1, 5), -1);
        REFUSED(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, 11), "positions 100 to 129");
        REFUSED(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, 39), "positions 100 to 129");
        REFUSED(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, 90), "positions 20 to 50");
        assert_int_equal(kvern_cache_length(b->cache, 0), 140);
        assert_ok(kvern_cache_trim(b->cache, 0, 10)); // right behind the encoder's window
        assert_ok(kvern_cache_trim(b->cache, 0, 30)); // and it goes as a whole
        assert_ok(kvern_cache_trim(b->cache, 0, 1));  // nothing is left of it
        assert_ok(kvern_cache_trim(b->cache, 0, 79)); // the first range goes, too
        assert_ok(kvern_cache_trim(b->cache, 0, 5));
        assert_int_equal(kvern_cache_length(b->cache, 0), 15);
        expect_sound_cache(b->cache);
        bed_destroy(b);
    }
}

// What a window can be trimmed by does not end within a range, either.
static void trimmable_ends_behind_a_range(void **state)
{
    (void)state;
    bed *b = bed_create(storage_window(&storages[0], 1, DIM, 30, 0, 20), 1);
    append(b->cache, KVERN_PHASE_RANGES, 100, (kvern_range){70, 90}, NULL);
    assert_int_equal(kvern_cache_trimmable(b->cache, 0), 10); // not 20: to length 80
    assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 90);
    REFUSED(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, 20), "10 can be");
    assert_int_equal(kvern_cache_trim_length(b->cache, 0, 85), 0);
    assert_int_equal(kvern_cache_trim_length(b->cache, 0, 95), 95);
    assert_ok(kvern_cache_trim(b->cache, 0, 10));
    bed_destroy(b);
}

// Reads that are made of a row later see what its append's read saw: of the row itself, of forks
// and extracts, of a row that was taken over or that joined, and of one that went back to a
// checkpoint.
static void rows_carry_their_ranges(void **state)
{
    (void)state;
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL,
                                         KVERN_PHASE_ENCODER};
    static const int64_t count = 90;
    for (size_t i = 0; i < COUNT(phases); i++) {
        float wanted[90 * HEADS * DIM];
        bed *b = bed_create(storage_layer(&storages[0], 1, DIM), 1);
        kvern_cache *caches[4];
        feed f = feed_create(b->cache, &id, &count, HEADS);
        append(b->cache, phases[i], count, (kvern_range){10, 80}, wanted);
        caches[0] = b->cache;
        assert_ok(kvern_cache_extract(b->cache, 0, &caches[1]));
        assert_ok(kvern_cache_create(b->composition, 0, 1, &caches[2]));
        assert_ok(kvern_cache_adopt(caches[2], 0, b->cache, 0));
        assert_ok(kvern_cache_create(b->composition, 0, 0, &caches[3]));
        kvern_cache *joining;
        assert_ok(kvern_cache_fork(b->cache, &(size_t){0}, 1, &joining));
        assert_ok(kvern_cache_join(caches[3], &joining, 1));
        kvern_cache_destroy(joining);
        for (size_t c = 0; c < 4; c++) {
            kvern_read *read;
            assert_ok(kvern_cache_read_donor(caches[c], &count, &read));
            assert_ok(kvern_read_attend(read, &f.queries));
            kvern_read_release(read);
            check_same_bytes(wanted, f.out, sizeof wanted, "a later read");
            assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(caches[c], 0, 60));
            assert_int_equal(kvern_cache_trim_length(caches[c], 0, 30),
                             phases[i] == KVERN_PHASE_ENCODER ? 0 : 10);
            append(caches[c], KVERN_PHASE_WINDOW, 3, none, NULL);
            if (c)
                kvern_cache_destroy(caches[c]);
        }
        feed_destroy(&f);
        bed_destroy(b);
    }
}

// What is copied of a read's newest positions: `width` columns of one head, `shown` of them at the
// end positions of the cache, up to `length`.
static void expect_newest(const kvern_cache *cache, const kvern_read *read, int64_t length,
                          int64_t shown)
{
    enum { WIDTH = 256 };
    static float k[WIDTH * DIM], v[WIDTH * DIM], wanted_k[WIDTH * DIM], wanted_v[WIDTH * DIM];
    int64_t offset, start;
    kvern_newest_planes planes = kvern_newest_planes_default();
    planes.width = WIDTH;
    planes.k = k;
    planes.v = v;
    planes.offsets = &offset;
    planes.starts = &start;
    memset(wanted_k, 0, sizeof wanted_k);
    memset(wanted_v, 0, sizeof wanted_v);
    assert_ok(kvern_cache_export(cache, 0, length - shown, shown, wanted_k + (WIDTH - shown) * DIM,
                                 wanted_v + (WIDTH - shown) * DIM));
    assert_ok(kvern_read_export_newest(read, &planes));
    assert_int_equal(offset, length);
    assert_int_equal(start, WIDTH - shown);
    check_same_bytes(wanted_k, k, sizeof k, "the newest keys");
    check_same_bytes(wanted_v, v, sizeof v, "the newest values");
}

// A row ends within a range whose front its window has dropped: a read without a query there shows
// what the window does, and one with a query is refused.
static void newest_positions_of_a_row_that_ends_in_a_range(void **state)
{
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        bed *b = bed_create(storage_window(&storages[s ? 6 : 0], 1, DIM, 30, 0, 5), 1);
        kvern_read *read;
        append(b->cache, KVERN_PHASE_WINDOW, 100, none, NULL);
        append(b->cache, KVERN_PHASE_RANGES, 200, (kvern_range){0, 200}, NULL);
        assert_ok(kvern_cache_read_donor(b->cache, &(int64_t){0}, &read));
        expect_newest(b->cache, read, 300, 30);
        kvern_read_release(read);
        REFUSED(KVERN_ERR_RANGE, kvern_cache_read_donor(b->cache, &(int64_t){1}, &read),
                "the window of position 299 is not held any more");
        assert_null(read);
        append(b->cache, KVERN_PHASE_RANGES, 33, (kvern_range){0, 33}, NULL); // held as a whole
        assert_ok(kvern_cache_read_donor(b->cache, &(int64_t){1}, &read));
        int64_t begin, end;
        assert_ok(kvern_read_range(read, 0, 0, &begin, &end, NULL));
        assert_true(begin == 300 && end == 333);
        expect_newest(b->cache, read, 333, 30);
        kvern_read_release(read);
        bed_destroy(b);
    }
}

// ---- What is seen ----

// An append of a range, or a block, behind others.
typedef struct sight {
    kvern_layer layer;
    int64_t before, count;
    kvern_range range; // in the append; a block has none
    bool block;
} sight;

static bool sees(const sight *s, int64_t query, int64_t position)
{
    const kvern_range r = {s->before + s->range.begin, s->before + s->range.end};
    if (s->block)
        return position >= s->before || layer_sees(&s->layer, s->before, position);
    return layer_sees(&s->layer, query, position) ||
           (query >= r.begin && query < r.end && position >= r.begin && position < r.end);
}

// The value of one position is NaN, and so are the results of the queries that see it.
static void check_position(const sight *s, int64_t position)
{
    enum { WIDE = 8 };
    const int64_t length = s->before + s->count;
    bed *b = bed_create(s->layer, 1);
    float *k = new_floats((size_t)length * WIDE, 0.5f), *v = new_floats((size_t)length * WIDE, 1);
    float *out = new_floats((size_t)s->count * WIDE, 0);
    const size_t one = s->range.end > s->range.begin;
    for (int d = 0; d < WIDE; d++)
        v[position * WIDE + d] = NAN;
    append_values(b->cache, s->before, k, v, 1, NULL, NULL, NULL);
    kvern_tokens tokens = kvern_tokens_default(&s->layer);
    kvern_queries queries = kvern_queries_default(&s->layer, 1);
    kvern_read *read;
    tokens.k = k;
    tokens.v = v + s->before * WIDE;
    tokens.counts = &s->count;
    queries.q = k;
    queries.out = out;
    if (s->block) {
        assert_ok(kvern_cache_read_block(b->cache, &tokens, &read));
    } else {
        tokens.ranges = &s->range;
        tokens.range_counts = &one;
        assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_RANGES, &tokens, &read));
    }
    assert_ok(kvern_read_attend(read, &queries));
    kvern_read_release(read);
    for (int64_t i = 0; i < s->count; i++) {
        if (isnan(out[i * WIDE]) != sees(s, s->before + i, position))
            fail_msg("window %lld, chunk %lld, %lld and %lld tokens: query %lld and position %lld",
                     (long long)s->layer.window, (long long)s->layer.chunk, (long long)s->before,
                     (long long)s->count, (long long)i, (long long)position);
    }
    free(k);
    free(v);
    free(out);
    bed_destroy(b);
}

// lablup/mlxcel#419, #1776, lalamo#200, sglang#31501: masks that were sized from an offset, a
// buffer or a tile, or that forgot what was there before. Here a range or a block makes what is
// seen wider than the window.
static void fault_B4_masks_of_ranges_and_blocks(void **state)
{
    (void)state;
    static const int64_t windows[][2] = {{64, 0}, {60, 5}, {100, 0}, {8, 0}, {16, 15}};
    static const int64_t lengths[][2] = {{100, 5}, {10, 4}, {5, 3}, {63, 70}, {150, 130}, {0, 66}};
    for (size_t i = 0; i < COUNT(windows) * COUNT(lengths) * 2; i++) {
        const int64_t *window = windows[i % COUNT(windows)];
        const int64_t *length = lengths[i / COUNT(windows) % COUNT(lengths)];
        sight s = {.layer = storage_window(&storages[1], 1, 8, window[0], window[1], 3),
                   .before = length[0],
                   .count = length[1],
                   .range = {length[1] / 4, length[1] - length[1] / 5},
                   .block = i % 2};
        if (!s.block && i % 3 == 0)
            s.layer = storage_chunked(&storages[1], 1, 8, window[0], 3);
        for (int64_t p = 0; p < s.before + s.count; p++)
            check_position(&s, p);
    }
}

// ---- States ----

typedef struct pair {
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
} pair;

static pair pair_create(void)
{
    const kvern_layer layers[2] = {kvern_layer_default(1, DIM), kvern_layer_window(1, DIM, 40)};
    pair p;
    assert_ok(kvern_context_create(NULL, &p.context));
    assert_ok(kvern_composition_create(p.context, layers, 2, &p.composition));
    assert_ok(kvern_state_create(p.composition, 1, &p.state));
    return p;
}

static void pair_destroy(pair *p)
{
    kvern_state_destroy(p->state);
    kvern_composition_release(p->composition);
    kvern_context_release(p->context);
}

// The appends of a step, each layer with a range of its own.
static void append_layers(const pair *p, int64_t count, const kvern_range *ranges)
{
    static const size_t one = 1;
    for (size_t l = 0; l < 2; l++) {
        feed f = feed_create(kvern_state_cache(p->state, l), &id, &count, HEADS);
        f.tokens.ranges = &ranges[l];
        f.tokens.range_counts = &one;
        assert_ok(kvern_step_append(p->state, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
}

static void states_trim_by_all_layers(void **state)
{
    (void)state;
    static const int64_t count = 30;
    pair p = pair_create();
    assert_ok(kvern_step_begin(p.state, KVERN_PHASE_RANGES, &count));
    append_layers(&p, count, (const kvern_range[2]){{5, 15}, {12, 20}});
    assert_ok(kvern_step_end(p.state));
    expect_sound_state(p.state);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 30), 30);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 20), 20);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 18), 5); // 12 is within the other one
    assert_int_equal(kvern_state_trim_length(p.state, 0, 14), 5);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 4), 4);
    assert_int_equal(kvern_state_trim_length(p.state, 1, 4), -1);
    assert_int_equal(kvern_state_trim_length(p.state, 0, -4), -1);
    REFUSED(KVERN_ERR_UNSUPPORTED, kvern_state_trim(p.state, 0, 12), "layer 1, row 0");
    expect_detail("positions 12 to 19");
    assert_ok(kvern_state_trim(p.state, 0, 25));
    expect_sound_state(p.state);
    pair_destroy(&p);
}

// A step that is abandoned leaves nothing of its ranges; a checkpoint brings those of its time.
static void ranges_come_and_go_with_steps(void **state)
{
    (void)state;
    static const int64_t count = 30;
    static const kvern_range ranges[2] = {{5, 15}, {5, 15}};
    pair p = pair_create();
    assert_ok(kvern_step_begin(p.state, KVERN_PHASE_RANGES, &count));
    append_layers(&p, count, ranges);
    assert_ok(kvern_step_end(p.state));
    assert_ok(kvern_step_begin(p.state, KVERN_PHASE_RANGES, &count));
    append_layers(&p, count, ranges); // positions 35 to 44
    kvern_step_abandon(p.state);
    expect_sound_state(p.state);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 30), 30);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 12), 5);
    assert_ok(kvern_state_checkpoint_budget(p.state, UINT64_C(1) << 24));
    assert_ok(kvern_state_checkpoint(p.state, 0));
    assert_ok(kvern_step_begin(p.state, KVERN_PHASE_ENCODER, &count));
    for (size_t l = 0; l < 2; l++) {
        feed f = feed_create(kvern_state_cache(p.state, l), &id, &count, HEADS);
        assert_ok(kvern_step_append(p.state, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(p.state));
    assert_int_equal(kvern_state_trim_length(p.state, 0, 50), 30);
    assert_ok(kvern_state_return(p.state, 0, 30));
    expect_sound_state(p.state);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 12), 5);
    assert_int_equal(kvern_state_trim_length(p.state, 0, 50), 30);
    pair_destroy(&p);
}

static void rounds_refuse_them(void **state)
{
    (void)state;
    static const int64_t count = 4;
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL,
                                         KVERN_PHASE_ENCODER};
    pair p = pair_create();
    assert_ok(kvern_round_begin(p.state, &count));
    for (size_t i = 0; i < COUNT(phases); i++)
        REFUSED(KVERN_ERR_UNSUPPORTED, kvern_step_begin(p.state, phases[i], &count), "a round");
    assert_ok(kvern_round_commit(p.state));
    assert_ok(kvern_step_begin(p.state, KVERN_PHASE_ENCODER, &count));
    kvern_step_abandon(p.state);
    pair_destroy(&p);
}

// ---- Blocks ----

static void blocks_that_cannot_be(void **state)
{
    (void)state;
    static const int64_t ten = 10, negative = -1;
    static const size_t one = 1;
    bed *b = bed_create(storage_layer(&storages[0], 1, DIM), 1);
    feed f = feed_create(b->cache, &id, &ten, HEADS);
    const kvern_tokens good = f.tokens;
    kvern_read *read;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_read_block(b->cache, &good, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_read_block(NULL, &good, &read));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_read_block(b->cache, NULL, &read));
    f.tokens.range_counts = &one;
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_read_block(b->cache, &f.tokens, &read), "in a block");
    f.tokens = good;
    f.tokens.flags = (const uint8_t[10]){0};
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_read_block(b->cache, &f.tokens, &read), "in a block");
    f.tokens = good;
    f.tokens.counts = NULL;
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_read_block(b->cache, &f.tokens, &read), "counts");
    f.tokens.counts = &negative;
    assert_status(KVERN_ERR_RANGE, kvern_cache_read_block(b->cache, &f.tokens, &read));
    f.tokens = good;
    f.tokens.k = NULL;
    REFUSED(KVERN_ERR_ARGUMENT, kvern_cache_read_block(b->cache, &f.tokens, &read), "k is NULL");
    assert_null(read);
    feed_destroy(&f);
    bed_destroy(b);
}

// A block that would reach the row's start converts nothing, and is stored as the row is; it may be
// longer than a window, and a read of it outlives what becomes of the row.
static void blocks_leave_the_row_alone(void **state)
{
    (void)state;
    enum { BEFORE = 60, BLOCK = 50 };
    static const int64_t count = BLOCK;
    for (int window = 0; window < 2; window++) {
        const storage *s = &storages[10]; // 4 bits from 70 on
        const kvern_layer layer =
            window ? storage_window(s, 1, DIM, 20, 4, 3) : storage_layer(s, 1, DIM);
        bed *b = bed_create(layer, 1);
        float out[BLOCK * HEADS * DIM];
        append(b->cache, KVERN_PHASE_WINDOW, BEFORE, none, NULL);
        const uint64_t bytes = kvern_cache_bytes(b->cache);
        const int64_t trimmable = kvern_cache_trimmable(b->cache, 0);
        feed f = feed_create(b->cache, &id, &count, HEADS);
        kvern_read *first, *again;
        assert_ok(kvern_cache_read_block(b->cache, &f.tokens, &first));
        assert_int_equal(kvern_read_length(first, 0), BEFORE + BLOCK);
        assert_int_equal(kvern_cache_length(b->cache, 0), BEFORE);
        assert_int_equal(kvern_cache_bytes(b->cache), bytes);
        assert_int_equal(kvern_cache_trimmable(b->cache, 0), trimmable);
        assert_false(kvern_cache_converted(b->cache, 0));
        assert_ok(kvern_read_attend(first, &f.queries));
        memcpy(out, f.out, sizeof out);
        assert_ok(kvern_cache_read_block(b->cache, &f.tokens, &again));
        append(b->cache, KVERN_PHASE_WINDOW, BLOCK, none, NULL); // converts
        assert_true(kvern_cache_converted(b->cache, 0));
        assert_ok(kvern_cache_reset(b->cache, 0));
        for (int i = 0; i < 2; i++) {
            assert_ok(kvern_read_attend(i ? again : first, &f.queries));
            check_same_bytes(out, f.out, sizeof out, "a block that is read later");
        }
        kvern_read_release(first);
        kvern_read_release(again);
        feed_destroy(&f);
        bed_destroy(b);
    }
}

// Of an empty row a block is all that there is: it reads as an encoder's window does.
static void a_block_of_an_empty_row_is_an_encoder(void **state)
{
    (void)state;
    static const int64_t count = 70;
    float wanted[70 * HEADS * DIM];
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 1, DIM, 20, 0, 3);
        if (layer.residual || layer.precise_sinks)
            continue;
        bed *b = bed_create(layer, 1);
        feed f = feed_create(b->cache, &id, &count, HEADS);
        kvern_read *read;
        assert_ok(kvern_cache_read_block(b->cache, &f.tokens, &read));
        assert_ok(kvern_read_attend(read, &f.queries));
        kvern_read_release(read);
        append(b->cache, KVERN_PHASE_ENCODER, count, none, wanted);
        check_same_bytes(wanted, f.out, sizeof wanted, storages[s].name);
        feed_destroy(&f);
        bed_destroy(b);
    }
}

// Within a step, too, of a layer that has appended and of one that has not.
static void blocks_of_states(void **state)
{
    (void)state;
    static const int64_t count = 12;
    pair p = pair_create();
    for (int round = 0; round < 2; round++) {
        assert_ok(kvern_step_begin(p.state, KVERN_PHASE_WINDOW, &count));
        for (size_t l = 0; l < 2; l++) {
            feed f = feed_create(kvern_state_cache(p.state, l), &id, &count, HEADS);
            kvern_read *read;
            assert_ok(kvern_cache_read_block(kvern_state_cache(p.state, l), &f.tokens, &read));
            assert_int_equal(kvern_read_length(read, 0), (round + 1) * count);
            kvern_read_release(read);
            assert_ok(kvern_step_append(p.state, l, &f.tokens, NULL));
            assert_ok(kvern_cache_read_block(kvern_state_cache(p.state, l), &f.tokens, &read));
            assert_int_equal(kvern_read_length(read, 0), (round + 2) * count);
            assert_ok(kvern_read_attend(read, &f.queries));
            kvern_read_release(read);
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(p.state));
        expect_sound_state(p.state);
    }
    assert_int_equal(kvern_state_length(p.state, 0), 2 * count);
    pair_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_that_cannot_be),
        cmocka_unit_test(other_layers_refuse_by_name),
        cmocka_unit_test(precise_positions_see_both_ways),
        cmocka_unit_test(selections_refuse_them),
        cmocka_unit_test(trims_cut_no_range),
        cmocka_unit_test(trimmable_ends_behind_a_range),
        cmocka_unit_test(rows_carry_their_ranges),
        cmocka_unit_test(newest_positions_of_a_row_that_ends_in_a_range),
        cmocka_unit_test(fault_B4_masks_of_ranges_and_blocks),
        cmocka_unit_test(states_trim_by_all_layers),
        cmocka_unit_test(ranges_come_and_go_with_steps),
        cmocka_unit_test(rounds_refuse_them),
        cmocka_unit_test(blocks_that_cannot_be),
        cmocka_unit_test(blocks_leave_the_row_alone),
        cmocka_unit_test(a_block_of_an_empty_row_is_an_encoder),
        cmocka_unit_test(blocks_of_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
