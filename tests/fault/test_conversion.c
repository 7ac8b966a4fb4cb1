// SPDX-License-Identifier: MIT
// The memory of a conversion from bf16. Nobody else sees the row's pages: they are converted one by
// one, each old page given back before the next new one is taken. So one page of the planned form
// is held above the row in bf16, and a budget with room for that suffices. And it cannot fail: if
// a new page is refused, a page is converted where it lies. A read or a fork that sees old pages
// keeps them; then new ones in their place are taken beforehand, or nothing changes.

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

// Storages of which no stream is larger than one of bf16.
static const struct planned {
    const char *name;
    kvern_codec k_codec, v_codec;
    size_t k_dim, v_dim;
} PLANNED[] = {
    {"2 bits", STORAGE_AFFINE(2, 64), STORAGE_AFFINE(2, 64), DIM, DIM},
    {"3 bits", STORAGE_AFFINE(3, 64), STORAGE_AFFINE(3, 64), DIM, DIM},
    {"4 bits", STORAGE_AFFINE(4, 64), STORAGE_AFFINE(4, 64), DIM, DIM},
    {"5 bits", STORAGE_AFFINE(5, 64), STORAGE_AFFINE(5, 64), DIM, DIM},
    {"6 bits", STORAGE_AFFINE(6, 64), STORAGE_AFFINE(6, 64), DIM, DIM},
    {"8 bits", STORAGE_AFFINE(8, 64), STORAGE_AFFINE(8, 64), DIM, DIM},
    {"8 bits, keys of other size", STORAGE_AFFINE(8, 32), STORAGE_AFFINE(4, 64), 96, DIM},
    {"bf16 keys", STORAGE_BF16, STORAGE_AFFINE(4, 64), DIM, DIM},
    {"f16, pages of the same size", STORAGE_F16, STORAGE_F16, DIM, DIM},
};
#define PLANNED_COUNT (sizeof PLANNED / sizeof PLANNED[0])

static kvern_layer layer_planned(const struct planned *p, size_t kv_heads, int64_t start)
{
    kvern_layer layer = affine(4, kv_heads, start);
    layer.k_codec = p->k_codec;
    layer.v_codec = p->v_codec;
    layer.k_dim = p->k_dim;
    layer.v_dim = p->v_dim;
    return layer;
}

static uint64_t first_page_bytes(const kvern_layer *layer)
{
    return 64 * layer->kv_heads * (layer->k_dim + layer->v_dim) * 2;
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

// The next append of the bed converts. A budget of 0 is no limit.
static bed *bed_before_start(kvern_layer layer, uint64_t budget_bytes)
{
    bed *b = bed_within(layer, 1, budget_bytes);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, layer.start - 1, layer.kv_heads, NULL);
    assert_false(kvern_cache_converted(b->cache, 0));
    return b;
}

static bed *bed_before_conversion(kvern_layer layer)
{
    return bed_before_start(layer, 0);
}

// A budget that is never reached. Pages of a row before its start are arenas by themselves then.
#define WIDE (UINT64_C(1) << 40)

// A row that got there in another way: in one append. `start`: where it is converted.
static bed *bed_in_one_append(const kvern_cache *cache, int64_t start)
{
    kvern_layer layer = *kvern_cache_layer(cache);
    const int64_t length = kvern_cache_length(cache, 0);
    layer.start = start;
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, length, layer.kv_heads, NULL);
    return b;
}

static float *exported(const kvern_cache *cache, size_t *floats)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const int64_t length = kvern_cache_length(cache, 0);
    const size_t k = (size_t)length * layer->kv_heads * layer->k_dim;
    *floats = k + (size_t)length * layer->kv_heads * layer->v_dim;
    float *values = new_floats(*floats, 0);
    assert_ok(kvern_cache_export(cache, 0, 0, length, values, values + k));
    return values;
}

static void expect_same_values(const kvern_cache *wanted, const kvern_cache *got, const char *what)
{
    size_t floats;
    float *a = exported(wanted, &floats), *b = exported(got, &floats);
    check_same_bytes(a, b, floats * sizeof *a, what);
    free(a);
    free(b);
}

// Stored values are those of a row that was quantized from the start, which affine codes make from
// values in bf16 too; and those of one that was converted with nothing in its way.
static void expect_stored(const kvern_cache *cache, const char *what)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    bed *first = bed_in_one_append(cache, 1), *plain = bed_in_one_append(cache, KVERN_NO_START);
    assert_true(kvern_cache_converted(cache, 0));
    expect_same_values(first->cache, cache, what);
    if (layer->k_codec.kind == KVERN_CODEC_AFFINE && layer->v_codec.kind == KVERN_CODEC_AFFINE)
        expect_same_values(plain->cache, cache, what);
    bed_destroy(first);
    bed_destroy(plain);
}

