// SPDX-License-Identifier: MIT
// Speculative rounds: what is rolled back has never been, what cannot be taken back is refused
// before it begins, and while a round is open nothing else goes on. States that mix all storages.
// Faults of other systems (fault_<letter><number>_...) are named for public reports.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/mixed_state.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static kvern_memory memory_of(const mixed_world *w)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w->context, &memory));
    return memory;
}

// ---- Rolled back is never appended ----

// How a state of two rows comes to its rounds.
typedef struct past {
    int64_t lengths[2];
    bool forked;  // a fork shares the rows' tables
    bool apart;   // the fork has its own tables of the same pages
    bool written; // the rows have written since
    bool reserved;
} past;

// How the drafts of a round arrive.
typedef enum drafting { AT_ONCE, ONE_BY_ONE, KNOWN_AFTER_ABANDONED, DRAFTINGS } drafting;

typedef struct side {
    mixed_world w;
    kvern_state *state, *fork;
} side;

static const uint64_t sequences[2] = {21, 22};

static void open_side(side *s, const past *p)
{
    static const int64_t one[2] = {1, 1};
    static const size_t both[2] = {0, 1};
    mixed_open(&s->w, 1);
    s->fork = NULL;
    s->state = mixed_state(&s->w, 2);
    mixed_step(s->state, KVERN_PHASE_WINDOW, sequences, p->lengths, NULL);
    if (p->forked)
        assert_ok(kvern_state_fork(s->state, both, 2, &s->fork));
    for (size_t r = 0; p->apart && r < 2; r++)
        assert_ok(kvern_state_reserve(s->fork, r, 64, 0));
    if (p->written)
        mixed_step(s->state, KVERN_PHASE_DECODE, sequences, one, NULL);
    for (size_t r = 0; p->reserved && r < 2; r++)
        assert_ok(kvern_state_reserve(s->state, r, p->lengths[r] + 300, MIXED_QUERY_HEADS));
}

static void close_side(side *s)
{
    kvern_state_destroy(s->fork);
    kvern_state_destroy(s->state);
    mixed_close(&s->w);
}

static void draft(kvern_state *s, const int64_t *counts, drafting how, bool attend)
{
    const int64_t most = counts[0] > counts[1] ? counts[0] : counts[1];
    float *out = malloc((mixed_outputs(counts[0] + counts[1]) + 1) * sizeof *out);
    assert_non_null(out);
    if (how == KNOWN_AFTER_ABANDONED)
        mixed_abandoned_step(s, sequences, counts, 4);
    for (int64_t i = 0; how == ONE_BY_ONE && i < most; i++) {
        const int64_t one[2] = {i < counts[0], i < counts[1]};
        mixed_step(s, KVERN_PHASE_DECODE, sequences, one, attend ? out : NULL);
    }
    if (how != ONE_BY_ONE)
        mixed_step(s, how == AT_ONCE ? KVERN_PHASE_WINDOW : KVERN_PHASE_KNOWN, sequences, counts,
                   attend ? out : NULL);
    free(out);
}

static void check_round(const past *p, const int64_t *counts, const int64_t *keep, drafting how)
{
    static const int64_t more[2] = {5, 3};
    side a, b;
    static float wanted[8192], got[8192];
    assert_true(mixed_outputs(8) <= COUNT(wanted));
    open_side(&a, p);
    open_side(&b, p);
    const uint64_t pages = memory_of(&a.w).page_bytes;
    assert_ok(kvern_round_begin(a.state, counts));
    draft(a.state, counts, how, how != AT_ONCE);
    for (size_t r = 0; r < 2; r++)
        assert_int_equal(kvern_round_appended(a.state, r), counts[r]);
    if (keep)
        assert_ok(kvern_round_rollback(a.state, keep));
    else
        assert_ok(kvern_round_commit(a.state));
    const int64_t *kept = keep ? keep : counts;
    if (kept[0] + kept[1])
        mixed_step(b.state, KVERN_PHASE_WINDOW, sequences, kept, NULL);
    else
        assert_int_equal(memory_of(&a.w).page_bytes, pages);
    mixed_expect_state(b.state, a.state, "after a round");
    assert_int_equal(memory_of(&a.w).page_bytes, memory_of(&b.w).page_bytes);
    if (!p->written) // else a conversion may have come in between
        mixed_step(a.state, KVERN_PHASE_WINDOW, sequences, more, got);
    if (!p->written) {
        mixed_step(b.state, KVERN_PHASE_WINDOW, sequences, more, wanted);
        check_same_bytes(wanted, got, mixed_outputs(8) * sizeof *got, "tokens behind a round");
        mixed_expect_state(b.state, a.state, "tokens behind a round");
    }
    close_side(&a);
    close_side(&b);
}

