// SPDX-License-Identifier: MIT
// Random programs on a store that machines share, over layers of all kinds, beside a list of
// entries that is searched one by one: nothing is lent that was not published, whatever is lent
// goes on as a row that was served from nothing, bit for bit, and as long as the server forgets
// nothing of importance no more is missed than a block of tokens, where two entries end with the
// same number of tokens behind it.

#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/mixed_state.h"
#include "tests/support/random.h"
#include "tests/support/remote_bed.h"
#include "tests/support/sanitizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS 6
#define MOST 260 // tokens of a text
#define KEYS 2
#define MOST_ENTRIES 400
#define ROUNDS (HAS_SANITIZER ? 20 : 60)

typedef struct naive_entry {
    size_t key;
    const int32_t *tokens;
    int64_t count, floor;
} naive_entry;

typedef struct world {
    store_bed *b;
    kvern_remote_store *stores[2];
    test_random random;
    int32_t texts[TEXTS][MOST];
    naive_entry entries[MOST_ENTRIES];
    size_t count;
    bool forgets;
    uint64_t lent;
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

// The longest that any entry serves.
static int64_t best_of(const world *w, size_t key, const int32_t *tokens, int64_t count)
{
    int64_t best = 0;
    for (size_t i = 0; i < w->count; i++) {
        const naive_entry *e = &w->entries[i];
        const int64_t most = e->count < count - 1 ? e->count : count - 1;
        const int64_t serves = common_of(e->tokens, tokens, most);
        if (e->key == key && serves >= e->floor && serves > best)
            best = serves;
    }
    return best;
}

// What the index must find: an entry that goes on beyond a block is found by that block, if nothing
// else is.
static int64_t least_of(const world *w, size_t key, const int32_t *tokens, int64_t count)
{
    int64_t least = 0;
    for (size_t i = 0; i < w->count; i++) {
        const naive_entry *e = &w->entries[i];
        const int64_t most = e->count < count - 1 ? e->count : count - 1;
        const int64_t block = common_of(e->tokens, tokens, most) / 64 * 64;
        if (e->key == key && e->floor == 0 && block > least)
            least = block;
    }
    return least;
}

static void publish(world *w, kvern_state *s, size_t key, const int32_t *tokens, int64_t count)
{
    kvern_remote_store *r = w->stores[below(w, 2)];
    if (kvern_state_min_reusable(s, 0) > count)
        return;
    assert_ok(kvern_remote_store_publish(r, &keys[key], tokens, (size_t)count, s, 0, NULL));
    kvern_remote_store_flush(r);
    assert_true(w->count < MOST_ENTRIES);
    w->entries[w->count++] = (naive_entry){key, tokens, count, kvern_state_min_reusable(s, 0)};
}

static void serve_one(world *w)
{
    const size_t key = (size_t)below(w, KEYS);
    const int32_t *tokens = w->texts[below(w, TEXTS)];
    const int64_t count = 2 + below(w, MOST - 2);
    kvern_state *s;
    const int64_t lent =
        remote_lend(w->b, w->stores[below(w, 2)], &keys[key], tokens, (size_t)count, &s);
    assert_true(lent <= best_of(w, key, tokens, count));
    if (!w->forgets)
        assert_true(lent >= least_of(w, key, tokens, count));
    w->lent += (uint64_t)lent;
    store_expect_goes_on(w->b, s, 0, tokens, count);
    if (below(w, 3))
        publish(w, s, key, tokens, count);
    kvern_state_destroy(s);
}

// The server loses a key of any kind, or all.
static void forget_something(world *w)
{
    const char kind = "bei"[below(w, 3)];
    const size_t count = remote_keys(kind);
    if (count && below(w, 10))
        remote_number("DEL %s", remote_key(kind, (size_t)below(w, (int64_t)count)));
    else
        freeReplyObject(remote_ask("FLUSHALL"));
}

static void run(const kvern_layer *layers, size_t count, uint64_t seed, bool forgets)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->b = store_bed_open(layers, count, 0, 0);
    w->random = test_random_seed(seed);
    w->forgets = forgets;
    for (size_t i = 0; i < 2; i++)
        w->stores[i] = remote_open(w->b, NULL, NULL);
    for (size_t i = 0; i < TEXTS; i++)
        make_text(w, i);
    for (int i = 0; i < ROUNDS; i++) {
        serve_one(w);
        if (forgets && below(w, 3) == 0)
            forget_something(w);
    }
    assert_true(w->lent > 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(0,
                         remote_stats(w->stores[i]).damaged + remote_stats(w->stores[i]).outages);
        kvern_remote_store_close(w->stores[i]);
    }
    freeReplyObject(remote_ask("FLUSHALL"));
    store_bed_close(w->b);
    free(w);
}

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_start(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remote_kill();
    folder_remove();
    return 0;
}

static void run_all(bool forgets)
{
    const kvern_layer plain = kvern_layer_default(1, 16), window = kvern_layer_window(1, 16, 40);
    kvern_layer mixed[MIXED_LAYERS], hybrid[HYBRID_LAYERS];
    mixed_plan(mixed);
    hybrid_plan(hybrid);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run(&plain, 1, seed, forgets);
        run(&window, 1, seed, forgets);
    }
    run(mixed, MIXED_LAYERS, 5, forgets);
    run(hybrid, HYBRID_LAYERS - 1, 6, forgets);
}

static void programs_on_a_server_that_keeps_all(void **state)
{
    (void)state;
    run_all(false);
}

static void programs_on_a_server_that_forgets(void **state)
{
    (void)state;
    run_all(true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(programs_on_a_server_that_keeps_all),
        TEST(programs_on_a_server_that_forgets),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
