// SPDX-License-Identifier: MIT
// What no one can see is given back: by the call that drops it where nobody else holds it, by the
// last holder's release otherwise, in whatever order and on whatever thread.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/mixed_state.h"

#include <kvern/kvern.h>

#include <pthread.h>

#define PAGE ((uint64_t)64 * 2 * 128 * 2) // 32 KiB: 64 positions, one head of 128, keys and values

static const size_t row_0 = 0;

static uint64_t page_bytes(const bed *b)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(b->context, &memory));
    assert_int_equal(memory.held_bytes, b->books.held_bytes);
    return memory.page_bytes;
}

static void append(kvern_cache *cache, int64_t count, kvern_read **read)
{
    feed f = feed_create(cache, &(uint64_t){7}, &count, 1);
    assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, read));
    feed_destroy(&f);
}

// ---- Reserved room ----

// Room for 65,536 tokens is 256 MiB in a real layer. A fork of 100 positions holds two pages.
static void forks_do_not_hold_reserved_room(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_default(1, 128), 1);
    kvern_cache *fork, *adopted;
    kvern_read *read;
    assert_ok(kvern_cache_reserve(b->cache, 0, 65536, 1));
    append(b->cache, 100, NULL);
    assert_int_equal(kvern_cache_bytes(b->cache), 1024 * PAGE);
    assert_ok(kvern_cache_fork(b->cache, &row_0, 1, &fork));
    assert_ok(kvern_cache_create(b->composition, 0, 1, &adopted));
    assert_ok(kvern_cache_adopt(adopted, 0, b->cache, 0));
    assert_ok(kvern_cache_read_donor(b->cache, &(int64_t){1}, &read));
    assert_int_equal(kvern_cache_bytes(fork), 2 * PAGE);
    assert_int_equal(kvern_cache_bytes(adopted), 2 * PAGE);
    assert_int_equal(page_bytes(b), 1024 * PAGE);
    append(b->cache, 1, NULL); // a copy of the partly filled page, from the room or beside it
    assert_true(page_bytes(b) <= 1025 * PAGE);
    assert_int_equal(kvern_cache_bytes(b->cache), 1024 * PAGE);
    append(fork, 1, NULL);
    assert_true(page_bytes(b) <= 1026 * PAGE);
    assert_ok(kvern_cache_reset(b->cache, 0));
    assert_int_equal(page_bytes(b), 4 * PAGE - PAGE); // two full ones are one, and two last ones
    kvern_cache_destroy(adopted);
    kvern_read_release(read);
    assert_int_equal(page_bytes(b), 2 * PAGE);
    kvern_cache_destroy(fork);
    assert_int_equal(page_bytes(b), 0);
    bed_destroy(b);
}

// Room stays with a row that takes another one's positions over.
static void adopted_rows_keep_their_room(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_default(1, 128), 2);
    assert_ok(kvern_cache_reserve(b->cache, 0, 640, 0));
    kvern_cache *from;
    assert_ok(kvern_cache_create(b->composition, 0, 1, &from));
    append(from, 128, NULL);
    assert_ok(kvern_cache_adopt(b->cache, 0, from, 0));
    kvern_cache_destroy(from);
    const uint64_t allocations = b->books.allocations;
    const int64_t counts[2] = {512, 0};
    feed f = feed_create(b->cache, (uint64_t[2]){7, 8}, counts, 1);
    assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &f, NULL));
    feed_destroy(&f);
    assert_true(b->books.allocations <= allocations + 1); // the table that it shared was smaller
    assert_int_equal(kvern_cache_bytes(b->cache), 10 * PAGE);
    bed_destroy(b);
}

// ---- Trims of what others hold ----

typedef enum other { FORK, EXTRACT, ADOPTED, DONOR_READ, OTHERS } other;

typedef struct holder {
    kvern_cache *cache;
    kvern_read *read;
} holder;