static void rolled_back_is_never_appended(void **state)
{
    (void)state;
    static const past pasts[] = {
        {{60, 63}, false, false, false, false},   {{64, 61}, true, false, false, false},
        {{126, 130}, true, false, false, false},  {{126, 200}, true, true, false, false},
        {{512, 510}, true, true, false, false},   {{125, 200}, true, false, true, false},
        {{190, 319}, false, false, false, true},  {{512, 508}, false, false, false, false},
        {{60, 450}, true, true, true, true},      {{0, 0}, false, false, false, false},
        {{62, 447}, false, false, false, true},   {{256, 383}, true, false, false, true},
        {{505, 1023}, false, false, false, false}};
    static const int64_t keeps[][2] = {{0, 0}, {1, 0}, {0, 3}, {2, 4}, {6, 7}};
    static const int64_t counts[2] = {6, 7};
    for (size_t i = 0; i < COUNT(pasts); i++) {
        for (int how = 0; how < DRAFTINGS; how++) {
            for (size_t k = 0; k < COUNT(keeps); k++)
                check_round(&pasts[i], counts, keeps[k], (drafting)how);
            check_round(&pasts[i], counts, NULL, (drafting)how);
        }
    }
}

// Several rounds in a row, most of their drafts refused, against decodes.
static void rounds_in_a_row(void **state)
{
    (void)state;
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 1), *plain = mixed_state(&w, 1);
    float *got = malloc(mixed_outputs(8) * sizeof *got);
    float *wanted = malloc(mixed_outputs(1) * sizeof *wanted);
    assert_true(got && wanted);
    mixed_feed(s, KVERN_PHASE_WINDOW, 7, 100, NULL);
    mixed_feed(plain, KVERN_PHASE_WINDOW, 7, 100, NULL);
    for (int64_t i = 0; i < 60; i++) {
        const int64_t count = 1 + i % 8, keep = 1 + i * 5 % count;
        assert_ok(kvern_round_begin(s, &count));
        mixed_feed(s, KVERN_PHASE_WINDOW, 7, count, got);
        assert_ok(kvern_round_rollback(s, &keep));
        for (int64_t t = 0; t < keep; t++) {
            mixed_feed(plain, KVERN_PHASE_DECODE, 7, 1, wanted);
            size_t at = 0;
            for (size_t l = 0; l < MIXED_LAYERS; l++) {
                const kvern_layer *layer = kvern_composition_layer(w.composition, l);
                const size_t floats = MIXED_QUERY_HEADS * layer->v_dim;
                check_same_bytes(wanted + at, got + at * (size_t)count + (size_t)t * floats,
                                 floats * sizeof *got, "a draft that stays");
                at += floats;
            }
        }
        mixed_expect_state(plain, s, "rounds in a row");
    }
    free(got);
    free(wanted);
    kvern_state_destroy(s);
    kvern_state_destroy(plain);
    mixed_close(&w);
}

// ---- Refused when it begins ----

static void expect_detail(const char *a, const char *b)
{
    if (!strstr(kvern_error_detail(), a) || !strstr(kvern_error_detail(), b))
        fail_msg("\"%s\" does not name %s and %s", kvern_error_detail(), a, b);
}

static void what_cannot_be_taken_back_is_refused(void **state)
{
    (void)state;
    static const int64_t first[2] = {10, 69};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 2);
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    // Layer 4 converts at 70, layer 2 has 8 positions of slack and has dropped some.
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, (int64_t[2]){1, 2}));
    expect_detail("layer 4", "row 1");
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, (int64_t[2]){61, 0}));
    expect_detail("layer 2", "row 0");
    assert_ok(kvern_round_begin(s, (int64_t[2]){8, 1}));
    assert_ok(kvern_round_commit(s));
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[2]){0, 1}, NULL);
    assert_true(kvern_cache_converted(kvern_state_cache(s, 4), 1));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, (int64_t[2]){1, 9}));
    expect_detail("layer 2", "row 1");
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, (int64_t[2]){0, 21}));
    assert_ok(kvern_round_begin(s, (int64_t[2]){1, 8}));
    kvern_state_destroy(s);
    mixed_close(&w);
}

