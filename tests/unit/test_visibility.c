// SPDX-License-Identifier: MIT
// What a read asks of src/attend/visibility.h, against the rule itself, position by position.
#include "src/attend/visibility.h"

#include "tests/support/check.h"
#include "tests/support/random.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// Long enough for several spans.
#define POSITIONS 5000

static bool naive_sees(const kvern_visibility *v, int64_t position)
{
    return position < v->kept || (v->begin <= position && position < v->end);
}

static bool naive_sees_some(const kvern_visibility *v, int64_t at, int64_t count)
{
    bool some = false;
    for (int64_t p = at; p < at + count; p++)
        some |= naive_sees(v, p);
    return some;
}

static void check_blocks(const kvern_visibility *v)
{
    for (int64_t at = 0; at < POSITIONS; at += KVERN_BLOCK_POSITIONS) {
        const uint64_t slots = kvern_visible_slots(v, at);
        for (int64_t s = 0; s < KVERN_BLOCK_POSITIONS; s++)
            assert_int_equal(naive_sees(v, at + s), slots >> s & 1);
        assert_int_equal(slots != 0, kvern_sees(v, at, KVERN_BLOCK_POSITIONS));
        assert_int_equal(!naive_sees_some(v, 0, at),
                         kvern_sees_nothing_before(v, KVERN_PASS_REST, at));
    }
}

// Going from block to block misses none in which something is seen, and goes no further than one
// at which something is.
static void check_walk(const kvern_visibility *v)
{
    for (int64_t at = 0; at < v->end; at += KVERN_BLOCK_POSITIONS) {
        const int64_t next = kvern_next_block(v, at);
        assert_int_equal(0, next % KVERN_BLOCK_POSITIONS);
        assert_true(next >= at);
        assert_false(naive_sees_some(v, at, next - at));
        assert_true(next >= v->end || naive_sees_some(v, next, KVERN_BLOCK_POSITIONS));
    }
}

// The numbered spans are those with something in sight, in order.
static void check_spans(const kvern_visibility *v)
{
    size_t number = 0;
    for (int64_t at = 0; at < POSITIONS; at += KVERN_SPAN_POSITIONS) {
        assert_int_equal(naive_sees_some(v, at, KVERN_SPAN_POSITIONS),
                         kvern_sees(v, at, KVERN_SPAN_POSITIONS));
        if (kvern_sees(v, at, KVERN_SPAN_POSITIONS))
            assert_int_equal(at, kvern_visible_span_begin(v, number++));
    }
    assert_int_equal(number, kvern_visible_spans(v));
}

// Any two stretches, not only those of a window: rules to come make others.
static void test_two_stretches(void **state)
{
    (void)state;
    static const int64_t borders[] = {0,    1,    15,   63,   64,   65,   127,  128,
                                      1000, 1023, 1024, 1025, 2047, 2048, 3100, 4999};
    for (size_t k = 0; k < COUNT(borders); k++) {
        for (size_t b = 0; b < COUNT(borders); b++) {
            for (size_t e = b + 1; e < COUNT(borders); e++) {
                const kvern_visibility v = {.kept = kvern_min_i64(borders[k], borders[e]),
                                            .begin = borders[b],
                                            .end = borders[e]};
                check_blocks(&v);
                check_walk(&v);
                check_spans(&v);
            }
        }
    }
}

// What queries of some append see, position by position; several see what one of them does.
static void check_window(test_random *random, const kvern_window *window)
{
    const int64_t base = (int64_t)test_random_below(random, 700);
    const int64_t count = 1 + (int64_t)test_random_below(random, 40);
    const kvern_read_row row = {.base = base, .length = base + count};
    const kvern_visibility all = kvern_visibility_of_some(window, &row, 0, count);
    for (int64_t p = 0; p < base + count + 70; p++) {
        bool by_some = false;
        for (int64_t q = 0; q < count; q++) {
            const kvern_visibility v = kvern_visibility_of(window, &row, q);
            const int64_t own = base + q;
            const bool recent =
                window->chunk ? p / window->chunk == own / window->chunk : own - p < window->recent;
            const bool wanted = p <= own && (p < window->keep || recent);
            assert_int_equal(wanted, naive_sees(&v, p));
            by_some |= wanted;
        }
        assert_true(!by_some || naive_sees(&all, p));
    }
    for (int64_t held = 0; held < base + count; held++)
        assert_int_equal(kvern_visibility_of(window, &row, 0).begin >= held,
                         kvern_visibility_is_held(window, &row, held));
}

// A query of a window sees the kept and the recent positions up to its own, wherever the append
// began; several see what one of them does.
static void test_window(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (int trial = 0; trial < 300; trial++) {
        const kvern_window window = {.recent = trial % 3
                                                   ? 1 + (int64_t)test_random_below(&random, 300)
                                                   : KVERN_EVERY_POSITION,
                                     .keep = (int64_t)test_random_below(&random, 200)};
        check_window(&random, &window);
    }
}

// The same of chunks.
static void test_chunks(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    for (int trial = 0; trial < 300; trial++) {
        const int64_t chunk = 1 + (int64_t)test_random_below(&random, 300);
        check_window(&random, &(kvern_window){.recent = chunk, .chunk = chunk});
    }
}

// What a reservation counts with covers every tile.
static void test_bounds(void **state)
{
    (void)state;
    static const int64_t recent[] = {1, 63, 1000, 1024, 1500, KVERN_EVERY_POSITION};
    static const int64_t keep[] = {0, 4, 1023, 1024, 1100};
    enum { REACH = 32 };
    for (size_t w = 0; w < COUNT(recent) * COUNT(keep); w++) {
        const kvern_window window = {.recent = recent[w / COUNT(keep)],
                                     .keep = keep[w % COUNT(keep)]};
        for (int64_t length = 1; length < POSITIONS; length += 7) {
            const int64_t count = kvern_min_i64(length, REACH);
            const kvern_read_row row = {.base = length - count, .length = length};
            const kvern_visibility v = kvern_visibility_of_some(&window, &row, 0, count);
            const kvern_visibility last = kvern_visibility_of(&window, &row, count - 1);
            const int64_t seen = last.end - last.begin + kvern_min_i64(last.kept, last.begin);
            assert_true(kvern_most_visible(&window, length) >= seen);
            assert_true(kvern_most_visible_spans(&window, length, REACH) >=
                        kvern_visible_spans(&v));
        }
    }
    const kvern_window window = {.recent = 512, .keep = 4};
    assert_int_equal(516, kvern_most_visible(&window, INT64_C(1) << 40));
    assert_true(kvern_most_visible_spans(&window, INT64_C(1) << 40, REACH) <= 4);
}

// A row that holds nothing but what is behind its queries has no query to serve.
static void test_no_queries(void **state)
{
    (void)state;
    const kvern_window window = {.recent = 8};
    const kvern_read_row row = {.base = 100, .length = 100};
    assert_true(kvern_visibility_is_held(&window, &row, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_stretches), cmocka_unit_test(test_window),
        cmocka_unit_test(test_chunks),        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_no_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