static holder hold(const bed *b, other kind)
{
    holder h = {0};
    if (kind == FORK)
        assert_ok(kvern_cache_fork(b->cache, &row_0, 1, &h.cache));
    if (kind == EXTRACT)
        assert_ok(kvern_cache_extract(b->cache, 0, &h.cache));
    if (kind == ADOPTED) {
        assert_ok(kvern_cache_create(b->composition, 0, 1, &h.cache));
        assert_ok(kvern_cache_adopt(h.cache, 0, b->cache, 0));
    }
    if (kind == DONOR_READ)
        assert_ok(kvern_cache_read_donor(b->cache, &(int64_t){1}, &h.read));
    return h;
}

static void let_go(holder *h)
{
    kvern_cache_destroy(h->cache);
    kvern_read_release(h->read);
}

// A row of 8192 positions that others hold, trimmed to 64: one page stays when they have gone,
// before the trim or after it.
static void trimmed_rows_keep_what_they_have(void **state)
{
    (void)state;
    for (int kind = 0; kind < OTHERS; kind++) {
        for (int order = 0; order < 2; order++) {
            bed *b = bed_create(kvern_layer_default(1, 128), 1);
            append(b->cache, 8192, NULL);
            holder h = hold(b, (other)kind);
            assert_int_equal(page_bytes(b), 128 * PAGE);
            if (order)
                let_go(&h);
            assert_ok(kvern_cache_trim(b->cache, 0, 8128));
            assert_int_equal(kvern_cache_bytes(b->cache), PAGE);
            assert_int_equal(page_bytes(b), (order ? 1 : 128) * PAGE);
            if (!order)
                let_go(&h);
            assert_int_equal(page_bytes(b), PAGE);
            assert_ok(kvern_cache_trim(b->cache, 0, 64));
            assert_int_equal(page_bytes(b), 0);
            bed_destroy(b);
        }
    }
}

// The same for a fork that is trimmed while its original stays, goes before and goes after.
static void trimmed_forks_keep_what_they_have(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        bed *b = bed_create(kvern_layer_default(1, 128), 1);
        kvern_cache *fork;
        append(b->cache, 8192, NULL);
        assert_ok(kvern_cache_fork(b->cache, &row_0, 1, &fork));
        if (order)
            assert_ok(kvern_cache_reset(b->cache, 0));
        assert_ok(kvern_cache_trim(fork, 0, 8128));
        if (!order)
            assert_ok(kvern_cache_reset(b->cache, 0));
        assert_int_equal(page_bytes(b), PAGE);
        assert_int_equal(kvern_cache_bytes(fork), PAGE);
        kvern_cache_destroy(fork);
        bed_destroy(b);
    }
}

// Rows that joined, were kept and reordered are the same rows.
static void rows_that_moved_give_back_too(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_default(1, 128), 1);
    kvern_cache *fork;
    append(b->cache, 8192, NULL);
    assert_ok(kvern_cache_fork(b->cache, (size_t[2]){0, 0}, 2, &fork));
    assert_ok(kvern_cache_trim(fork, 1, 8128));
    assert_ok(kvern_cache_join(b->cache, &fork, 1));
    kvern_cache_destroy(fork);
    assert_int_equal(page_bytes(b), 128 * PAGE);
    assert_ok(kvern_cache_keep(b->cache, (size_t[1]){2}, 1));
    assert_int_equal(kvern_cache_length(b->cache, 0), 64);
    assert_int_equal(page_bytes(b), PAGE);
    bed_destroy(b);
}

// Without memory for a table of its own a row cannot leave the shared one; the next call can.
static void refused_memory_is_asked_for_again(void **state)
{
    (void)state;
    bed *b = bed_create(kvern_layer_default(1, 128), 1);
    kvern_cache *fork;
    append(b->cache, 8192, NULL);
    assert_ok(kvern_cache_fork(b->cache, &row_0, 1, &fork));
    ledger_refuse_rest(&b->books, 0);
    assert_ok(kvern_cache_trim(fork, 0, 8128));
    assert_true(ledger_relent(&b->books));
    assert_int_equal(kvern_cache_bytes(fork), 128 * PAGE); // what it holds is what it says
    assert_ok(kvern_cache_trim(fork, 0, 1));
    assert_int_equal(kvern_cache_bytes(fork), PAGE);
    assert_ok(kvern_cache_reset(b->cache, 0));
    assert_int_equal(page_bytes(b), PAGE);
    kvern_cache_destroy(fork);
    bed_destroy(b);
}

