// SPDX-License-Identifier: MIT
// Memory of appends whose tokens see each other both ways, and of block reads: each allocation is
// refused once, nothing is left behind, and a loop holds no more from round to round.

#include "tests/support/bed.h"
#include "tests/support/both_ways.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/random.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ROWS 2
#define HEADS 2
#define DIM 64
#define BLOCK KVERN_PHASE_WINDOW // stands for a block read here

static const uint64_t sequences[ROWS] = {3, 4};

// The tokens of one call.
typedef struct call {
    kvern_phase phase;
    feed f;
    int64_t *groups[ROWS];
    both_ways both;
} call;

static call make_call(test_random *random, const bed *b, kvern_phase phase, const int64_t *counts)
{
    call c = {.phase = phase};
    for (size_t r = 0; r < ROWS; r++) {
        c.groups[r] = calloc((size_t)counts[r] + 1, sizeof *c.groups[r]);
        assert_non_null(c.groups[r]);
        both_ways_choose(random, phase, counts[r], c.groups[r]);
        for (int64_t i = 0; phase == KVERN_PHASE_BIDIRECTIONAL && i < counts[r]; i += 3)
            c.groups[r][i] = 1;
    }
    c.f = feed_create(b->cache, sequences, counts, HEADS);
    c.both = both_ways_of(phase, ROWS, counts, c.groups, &c.f.tokens);
    return c;
}

static void free_call(call *c)
{
    both_ways_free(&c->both);
    feed_destroy(&c->f);
    for (size_t r = 0; r < ROWS; r++)
        free(c->groups[r]);
}

static kvern_status run(const bed *b, const call *c, kvern_read **read)
{
    return c->phase == BLOCK ? kvern_cache_read_block(b->cache, &c->f.tokens, read)
                             : kvern_cache_append(b->cache, c->phase, &c->f.tokens, read);
}

// Refuses the n-th allocation of the call, for every n that there is.
static void check_refusals(kvern_layer layer, kvern_phase phase)
{
    static const int64_t before[ROWS] = {40, 130}, counts[ROWS] = {90, 31};
    float *wanted = NULL;
    for (int64_t refuse = 0;; refuse++) {
        test_random random = test_random_seed(5);
        bed *b = bed_create(layer, ROWS);
        kvern_read *read;
        if (phase != KVERN_PHASE_BIDIRECTIONAL)
            feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, before, HEADS, NULL);
        call c = make_call(&random, b, phase, counts);
        int64_t lengths[ROWS];
        for (size_t r = 0; r < ROWS; r++)
            lengths[r] = kvern_cache_length(b->cache, r);
        const uint64_t held = b->books.held_bytes, bytes = kvern_cache_bytes(b->cache);
        ledger_refuse(&b->books, refuse);
        const kvern_status status = run(b, &c, &read);
        const bool refused = ledger_relent(&b->books);
        if (status) {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            assert_null(read);
            assert_int_equal(b->books.held_bytes, held);
            assert_int_equal(kvern_cache_bytes(b->cache), bytes);
            for (size_t r = 0; r < ROWS; r++)
                assert_int_equal(kvern_cache_length(b->cache, r), lengths[r]);
            expect_sound_cache(b->cache);
            assert_ok(run(b, &c, &read));
        }
        assert_ok(kvern_read_attend(read, &c.f.queries));
        kvern_read_release(read);
        expect_sound_cache(b->cache);
        if (wanted)
            check_same_bytes(wanted, c.f.out, c.f.out_count * sizeof *wanted, "after a refusal");
        else
            wanted = malloc(c.f.out_count * sizeof *wanted);
        assert_non_null(wanted);
        memcpy(wanted, c.f.out, c.f.out_count * sizeof *wanted);
        free_call(&c);
        bed_destroy(b);
        if (!refused) {
            assert_true(refuse > 1);
            break;
        }
    }
    free(wanted);
}

static void each_allocation_is_refused_once(void **state)
{
    (void)state;
    static const kvern_phase phases[] = {KVERN_PHASE_RANGES, KVERN_PHASE_BIDIRECTIONAL,
                                         KVERN_PHASE_ENCODER, BLOCK};
    static const size_t of_storages[] = {0, 6, 10, 16};
    for (size_t i = 0; i < 4 * COUNT(of_storages); i++) {
        const storage *s = &storages[of_storages[i / 4]];
        check_refusals(storage_layer(s, 2, DIM), phases[i % 4]);
        check_refusals(storage_window(s, 2, DIM, 50, 3, 5), phases[i % 4]);
    }
}

