// SPDX-License-Identifier: MIT
// Random sequences of operations on caches, their forks and reads, against the naive cache: every
// result within its derived bound of attention in double precision, every stored value exact.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/layers.h"
#include "tests/support/ledger.h"
#include "tests/support/naive_cache.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 4
#define MOST_CACHES 4
#define MOST_READS 6
#define MOST_LENGTH 2600

typedef struct pair {
    kvern_cache *cache; // NULL: the place is free
    size_t rows;
    naive_row naive[MOST_ROWS];
} pair;

typedef struct world {
    test_random random;
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_layer layer;
    pair pairs[MOST_CACHES];
    naive_read reads[MOST_READS];
} world;

static uint64_t below(world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

// ---- Making a world ----

static kvern_executor random_executor(world *w)
{
    const size_t threads = 1 + below(w, 7);
    switch (below(w, 4)) {
    case 0:
        return executor_backwards(threads);
    case 1:
        return executor_shuffled(threads);
    case 2:
        return below(w, 8) ? executor_shuffled(1) : executor_threads(threads);
    default:
        return below(w, 8) ? executor_backwards(2) : executor_odd_environment(threads);
    }
}

static kvern_layer random_layer(world *w)
{
    if (below(w, 4) == 0)
        return layer_choose_latents(&w->random, below(w, 10) == 0);
    static const size_t heads[] = {1, 2, 3, 4, 8};
    kvern_layer layer = kvern_layer_default(heads[below(w, 5)], 8);
    const size_t most = below(w, 10) ? 16 : KVERN_MAX_HEAD_DIM / 8;
    layer.k_dim = 8 * (1 + below(w, most));
    layer.v_dim = below(w, 2) ? layer.k_dim : 8 * (1 + below(w, most));
    layer_choose_storage(&w->random, &layer);
    return layer;
}

// Keeps some positions precise, and reads others with few bits.
static kvern_layer random_precise_layer(world *w)
{
    static const uint32_t bits[] = {2, 3, 4, 8};
    kvern_layer layer = kvern_layer_default(1 + below(w, 3), 32 * (1 + below(w, 3)));
    layer_choose_storage(&w->random, &layer);
    layer.k_dim = layer.v_dim = 32 * (1 + below(w, 3));
    layer.k_codec = kvern_codec_affine(bits[below(w, 4)], 32);
    layer.v_codec = below(w, 3) ? kvern_codec_affine(bits[below(w, 4)], 32) : layer.k_codec;
    layer_choose_precise(&w->random, &layer);
    return layer;
}

static void world_init(world *w, uint64_t seed, bool precise)
{
    memset(w, 0, sizeof *w);
    w->random = test_random_seed(seed);
    ledger_init(&w->books);
    const kernel_variants variants = kernel_variants_here();
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books);
    options.executor = random_executor(w);
    options.cpu_features = variants.features[below(w, variants.count)];
    w->layer = precise ? random_precise_layer(w) : random_layer(w);
    assert_ok(kvern_context_create(&options, &w->context));
    assert_ok(kvern_composition_create(w->context, &w->layer, 1, &w->composition));
    w->pairs[0].rows = 1 + below(w, MOST_ROWS);
    assert_ok(kvern_cache_create(w->composition, 0, w->pairs[0].rows, &w->pairs[0].cache));
    if (below(w, 2)) { // nothing needs the caller's references from here on
        kvern_context_release(w->context);
        w->context = NULL;
    }
}

static void drop_pair(pair *p)
{
    kvern_cache_destroy(p->cache);
    for (size_t r = 0; r < p->rows; r++)
        naive_row_free(&p->naive[r]);
    memset(p, 0, sizeof *p);
}

static void world_finish(world *w)
{
    for (size_t i = 0; i < MOST_CACHES; i++)
        drop_pair(&w->pairs[i]);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    for (size_t i = 0; i < MOST_READS; i++)
        naive_read_drop(&w->reads[i]);
    ledger_finish(&w->books);
}

static pair *random_pair(world *w)
{
    pair *p;
    do
        p = &w->pairs[below(w, MOST_CACHES)];
    while (!p->cache);
    return p;
}

// ---- Operations ----

static int64_t random_count(world *w, bool decode)
{
    if (decode)
        return (int64_t)below(w, 2);
    switch (below(w, 12)) {
    case 0:
    case 1:
        return 0;
    case 2:
        return 64;
    case 3:
        return 60 + (int64_t)below(w, 10);
    case 4:
        return (int64_t)below(w, 300);
    case 5:
        return below(w, 6) ? (int64_t)below(w, 130) : 1000 + (int64_t)below(w, 200);
    default:
        return (int64_t)below(w, 20);
    }
}

