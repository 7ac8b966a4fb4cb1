// SPDX-License-Identifier: MIT
// The memory of a conversion from bf16. Nobody else sees the row's pages: they are converted one by
// one, each old page given back before the next new one is taken. So at most two pages of the
// planned form, the one that is written and a spare one, are held above the row in bf16: that is
// one bf16 page and an eighth with 8 bits, less than one with any other number of bits. And it
// cannot fail: if a new page is refused, a page's new form takes the place of its old one. A read
// or a fork that sees the old pages keeps them; then the new ones are all taken beforehand, or
// nothing changes.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIM 64
#define START 1000
#define PAGES 16 // that START positions take

static kvern_layer affine(uint32_t bits, size_t kv_heads, int64_t start)
{
    kvern_layer layer = kvern_layer_default(kv_heads, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(bits, 64);
    layer.start = start;
    return layer;
}

static uint64_t first_page_bytes(const kvern_layer *layer)
{
    return 64 * layer->kv_heads * 2 * DIM * 2;
}

static uint64_t planned_page_bytes(const bed *b)
{
    return 64 * kvern_composition_bytes_per_token(b->composition);
}

static uint64_t page_bytes(const bed *b)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(b->context, &memory));
    return memory.page_bytes;
}

// The next append of a bed that holds START - 1 positions converts.
static bed *bed_before_conversion(kvern_layer layer)
{
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, START - 1, 2, NULL);
    assert_false(kvern_cache_converted(b->cache, 0));
    return b;
}

// Stored values and a later read are those of a row that was quantized from the start.
static void expect_converted(kvern_cache *cache, const char *what)
{
    kvern_layer layer = *kvern_cache_layer(cache);
    const int64_t length = kvern_cache_length(cache, 0);
    const size_t floats = (size_t)length * layer.kv_heads * DIM;
    float *got = new_floats(2 * floats, 0), *wanted = new_floats(2 * floats, 0);
    layer.start = KVERN_NO_START;
    bed *plain = bed_create(layer, 1);
    feed_one(plain->cache, KVERN_PHASE_WINDOW, 1, length, 2, NULL);
    assert_true(kvern_cache_converted(cache, 0));
    assert_ok(kvern_cache_export(cache, 0, 0, length, got, got + floats));
    assert_ok(kvern_cache_export(plain->cache, 0, 0, length, wanted, wanted + floats));
    check_same_bytes(wanted, got, 2 * floats * sizeof *got, what);
    float out[2][70 * 2 * DIM];
    feed_one(cache, KVERN_PHASE_WINDOW, 1, 70, 2, out[0]);
    feed_one(plain->cache, KVERN_PHASE_WINDOW, 1, 70, 2, out[1]);
    check_same_bytes(out[1], out[0], sizeof out[0], what);
    free(got);
    free(wanted);
    bed_destroy(plain);
}

// The most that was held during the conversion, above what was held before, with pages so large
// that an arena is one page.
static void peak_is_two_planned_pages_above_bf16(void **state)
{
    (void)state;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    enum { HEADS = 128 }; // a bf16 page is 2 MiB
    for (size_t i = 0; i < 6; i++) {
        kvern_layer layer = affine(bits[i], HEADS, 200);
        bed *b = bed_create(layer, 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 199, HEADS, NULL);
        const uint64_t before = b->books.held_bytes, planned = planned_page_bytes(b);
        assert_int_equal(kvern_cache_bytes(b->cache), 4 * first_page_bytes(&layer));
        b->books.most_bytes = before;
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, HEADS, NULL);
        assert_true(kvern_cache_converted(b->cache, 0));
        // Small objects, a table among them, and arenas of new pages, which double: at most as many
        // pages again as were taken by then, within 2 MiB.
        const uint64_t most = b->books.most_bytes - before, small = 4096;
        assert_true(most <= 2 * planned + (UINT64_C(2) << 20) + small);
        if (planned * 2 > (UINT64_C(2) << 20)) // an arena is one page
            assert_true(most <= 2 * planned + small);
        assert_int_equal(page_bytes(b), 4 * planned);
        assert_true(b->books.held_bytes < before);
        bed_destroy(b);
    }
}

