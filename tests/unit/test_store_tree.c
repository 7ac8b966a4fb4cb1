// SPDX-License-Identifier: MIT
// The tree of a store's entries: kvern/experimental/store_tree.h.

#include "tests/support/check.h"
#include "tests/support/random.h"
#include "tests/support/store_bed.h"

#include <kvern/experimental/store_tree.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 64
#define EXCERPT 8

typedef struct tree {
    kvern_store_node nodes[ROOM];
    int32_t tokens[ROOM * EXCERPT];
    size_t count;
    bool whole;
} tree;

static tree list(const store_bed *b, const kvern_store_key *key, size_t room)
{
    tree t;
    memset(&t, 0x55, sizeof t);
    assert_ok(kvern_store_list(b->store, key, b->composition, t.nodes, room, t.tokens, EXCERPT,
                               &t.count, &t.whole));
    return t;
}

static void expect_node(const tree *t, size_t i, int64_t parent, int64_t begin, int64_t end,
                        bool entry)
{
    assert_int_equal(t->nodes[i].parent, parent);
    assert_int_equal(t->nodes[i].begin, begin);
    assert_int_equal(t->nodes[i].end, end);
    assert_int_equal(t->nodes[i].floor >= 0, entry);
}

static void prompt(int32_t *tokens, size_t common, size_t count, int32_t token)
{
    store_repeat(tokens, common, 1);
    store_repeat(tokens + common, count - common, token);
}

static void an_empty_store_has_no_tree(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    const tree t = list(b, NULL, ROOM);
    assert_int_equal(t.count, 0);
    assert_true(t.whole);
    store_bed_close(b);
}

static void entries_part_where_they_differ(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20];
    prompt(tokens, 10, 20, 3);
    store_put(b, NULL, tokens, 20);
    tree t = list(b, NULL, ROOM); // the edge begins within the key
    assert_int_equal(t.count, 1);
    expect_node(&t, 0, -1, 0, 20, true);
    prompt(tokens, 10, 18, 2);
    store_put(b, NULL, tokens, 18);
    prompt(tokens, 4, 16, 7);
    store_put(b, NULL, tokens, 16);
    t = list(b, NULL, ROOM);
    assert_int_equal(t.count, 5);
    assert_true(t.whole);
    expect_node(&t, 0, -1, 0, 4, false);
    expect_node(&t, 1, 0, 4, 10, false);
    expect_node(&t, 2, 1, 10, 18, true);
    expect_node(&t, 3, 1, 10, 20, true);
    expect_node(&t, 4, 0, 4, 16, true);
    assert_int_equal(t.tokens[0], 1);
    assert_int_equal(t.tokens[3], 1);
    assert_int_equal(t.tokens[4], 0x55555555); // a stretch of four tokens
    assert_int_equal(t.tokens[2 * EXCERPT], 2);
    assert_int_equal(t.tokens[3 * EXCERPT + EXCERPT - 1], 3);
    assert_int_equal(t.tokens[4 * EXCERPT], 7);
    store_expect_sound(b);
    store_bed_close(b);
}

static void other_keys_are_not_listed(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    const kvern_store_field fields[] = {{"user", "a", 1}, {"user", "b", 1}};
    const kvern_store_key one = {&fields[0], 1}, other = {&fields[1], 1};
    int32_t tokens[20];
    prompt(tokens, 10, 20, 3);
    store_put(b, &one, tokens, 20);
    prompt(tokens, 5, 20, 4);
    store_put(b, &other, tokens, 20);
    tree t = list(b, &one, ROOM);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.tokens[7], 1);
    t = list(b, NULL, ROOM);
    assert_int_equal(t.count, 0);
    assert_true(t.whole);
    store_bed_close(b);
}

static void hits_are_counted_where_prefixes_end(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[30];
    prompt(tokens, 10, 20, 3);
    store_put(b, NULL, tokens, 20);
    prompt(tokens, 10, 20, 2);
    store_put(b, NULL, tokens, 20);
    prompt(tokens, 10, 30, 9); // ten tokens
    assert_int_equal(store_found(b, NULL, tokens, 30), 10);
    assert_int_equal(store_found(b, NULL, tokens, 30), 10);
    prompt(tokens, 10, 30, 2); // twenty
    kvern_store_hit hit = store_find(b, NULL, tokens, 30);
    tree t = list(b, NULL, ROOM);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.nodes[0].hits, 2);
    assert_int_equal(t.nodes[1].hits, 1);
    assert_int_equal(t.nodes[1].pins, 1);
    assert_int_equal(t.nodes[1].floor, hit.entry ? 0 : -1);
    assert_int_equal(t.nodes[2].hits, 0);
    assert_int_equal(t.nodes[2].pins, 0);
    kvern_store_release(b->store, &hit);
    t = list(b, NULL, ROOM);
    assert_int_equal(t.nodes[1].pins, 0);
    assert_true(t.nodes[1].age < t.nodes[2].age);
    const kvern_store_stats before = store_stats(b);
    t = list(b, NULL, ROOM); // which is no use
    const kvern_store_stats after = store_stats(b);
    assert_memory_equal(&before, &after, sizeof before);
    store_bed_close(b);
}

