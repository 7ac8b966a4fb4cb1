// SPDX-License-Identifier: MIT
// Random programs on a store and rows, over layers of all kinds, beside a list of entries that is
// searched one by one: what is found, what is there, what goes; and whatever is lent goes on as a
// row that was served from nothing, bit for bit.

#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/mixed_state.h"
#include "tests/support/sanitizer.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"
#include "tests/support/store_bed.h"

#include <stdlib.h>
#include <string.h>

#define TEXTS 6
#define MOST 260 // tokens of a text
#define ROWS 3
#define KEYS 2
#define MOST_ENTRIES 5000
#define MOST_KEPT 40

typedef struct naive_entry {
    size_t key;
    const int32_t *tokens; // a text
    int64_t count, floor;
    kvern_store_retention retention;
    uint64_t used;
} naive_entry;

typedef struct kept {
    int64_t position, floor;
} kept;

typedef struct walker { // a row, alone in its state
    kvern_state *s;
    const int32_t *tokens;
    kept kept[MOST_KEPT];
    size_t kept_count;
} walker;

typedef struct world {
    store_bed *b;
    test_random random;
    int32_t texts[TEXTS][MOST];
    walker rows[ROWS];
    naive_entry entries[MOST_ENTRIES];
    size_t count;
    uint64_t time; // as the store counts it
    uint64_t served;
} world;

static const kvern_store_field fields[KEYS] = {{"adapter", "a", 1}, {"adapter", "b", 1}};
static const kvern_store_key keys[KEYS] = {{&fields[0], 1}, {&fields[1], 1}};

static int64_t below(world *w, int64_t bound)
{
    return (int64_t)test_random_below(&w->random, (uint64_t)bound);
}

static int64_t common_of(const int32_t *a, const int32_t *b, int64_t most)
{
    int64_t same = 0;
    while (same < most && a[same] == b[same])
        same++;
    return same;
}

// Runs of tokens behind the beginning of another text.
static void make_text(world *w, size_t index)
{
    int32_t *text = w->texts[index];
    int64_t at = index ? below(w, MOST) : 0;
    if (index)
        memcpy(text, w->texts[below(w, (int64_t)index)], (size_t)at * sizeof text[0]);
    while (at < MOST) {
        const int64_t end = at + 1 + below(w, 50);
        const int32_t token = (int32_t)below(w, 5);
        for (; at < end && at < MOST; at++)
            text[at] = token;
    }
}

// ---- The list ----

static uint64_t idle_of(const world *w, const naive_entry *e)
{
    const uint64_t speed = e->retention == KVERN_STORE_SHORT    ? 16
                           : e->retention == KVERN_STORE_NORMAL ? 4
                                                                : 1;
    return (w->time - e->used) * speed;
}

static void forget(world *w, size_t index)
{
    w->entries[index] = w->entries[--w->count];
}

static bool is_there(const world *w, const naive_entry *e)
{
    return store_has(w->b, &keys[e->key], e->tokens, (size_t)e->count);
}

// Forgets what the store has evicted, which must have been unused for longer than what is left.
// `strictly`: at one moment, nothing was used meanwhile.
static void follow_evictions(world *w, bool strictly)
{
    uint64_t least_gone = UINT64_MAX, most_left = 0;
    for (size_t i = w->count; i-- > 0;) {
        const uint64_t idle = idle_of(w, &w->entries[i]);
        if (is_there(w, &w->entries[i])) {
            most_left = idle > most_left ? idle : most_left;
            continue;
        }
        least_gone = idle < least_gone ? idle : least_gone;
        forget(w, i);
    }
    if (strictly)
        assert_true(least_gone >= most_left);
}

// Those that it replaces, and beginnings of which it serves all.
static void make_way(world *w, naive_entry fresh)
{
    for (size_t i = w->count; i-- > 0;) {
        const naive_entry *e = &w->entries[i];
        if (e->key != fresh.key || e->count > fresh.count ||
            common_of(e->tokens, fresh.tokens, e->count) < e->count)
            continue;
        if (e->count == fresh.count || fresh.floor <= e->floor)
            forget(w, i);
    }
}

static void add(world *w, naive_entry fresh)
{
    make_way(w, fresh);
    assert_true(w->count < MOST_ENTRIES);
    fresh.used = ++w->time;
    w->entries[w->count++] = fresh;
}

static int64_t best_of(const world *w, size_t key, const int32_t *tokens, int64_t count,
                       int64_t *common)
{
    int64_t best = 0;
    *common = 0;
    for (size_t i = 0; i < w->count; i++) {
        const naive_entry *e = &w->entries[i];
        if (e->key != key)
            continue;
        const int64_t same = common_of(e->tokens, tokens, e->count < count ? e->count : count);
        const int64_t may = same < count - 1 ? same : count - 1;
        *common = same > *common ? same : *common;
        if (may >= e->floor && may > best)
            best = may;
    }
    return best;
}

// ---- What is done ----