// In a context whose budget leaves room for only so much more, from nothing to enough: either the
// append is refused and nothing changed, or it converts, and the bits are the same.
static void any_budget_converts_or_refuses(void **state)
{
    (void)state;
    int converted = 0, refused = 0;
    for (uint64_t more = 0; more < 4096 + 20 * 64 * 2 * DIM * 2; more += 1531) {
        const kvern_layer layer = affine(4, 1, START);
        bed *measured = bed_before_conversion(layer);
        const uint64_t held = measured->books.held_bytes;
        bed_destroy(measured);
        bed *b = calloc(1, sizeof *b);
        assert_non_null(b);
        ledger_init(&b->books);
        kvern_context_options options = kvern_context_options_default();
        options.allocator = ledger_allocator(&b->books);
        options.threads = 1;
        options.budget_bytes = held + more;
        assert_ok(kvern_context_create(&options, &b->context));
        assert_ok(kvern_composition_create(b->context, &layer, 1, &b->composition));
        assert_ok(kvern_cache_create(b->composition, 0, 1, &b->cache));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, START - 1, 2, NULL);
        feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, 2);
        const kvern_status status = kvern_cache_append_decode(b->cache, &f.tokens, NULL);
        feed_destroy(&f);
        if (status) {
            refused++;
            assert_int_equal(status, KVERN_ERR_BUDGET);
            assert_int_equal(kvern_cache_length(b->cache, 0), START - 1);
            assert_false(kvern_cache_converted(b->cache, 0));
            assert_int_equal(kvern_cache_bytes(b->cache), PAGES * first_page_bytes(&layer));
        } else {
            converted++;
            assert_true(b->books.most_bytes <= held + more);
            assert_int_equal(kvern_cache_length(b->cache, 0), START);
            float *k = new_floats(START * DIM, 0), *wanted = new_floats(START * DIM, 0);
            bed *plain = bed_create(affine(4, 1, KVERN_NO_START), 1);
            feed_one(plain->cache, KVERN_PHASE_WINDOW, 1, START, 2, NULL);
            assert_ok(kvern_cache_export(b->cache, 0, 0, START, k, NULL));
            assert_ok(kvern_cache_export(plain->cache, 0, 0, START, wanted, NULL));
            check_same_bytes(wanted, k, START * DIM * sizeof *k, "in little room");
            bed_destroy(plain);
            free(k);
            free(wanted);
        }
        bed_destroy(b);
    }
    assert_true(converted > 1 && refused > 1);
}

// Each allocation of the converting append is refused once.
static void refused_pages_are_done_without(void **state)
{
    (void)state;
    for (int last = 0; last < 2; last++) {
        bool done = false;
        int completed = 0;
        for (int64_t granted = 0; !done; granted++) {
            bed *b = bed_before_conversion(affine(last ? 8 : 3, 2, START));
            const uint64_t bytes = kvern_cache_bytes(b->cache), held = b->books.held_bytes;
            feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, 2);
            ledger_refuse(&b->books, granted);
            const kvern_status status = kvern_cache_append_decode(b->cache, &f.tokens, NULL);
            done = !ledger_relent(&b->books);
            if (status) {
                assert_int_equal(status, KVERN_ERR_MEMORY);
                assert_int_equal(kvern_cache_length(b->cache, 0), START - 1);
                assert_int_equal(kvern_cache_bytes(b->cache), bytes);
                assert_int_equal(b->books.held_bytes, held);
                assert_ok(kvern_cache_append_decode(b->cache, &f.tokens, NULL));
            } else {
                completed++;
            }
            expect_converted(b->cache, "after a refusal");
            feed_destroy(&f);
            bed_destroy(b);
        }
        assert_true(completed > 1); // some refusals were in the middle of it
    }
}