// A prompt takes over the front of an edge, and is published, which cuts the edge there.
static void a_cut_gives_hits_to_whom_they_were(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[30];
    prompt(tokens, 10, 20, 3);
    store_put(b, NULL, tokens, 20);
    assert_int_equal(store_found(b, NULL, tokens, 20), 19);
    prompt(tokens, 20, 30, 3); // ten of them in common
    assert_int_equal(store_found(b, NULL, tokens, 30), 10);
    store_repeat(tokens + 10, 10, 3);
    assert_int_equal(store_found(b, NULL, tokens, 30), 20); // to its end
    prompt(tokens, 10, 25, 4);
    assert_int_equal(store_found(b, NULL, tokens, 25), 10);
    assert_int_equal(list(b, NULL, ROOM).nodes[0].hits, 4);
    store_put(b, NULL, tokens, 25);
    tree t = list(b, NULL, ROOM);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.nodes[0].hits, 3);
    assert_int_equal(t.nodes[1].hits, 1);
    assert_int_equal(t.nodes[2].hits, 0);
    prompt(tokens, 10, 20, 3); // the other one goes, and it is one edge again
    assert_int_equal(store_found(b, NULL, tokens, 20), 19);
    (void)kvern_store_give_up(b->store, 1);
    t = list(b, NULL, ROOM);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.nodes[0].end, 20);
    assert_int_equal(t.nodes[0].hits, 5);
    store_expect_sound(b);
    store_bed_close(b);
}

static void what_has_no_room_is_left_out(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    int32_t tokens[20];
    for (int32_t token = 2; token < 8; token++) {
        prompt(tokens, 10, 20, token);
        store_put(b, NULL, tokens, 20);
    }
    for (size_t room = 0; room < 9; room++) {
        const tree t = list(b, NULL, room);
        assert_int_equal(t.count, room < 7 ? room : 7);
        assert_int_equal(t.whole, room >= 7);
        assert_int_equal(t.nodes[t.count].parent, 0x5555555555555555);
    }
    store_bed_close(b);
}

static void refusals(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    tree t = {.count = 77};
    kvern_store_node *nodes = t.nodes;
#define LIST(store, composition, nodes, tokens, count, whole)                                      \
    kvern_store_list(store, NULL, composition, nodes, ROOM, tokens, EXCERPT, count, whole)
    assert_int_equal(LIST(NULL, b->composition, nodes, t.tokens, &t.count, &t.whole),
                     KVERN_ERR_ARGUMENT);
    assert_int_equal(LIST(b->store, NULL, nodes, t.tokens, &t.count, &t.whole), KVERN_ERR_ARGUMENT);
    assert_int_equal(LIST(b->store, b->composition, NULL, t.tokens, &t.count, &t.whole),
                     KVERN_ERR_ARGUMENT);
    assert_int_equal(LIST(b->store, b->composition, nodes, NULL, &t.count, &t.whole),
                     KVERN_ERR_ARGUMENT);
    assert_int_equal(LIST(b->store, b->composition, nodes, t.tokens, NULL, &t.whole),
                     KVERN_ERR_ARGUMENT);
    assert_int_equal(LIST(b->store, b->composition, nodes, t.tokens, &t.count, NULL),
                     KVERN_ERR_ARGUMENT);
    char value[KVERN_STORE_MOST_KEY_BYTES + 1] = {0};
    const kvern_store_field field = {"v", value, sizeof value};
    const kvern_store_key key = {&field, 1};
    assert_int_equal(kvern_store_list(b->store, &key, b->composition, nodes, ROOM, t.tokens,
                                      EXCERPT, &t.count, &t.whole),
                     KVERN_ERR_RANGE);
    assert_int_equal(t.count, 77);
#undef LIST
    store_bed_close(b);
}

// Of random tokens of a small alphabet, some evicted: every stretch continues its parent's,
// siblings are in order, and there are as many ends as entries, each of which the store has.
static void expect_tree(const store_bed *b, const tree *t)
{
    int32_t paths[ROOM][EXCERPT];
    size_t entries = 0;
    for (size_t i = 0; i < t->count; i++) {
        const kvern_store_node *node = &t->nodes[i];
        const kvern_store_node *parent = node->parent < 0 ? NULL : &t->nodes[node->parent];
        assert_true(node->parent < (int64_t)i && node->end > node->begin);
        assert_int_equal(node->begin, parent ? parent->end : 0);
        if (parent)
            memcpy(paths[i], paths[node->parent], (size_t)node->begin * sizeof(int32_t));
        memcpy(paths[i] + node->begin, t->tokens + i * EXCERPT,
               (size_t)(node->end - node->begin) * sizeof(int32_t));
        for (size_t j = 0; j < i; j++)
            if (t->nodes[j].parent == node->parent)
                assert_true(t->tokens[j * EXCERPT] < t->tokens[i * EXCERPT]);
        if (node->floor >= 0) {
            entries++;
            assert_true(store_has(b, NULL, paths[i], (size_t)node->end));
        }
    }
    assert_int_equal(entries, store_stats(b).entries);
}

static void random_trees(void **state)
{
    (void)state;
    test_random random = test_random_seed(1);
    store_bed *b = store_bed_small(0);
    for (int round = 0; round < 200; round++) {
        int32_t tokens[EXCERPT];
        const size_t count = 1 + test_random_below(&random, EXCERPT);
        for (size_t i = 0; i < count; i++)
            tokens[i] = (int32_t)test_random_below(&random, 3);
        store_put(b, NULL, tokens, count);
        if (store_stats(b).entries > 20 || test_random_below(&random, 8) == 0)
            (void)kvern_store_give_up(b->store, 1);
        const tree t = list(b, NULL, ROOM);
        assert_true(t.whole);
        expect_tree(b, &t);
    }
    store_expect_sound(b);
    store_bed_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_store_has_no_tree),
        cmocka_unit_test(entries_part_where_they_differ),
        cmocka_unit_test(other_keys_are_not_listed),
        cmocka_unit_test(hits_are_counted_where_prefixes_end),
        cmocka_unit_test(a_cut_gives_hits_to_whom_they_were),
        cmocka_unit_test(what_has_no_room_is_left_out),
        cmocka_unit_test(refusals),
        cmocka_unit_test(random_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