// And later tokens find a row like any other.
static void expect_converted(kvern_cache *cache, const char *what)
{
    expect_stored(cache, what);
    const kvern_layer *layer = kvern_cache_layer(cache);
    bed *first = bed_in_one_append(cache, 1);
    const size_t floats = 70 * layer->kv_heads * layer->v_dim;
    float *got = new_floats(floats, 0), *wanted = new_floats(floats, 0);
    feed_one(cache, KVERN_PHASE_WINDOW, 1, 70, layer->kv_heads, got);
    feed_one(first->cache, KVERN_PHASE_WINDOW, 1, 70, layer->kv_heads, wanted);
    check_same_bytes(wanted, got, floats * sizeof *got, what);
    expect_same_values(first->cache, cache, what);
    free(got);
    free(wanted);
    bed_destroy(first);
}

// What the header of an arena takes at most, beside its page.
#define HEADER 256

// The most that the allocator gave during the conversion is a planned page above what it had given
// before: for pages so large that an arena is one page in any case, and for many small ones under a
// budget. Their new arenas hold several pages then, but no more than fit into what has been given
// back.
static void peak_is_one_planned_page_above_bf16(void **state)
{
    (void)state;
    static const struct {
        size_t kv_heads;
        int64_t start;
    } sizes[] = {{128, 256}, {1, 6400}, {3, 1000}};
    for (size_t i = 0; i < 3 * PLANNED_COUNT; i++) {
        const kvern_layer layer =
            layer_planned(&PLANNED[i / 3], sizes[i % 3].kv_heads, sizes[i % 3].start);
        bed *b = bed_before_start(layer, i % 3 ? WIDE : 0);
        const uint64_t before = b->books.held_bytes, first = first_page_bytes(&layer);
        const uint64_t planned = planned_page_bytes(b), pages = (uint64_t)(layer.start + 63) / 64;
        assert_true(planned <= first);
        assert_int_equal(kvern_cache_bytes(b->cache), pages * first);
        b->books.most_bytes = before;
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, layer.kv_heads, NULL);
        assert_true(kvern_cache_converted(b->cache, 0));
        if (b->books.most_bytes - before > planned + HEADER)
            fail_msg("%s: %llu bytes above, a planned page has %llu", PLANNED[i / 3].name,
                     (unsigned long long)(b->books.most_bytes - before),
                     (unsigned long long)planned);
        assert_int_equal(page_bytes(b), pages * planned);
        assert_true(b->books.held_bytes < before + HEADER);
        bed_destroy(b);
    }
}

// Whether the row converts in a context whose budget has room for `more` bytes beside it. If not,
// nothing changes.
static bool converts_within(kvern_layer layer, uint64_t more)
{
    bed *measured = bed_before_start(layer, WIDE);
    const uint64_t budget = measured->books.held_bytes + more;
    bed_destroy(measured);
    bed *b = bed_before_start(layer, budget);
    const uint64_t held = b->books.held_bytes, bytes = kvern_cache_bytes(b->cache);
    feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, layer.kv_heads);
    const kvern_status status = kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, NULL);
    if (status) {
        assert_int_equal(status, KVERN_ERR_BUDGET);
        assert_int_equal(kvern_cache_length(b->cache, 0), layer.start - 1);
        assert_false(kvern_cache_converted(b->cache, 0));
        assert_int_equal(kvern_cache_bytes(b->cache), bytes);
        assert_int_equal(b->books.held_bytes, held);
    } else {
        expect_stored(b->cache, "in little room");
    }
    assert_true(b->books.most_bytes <= budget);
    feed_destroy(&f);
    bed_destroy(b);
    return !status;
}

// Room for one planned page, and what an arena of it takes, is enough; with a byte less the append
// is refused.
static void an_exact_budget_suffices(void **state)
{
    (void)state;
    uint64_t header = 0;
    for (size_t i = 0; i < PLANNED_COUNT; i++) {
        const kvern_layer layer = layer_planned(&PLANNED[i], 2, i % 2 ? 1000 : 330);
        bed *b = bed_create(layer, 1);
        const uint64_t page = planned_page_bytes(b);
        uint64_t refused = page - 1, enough = page + HEADER;
        bed_destroy(b);
        while (!header && enough - refused > 1) { // it is the same for all
            const uint64_t middle = (refused + enough) / 2;
            *(converts_within(layer, middle) ? &enough : &refused) = middle;
        }
        header = header ? header : enough - page;
        assert_true(converts_within(layer, page + header));
        assert_false(converts_within(layer, page + header - 1));
    }
}

// From nothing to enough: either the append is refused and nothing changed, or it converts, and the
// bits are the same.
static void any_budget_converts_or_refuses(void **state)
{
    (void)state;
    int converted = 0, refused = 0;
    for (uint64_t more = 0; more < 3 * 64 * 2 * DIM * 2; more += 1531) {
        if (converts_within(affine(4, 1, START), more))
            converted++;
        else
            refused++;
    }
    assert_true(converted > 1 && refused > 1);
}