// A planned boundary is a conversion to come; a start of 0 is one that comes with the first append.
static void rounds_and_boundaries(void **state)
{
    (void)state;
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 1);
    int64_t three = 3, four = 4;
    mixed_feed(s, KVERN_PHASE_WINDOW, 7, 60, NULL);
    assert_ok(kvern_state_plan_boundary(s, 0, 100));
    mixed_feed(s, KVERN_PHASE_WINDOW, 7, 37, NULL);
    assert_false(kvern_cache_converted(kvern_state_cache(s, 4), 0));
    assert_int_equal(kvern_cache_max_append(kvern_state_cache(s, 4), 0), 3);
    assert_int_equal(kvern_state_max_append(s, 0), 3); // past the start, but not the boundary
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, &four));
    expect_detail("layer 4", "row 0");
    assert_ok(kvern_round_begin(s, &three));
    mixed_feed(s, KVERN_PHASE_WINDOW, 7, 3, NULL);
    assert_false(kvern_cache_converted(kvern_state_cache(s, 4), 0));
    assert_ok(kvern_round_commit(s));
    assert_true(kvern_cache_converted(kvern_state_cache(s, 4), 0));
    kvern_state_destroy(s);

    kvern_layer layer = kvern_layer_default(1, 32);
    layer.k_codec = layer.v_codec = kvern_codec_affine(8, 32);
    layer.start = 0;
    kvern_composition *composition;
    assert_ok(kvern_composition_create(w.context, &layer, 1, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, &three));
    expect_detail("layer 0", "row 0");
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    mixed_close(&w);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    static const int64_t first[2] = {100, 100}, counts[2] = {2, 3}, one[2] = {1, 1};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 2);
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    assert_status(KVERN_ERR_ARGUMENT, kvern_round_begin(NULL, counts));
    assert_status(KVERN_ERR_ARGUMENT, kvern_round_begin(s, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_round_begin(s, (int64_t[2]){0, -1}));
    assert_status(KVERN_ERR_RANGE, kvern_round_begin(s, (int64_t[2]){INT64_MAX, 0}));
    assert_status(KVERN_ERR_BUSY, kvern_round_commit(s));
    assert_status(KVERN_ERR_BUSY, kvern_round_rollback(s, counts));
    assert_status(KVERN_ERR_ARGUMENT, kvern_round_commit(NULL));
    assert_false(kvern_round_open(s));
    assert_false(kvern_round_open(NULL));
    assert_int_equal(kvern_round_appended(s, 0), -1);

    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, one));
    assert_status(KVERN_ERR_BUSY, kvern_round_begin(s, counts));
    kvern_step_abandon(s);

    assert_ok(kvern_round_begin(s, counts));
    assert_true(kvern_round_open(s));
    assert_status(KVERN_ERR_BUSY, kvern_round_begin(s, counts));
    assert_status(KVERN_ERR_RANGE, kvern_step_begin(s, KVERN_PHASE_WINDOW, (int64_t[2]){3, 0}));
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[2]){1, 3}, NULL);
    assert_status(KVERN_ERR_RANGE, kvern_step_begin(s, KVERN_PHASE_DECODE, one));
    expect_detail("row 1", "round");
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, (int64_t[2]){1, 0}));
    assert_int_equal(kvern_round_appended(s, 0), 1);
    assert_status(KVERN_ERR_BUSY, kvern_round_commit(s));
    assert_status(KVERN_ERR_BUSY, kvern_round_rollback(s, one));
    kvern_step_abandon(s);
    assert_int_equal(kvern_round_appended(s, 0), 1);
    assert_int_equal(kvern_round_appended(s, 1), 3);
    assert_int_equal(kvern_round_appended(s, 2), -1);
    assert_status(KVERN_ERR_ARGUMENT, kvern_round_rollback(s, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_round_rollback(s, (int64_t[2]){2, 0}));
    assert_status(KVERN_ERR_RANGE, kvern_round_rollback(s, (int64_t[2]){0, -1}));
    assert_true(kvern_round_open(s));
    assert_ok(kvern_round_rollback(s, one));
    assert_int_equal(kvern_state_length(s, 1), 101);
    kvern_state_destroy(s);
    mixed_close(&w);
}

