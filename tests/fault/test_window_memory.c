// SPDX-License-Identifier: MIT
// What rows hold that drop positions: as much at any offset, and nothing new per token.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// Appends `count` tokens that are all the same, in chunks of `chunk`; nothing is attended.
static void append_same(kvern_cache *cache, int64_t count, int64_t chunk)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t dim = layer->k_dim > layer->v_dim ? layer->k_dim : layer->v_dim;
    float *values = new_floats(layer->kv_heads * dim, 0.5f);
    kvern_tokens tokens = kvern_tokens_default(layer);
    tokens.k = tokens.v = values;
    tokens.k_token_stride = tokens.v_token_stride = 0;
    for (int64_t left = count; left > 0; left -= chunk) {
        chunk = chunk < left ? chunk : left;
        tokens.counts = &chunk;
        if (chunk == 1)
            assert_ok(kvern_cache_append(cache, KVERN_PHASE_DECODE, &tokens, NULL));
        else
            assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    }
    free(values);
}

// ml-explore/mlx-lm#960: metadata piled up with every decode. Two rows past their windows, one with
// kept positions; every decode is attended.
static void fault_S1_residue_per_step(void **state)
{
    (void)state;
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t one[2] = {1, 1}, first[2] = {0, 70};
    const int64_t decodes = check_is_long() ? 500000 : 50000;
    kvern_layer layers[] = {storage_window(&storages[0], 1, 8, 32, 0, 0),
                            storage_window(&storages[6], 1, 64, 32, 4, 8)};
    for (size_t i = 0; i < COUNT(layers); i++) {
        bed *b = bed_create(layers[i], 2);
        float out[2 * 64];
        feed f = feed_create(b->cache, sequences, one, 1);
        f.queries.out = out;
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, first, 1, NULL);
        for (size_t r = 0; r < 2; r++)
            assert_ok(kvern_cache_reserve(b->cache, r, 2 * decodes, 1));
        const uint64_t allocations = b->books.allocations, held = b->books.held_bytes;
        for (int64_t step = 0; step < decodes; step++) {
            kvern_read *read;
            assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, &read));
            if (step % 50 == 0)
                assert_ok(kvern_read_attend(read, &f.queries));
            kvern_read_release(read);
            if (step % 1000 == 0)
                assert_int_equal(b->books.held_bytes, held);
        }
        assert_int_equal(b->books.allocations, allocations);
        assert_int_equal(b->books.held_bytes, held);
        assert_int_equal(kvern_cache_length(b->cache, 1), 70 + decodes);
        feed_destroy(&f);
        bed_destroy(b);
    }
}

// Decodes, reads held over the next append: the row makes a table of its own each time, and gives
// the old one back with the read. What is held does not grow.
static void reads_held_over_the_next_append_do_not_pile_up(void **state)
{
    (void)state;
    bed *b = bed_create(storage_window(&storages[0], 1, 8, 100, 3, 5), 1);
    kvern_read *last = NULL;
    uint64_t most[2] = {0, 0};
    feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, 1);
    for (int step = 0; step < 4000; step++) {
        kvern_read *read;
        assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, &read));
        kvern_read_release(last);
        last = read;
        uint64_t *half = &most[step / 2000];
        *half = b->books.held_bytes > *half ? b->books.held_bytes : *half;
    }
    assert_true(most[1] <= most[0]);
    kvern_read_release(last);
    feed_destroy(&f);
    bed_destroy(b);
}

// The pages and the table of a row at offset 100,000 are those that it had at 1,000, without a
// reservation too.
static void what_is_held_does_not_depend_on_the_offset(void **state)
{
    (void)state;
    static const int64_t chunks[] = {1, 7, 64, 100};
    static const int64_t windows[] = {60, 64, 100, 512};
    for (size_t i = 0; i < COUNT(chunks); i++) {
        bed *b = bed_create(storage_window(&storages[0], 1, 8, windows[i], (int64_t)i * 5, 10), 1);
        uint64_t most_bytes[2] = {0, 0}, most_held[2] = {0, 0};
        for (int part = 0; part < 2; part++) {
            for (int round = 0; round < (part ? 990 : 10); round++) {
                append_same(b->cache, 100, chunks[i]);
                const uint64_t bytes = kvern_cache_bytes(b->cache), held = b->books.held_bytes;
                most_bytes[part] = bytes > most_bytes[part] ? bytes : most_bytes[part];
                most_held[part] = held > most_held[part] ? held : most_held[part];
            }
        }
        assert_int_equal(kvern_cache_length(b->cache, 0), 100000);
        assert_true(most_bytes[1] <= most_bytes[0]);
        assert_true(most_held[1] <= most_held[0]);
        bed_destroy(b);
    }
}