// One allocation of the converting append is refused, or, with pages in arenas of their own, that
// and all that follow. Returns whether none was reached; *completed counts appends that did
// without.
static bool converts_without(const struct planned *p, int64_t granted, bool rest, int *completed)
{
    const int64_t start = 300;
    bed *b = bed_before_start(layer_planned(p, 2, start), rest ? WIDE : 0);
    const uint64_t bytes = kvern_cache_bytes(b->cache), held = b->books.held_bytes;
    feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, 2);
    (rest ? ledger_refuse_rest : ledger_refuse)(&b->books, granted);
    const kvern_status status = kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, NULL);
    const bool done = !ledger_relent(&b->books);
    if (status) {
        assert_int_equal(status, KVERN_ERR_MEMORY);
        assert_int_equal(kvern_cache_length(b->cache, 0), start - 1);
        assert_false(kvern_cache_converted(b->cache, 0));
        assert_int_equal(kvern_cache_bytes(b->cache), bytes);
        assert_int_equal(b->books.held_bytes, held);
        assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, NULL));
    } else if (!done) {
        ++*completed;
    }
    expect_converted(b->cache, p->name);
    feed_destroy(&f);
    bed_destroy(b);
    return done;
}

static void refused_pages_are_done_without(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * PLANNED_COUNT; i++) {
        int completed = 0;
        for (int64_t granted = 0;
             !converts_without(&PLANNED[i / 2], granted, i % 2 == 1, &completed);)
            granted++;
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
            const kvern_status status = kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens,
                                                           who == 0 ? &read : NULL);
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

// A row of 4 pages that a fork shares and 8 of its own behind them, all but one of its positions.
static bed *bed_partly_shared(kvern_cache **fork)
{
    static const size_t row = 0;
    bed *b = bed_within(affine(4, 2, 12 * 64), 1, WIDE);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 4 * 64, 2, NULL);
    assert_ok(kvern_cache_fork(b->cache, &row, 1, fork));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 8 * 64 - 1, 2, NULL);
    assert_int_equal(page_bytes(b), 12 * first_page_bytes(kvern_cache_layer(b->cache)));
    return b;
}

// Pages that the fork sees have their new ones beside them; of its own the row holds one more.
static void own_pages_go_one_by_one_beside_shared_ones(void **state)
{
    (void)state;
    kvern_cache *fork;
    bed *b = bed_partly_shared(&fork);
    const uint64_t before = b->books.held_bytes, planned = planned_page_bytes(b);
    b->books.most_bytes = before;
    feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 2, NULL);
    assert_true(b->books.most_bytes - before <= 5 * planned + 5 * HEADER);
    assert_int_equal(page_bytes(b),
                     4 * first_page_bytes(kvern_cache_layer(b->cache)) + 12 * planned);
    kvern_cache_destroy(fork);
    expect_converted(b->cache, "beside a fork");
    bed_destroy(b);
}

static void refusals_beside_shared_pages(void **state)
{
    (void)state;
    bool done = false;
    int completed = 0;
    for (int64_t granted = 0; !done; granted++) {
        kvern_cache *fork;
        bed *b = bed_partly_shared(&fork);
        const uint64_t bytes = kvern_cache_bytes(b->cache), held = b->books.held_bytes;
        feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, 2);
        ledger_refuse(&b->books, granted);
        const kvern_status status =
            kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, NULL);
        done = !ledger_relent(&b->books);
        if (status) {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            assert_int_equal(kvern_cache_length(b->cache, 0), 12 * 64 - 1);
            assert_int_equal(kvern_cache_bytes(b->cache), bytes);
            assert_int_equal(b->books.held_bytes, held);
            assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, NULL));
        } else if (!done) {
            completed++;
        }
        expect_converted(b->cache, "beside a fork");
        assert_false(kvern_cache_converted(fork, 0));
        feed_one(fork, KVERN_PHASE_WINDOW, 1, 8 * 64, 2, NULL);
        expect_converted(fork, "the fork");
        feed_destroy(&f);
        kvern_cache_destroy(fork);
        bed_destroy(b);
    }
    assert_true(completed > 1);
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
        cmocka_unit_test(peak_is_one_planned_page_above_bf16),
        cmocka_unit_test(an_exact_budget_suffices),
        cmocka_unit_test(any_budget_converts_or_refuses),
        cmocka_unit_test(refused_pages_are_done_without),
        cmocka_unit_test(shared_rows_take_all_pages_beforehand),
        cmocka_unit_test(own_pages_go_one_by_one_beside_shared_ones),
        cmocka_unit_test(refusals_beside_shared_pages),
        cmocka_unit_test(a_step_can_be_ended_again),
        cmocka_unit_test(an_abandoned_step_converts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