// ---- Faults ----

static kvern_state *two_layers(const mixed_world *w, kvern_layer window)
{
    const kvern_layer layers[2] = {kvern_layer_default(1, 64), window};
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_composition_create(w->context, layers, 2, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    kvern_composition_release(composition);
    return s;
}

static void feed_layers(kvern_state *s, kvern_phase phase, const uint64_t *ids,
                        const int64_t *counts, float *out)
{
    assert_ok(kvern_step_begin(s, phase, counts));
    for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(s)); l++) {
        kvern_read *read;
        feed f = feed_create(kvern_state_cache(s, l), ids, counts, 2);
        assert_ok(feed_step_append(s, l, &f, &read));
        f.queries.out = out;
        assert_ok(kvern_read_attend(read, &f.queries));
        kvern_read_release(read);
        out += f.out_count;
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
}

// ml-explore/mlx-swift-lm#424: a layer that had wrapped rolled nothing back, and nobody looked.
static void check_K1(kvern_layer layer, const char *name)
{
    static const uint64_t id = 3;
    static const int64_t seven = 7, four = 4, one = 1;
    mixed_world w;
    float out[2 * 7 * 2 * 64], wanted[2 * 2 * 64];
    mixed_open(&w, 1);
    kvern_state *s = two_layers(&w, layer), *twin = two_layers(&w, layer);
    if (layer.start == 0)
        feed_layers(s, KVERN_PHASE_DECODE, &id, &one, out);
    if (layer.start == 0)
        feed_layers(twin, KVERN_PHASE_DECODE, &id, &one, out);
    feed_layers(s, KVERN_PHASE_WINDOW, &id, &seven, out);
    feed_layers(twin, KVERN_PHASE_WINDOW, &id, &seven, out);
    const int64_t begin = kvern_state_length(s, 0);
    if (layer.kind != KVERN_LAYER_FULL && layer.slack < four) {
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(s, &four));
        expect_detail("layer 1", "row 0");
    } else {
        assert_ok(kvern_round_begin(s, &four));
        feed_layers(s, KVERN_PHASE_WINDOW, &id, &four, out);
        assert_ok(kvern_round_rollback(s, &one));
        assert_int_equal(kvern_state_length(s, 0), begin + 1);
        assert_int_equal(kvern_cache_length(kvern_state_cache(s, 1), 0), begin + 1);
        feed_layers(twin, KVERN_PHASE_DECODE, &id, &one, wanted);
        for (int i = 0; i < 12; i++) {
            feed_layers(s, KVERN_PHASE_DECODE, &id, &one, out);
            feed_layers(twin, KVERN_PHASE_DECODE, &id, &one, wanted);
            check_same_bytes(wanted, out, sizeof wanted, name);
        }
    }
    kvern_state_destroy(s);
    kvern_state_destroy(twin);
    mixed_close(&w);
}

static void check_K1_without_slack(kvern_layer layer, const char *name)
{
    if (layer.kind != KVERN_LAYER_FULL)
        layer.slack = 1;
    check_K1(layer, name);
}

static void fault_K1_silent_rollback(void **state)
{
    (void)state;
    for_every_storage(check_K1, 1, 64, 8);
    for_every_storage(check_K1_without_slack, 1, 64, 8);
}

