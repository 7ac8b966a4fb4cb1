// SPDX-License-Identifier: MIT
// Index scores and the choice of the best positions: the plain kernel against its stated order,
// every vector kernel of this machine against the plain one bit for bit, and the choice against a
// sort.

#include "src/attend/index_score.h"
#include "src/attend/top_positions.h"
#include "tests/support/check.h"
#include "tests/support/guarded.h"
#include "tests/support/kernel_inputs.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"

#include <kvern/composition.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS KVERN_PAGE_POSITIONS
#define MOST_HEADS 130

// ---- Scores ----

typedef struct arena {
    guarded weights, dots, keys;
    float weight[MOST_HEADS], dot[MOST_HEADS * SLOTS];
} arena;

static arena *arena_create(void)
{
    arena *a = calloc(1, sizeof *a);
    assert_non_null(a);
    a->weights = guarded_at_end(sizeof a->weight);
    a->dots = guarded_at_end(sizeof a->dot);
    a->keys = guarded_at_end(SLOTS * sizeof(uint32_t));
    return a;
}

static void arena_destroy(arena *a)
{
    guarded_free(&a->weights);
    guarded_free(&a->dots);
    guarded_free(&a->keys);
    free(a);
}

// Keys behind `count` become 0, whatever the kernel made of them.
static void run_some(const arena *a, uint32_t features, size_t heads, size_t count, uint32_t *keys)
{
    float *weights = guarded_last(&a->weights, heads * sizeof(float));
    float *dots = guarded_last(&a->dots, heads * SLOTS * sizeof(float));
    uint32_t *to = guarded_last(&a->keys, SLOTS * sizeof(uint32_t));
    memcpy(weights, a->weight, heads * sizeof(float));
    memcpy(dots, a->dot, heads * SLOTS * sizeof(float));
    memset(to, 0xa5, SLOTS * sizeof(uint32_t));
    kvern_index_score_of(features)(heads, weights, dots, count, to);
    memset(keys, 0, SLOTS * sizeof(uint32_t));
    memcpy(keys, to, count * sizeof(uint32_t));
}

static void run(const arena *a, uint32_t features, size_t heads, uint32_t *keys)
{
    run_some(a, features, heads, SLOTS, keys);
}

static void fill(arena *a, test_random *random)
{
    const mixture kind = (mixture)test_random_below(random, MIXTURES);
    kernel_inputs_fill(random, kind, a->weight, MOST_HEADS);
    kernel_inputs_fill(random, kind, a->dot, (size_t)MOST_HEADS * SLOTS);
}

static void vector_scores_equal_plain_ones(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    const kernel_variants variants = kernel_variants_here();
    uint32_t wanted[SLOTS], got[SLOTS];
    arena *a = arena_create();
    for (size_t round = 0; round < (check_is_long() ? 100 : 5); round++) {
        for (size_t heads = 0; heads <= MOST_HEADS; heads++) {
            fill(a, &random);
            for (size_t i = 0; heads > 0 && round % 2 && i < 3; i++) {
                a->dot[test_random_below(&random, heads * SLOTS)] = kernel_inputs_special(&random);
                a->weight[test_random_below(&random, heads)] = kernel_inputs_special(&random);
            }
            const size_t count = 1 + test_random_below(&random, SLOTS);
            run_some(a, 0, heads, count, wanted);
            for (size_t v = 1; v < variants.count; v++) {
                run_some(a, variants.features[v], heads, count, got);
                check_same_bytes(wanted, got, sizeof got, kvern_cpu_name(variants.features[v]));
            }
        }
    }
    arena_destroy(a);
}

// The number that an order key was made of; -0 comes back as +0.
static float score_of(uint32_t key)
{
    const uint32_t bits = key >> 31 ? key & 0x7fffffff : ~key;
    float score;
    memcpy(&score, &bits, sizeof score);
    return key == KVERN_ORDER_KEY_NAN ? NAN : score;
}

// docs/arithmetic.md, "Selection", once more.
static void plain_scores_follow_the_stated_order(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed() + 1);
    uint32_t keys[SLOTS];
    arena *a = arena_create();
    for (size_t round = 0; round < 200; round++) {
        const size_t heads = 1 + test_random_below(&random, MOST_HEADS);
        fill(a, &random);
        run(a, 0, heads, keys);
        for (size_t p = 0; p < SLOTS; p++) {
            float s = 0;
            for (size_t h = 0; h < heads; h++)
                s = fmaf(a->weight[h], fmaxf(a->dot[h * SLOTS + p], 0), s);
            assert_true(score_of(keys[p]) == s);
        }
    }
    arena_destroy(a);
}

// One head of weight 1 (or -1, for what is below zero) shows the order of the keys themselves.
static uint32_t key_of(const arena *a, float weight, float dot)
{
    uint32_t keys[SLOTS];
    arena copy = *a;
    copy.weight[0] = weight;
    for (size_t p = 0; p < SLOTS; p++)
        copy.dot[p] = dot;
    run(&copy, 0, 1, keys);
    return keys[SLOTS - 1];
}