static void expect_sound(world *w)
{
    store_expect_sound(w->b);
    assert_int_equal(store_stats(w->b).entries, w->count);
    for (size_t i = 0; i < w->count; i++)
        assert_true(is_there(w, &w->entries[i]));
    for (size_t r = 0; r < ROWS; r++)
        expect_sound_state(w->rows[r].s);
}

static void drop_kept(walker *row, int64_t above)
{
    while (row->kept_count && row->kept[row->kept_count - 1].position > above)
        row->kept_count--;
}

// A row goes on with its text, or with another one that begins alike.
static void serve(world *w, walker *row)
{
    const int64_t length = kvern_state_length(row->s, 0);
    const int32_t *text = w->texts[below(w, TEXTS)];
    if (!row->tokens || common_of(text, row->tokens, length) == length)
        row->tokens = text;
    if (length < MOST)
        store_serve(row->s, 0, row->tokens, length + 1 + below(w, MOST - length), NULL);
}

static void trim(world *w, walker *row)
{
    const int64_t most = kvern_state_trimmable(row->s, 0);
    if (most <= 0)
        return;
    assert_ok(kvern_state_trim(row->s, 0, 1 + below(w, most)));
    drop_kept(row, kvern_state_length(row->s, 0));
}

static void keep(walker *row)
{
    const int64_t length = kvern_state_length(row->s, 0);
    assert_ok(kvern_state_checkpoint(row->s, 0));
    if (length == 0 || row->kept_count == MOST_KEPT ||
        (row->kept_count && row->kept[row->kept_count - 1].position == length))
        return;
    row->kept[row->kept_count++] = (kept){length, kvern_state_min_reusable(row->s, 0)};
}

static void reset(walker *row)
{
    assert_ok(kvern_state_reset(row->s, 0));
    row->kept_count = 0;
}

static void expect_not_reusable(world *w, const walker *row)
{
    const int64_t length = kvern_state_length(row->s, 0);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_store_publish(w->b->store, &keys[0], row->tokens,
                                                             (size_t)length, row->s, 0, NULL));
}

static void publish(world *w, walker *row)
{
    const int64_t length = kvern_state_length(row->s, 0);
    const int64_t floor = kvern_state_min_reusable(row->s, 0);
    kvern_store_publication publication = kvern_store_publication_default();
    naive_entry fresh = {(size_t)below(w, KEYS), row->tokens, length, floor, 0, 0};
    fresh.retention = publication.retention = (kvern_store_retention)below(w, 3);
    publication.without_checkpoints = (uint32_t)below(w, 2);
    if (length == 0)
        return;
    if (floor > length) {
        expect_not_reusable(w, row);
        return;
    }
    const uint64_t left_out = store_stats(w->b).checkpoints_left_out;
    const kvern_status status = kvern_store_publish(w->b->store, &keys[fresh.key], row->tokens,
                                                    (size_t)length, row->s, 0, &publication);
    if (status) {
        assert_int_equal(status, KVERN_ERR_BUDGET);
        return;
    }
    if (publication.without_checkpoints || row->kept_count == 0) {
        make_way(w, fresh);
        follow_evictions(w, true);
        add(w, fresh);
        return;
    }
    // The row's own is used last.
    for (size_t k = row->kept_count; k-- > 0;) {
        naive_entry at = fresh;
        at.count = row->kept[k].position;
        at.floor = row->kept[k].floor;
        if (at.count < length && floor > at.floor && at.floor <= at.count)
            add(w, at);
    }
    add(w, fresh);
    if (store_stats(w->b).checkpoints_left_out == left_out && w->count == store_stats(w->b).entries)
        return;
    follow_evictions(w, false); // or left out
}

// A prompt of any text, or one that goes on from about where an entry ends.
static const int32_t *choose_prompt(world *w, size_t *key, int64_t *count)
{
    *key = (size_t)below(w, KEYS);
    *count = 1 + below(w, MOST);
    if (w->count == 0 || below(w, 3) == 0)
        return w->texts[below(w, TEXTS)];
    const naive_entry *like = &w->entries[below(w, (int64_t)w->count)];
    *key = like->key;
    *count = like->count - 5 + below(w, 15);
    *count = *count < 1 ? 1 : *count > MOST ? MOST : *count;
    return like->tokens;
}