static void check_new_read(world *w, pair *p, kvern_read *read, const int64_t *base)
{
    if (below(w, 3))
        naive_check_read(&w->random, read, &w->layer, p->naive, base, p->rows);
    if (below(w, 3))
        kvern_read_release(read);
    else
        naive_read_keep(&w->reads[below(w, MOST_READS)], read, &w->layer, p->naive, base, p->rows);
}

static void append(world *w, pair *p)
{
    const bool causal = w->layer.kind == KVERN_LAYER_LATENT;
    const kvern_phase phase = (kvern_phase)below(w, causal || below(w, 3) ? 3 : 6);
    int64_t counts[MOST_ROWS], base[MOST_ROWS];
    for (size_t r = 0; r < p->rows; r++) {
        base[r] = p->naive[r].length;
        counts[r] = random_count(w, phase == KVERN_PHASE_DECODE);
        if (base[r] + counts[r] > MOST_LENGTH)
            counts[r] = 0;
        if (phase == KVERN_PHASE_BIDIRECTIONAL && (base[r] || counts[r] == 1))
            counts[r] = 0;
    }
    naive_tokens tokens =
        is_both_ways(phase)
            ? naive_append_both_ways(&w->random, &w->layer, p->naive, p->rows, phase, counts)
            : naive_append(&w->random, &w->layer, p->naive, p->rows, counts);
    kvern_read *read = NULL;
    const bool wanted = below(w, 4) > 0;
    assert_ok(naive_cache_append(p->cache, phase, &tokens, wanted ? &read : NULL));
    naive_tokens_free(&tokens); // the library has its own copy
    if (wanted)
        check_new_read(w, p, read, base);
    for (size_t r = 0; r < p->rows; r++)
        naive_row_settle(&p->naive[r], &w->layer, counts[r]);
}

// A read of what is stored now.
static void read_donor(world *w, pair *p)
{
    int64_t counts[MOST_ROWS], base[MOST_ROWS];
    bool refused = false;
    for (size_t r = 0; r < p->rows; r++) {
        const naive_row *row = &p->naive[r];
        const int64_t most = row->length - naive_row_least_donor(row, &w->layer);
        counts[r] = most > 0 ? (int64_t)below(w, (uint64_t)most + 1) : 0;
        base[r] = row->length - counts[r];
        refused = refused || !naive_row_can_read(row, &w->layer, base[r]);
    }
    kvern_read *read;
    if (refused) {
        assert_status(KVERN_ERR_RANGE, kvern_cache_read_donor(p->cache, counts, &read));
        assert_null(read);
        return;
    }
    assert_ok(kvern_cache_read_donor(p->cache, counts, &read));
    check_new_read(w, p, read, base);
}

// A read of what is stored now and of a block behind it, which nobody appends.
static void read_block(world *w, pair *p)
{
    pair with = {.rows = p->rows};
    int64_t counts[MOST_ROWS], base[MOST_ROWS];
    for (size_t r = 0; r < p->rows; r++) {
        naive_row_copy(&p->naive[r], &w->layer, &with.naive[r]);
        counts[r] = below(w, 4) ? (int64_t)below(w, 130) : 0;
        base[r] = p->naive[r].length;
    }
    naive_tokens tokens = naive_append(&w->random, &w->layer, with.naive, p->rows, counts);
    kvern_read *read;
    for (size_t r = 0; r < p->rows; r++) {
        with.naive[r].block = counts[r];
        with.naive[r].groups++;
        for (int64_t i = 0; i < counts[r]; i++)
            with.naive[r].group[base[r] + i] = with.naive[r].groups;
    }
    if (kvern_cache_can(p->cache, KVERN_CAN_BLOCK)) {
        assert_ok(kvern_cache_read_block(p->cache, &tokens.tokens, &read));
        check_new_read(w, &with, read, base);
    } else {
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_cache_read_block(p->cache, &tokens.tokens, &read));
    }
    naive_tokens_free(&tokens);
    drop_pair(&with);
}

// Takes a row over into an empty one.
static void adopt(world *w, pair *p)
{
    const pair *from = random_pair(w);
    const size_t r = below(w, p->rows), f = below(w, from->rows);
    if (p->naive[r].length) {
        assert_status(KVERN_ERR_BUSY, kvern_cache_adopt(p->cache, r, from->cache, f));
        return;
    }
    const int64_t boundary = p->naive[r].boundary;
    assert_ok(kvern_cache_adopt(p->cache, r, from->cache, f));
    if (from->naive[f].length == 0)
        return;
    naive_row copy;
    naive_row_copy(&from->naive[f], &w->layer, &copy);
    naive_row_free(&p->naive[r]);
    p->naive[r] = copy;
    p->naive[r].boundary = 0; // taken over, a row that has reached its start is due at once
    if (!naive_is_split(&w->layer))
        naive_row_settle(&p->naive[r], &w->layer, copy.length);
    p->naive[r].boundary = boundary;
}