// With a read of the append itself, an older read, or a fork: all new pages first, or nothing.
static void shared_rows_take_all_pages_beforehand(void **state)
{
    (void)state;
    static const size_t row = 0;
    for (int who = 0; who < 3; who++) {
        bool done = false;
        for (int64_t granted = 0; !done; granted++) {
            bed *b = bed_before_conversion(affine(4, 2, START));
            kvern_read *older = NULL, *read = NULL;
            kvern_cache *fork = NULL;
            const int64_t one = 1;
            float out[2][2 * DIM];
            feed seen = feed_create(b->cache, &(uint64_t){1}, &one, 2);
            if (who == 1)
                assert_ok(kvern_cache_read_donor(b->cache, &one, &older));
            if (who == 2)
                assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
            seen.queries.out = out[0];
            if (older)
                assert_ok(kvern_read_attend(older, &seen.queries));
            feed f = feed_create(b->cache, &(uint64_t){1}, &one, 2);
            const uint64_t bytes = kvern_cache_bytes(b->cache), pages = page_bytes(b);
            ledger_refuse(&b->books, granted);
            const kvern_status status =
                kvern_cache_append_decode(b->cache, &f.tokens, who == 0 ? &read : NULL);
            done = !ledger_relent(&b->books);
            if (status) {
                assert_int_equal(status, KVERN_ERR_MEMORY);
                assert_null(read);
                assert_int_equal(kvern_cache_length(b->cache, 0), START - 1);
                assert_false(kvern_cache_converted(b->cache, 0));
                assert_int_equal(kvern_cache_bytes(b->cache), bytes);
                assert_int_equal(page_bytes(b), pages);
            } else {
                assert_int_equal(page_bytes(b) - PAGES * planned_page_bytes(b) >= bytes, true);
                if (fork)
                    assert_false(kvern_cache_converted(fork, 0));
            }
            if (read) {
                assert_ok(kvern_read_attend(read, &f.queries));
                expect_serial(kvern_layer_default(2, DIM), 1, START - 1, 1, 2, f.out, "in bf16");
            }
            seen.queries.out = out[1];
            if (older) {
                assert_ok(kvern_read_attend(older, &seen.queries));
                check_same_bytes(out[0], out[1], sizeof out[0], "an older read");
            }
            if (fork) { // converts by itself
                feed_one(fork, KVERN_PHASE_DECODE, 1, 1, 2, NULL);
                expect_converted(fork, "the fork");
            }
            kvern_read_release(read);
            kvern_read_release(older);
            kvern_cache_destroy(fork);
            feed_destroy(&seen);
            feed_destroy(&f);
            if (!status)
                expect_converted(b->cache, "the row");
            bed_destroy(b);
        }
    }
}

// ---- Steps of a state ----

// A state whose budget has no room for bf16 and quantized pages at once: the end of the step that
// converts fails while a read is open, stays open, and succeeds when the read is gone.
static void a_step_can_be_ended_again(void **state)
{
    (void)state;
    const kvern_layer layers[3] = {affine(4, 2, START), kvern_layer_default(1, 8),
                                   affine(8, 2, START)};
    ledger books;
    ledger_init(&books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&books);
    options.threads = 1;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_context_create(&options, &context));
    assert_ok(kvern_composition_create(context, layers, 3, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    for (int step = 0; step < 2; step++) {
        const int64_t count = step ? 1 : START - 1;
        kvern_read *read = NULL;
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &count));
        for (size_t l = 0; l < 3; l++) {
            feed f = feed_create(kvern_state_cache(s, l), &(uint64_t){1}, &count, 2);
            assert_ok(kvern_step_append(s, l, &f.tokens, step && l == 2 ? &read : NULL));
            feed_destroy(&f);
        }
        for (int64_t granted = 0; step && granted < 3; granted++) {
            const uint64_t bytes = kvern_state_bytes(s);
            ledger_refuse(&books, granted);
            assert_status(KVERN_ERR_MEMORY, kvern_step_end(s));
            assert_true(ledger_relent(&books));
            assert_int_equal(kvern_step_position(s, 0), START - 1); // still open
            assert_int_equal(kvern_state_length(s, 0), START - 1);
            assert_int_equal(kvern_state_bytes(s), bytes);
            for (size_t l = 0; l < 3; l += 2)
                assert_false(kvern_cache_converted(kvern_state_cache(s, l), 0));
        }
        kvern_read_release(read);
        assert_ok(kvern_step_end(s));
    }
    assert_int_equal(kvern_state_length(s, 0), START);
    for (size_t l = 0; l < 3; l++)
        assert_true(kvern_cache_converted(kvern_state_cache(s, l), 0));
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// An abandoned step converts nothing, and can be done again.
static void an_abandoned_step_converts_nothing(void **state)
{
    (void)state;
    const kvern_layer layer = affine(4, 1, 8);
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    for (int attempt = 0; attempt < 2; attempt++) {
        const int64_t count = 12;
        feed f = feed_create(kvern_state_cache(s, 0), &(uint64_t){1}, &count, 1);
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &count));
        assert_ok(kvern_step_append(s, 0, &f.tokens, NULL));
        if (attempt == 0)
            kvern_step_abandon(s);
        else
            assert_ok(kvern_step_end(s));
        assert_int_equal(kvern_cache_converted(kvern_state_cache(s, 0), 0), attempt == 1);
        assert_int_equal(kvern_state_length(s, 0), attempt ? 12 : 0);
        feed_destroy(&f);
    }
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peak_is_two_planned_pages_above_bf16),
        cmocka_unit_test(any_budget_converts_or_refuses),
        cmocka_unit_test(refused_pages_are_done_without),
        cmocka_unit_test(shared_rows_take_all_pages_beforehand),
        cmocka_unit_test(a_step_can_be_ended_again),
        cmocka_unit_test(an_abandoned_step_converts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