// A block is read many times before it is appended; nothing of it stays, and once the first read
// has warmed up, nothing is taken from the allocator.
static void block_reads_leave_nothing(void **state)
{
    (void)state;
    static const int64_t before[ROWS] = {100, 7}, block[ROWS] = {32, 70};
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 2, DIM, 60, 0, 5);
        test_random random = test_random_seed(5);
        bed *b = bed_create(layer, ROWS);
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, before, HEADS, NULL);
        const uint64_t bytes = kvern_cache_bytes(b->cache);
        const bool converted = kvern_cache_converted(b->cache, 1);
        uint64_t held = 0, taken = 0;
        for (int i = 0; i < 8; i++) {
            call c = make_call(&random, b, BLOCK, block);
            kvern_read *read;
            assert_ok(run(b, &c, &read));
            assert_int_equal(kvern_cache_bytes(b->cache), bytes);
            assert_ok(kvern_read_attend(read, &c.f.queries));
            kvern_read_release(read);
            free_call(&c);
            if (i) {
                assert_int_equal(b->books.held_bytes, held);
                assert_int_equal(b->books.allocations, taken);
            }
            held = b->books.held_bytes;
            taken = b->books.allocations;
        }
        assert_int_equal(kvern_cache_length(b->cache, 1), before[1]);
        assert_int_equal(kvern_cache_converted(b->cache, 1), converted);
        expect_sound_cache(b->cache);
        bed_destroy(b);
    }
}

// While a block read is open the row is written as if there was none: its table and its last page
// are its own. What the read shows stays.
static void an_open_block_read_costs_the_row_nothing(void **state)
{
    (void)state;
    static const int64_t before[ROWS] = {100, 7}, block[ROWS] = {32, 70}, one[ROWS] = {1, 1};
    for (size_t s = 0; s < storage_count; s++) {
        test_random random = test_random_seed(5);
        bed *b = bed_create(storage_layer(&storages[s], 2, DIM), ROWS);
        kvern_read *read;
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, before, HEADS, NULL);
        call c = make_call(&random, b, BLOCK, block), next = make_call(&random, b, BLOCK, one);
        assert_ok(run(b, &c, &read));
        assert_ok(kvern_read_attend(read, &c.f.queries));
        float *wanted = malloc(c.f.out_count * sizeof *wanted);
        assert_non_null(wanted);
        memcpy(wanted, c.f.out, c.f.out_count * sizeof *wanted);
        const uint64_t taken = b->books.allocations;
        assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &next.f.tokens, NULL));
        assert_int_equal(b->books.allocations, taken);
        assert_ok(kvern_read_attend(read, &c.f.queries));
        check_same_bytes(wanted, c.f.out, c.f.out_count * sizeof *wanted, "an open block read");
        kvern_read_release(read);
        free(wanted);
        free_call(&c);
        free_call(&next);
        expect_sound_cache(b->cache);
        bed_destroy(b);
    }
}

// The list of a row that is given ranges for ever is bounded by what its window still sees, and
// everything goes when the row is reset.
static void lists_do_not_pile_up(void **state)
{
    (void)state;
    static const int64_t ten[ROWS] = {10, 10};
    bed *b = bed_create(storage_window(&storages[0], 2, DIM, 64, 0, 0), ROWS);
    uint64_t most[2] = {0, 0};
    test_random random = test_random_seed(5);
    for (int i = 0; i < 400; i++) {
        call c = make_call(&random, b, KVERN_PHASE_ENCODER, ten);
        kvern_read *read;
        assert_ok(run(b, &c, &read));
        kvern_read_release(read);
        free_call(&c);
        if (i >= 100 && b->books.held_bytes > most[i / 250])
            most[i / 250] = b->books.held_bytes;
    }
    assert_true(most[1] <= most[0]);
    for (size_t r = 0; r < ROWS; r++)
        assert_ok(kvern_cache_reset(b->cache, r));
    expect_sound_cache(b->cache);
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_is_refused_once),
        cmocka_unit_test(block_reads_leave_nothing),
        cmocka_unit_test(an_open_block_read_costs_the_row_nothing),
        cmocka_unit_test(lists_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
