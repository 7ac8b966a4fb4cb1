// SPDX-License-Identifier: MIT
// Rows that share pages read them once: the kernel that scores a block of keys is wrapped by one
// that writes down which block it was given, and for how many query vectors.

#include "src/attend/read.h"

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS 2000
#define MOST_ROWS 16
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// What the wrapped kernel was asked for since the beginning.
static struct {
    kvern_score_fn *kernel;
    const void *block[MOST_BLOCKS];
    size_t calls;
    size_t vectors; // of all calls
    size_t most;    // of one call
} seen;

static void counting_score(const kvern_codec *codec, const void *block, size_t dim,
                           size_t tile_begin, size_t tile_end, size_t n, const float *q,
                           size_t q_stride, float *scores, const void *next)
{
    assert_true(seen.calls < MOST_BLOCKS);
    seen.block[seen.calls++] = block;
    seen.vectors += n;
    seen.most = n > seen.most ? n : seen.most;
    seen.kernel(codec, block, dim, tile_begin, tile_end, n, q, q_stride, scores, next);
}

// How often the block was scored that was scored most often.
static size_t most_repeats(void)
{
    size_t most = 0;
    for (size_t i = 0; i < seen.calls; i++) {
        size_t count = 0;
        for (size_t j = 0; j < seen.calls; j++)
            count += seen.block[i] == seen.block[j];
        most = count > most ? count : most;
    }
    return most;
}

// Attends a read and lets go of it.
static void attend_read(kvern_read *read, const kvern_queries *queries)
{
    memset(&seen, 0, sizeof seen);
    kvern_geometry *geometry = (kvern_geometry *)read->geometry; // of this test's composition
    seen.kernel = geometry->streams[0].kernels.score;
    geometry->streams[0].kernels.score = counting_score;
    assert_ok(kvern_read_attend(read, queries));
    geometry->streams[0].kernels.score = seen.kernel;
    kvern_read_release(read);
}

// Appends counts[r] tokens of a sequence of its own to each row and attends them, on one thread.
static void attend_counted(kvern_cache *cache, const int64_t *counts, size_t query_heads)
{
    uint64_t sequences[MOST_ROWS];
    for (size_t r = 0; r < MOST_ROWS; r++)
        sequences[r] = 100 + r;
    feed f = feed_create(cache, sequences, counts, query_heads);
    kvern_read *read;
    assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, &read));
    attend_read(read, &f.queries);
    feed_destroy(&f);
}

// A bed whose cache has `count` rows, each the fork of a row of lengths[..] positions.
static bed *forked_bed(kvern_layer layer, const int64_t *lengths, size_t origins,
                       const size_t *rows, size_t count)
{
    static const uint64_t sequences[] = {1, 2, 3, 4};
    bed *b = bed_create(layer, origins);
    kvern_cache *fork;
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, layer.kv_heads, NULL);
    assert_ok(kvern_cache_fork(b->cache, rows, count, &fork));
    kvern_cache_destroy(b->cache);
    b->cache = fork;
    return b;
}