// What row_bytes says of rows that arrive one by one is what they hold at most, at every length.
static void row_bytes_of_windows_are_kept(void **state)
{
    (void)state;
    static const int64_t windows[][3] = {{1, 0, 0},   {8, 0, 0},    {60, 7, 3},   {64, 0, 0},
                                         {64, 63, 0}, {65, 0, 0},   {100, 0, 64}, {129, 65, 1},
                                         {512, 4, 9}, {66, 64, 62}, {2, 0, 0},    {63, 0, 1}};
    for (size_t i = 0; i < COUNT(windows); i++) {
        const kvern_layer layer =
            storage_window(&storages[0], 1, 8, windows[i][0], windows[i][1], windows[i][2]);
        bed *b = bed_create(layer, 1);
        const uint64_t page = 64 * kvern_composition_bytes_per_token(b->composition);
        const uint64_t most = kvern_composition_row_bytes(b->composition, 100000);
        uint64_t reached = 0;
        for (int64_t length = 1; length < 1500; length++) {
            append_same(b->cache, 1, 1);
            const uint64_t bytes = kvern_cache_bytes(b->cache);
            assert_true(bytes <= kvern_composition_row_bytes(b->composition, (uint64_t)length));
            reached = bytes > reached ? bytes : reached;
        }
        assert_true(reached <= most && most <= reached + page); // and it is no idle bound
        bed_destroy(b);
    }
}

// The same of chunks, in which a row has dropped the chunks before its own as soon as its slack has
// left them.
static void row_bytes_of_chunks_are_kept(void **state)
{
    (void)state;
    static const int64_t chunks[][2] = {{1, 0},   {8, 0},    {64, 0},   {64, 64}, {65, 0},
                                        {100, 7}, {128, 63}, {128, 65}, {512, 9}, {2, 1}};
    for (size_t i = 0; i < COUNT(chunks); i++) {
        const int64_t chunk = chunks[i][0], slack = chunks[i][1];
        bed *b = bed_create(storage_chunked(&storages[0], 1, 8, chunk, slack), 1);
        const uint64_t page = 64 * kvern_composition_bytes_per_token(b->composition);
        const uint64_t most = kvern_composition_row_bytes(b->composition, 100000);
        uint64_t reached = 0;
        for (int64_t length = 1; length < 1500; length++) {
            append_same(b->cache, 1, 1);
            const uint64_t bytes = kvern_cache_bytes(b->cache);
            const int64_t last = length - slack - 1; // of what is left after a trim
            const int64_t held = last < 0 ? 0 : last / chunk * chunk;
            assert_int_equal(bytes, (uint64_t)((length + 63) / 64 - held / 64) * page);
            assert_true(bytes <= kvern_composition_row_bytes(b->composition, (uint64_t)length));
            assert_int_equal(kvern_cache_trimmable(b->cache, 0), held ? length - held - 1 : length);
            reached = bytes > reached ? bytes : reached;
        }
        assert_true(reached <= most && most <= reached + page);
        bed_destroy(b);
    }
}