// huggingface/transformers#48280: while drafts were recorded, reads grew and the mask did not.
static void check_K3(kvern_layer layer, const char *name)
{
    static const uint64_t id = 4;
    static const int64_t first = 30, five = 5, two = 2, one = 1;
    mixed_world w;
    float out[2 * 30 * 2 * 64], wanted[2 * 2 * 64];
    mixed_open(&w, 1);
    kvern_state *s = two_layers(&w, layer), *twin = two_layers(&w, layer);
    feed_layers(s, KVERN_PHASE_WINDOW, &id, &first, out);
    feed_layers(twin, KVERN_PHASE_WINDOW, &id, &first, out);
    assert_ok(kvern_round_begin(s, &five));
    for (int i = 0; i < 5; i++) {
        feed_layers(s, KVERN_PHASE_DECODE, &id, &one, out);
        if (i < 2) {
            feed_layers(twin, KVERN_PHASE_DECODE, &id, &one, wanted);
            check_same_bytes(wanted, out, sizeof wanted, name);
        }
    }
    assert_ok(kvern_round_rollback(s, &two));
    assert_int_equal(kvern_state_bytes(s), kvern_state_bytes(twin));
    assert_int_equal(kvern_state_trimmable(s, 0), kvern_state_trimmable(twin, 0));
    feed_layers(s, KVERN_PHASE_DECODE, &id, &one, out);
    feed_layers(twin, KVERN_PHASE_DECODE, &id, &one, wanted);
    check_same_bytes(wanted, out, sizeof wanted, name);
    kvern_state_destroy(s);
    kvern_state_destroy(twin);
    mixed_close(&w);
}

static void fault_K3_width_of_an_open_round(void **state)
{
    (void)state;
    for_every_storage(check_K3, 1, 64, 6);
}

// huggingface/transformers#30312: rollbacks built shorter buffers. Here 100 rounds in reserved room
// take nothing from the allocator, and the bytes are what they were.
static void fault_K4_rollback_reallocates(void **state)
{
    (void)state;
    static const int64_t first[2] = {120, 500}, five[2] = {5, 5}, none[2] = {0, 0};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 2);
    float *out = malloc(mixed_outputs(10) * sizeof *out);
    assert_non_null(out);
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    for (size_t r = 0; r < 2; r++)
        assert_ok(kvern_state_reserve(s, r, 700, MIXED_QUERY_HEADS));
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, five, out); // scratch of windows of five tokens
    const uint64_t allocations = w.books.allocations, held = w.books.held_bytes;
    const uint64_t bytes = kvern_state_bytes(s);
    for (int i = 0; i < 100; i++) {
        assert_ok(kvern_round_begin(s, five));
        mixed_step(s, KVERN_PHASE_WINDOW, sequences, five, out);
        assert_ok(kvern_round_rollback(s, i % 4 ? none : five));
        assert_int_equal(kvern_state_bytes(s), bytes);
    }
    assert_int_equal(w.books.allocations, allocations);
    assert_int_equal(w.books.held_bytes, held);
    free(out);
    kvern_state_destroy(s);
    mixed_close(&w);
}

// huggingface/text-generation-inference#2711: drafts were thought to follow the last slot of the
// batch. Rows of different lengths, room to spare, and a row that leaves between two rounds.
static void fault_K6_contiguity(void **state)
{
    (void)state;
    static const uint64_t ids[3] = {1, 2, 3}, left_ids[2] = {3, 1};
    static const int64_t first[3] = {100, 131, 191}, three[3] = {3, 3, 3}, keep[3] = {1, 3, 0};
    static const int64_t kept[2] = {0, 1}, kept_later[2] = {2, 0};
    static const size_t left[2] = {2, 0};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 3), *plain = mixed_state(&w, 2);
    for (size_t r = 0; r < 3; r++)
        assert_ok(kvern_state_reserve(s, r, 400, 0));
    mixed_step(s, KVERN_PHASE_WINDOW, ids, first, NULL);
    assert_ok(kvern_round_begin(s, three));
    mixed_step(s, KVERN_PHASE_WINDOW, ids, three, NULL);
    assert_ok(kvern_round_rollback(s, keep));
    assert_ok(kvern_state_keep(s, left, 2));
    assert_ok(kvern_round_begin(s, three));
    mixed_step(s, KVERN_PHASE_WINDOW, left_ids, three, NULL);
    assert_ok(kvern_round_rollback(s, kept_later));
    mixed_step(plain, KVERN_PHASE_WINDOW, left_ids, (int64_t[2]){191, 100}, NULL);
    mixed_step(plain, KVERN_PHASE_WINDOW, left_ids, kept, NULL);
    mixed_step(plain, KVERN_PHASE_WINDOW, left_ids, kept_later, NULL);
    for (size_t r = 0; r < 2; r++)
        mixed_expect_row(plain, r, s, r, "rows of two rounds");
    kvern_state_destroy(s);
    kvern_state_destroy(plain);
    mixed_close(&w);
}

