// SPDX-License-Identifier: MIT
// Random programs on a trie of a store, beside a list of all that lies in it.

#include "src/store/store.h"
#include "tests/support/check.h"
#include "tests/support/ledger.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ITEMS 60
#define MOST_TOKENS 40
#define MOST_HOLDS 4

typedef struct naive_item {
    kvern_trie_item item;
    bool used;
    size_t count; // tokens
    int32_t tokens[MOST_TOKENS];
} naive_item;

typedef struct world {
    ledger books;
    kvern_heap heap;
    kvern_trie trie;
    test_random random;
    kvern_key_front front;
    naive_item items[MOST_ITEMS];
    kvern_trie_node *held[MOST_HOLDS];
} world;

static size_t below(world *w, size_t bound)
{
    return (size_t)test_random_below(&w->random, bound);
}

static kvern_key key_of(const world *w, const int32_t *tokens, size_t count)
{
    return (kvern_key){.front = &w->front, .tokens = tokens, .tokens_count = count};
}

// Few different tokens, in runs, so that keys have much in common; and often a beginning of, or
// more than, what is there.
static size_t choose_tokens(world *w, int32_t *tokens)
{
    const naive_item *like = &w->items[below(w, MOST_ITEMS)];
    size_t at = like->used ? below(w, like->count + 1) : 0;
    memcpy(tokens, like->tokens, at * sizeof tokens[0]);
    const size_t count = 1 + below(w, MOST_TOKENS);
    while (at < count)
        tokens[at++] = (int32_t)below(w, below(w, 4) ? 2 : 6) - 2;
    return at > count && below(w, 2) ? count : at;
}

static size_t common_of(const naive_item *item, const int32_t *tokens, size_t count)
{
    size_t same = 0;
    while (same < item->count && same < count && item->tokens[same] == tokens[same])
        same++;
    return same;
}

static bool is_there(const world *w, const int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < MOST_ITEMS; i++) {
        const naive_item *item = &w->items[i];
        if (item->used && item->count == count && common_of(item, tokens, count) == count)
            return true;
    }
    return false;
}

static void expect_books(world *w)
{
    const char *wrong = kvern_trie_walk(&w->trie);
    if (wrong)
        fail_msg("%s", wrong);
    assert_int_equal(w->trie.bytes, w->books.held_bytes);
}

static void put(world *w)
{
    int32_t tokens[MOST_TOKENS];
    const size_t count = choose_tokens(w, tokens);
    naive_item *free_one = NULL;
    for (size_t i = 0; i < MOST_ITEMS; i++)
        free_one = w->items[i].used ? free_one : &w->items[i];
    if (!free_one || is_there(w, tokens, count))
        return;
    const kvern_key key = key_of(w, tokens, count);
    const size_t words = kvern_key_count(&key);
    const size_t matched = kvern_trie_find(&w->trie, &key, 0).matched;
    kvern_trie_parts parts;
    // Sometimes a block with more words than are wanted.
    const size_t fresh = words - matched;
    assert_ok(
        kvern_trie_parts_make(&w->heap, &key, fresh + (matched ? below(w, matched) : 0), &parts));
    free_one->used = true;
    free_one->count = count;
    memcpy(free_one->tokens, tokens, count * sizeof tokens[0]);
    free_one->item.floor = w->front.count + (below(w, 3) ? below(w, count + 1) : count);
    kvern_trie_put(&w->trie, &key, &free_one->item, &parts);
    kvern_trie_parts_free(&w->heap, &parts);
}

static void take_out(world *w)
{
    naive_item *item = &w->items[below(w, MOST_ITEMS)];
    kvern_trie_rest rest = {0};
    if (!item->used)
        return;
    kvern_trie_take_out(&w->trie, &item->item, &rest);
    kvern_trie_rest_free(&w->heap, &rest);
    item->used = false;
}

static void hold_or_let_go(world *w)
{
    kvern_trie_node **held = &w->held[below(w, MOST_HOLDS)];
    kvern_trie_rest rest = {0};
    if (*held) {
        kvern_trie_let_go(&w->trie, *held, &rest);
        kvern_trie_rest_free(&w->heap, &rest);
        *held = NULL;
        return;
    }
    int32_t tokens[MOST_TOKENS];
    const kvern_key key = key_of(w, tokens, choose_tokens(w, tokens));
    const kvern_trie_place place = kvern_trie_find(&w->trie, &key, 0);
    if (place.node->parent) {
        kvern_trie_hold(place.node);
        *held = place.node;
    }
}

static bool is_held(const world *w)
{
    for (size_t h = 0; h < MOST_HOLDS; h++) {
        if (w->held[h])
            return true;
    }
    return false;
}

static void look_up(world *w)
{
    int32_t tokens[MOST_TOKENS];
    const size_t count = choose_tokens(w, tokens), front = w->front.count;
    size_t common = 0, served = 0;
    for (size_t i = 0; i < MOST_ITEMS; i++) {
        const naive_item *item = &w->items[i];
        const size_t same = item->used ? common_of(item, tokens, count) : 0;
        const size_t may = same < count - 1 ? same : count - 1;
        common = same > common ? same : common;
        if (item->used && item->item.floor <= front + may && may > served)
            served = may;
    }
    const kvern_key key = key_of(w, tokens, count);
    const kvern_trie_place place = kvern_trie_find(&w->trie, &key, front + count - 1);
    if (!is_held(w) && common)
        assert_int_equal(place.matched, front + common);
    assert_int_equal(place.best ? place.served : front, front + served);
    if (!place.best)
        return;
    const naive_item *picked = (naive_item *)kvern_trie_pick(place.best, place.served);
    assert_true(picked->used && picked->item.floor <= place.served);
    assert_true(common_of(picked, tokens, count) >= served);
}

static void run(world *w)
{
    const size_t what = below(w, 10);
    if (what < 4)
        put(w);
    else if (what < 6)
        take_out(w);
    else if (what < 7)
        hold_or_let_go(w);
    else
        look_up(w);
    expect_books(w);
}

static void a_trie_is_a_list(void **state)
{
    (void)state;
    const int programs = check_is_long() ? 400 : 20;
    for (int p = 0; p < programs; p++) {
        world *w = calloc(1, sizeof *w);
        assert_non_null(w);
        ledger_init(&w->books);
        kvern_heap_init(&w->heap, ledger_allocator(&w->books), 0);
        kvern_trie_init(&w->trie, (uint64_t)p);
        w->random = test_random_seed(check_seed() + (uint64_t)p);
        assert_ok(kvern_key_front_make(NULL, &w->front));
        kvern_key_front_set_layout(&w->front, 1);
        for (int i = 0; i < 2000; i++)
            run(w);
        for (size_t h = 0; h < MOST_HOLDS; h++) {
            kvern_trie_rest rest = {0};
            if (w->held[h])
                kvern_trie_let_go(&w->trie, w->held[h], &rest);
            kvern_trie_rest_free(&w->heap, &rest);
        }
        for (size_t i = 0; i < MOST_ITEMS; i++) {
            kvern_trie_rest rest = {0};
            if (w->items[i].used)
                kvern_trie_take_out(&w->trie, &w->items[i].item, &rest);
            kvern_trie_rest_free(&w->heap, &rest);
        }
        assert_int_equal(w->trie.bytes, 0);
        ledger_finish(&w->books);
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trie_is_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