// ---- Windows ----

static kvern_layer window_layer(void)
{
    return kvern_layer_window(1, 128, 128); // and a slack of 64: 192 positions of 5120 are held
}

// A read of an append of 5120 positions, released before the next call, at it, or after it.
static void windows_do_not_keep_a_prompt(void **state)
{
    (void)state;
    for (int reserved = 0; reserved < 2; reserved++) {
        bed *b = bed_create(window_layer(), 1);
        kvern_read *read;
        if (reserved)
            assert_ok(kvern_cache_reserve(b->cache, 0, 1000000, 1));
        const uint64_t most = reserved ? kvern_cache_bytes(b->cache) : 3 * PAGE;
        append(b->cache, 5120, &read);
        assert_int_equal(kvern_cache_bytes(b->cache), most);
        assert_true(page_bytes(b) >= 80 * PAGE);
        kvern_read_release(read);
        assert_int_equal(kvern_cache_bytes(b->cache), most);
        assert_int_equal(page_bytes(b), most);
        const uint64_t allocations = b->books.allocations;
        append(b->cache, 1, &read);
        kvern_read_release(read);
        if (reserved) {
            assert_int_equal(b->books.allocations, allocations);
            assert_int_equal(page_bytes(b), most);
        }
        bed_destroy(b);
    }
}

// A state's reads, released when the step has ended; some of them within it.
static void states_do_not_keep_a_prompt(void **state)
{
    (void)state;
    enum { LAYERS = 3 };
    kvern_layer layers[LAYERS] = {window_layer(), kvern_layer_default(1, 128), window_layer()};
    mixed_world w;
    mixed_open(&w, 1);
    kvern_composition *composition;
    kvern_state *s;
    kvern_read *reads[LAYERS];
    const int64_t count = 5120;
    assert_ok(kvern_composition_create(w.context, layers, LAYERS, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &count));
    for (size_t l = 0; l < LAYERS; l++) {
        feed f = feed_create(kvern_state_cache(s, l), &(uint64_t){5}, &count, 1);
        assert_ok(feed_step_append(s, l, &f, &reads[l]));
        feed_destroy(&f);
    }
    kvern_read_release(reads[0]);
    assert_ok(kvern_step_end(s));
    assert_int_equal(kvern_state_bytes(s), (3 + 80 + 3) * PAGE);
    kvern_read_release(reads[1]);
    kvern_read_release(reads[2]);
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(w.context, &memory));
    assert_int_equal(memory.page_bytes, (3 + 80 + 3) * PAGE);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    mixed_close(&w);
}

// A row of a full layer taken over into a window.
static void adopted_windows_keep_what_they_show(void **state)
{
    (void)state;
    const kvern_layer layers[2] = {kvern_layer_default(1, 128), window_layer()};
    bed *b = bed_create(layers[0], 0);
    kvern_composition *composition;
    kvern_cache *full, *window;
    assert_ok(kvern_composition_create(b->context, layers, 2, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &full));
    assert_ok(kvern_cache_create(composition, 1, 1, &window));
    append(full, 5120, NULL);
    assert_ok(kvern_cache_adopt(window, 0, full, 0));
    assert_int_equal(kvern_cache_bytes(window), 3 * PAGE);
    kvern_cache_destroy(full);
    assert_int_equal(page_bytes(b), 3 * PAGE);
    kvern_cache_destroy(window);
    kvern_composition_release(composition);
    bed_destroy(b);
}

// ---- Rounds ----