// vllm-project/vllm#53912: rejected drafts were published. Everything that takes a state, or copies
// out of it, is refused while a round is open.
static void fault_K7_nothing_else_within_a_round(void **state)
{
    (void)state;
    static const int64_t first[2] = {100, 20}, four[2] = {4, 4}, none[2] = {0, 0};
    static const size_t rows[1] = {0};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_state *s = mixed_state(&w, 2), *other = mixed_state(&w, 1), *made;
    kvern_cache *made_cache, *alone;
    kvern_read *read;
    float k[64], v[64];
    assert_ok(kvern_cache_create(w.composition, 0, 1, &alone));
    mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
    assert_ok(kvern_round_begin(s, four));
    for (int drafted = 0; drafted < 2; drafted++) {
        const kvern_cache *cache = kvern_state_cache(s, 0);
        assert_status(KVERN_ERR_BUSY, kvern_state_fork(s, rows, 1, &made));
        assert_status(KVERN_ERR_BUSY, kvern_state_extract(s, 0, &made));
        assert_null(made);
        assert_status(KVERN_ERR_BUSY, kvern_state_join(s, &other, 1));
        assert_status(KVERN_ERR_BUSY, kvern_state_join(other, &s, 1));
        assert_status(KVERN_ERR_BUSY, kvern_state_keep(s, rows, 1));
        assert_status(KVERN_ERR_BUSY, kvern_state_add_rows(s, 1));
        assert_status(KVERN_ERR_BUSY, kvern_state_trim(s, 0, 1));
        assert_status(KVERN_ERR_BUSY, kvern_state_reset(s, 0));
        assert_status(KVERN_ERR_BUSY, kvern_state_reserve(s, 0, 10, 0));
        assert_status(KVERN_ERR_BUSY, kvern_state_plan_boundary(s, 0, 10));
        assert_status(KVERN_ERR_BUSY, kvern_cache_fork(cache, rows, 1, &made_cache));
        assert_status(KVERN_ERR_BUSY, kvern_cache_extract(cache, 0, &made_cache));
        assert_null(made_cache);
        assert_status(KVERN_ERR_BUSY, kvern_cache_adopt(alone, 0, cache, 0));
        assert_status(KVERN_ERR_BUSY, kvern_cache_export(cache, 0, 0, 1, k, v));
        assert_status(KVERN_ERR_BUSY,
                      kvern_cache_export_affine(kvern_state_cache(s, 1), 0, 0, 0, NULL, NULL));
        expect_detail("round", "open");
        // A layer that shares this one's keys and values reads the drafts like any other tokens.
        assert_ok(kvern_cache_read_donor(cache, four, &read));
        assert_int_equal(kvern_read_length(read, 0), kvern_state_length(s, 0));
        kvern_read_release(read);
        if (!drafted)
            mixed_step(s, KVERN_PHASE_WINDOW, sequences, four, NULL);
    }
    assert_ok(kvern_round_rollback(s, none));
    assert_ok(kvern_state_fork(s, rows, 1, &made));
    assert_int_equal(kvern_state_length(made, 0), 100);
    kvern_state_destroy(made);
    assert_ok(kvern_state_join(s, &other, 1));
    kvern_cache_destroy(alone);
    kvern_state_destroy(other);
    kvern_state_destroy(s);
    mixed_close(&w);
}

// ---- Reads and ends ----