static const size_t zeros[MOST_ROWS] = {0};
static const int64_t ones[MOST_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// 8 rows on a prefix of 6 pages, a token of their own in the 7th: 6 + 8 blocks for each KV head,
// and the same with tiles that are full.
static void a_shared_page_is_read_once(void **state)
{
    (void)state;
    static const size_t groups[] = {1, 3, 4};
    for (size_t i = 0; i < COUNT(groups); i++) {
        bed *b = forked_bed(kvern_layer_default(2, 16), (int64_t[]){384}, 1, zeros, 8);
        attend_counted(b->cache, ones, 2 * groups[i]);
        assert_int_equal(seen.calls, 2 * (6 + 8));
        assert_int_equal(seen.vectors, 2 * 7 * 8 * groups[i]);
        assert_int_equal(seen.most, 8 * groups[i]);
        assert_int_equal(most_repeats(), 1);
        bed_destroy(b);
    }
}

// A page that is partly filled is copied by each row, and is no longer shared.
static void a_copied_page_is_read_by_its_row(void **state)
{
    (void)state;
    bed *b = forked_bed(kvern_layer_default(1, 16), (int64_t[]){150}, 1, zeros, 5);
    attend_counted(b->cache, ones, 1);
    assert_int_equal(seen.calls, 2 + 5);
    assert_int_equal(most_repeats(), 1);
    bed_destroy(b);
}

// Relatives need not be neighbours in the batch.
static void the_order_of_rows_does_not_matter(void **state)
{
    (void)state;
    static const size_t rows[] = {0, 1, 2, 0, 1, 2, 0, 1, 1, 0, 2, 2};
    bed *b = forked_bed(kvern_layer_default(1, 16), (int64_t[]){320, 192, 640}, 3, rows, 12);
    attend_counted(b->cache, ones, 2);
    assert_int_equal(seen.calls, 5 + 3 + 10 + 12);
    assert_int_equal(most_repeats(), 1);
    bed_destroy(b);
}

// What two rows share beyond what all rows share is read once for the two.
static void prefixes_of_different_depth(void **state)
{
    (void)state;
    static const size_t pairs[] = {3, 0, 1, 2, 2, 1, 0, 3};
    bed *b = forked_bed(kvern_layer_default(1, 16), (int64_t[]){256}, 1, zeros, 4);
    kvern_cache *fork;
    feed_run(b->cache, KVERN_PHASE_WINDOW, (uint64_t[]){5, 6, 7, 8},
             (int64_t[]){128, 128, 128, 128}, 1, NULL);
    assert_ok(kvern_cache_fork(b->cache, pairs, 8, &fork));
    attend_counted(fork, ones, 1);
    assert_int_equal(seen.calls, 4 + 4 * 2 + 8);
    assert_int_equal(most_repeats(), 1);
    kvern_cache_destroy(fork);
    bed_destroy(b);
}

// 40 vectors do not fit a tile: 30 of 6 rows are in one, 10 of 2 rows in the next.
static void a_page_is_read_once_per_tile(void **state)
{
    (void)state;
    bed *b = forked_bed(kvern_layer_default(1, 16), (int64_t[]){384}, 1, zeros, 8);
    attend_counted(b->cache, ones, 5);
    assert_int_equal(seen.calls, 2 * 6 + 8);
    assert_int_equal(seen.most, 30);
    assert_int_equal(most_repeats(), 2);
    bed_destroy(b);
}

// Verify windows: 3 tokens in each of 8 rows.
static void windows_of_tokens_share_too(void **state)
{
    (void)state;
    static const int64_t threes[MOST_ROWS] = {3, 3, 3, 3, 3, 3, 3, 3};
    bed *b = forked_bed(kvern_layer_default(1, 16), (int64_t[]){384}, 1, zeros, 8);
    attend_counted(b->cache, threes, 1);
    assert_int_equal(seen.calls, 6 + 8);
    assert_int_equal(seen.most, 24);
    bed_destroy(b);
}

// With a window of 128 positions behind 384, a query at position 384 sees pages 4 and 5 whole or in
// part, and its own: rows at 384 + 64 see one of them less, and are not in its call.
static void windows_of_positions_leave_rows_out(void **state)
{
    (void)state;
    static const int64_t more[MOST_ROWS] = {0, 64, 0, 64, 0, 0};
    const kvern_layer layer = storage_window(&storages[0], 1, 64, 128, 0, 0);
    bed *b = forked_bed(layer, (int64_t[]){384}, 1, zeros, 6);
    feed_run(b->cache, KVERN_PHASE_WINDOW, (uint64_t[]){1, 2, 3, 4, 5, 6}, more, 1, NULL);
    attend_counted(b->cache, ones, 1);
    // Page 4 for four rows, page 5 for all six, page 6 of each row, page 7 of two.
    assert_int_equal(seen.calls, 1 + 1 + 6 + 2);
    assert_int_equal(seen.vectors, 4 + 6 + 6 + 2);
    assert_int_equal(most_repeats(), 1);
    bed_destroy(b);
}

// Equal rows of 132 positions with a window of 63, asked by a donor read at the positions 125 to
// 130, at 126, and at 126 to 131. The last page is seen by the first and by the third row: the
// second one takes no part, though it lies between them.
static void rows_that_see_nothing_are_left_out(void **state)
{
    (void)state;
    static const int64_t newest[3] = {7, 7, 7}, first[3] = {0, 1, 1}, asked[3] = {6, 1, 6};
    static float q[13 * 64], out[13 * 64];
    const kvern_layer layer = storage_window(&storages[0], 1, 64, 63, 0, 10);
    bed *b = forked_bed(layer, (int64_t[]){132}, 1, zeros, 3);
    kvern_queries queries = kvern_queries_default(&layer, 1);
    kvern_read *read;
    queries.q = q;
    queries.out = out;
    queries.first = first;
    queries.counts = asked;
    assert_ok(kvern_cache_read_donor(b->cache, newest, &read));
    attend_read(read, &queries);
    // Page 0 by the first query of the first row, page 1 by all, page 2 by two rows in turn.
    assert_int_equal(seen.calls, 1 + 1 + 2);
    assert_int_equal(seen.vectors, 1 + 13 + 3 + 4);
    bed_destroy(b);
}

// Rows that have only kept positions in common, far apart: each is computed by itself, and the
// blocks between are not looked at.
static void distant_windows_do_not_meet(void **state)
{
    (void)state;
    static const int64_t more[MOST_ROWS] = {0, 2000};
    const kvern_layer layer = storage_window(&storages[0], 1, 64, 70, 6, 0);
    bed *b = forked_bed(layer, (int64_t[]){64}, 1, zeros, 2);
    feed_run(b->cache, KVERN_PHASE_WINDOW, (uint64_t[]){1, 2}, more, 1, NULL);
    attend_counted(b->cache, ones, 1);
    // Pages 0 and 1 of the one; page 0 and those of the positions 2001 to 2064 of the other.
    assert_int_equal(seen.calls, 2 + 3);
    assert_int_equal(seen.most, 1);
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_page_is_read_once),
        cmocka_unit_test(a_copied_page_is_read_by_its_row),
        cmocka_unit_test(the_order_of_rows_does_not_matter),
        cmocka_unit_test(prefixes_of_different_depth),
        cmocka_unit_test(a_page_is_read_once_per_tile),
        cmocka_unit_test(windows_of_tokens_share_too),
        cmocka_unit_test(windows_of_positions_leave_rows_out),
        cmocka_unit_test(rows_that_see_nothing_are_left_out),
        cmocka_unit_test(distant_windows_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