static void plan_boundary(world *w, pair *p)
{
    const size_t r = below(w, p->rows);
    const int64_t position = below(w, 3) ? p->naive[r].length + (int64_t)below(w, 200) : 0;
    assert_ok(kvern_cache_plan_boundary(p->cache, r, position));
    p->naive[r].boundary = position;
}

static void trim(world *w, pair *p)
{
    const size_t r = below(w, p->rows);
    const uint64_t length = (uint64_t)p->naive[r].length;
    int64_t wanted = (int64_t)below(w, length + 5), left = wanted;
    left = left < (int64_t)length ? left : (int64_t)length;
    while (!naive_row_may_trim(&p->naive[r], &w->layer, left))
        left--;
    assert_int_equal(kvern_cache_trim_length(p->cache, r, wanted), left);
    const int64_t tokens =
        (int64_t)(below(w, 2) ? below(w, length + 1) : below(w, (length < 9 ? length : 9) + 1));
    if (naive_row_may_trim(&p->naive[r], &w->layer, (int64_t)length - tokens)) {
        assert_ok(kvern_cache_trim(p->cache, r, tokens));
        naive_row_trim(&p->naive[r], tokens);
    } else {
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(p->cache, r, tokens));
    }
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(p->cache, r, p->naive[r].length + 1));
}

static void fork_pair(world *w, pair *p)
{
    pair *to = &w->pairs[below(w, MOST_CACHES)];
    size_t rows[MOST_ROWS];
    if (to == p)
        return;
    drop_pair(to);
    to->rows = 1 + below(w, MOST_ROWS);
    for (size_t i = 0; i < to->rows; i++) {
        rows[i] = below(w, p->rows);
        naive_row_copy(&p->naive[rows[i]], &w->layer, &to->naive[i]);
    }
    assert_ok(kvern_cache_fork(p->cache, rows, to->rows, &to->cache));
}

static void reset(world *w, pair *p)
{
    const size_t r = below(w, p->rows);
    assert_ok(kvern_cache_reset(p->cache, r));
    naive_row_reset(&p->naive[r]);
}

static void reserve(world *w, pair *p)
{
    assert_ok(kvern_cache_reserve(p->cache, below(w, p->rows), (int64_t)below(w, MOST_LENGTH),
                                  w->layer.kv_heads * below(w, 4)));
}

// Destroys a cache when another one is left; its reads and forks live on.
static void destroy(world *w, pair *p)
{
    size_t caches = 0;
    for (size_t i = 0; i < MOST_CACHES; i++)
        caches += w->pairs[i].cache != NULL;
    if (caches < 2)
        return;
    drop_pair(p);
}

static void check_all_stored(world *w)
{
    for (size_t i = 0; i < MOST_CACHES; i++) {
        const pair *p = &w->pairs[i];
        for (size_t r = 0; r < p->rows; r++)
            naive_check_stored(&w->random, p->cache, r, &p->naive[r]);
    }
}

static void operate(world *w)
{
    pair *p = random_pair(w);
    switch (below(w, 21)) {
    case 16:
        read_donor(w, p);
        break;
    case 20:
        read_block(w, p);
        break;
    case 17:
        adopt(w, p);
        break;
    case 18:
        plan_boundary(w, p);
        break;
    case 0:
    case 1:
        trim(w, p);
        break;
    case 2:
    case 3:
        fork_pair(w, p);
        break;
    case 4:
        below(w, 3) ? (void)0 : reset(w, p);
        break;
    case 5:
        reserve(w, p);
        break;
    case 6:
        destroy(w, p);
        break;
    case 7:
    case 8:
        naive_read_check(&w->random, &w->reads[below(w, MOST_READS)]);
        break;
    default:
        append(w, p);
    }
}

// ---- The test ----

static void run_sequences(int sequences, bool precise)
{
    for (int s = 0; s < sequences; s++) {
        world *w = malloc(sizeof *w);
        assert_non_null(w);
        world_init(w, check_seed() + (uint64_t)s * 1000003, precise);
        for (int i = 0; i < 50; i++) {
            operate(w);
            for (size_t p = 0; p < MOST_CACHES; p++)
                expect_sound_cache(w->pairs[p].cache);
            if (i % 5 == 0)
                check_all_stored(w);
        }
        world_finish(w);
        free(w);
    }
}

static void random_operations_equal_the_naive_cache(void **state)
{
    (void)state;
    run_sequences(check_repetitions(40, 3000), false);
}

static void so_they_do_where_positions_are_kept_precise(void **state)
{
    (void)state;
    run_sequences(check_repetitions(25, 2000), true);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_equal_the_naive_cache),
        cmocka_unit_test(so_they_do_where_positions_are_kept_precise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