// Reads of the round outlive its rollback, and a state may end within it.
static void reads_of_a_round_live_on(void **state)
{
    (void)state;
    static const int64_t first[2] = {126, 10}, two[2] = {2, 2}, none[2] = {0, 0};
    static const size_t both[2] = {0, 1};
    for (int end = 0; end < 2; end++) {
        mixed_world w;
        mixed_open(&w, 1);
        kvern_state *s = mixed_state(&w, 2), *fork;
        kvern_read *reads[2];
        mixed_step(s, KVERN_PHASE_WINDOW, sequences, first, NULL);
        assert_ok(kvern_state_fork(s, both, 2, &fork));
        assert_ok(kvern_round_begin(s, (int64_t[2]){4, 4}));
        float out[2][4 * 2 * 32], again[4 * 2 * 32];
        feed feeds[2];
        for (int i = 0; i < 2; i++) {
            assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, two));
            for (size_t l = 0; l < MIXED_LAYERS; l++) {
                feed f = feed_create(kvern_state_cache(s, l), sequences, two, 2);
                assert_ok(feed_step_append(s, l, &f, l ? NULL : &reads[i]));
                if (l == 0)
                    feeds[i] = f;
                else
                    feed_destroy(&f);
            }
            feeds[i].queries.out = out[i];
            assert_ok(kvern_read_attend(reads[i], &feeds[i].queries));
            assert_ok(kvern_step_end(s));
        }
        if (end) {
            kvern_state_destroy(s);
            s = NULL;
        } else {
            assert_ok(kvern_round_rollback(s, none));
            mixed_expect_row(fork, 0, s, 0, "rolled back under open reads");
            mixed_step(s, KVERN_PHASE_WINDOW, (uint64_t[2]){91, 92}, two, NULL);
        }
        for (int i = 0; i < 2; i++) {
            feeds[i].queries.out = again;
            assert_ok(kvern_read_attend(reads[i], &feeds[i].queries));
            check_same_bytes(out[i], again, sizeof again, "a read of a round that has ended");
            kvern_read_release(reads[i]);
            feed_destroy(&feeds[i]);
        }
        kvern_state_destroy(s);
        kvern_state_destroy(fork);
        mixed_close(&w);
    }
}

// The table of a row that has dropped positions grows within a round, and is the old one again.
static void a_table_that_grew_is_left_again(void **state)
{
    (void)state;
    static const uint64_t id = 6;
    static const int64_t chunk = 64, drafts = 66;
    static float out[66 * 2 * 2 * 64], wanted[66 * 2 * 2 * 64];
    for (int64_t keep = 0; keep < 3; keep++) {
        mixed_world a, b;
        mixed_open(&a, 1);
        mixed_open(&b, 1);
        kvern_layer layer = kvern_layer_window(1, 64, 374); // with its slack, 8 pages at most
        layer.slack = drafts;
        kvern_state *s = two_layers(&a, layer), *plain = two_layers(&b, layer);
        for (int i = 0; i < 10; i++) {
            feed_layers(s, KVERN_PHASE_WINDOW, &id, &chunk, out);
            feed_layers(plain, KVERN_PHASE_WINDOW, &id, &chunk, out);
        }
        assert_ok(kvern_round_begin(s, &drafts));
        feed_layers(s, KVERN_PHASE_WINDOW, &id, &drafts, out);
        assert_ok(kvern_round_rollback(s, &keep));
        feed_layers(plain, KVERN_PHASE_WINDOW, &id, &keep, wanted);
        assert_int_equal(kvern_state_bytes(s), kvern_state_bytes(plain));
        for (int i = 0; i < 3; i++) {
            feed_layers(s, KVERN_PHASE_WINDOW, &id, &chunk, out);
            feed_layers(plain, KVERN_PHASE_WINDOW, &id, &chunk, wanted);
            check_same_bytes(wanted, out, 64 * 2 * 2 * 64 * sizeof out[0], "in the old table");
            assert_int_equal(kvern_state_bytes(s), kvern_state_bytes(plain));
        }
        kvern_state_destroy(s);
        kvern_state_destroy(plain);
        mixed_close(&a);
        mixed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rolled_back_is_never_appended),
        cmocka_unit_test(rounds_in_a_row),
        cmocka_unit_test(what_cannot_be_taken_back_is_refused),
        cmocka_unit_test(rounds_and_boundaries),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(fault_K1_silent_rollback),
        cmocka_unit_test(fault_K3_width_of_an_open_round),
        cmocka_unit_test(fault_K4_rollback_reallocates),
        cmocka_unit_test(fault_K6_contiguity),
        cmocka_unit_test(fault_K7_nothing_else_within_a_round),
        cmocka_unit_test(reads_of_a_round_live_on),
        cmocka_unit_test(a_table_that_grew_is_left_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