static void keys_sort_as_scores_do(void **state)
{
    (void)state;
    arena *a = arena_create();
    const uint32_t ascending[] = {
        key_of(a, 1, NAN),       key_of(a, -1, INFINITY), key_of(a, -1, 3.4e38f),
        key_of(a, -1, 1),        key_of(a, -1, 1e-45f),   key_of(a, 1, 0),
        key_of(a, 1, 1e-45f),    key_of(a, 1, 1e-38f),    key_of(a, 1, 1),
        key_of(a, 1, 1.000001f), key_of(a, 1, 3.4e38f),   key_of(a, 1, INFINITY),
    };
    for (size_t i = 1; i < sizeof ascending / sizeof ascending[0]; i++)
        assert_true(ascending[i - 1] < ascending[i]);
    // Both zeros, and what relu makes zero: -1e-30 * 1e-30 is a negative number that rounds to -0.
    assert_int_equal(key_of(a, -1e-30f, 1e-30f), key_of(a, 1, 0));
    assert_int_equal(key_of(a, 1, -0.0f), key_of(a, 1, 0));
    assert_int_equal(key_of(a, 1, -INFINITY), key_of(a, 1, 0));
    // A NaN is the least of all, whatever its sign and wherever it comes from.
    assert_int_equal(key_of(a, 1, NAN), KVERN_ORDER_KEY_NAN);
    assert_int_equal(key_of(a, 1, copysignf(NAN, -1)), KVERN_ORDER_KEY_NAN);
    assert_int_equal(key_of(a, NAN, 1), KVERN_ORDER_KEY_NAN);
    assert_int_equal(key_of(a, 0, INFINITY), KVERN_ORDER_KEY_NAN);
    arena_destroy(a);
}

// ---- The best positions ----

#define MOST_KEYS 5000

typedef struct ranked {
    uint32_t key;
    int64_t position;
} ranked;

static int by_rank(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? 1 : -1;
    return (a->position > b->position) - (a->position < b->position);
}

static int by_position(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void naive_top(const uint32_t *keys, int64_t count, int64_t wanted, int64_t *positions)
{
    static ranked all[MOST_KEYS];
    for (int64_t p = 0; p < count; p++)
        all[p] = (ranked){keys[p], p};
    qsort(all, (size_t)count, sizeof all[0], by_rank);
    for (int64_t i = 0; i < wanted; i++)
        positions[i] = all[i].position;
    qsort(positions, (size_t)wanted, sizeof positions[0], by_position);
}

static uint32_t random_key(test_random *random, int kind)
{
    const uint32_t any = (uint32_t)test_random_next(random);
    switch (kind) {
    case 0:
        return any;
    case 1: // few values: ties everywhere
        return any % 3;
    case 2: // equal but for the lowest digit, and for the middle one
        return 0xbf800000u + any % 700;
    case 3:
        return 0xbf800000u + (any % 5000 << 9);
    case 4: // both ends
        return any % 2 ? UINT32_MAX : 0;
    default: // most are NaN
        return any % 16 ? KVERN_ORDER_KEY_NAN : any;
    }
}

#define KEY_KINDS 6

static void the_best_positions_equal_a_sort(void **state)
{
    (void)state;
    static uint32_t keys[MOST_KEYS];
    static int64_t wanted[MOST_KEYS];
    test_random random = test_random_seed(check_seed() + 2);
    const guarded keys_at_end = guarded_at_end(sizeof keys);
    const guarded positions_at_end = guarded_at_end(sizeof wanted);
    for (size_t round = 0; round < (check_is_long() ? 100000 : 1500); round++) {
        const int kind = (int)test_random_below(&random, KEY_KINDS);
        const int64_t most = round % 8 ? 200 : MOST_KEYS;
        const int64_t count = 1 + (int64_t)test_random_below(&random, (uint64_t)most);
        const int64_t k = round % 5 ? 1 + (int64_t)test_random_below(&random, (uint64_t)count)
                                    : (round % 2 ? count : 1);
        for (int64_t p = 0; p < count; p++)
            keys[p] = random_key(&random, kind);
        uint32_t *from = guarded_last(&keys_at_end, (size_t)count * sizeof keys[0]);
        int64_t *got = guarded_last(&positions_at_end, (size_t)k * sizeof wanted[0]);
        memcpy(from, keys, (size_t)count * sizeof keys[0]);
        naive_top(keys, count, k, wanted);
        kvern_top_positions(from, count, k, got);
        check_same_bytes(wanted, got, (size_t)k * sizeof wanted[0], "positions");
    }
    guarded_free((guarded *)&keys_at_end);
    guarded_free((guarded *)&positions_at_end);
}

int main(void)
{
    kernel_variants_print("index score");
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_scores_follow_the_stated_order),
        cmocka_unit_test(vector_scores_equal_plain_ones),
        cmocka_unit_test(keys_sort_as_scores_do),
        cmocka_unit_test(the_best_positions_equal_a_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