// Drafts in a row whose positions a fork and a read hold; all of them refused, or but one.
static void rounds_give_back_what_they_took(void **state)
{
    (void)state;
    for (int64_t keep = 0; keep < 2; keep++) {
        mixed_world w;
        mixed_open(&w, 1);
        const kvern_layer layer = kvern_layer_default(1, 128);
        const int64_t first = 100, drafts = 500;
        kvern_composition *composition;
        kvern_state *s, *fork;
        kvern_read *read;
        kvern_memory memory = {.size = sizeof memory};
        assert_ok(kvern_composition_create(w.context, &layer, 1, &composition));
        assert_ok(kvern_state_create(composition, 1, &s));
        for (int step = 0; step < 2; step++) {
            const int64_t count = step ? drafts : first;
            if (step) {
                assert_ok(kvern_state_fork(s, &row_0, 1, &fork));
                assert_ok(kvern_round_begin(s, &drafts));
            }
            assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &count));
            feed f = feed_create(kvern_state_cache(s, 0), &(uint64_t){5}, &count, 1);
            assert_ok(feed_step_append(s, 0, &f, &read));
            feed_destroy(&f);
            assert_ok(kvern_step_end(s));
            if (!step)
                kvern_read_release(read);
        }
        assert_ok(kvern_round_rollback(s, &keep));
        assert_int_equal(kvern_state_bytes(s), 2 * PAGE);
        kvern_read_release(read);
        assert_ok(kvern_context_memory(w.context, &memory));
        assert_int_equal(memory.page_bytes, (2 + (uint64_t)keep) * PAGE);
        kvern_state_destroy(fork);
        assert_ok(kvern_context_memory(w.context, &memory));
        assert_int_equal(memory.page_bytes, 2 * PAGE);
        kvern_state_destroy(s);
        kvern_composition_release(composition);
        mixed_close(&w);
    }
}

// ---- Threads ----

#define READS 400

typedef struct releaser {
    pthread_mutex_t lock;
    kvern_read *reads[READS];
    size_t put, got;
} releaser;

static void *release_reads(void *arg)
{
    releaser *r = arg;
    while (r->got < READS) {
        pthread_mutex_lock(&r->lock);
        kvern_read *read = r->got < r->put ? r->reads[r->got] : NULL;
        pthread_mutex_unlock(&r->lock);
        if (!read)
            continue;
        kvern_read_release(read);
        r->got++;
    }
    return NULL;
}

// Reads are released on another thread while the row grows and is trimmed.
static void reads_are_released_on_any_thread(void **state)
{
    (void)state;
    bed *b = bed_create(window_layer(), 1);
    releaser r = {.put = 0};
    pthread_t thread;
    pthread_mutex_init(&r.lock, NULL);
    assert_int_equal(pthread_create(&thread, NULL, release_reads, &r), 0);
    for (size_t i = 0; i < READS; i++) {
        kvern_read *read;
        append(b->cache, 1 + (int64_t)(i * 37 % 200), &read);
        pthread_mutex_lock(&r.lock);
        r.reads[r.put++] = read;
        pthread_mutex_unlock(&r.lock);
        if (i % 5 == 0)
            assert_ok(kvern_cache_trim(b->cache, 0, 1));
    }
    pthread_join(thread, NULL);
    pthread_mutex_destroy(&r.lock);
    assert_int_equal(page_bytes(b), kvern_cache_bytes(b->cache));
    assert_true(kvern_cache_bytes(b->cache) <= 5 * PAGE);
    assert_ok(kvern_cache_trim(b->cache, 0, kvern_cache_length(b->cache, 0)));
    assert_int_equal(page_bytes(b), 0);
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_do_not_hold_reserved_room),
        cmocka_unit_test(adopted_rows_keep_their_room),
        cmocka_unit_test(trimmed_rows_keep_what_they_have),
        cmocka_unit_test(trimmed_forks_keep_what_they_have),
        cmocka_unit_test(rows_that_moved_give_back_too),
        cmocka_unit_test(refused_memory_is_asked_for_again),
        cmocka_unit_test(windows_do_not_keep_a_prompt),
        cmocka_unit_test(states_do_not_keep_a_prompt),
        cmocka_unit_test(adopted_windows_keep_what_they_show),
        cmocka_unit_test(rounds_give_back_what_they_took),
        cmocka_unit_test(reads_are_released_on_any_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