// One of several entries may be lent that serve as much, so the store is asked which one it was.
static void look_up(world *w, walker *row)
{
    size_t key;
    int64_t count;
    const int32_t *text = choose_prompt(w, &key, &count);
    int64_t common;
    const int64_t wanted = best_of(w, key, text, count, &common);
    kvern_store_hit hit = store_find(w->b, &keys[key], text, (size_t)count);
    assert_int_equal(hit.positions, wanted);
    assert_int_equal(hit.common, common);
    assert_int_equal(!hit.entry, !wanted);
    assert_int_equal(hit.why == KVERN_STORE_ALL, wanted && wanted == count - 1);
    assert_int_equal(hit.why == KVERN_STORE_SHORT_PROMPT, count == 1);
    if (count > 1 && wanted == common)
        assert_true(hit.why == KVERN_STORE_ALL || hit.why == KVERN_STORE_TOKENS ||
                    hit.why == KVERN_STORE_NO_KEY || hit.why == KVERN_STORE_SIGNATURE);
    if (wanted) {
        reset(row);
        assert_ok(kvern_store_lend(w->b->store, &hit, row->s, 0));
        row->tokens = text;
        expect_sound_state(row->s);
    }
    const naive_entry *used = NULL;
    kvern_store_release(w->b->store, &hit);
    if (!wanted)
        return;
    w->time++;
    w->served++;
    for (size_t i = 0; i < w->count; i++) {
        naive_entry *e = &w->entries[i];
        if (store_used_last(w->b, &keys[e->key], e->tokens, (size_t)e->count)) {
            e->used = w->time;
            used = e;
        }
    }
    assert_non_null(used); // and it could serve that
    assert_true(used->floor <= wanted && used->key == key);
    assert_int_equal(common_of(used->tokens, text, wanted), wanted);
    if (wanted < MOST)
        store_expect_goes_on(w->b, row->s, 0, text,
                             wanted + 1 + below(w, MOST - wanted < 9 ? MOST - wanted : 9));
}

static void give_up(world *w)
{
    (void)kvern_store_give_up(w->b->store, (uint64_t)below(w, 50000));
    follow_evictions(w, true);
}

static void act(world *w)
{
    walker *row = &w->rows[below(w, ROWS)];
    const int64_t what = below(w, 100);
    if (what < 25)
        serve(w, row);
    else if (what < 35)
        trim(w, row);
    else if (what < 45)
        keep(row);
    else if (what < 48)
        reset(row);
    else if (what < 72)
        publish(w, row);
    else if (what < 97)
        look_up(w, row);
    else
        give_up(w);
    expect_sound(w);
}

// ---- Programs ----

static uint64_t run_program(const kvern_layer *layers, size_t count, uint64_t budget, int actions,
                            uint64_t seed)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = test_random_seed(seed);
    w->b = store_bed_open(layers, count, budget, 0);
    for (size_t t = 0; t < TEXTS; t++)
        make_text(w, t);
    for (size_t r = 0; r < ROWS; r++) {
        w->rows[r].s = store_state(w->b, 1);
        assert_ok(kvern_state_checkpoint_budget(w->rows[r].s, UINT64_MAX));
    }
    for (int i = 0; i < actions; i++)
        act(w);
    const uint64_t served = w->served;
    for (size_t r = 0; r < ROWS; r++)
        kvern_state_destroy(w->rows[r].s);
    store_bed_close(w->b);
    free(w);
    return served;
}

static uint64_t lookups_served;
static uint64_t programs;

static int actions_of(int usual)
{
    return (check_is_long() ? 10 * usual : usual) / (HAS_SANITIZER ? 3 : 1);
}

static void check_layer(kvern_layer layer, const char *name)
{
    (void)name;
    const uint64_t seed = check_seed() + programs++;
    // Of a row of 260 tokens, some budgets have room for a few, some for many.
    const uint64_t budgets[3] = {0, 200000, 80000};
    lookups_served += run_program(&layer, 1, budgets[programs % 3], actions_of(200), seed);
}

static void every_storage(void **state)
{
    (void)state;
    lookups_served = 0;
    for_every_storage(check_layer, 1, 64, 24);
    assert_true(lookups_served > 50);
}

static void latents_and_recurrent_layers(void **state)
{
    (void)state;
    lookups_served = 0;
    for (int i = 0; i < 3; i++) {
        check_layer(kvern_layer_latent(32, 16, 24), "latents");
        check_layer(kvern_layer_ssd(1, 2, 16, 8, 3), "ssd");
        check_layer(kvern_layer_delta(1, 2, 16, 16, 4), "delta");
    }
    assert_true(lookups_served > 10);
}

static void mixed_layers(void **state)
{
    (void)state;
    kvern_layer layers[MIXED_LAYERS];
    mixed_plan(layers);
    assert_true(run_program(layers, MIXED_LAYERS, 0, actions_of(150), check_seed()) > 0);
    assert_true(run_program(layers, MIXED_LAYERS, 1500000, actions_of(150), check_seed() + 1) > 0);
}

static void hybrid_layers(void **state)
{
    (void)state;
    kvern_layer layers[HYBRID_LAYERS];
    hybrid_plan(layers);
    assert_true(run_program(layers, HYBRID_LAYERS - 1, 0, actions_of(200), check_seed()) > 0);
    assert_true(run_program(layers, HYBRID_LAYERS - 1, 1500000, actions_of(200), check_seed() + 1) >
                0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_storage),
        cmocka_unit_test(latents_and_recurrent_layers),
        cmocka_unit_test(mixed_layers),
        cmocka_unit_test(hybrid_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