// A fork of a row that has dropped positions shares its pages; each side goes on alone.
static void fork_of_a_wrapped_row(void **state)
{
    (void)state;
    static const size_t row = 0;
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 2, 64, 100, (int64_t)s % 2 * 5, 8);
        bed *b = bed_create(layer, 1);
        kvern_cache *fork;
        float out[2][4 * 64];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 300, 4, NULL);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 40, 4, NULL);
        kvern_memory before = {.size = sizeof before}, after = before;
        assert_ok(kvern_context_memory(b->context, &before));
        assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
        assert_ok(kvern_context_memory(b->context, &after));
        assert_int_equal(after.page_bytes, before.page_bytes);
        for (int64_t i = 0; i < 150; i++) { // past all that was shared
            feed_one(i % 2 ? fork : b->cache, KVERN_PHASE_DECODE, 1, 1, 4, out[0]);
            feed_one(i % 2 ? b->cache : fork, KVERN_PHASE_DECODE, 1, 1, 4, out[1]);
            check_same_bytes(out[0], out[1], sizeof out[0], storages[s].name);
        }
        expect_serial(layer, 1, 489, 1, 4, out[0], storages[s].name);
        assert_true(kvern_cache_trimmable(fork, 0) == 8 || // or a little more in whole pages
                    (layer.residual && kvern_cache_trimmable(fork, 0) > 8));
        kvern_cache_destroy(fork);
        assert_ok(kvern_context_memory(b->context, &after));
        assert_int_equal(after.page_bytes, kvern_cache_bytes(b->cache));
        bed_destroy(b);
    }
}

// Trimmed by all, a row begins anew; reset, it gives its room and its precision back too.
static void trim_all_and_reset_of_a_wrapped_row(void **state)
{
    (void)state;
    static const size_t row = 0;
    for (size_t s = 0; s < storage_count; s++) {
        for (int shared = 0; shared < 2; shared++) {
            const kvern_layer layer = storage_window(&storages[s], 2, 64, 100, 3, 8);
            bed *b = bed_create(layer, 1);
            kvern_cache *fork = NULL;
            static float out[200 * 4 * 64];
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 340, 4, NULL);
            if (shared)
                assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
            assert_ok(kvern_cache_trim(b->cache, 0, 340));
            assert_int_equal(kvern_cache_length(b->cache, 0), 0);
            assert_int_equal(kvern_cache_trimmable(b->cache, 0), 0);
            assert_int_equal(kvern_cache_converted(b->cache, 0), true);
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 200, 4, out);
            kvern_layer converted = layer;
            converted.start = KVERN_NO_START;
            expect_serial(converted, 1, 0, 200, 4, out, storages[s].name);
            assert_ok(kvern_cache_reset(b->cache, 0));
            assert_int_equal(kvern_cache_bytes(b->cache), 0);
            assert_int_equal(kvern_cache_converted(b->cache, 0), layer.start == KVERN_NO_START);
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 200, 4, out);
            expect_serial(layer, 1, 0, 200, 4, out, storages[s].name);
            kvern_cache_destroy(fork);
            bed_destroy(b);
        }
    }
}

// A call that fails leaves a row's bytes as they were, while a read holds the pages that the row's
// window has passed.
static void a_refused_append_drops_no_pages(void **state)
{
    (void)state;
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t first[2] = {700, 64}, next[2] = {1, 1};
    for (int64_t refuse = 0;; refuse++) {
        bed *b = bed_create(storage_window(&storages[0], 2, 64, 100, 3, 8), 2);
        kvern_read *before, *read;
        feed f = feed_create(b->cache, sequences, first, 2);
        assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &f, &before));
        feed_destroy(&f);
        const uint64_t bytes = kvern_cache_bytes(b->cache), held = b->books.held_bytes;
        f = feed_create(b->cache, sequences, next, 2);
        ledger_refuse(&b->books, refuse);
        kvern_status status = kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, &read);
        const bool refused = ledger_relent(&b->books);
        if (status) {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            assert_int_equal(kvern_cache_bytes(b->cache), bytes);
            assert_int_equal(b->books.held_bytes, held);
            assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, &read));
        }
        kvern_read_release(before);
        kvern_read_release(read);
        feed_destroy(&f);
        bed_destroy(b);
        if (!refused) {
            assert_true(refuse > 0);
            break;
        }
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_S1_residue_per_step),
        cmocka_unit_test(reads_held_over_the_next_append_do_not_pile_up),
        cmocka_unit_test(what_is_held_does_not_depend_on_the_offset),
        cmocka_unit_test(row_bytes_of_windows_are_kept),
        cmocka_unit_test(row_bytes_of_chunks_are_kept),
        cmocka_unit_test(fork_of_a_wrapped_row),
        cmocka_unit_test(trim_all_and_reset_of_a_wrapped_row),
        cmocka_unit_test(a_refused_append_drops_no_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
