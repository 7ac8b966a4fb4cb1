// SPDX-License-Identifier: MIT
// What the library holds: exactly what it reports, little more than its positions need, nothing per
// token, and no byte that was never written reaches a result.

#include "src/base/context.h"
#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HUGE_ARENA ((uint64_t)2 << 20)
#define MOST_LAYERS 600 // more than a context keeps reads for by itself

// The executor says that it has `threads` threads, so that work and scratch are cut for them.
static kvern_context *new_context(ledger *books, size_t threads)
{
    kvern_context_options options = kvern_context_options_default();
    kvern_context *context;
    options.allocator = ledger_allocator(books);
    options.executor = executor_shuffled(threads);
    assert_ok(kvern_context_create(&options, &context));
    return context;
}

static kvern_composition *new_composition(kvern_context *context, const kvern_layer *layers,
                                          size_t count)
{
    kvern_composition *composition;
    assert_ok(kvern_composition_create(context, layers, count, &composition));
    return composition;
}

static kvern_memory memory_of(const kvern_context *context)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(context, &memory));
    return memory;
}

// ---- The bound of what is held ----

typedef struct shape {
    kvern_layer layer;
    size_t layers, rows;
    int64_t tokens;
} shape;

static uint64_t rounded_to_pages(int64_t tokens)
{
    return ((uint64_t)tokens + KVERN_PAGE_POSITIONS - 1) / KVERN_PAGE_POSITIONS *
           KVERN_PAGE_POSITIONS;
}

// The tokens of all rows and layers come by chunks of odd sizes, and at every point the library
// holds at most 2 % more than whole pages per row, and one arena.
static void check_bound(const shape *s)
{
    ledger books;
    ledger_init(&books);
    kvern_layer layers[8];
    for (size_t l = 0; l < s->layers; l++)
        layers[l] = s->layer;
    kvern_context *context = new_context(&books, 1);
    kvern_composition *composition = new_composition(context, layers, s->layers);
    kvern_state *state;
    assert_ok(kvern_state_create(composition, s->rows, &state));
    int64_t counts[4], chunk = 1;
    const size_t floats = s->layer.kv_heads * KVERN_MAX_HEAD_DIM * 1100;
    float *values = calloc(floats, sizeof *values);
    assert_non_null(values);
    while (kvern_state_length(state, 0) < s->tokens) {
        uint64_t positions = 0;
        for (size_t r = 0; r < s->rows; r++)
            counts[r] = chunk / (int64_t)(r + 1);
        assert_ok(kvern_step_begin(state, KVERN_PHASE_WINDOW, counts));
        for (size_t l = 0; l < s->layers; l++) {
            kvern_tokens tokens = kvern_tokens_default(&s->layer);
            tokens.k = tokens.v = values;
            tokens.k_token_stride = tokens.v_token_stride = 0; // every token is the same
            assert_ok(kvern_step_append(state, l, &tokens, NULL));
        }
        assert_ok(kvern_step_end(state));
        for (size_t r = 0; r < s->rows; r++)
            positions += rounded_to_pages(kvern_state_length(state, r));
        const uint64_t pages = positions * kvern_composition_bytes_per_token(composition);
        const kvern_memory memory = memory_of(context);
        assert_int_equal(memory.held_bytes, books.held_bytes);
        assert_int_equal(memory.page_bytes, pages);
        assert_int_equal(kvern_state_bytes(state), pages);
        assert_true((double)memory.held_bytes <= 1.02 * (double)pages + (double)HUGE_ARENA);
        assert_true(memory.peak_bytes == books.most_bytes);
        chunk = (chunk * 7 + 3) % 1001;
    }
    free(values);
    kvern_state_destroy(state);
    kvern_composition_release(composition);
    assert_int_equal(memory_of(context).page_bytes, 0);
    kvern_context_release(context);
    ledger_finish(&books);
}

static void held_bytes_stay_within_two_percent_and_an_arena(void **state)
{
    (void)state;
    shape shapes[] = {
        {kvern_layer_default(3, 64), 4, 2, 9000},  // SmolLM2 135M: pages do not fill an arena
        {kvern_layer_default(5, 64), 4, 2, 5000},  // SmolLM2 360M
        {kvern_layer_default(8, 128), 2, 1, 4000}, // Llama 8B: four pages fill an arena
        {kvern_layer_default(1, 64), 8, 3, 5000},  {kvern_layer_default(2, 576), 1, 1, 3000},
        {kvern_layer_default(16, 256), 1, 2, 600}, // a page of 2 MiB
        {kvern_layer_default(1, 64), 1, 1, 3000},  // uneven: K and V of different size and type
    };
    shapes[6].layer.v_dim = 24;
    shapes[6].layer.k_codec = kvern_codec_dense(KVERN_F32);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_bound(&shapes[i]);
}

// ---- No allocation per token ----

// Decodes `steps` tokens in every row and layer, attending each; reads are held until the layers
// are through, as an engine may.
static void decode(kvern_state *state, size_t layers, const int64_t *counts, size_t steps,
                   size_t query_heads)
{
    static const uint64_t sequences[4] = {1, 2, 3, 4};
    static kvern_read *reads[MOST_LAYERS];
    for (size_t step = 0; step < steps; step++) {
        assert_ok(kvern_step_begin(state, KVERN_PHASE_DECODE, counts));
        for (size_t l = 0; l < layers; l++) {
            feed f = feed_create(kvern_state_cache(state, l), sequences, counts, query_heads);
            assert_ok(kvern_step_append(state, l, &f.tokens, &reads[l]));
            assert_ok(kvern_read_attend(reads[l], &f.queries));
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(state));
        for (size_t l = 0; l < layers; l++)
            kvern_read_release(reads[l]);
    }
}

static void decoding_in_reserved_room_allocates_nothing(void **state)
{
    (void)state;
    static const int64_t all[4] = {1, 1, 1, 1}, one[4] = {0, 0, 1, 0};
    ledger books;
    ledger_init(&books);
    kvern_layer layers[3] = {kvern_layer_default(2, 16), kvern_layer_default(4, 8),
                             kvern_layer_default(1, 64)};
    kvern_context *context = new_context(&books, 3);
    kvern_composition *composition = new_composition(context, layers, 3);
    kvern_state *s;
    assert_ok(kvern_state_create(composition, 4, &s));
    for (size_t r = 0; r < 4; r++)
        assert_ok(kvern_state_reserve(s, r, 550, 8));
    const uint64_t before = memory_of(context).allocations;
    decode(s, 3, all, 500, 8);
    decode(s, 3, one, 50, 8);
    assert_int_equal(memory_of(context).allocations, before);
    assert_int_equal(books.allocations, before);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// The largest sizes that scratch may be asked for, as a reservation for an absurd number of query
// heads does: what lies in front of a buffer must fit, too.
static void no_buffer_is_smaller_than_asked_for(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_context *context = new_context(&books, 1);
    const uint64_t held = books.held_bytes;
    for (size_t less = 0; less <= 256; less++) {
        void *buffer = context;
        const kvern_status status =
            kvern_buffer_take(context, NULL, KVERN_SCRATCH, SIZE_MAX - less, &buffer);
        assert_true(status == KVERN_ERR_OVERFLOW || (status == KVERN_ERR_MEMORY && less >= 64));
        assert_null(buffer);
    }
    assert_int_equal(books.held_bytes, held);
    kvern_context_release(context);
    ledger_finish(&books);
}

// However many layers there are, their reads may all be open.
static void reserved_room_covers_reads_of_many_layers(void **state)
{
    (void)state;
    static const int64_t one[1] = {1};
    ledger books;
    ledger_init(&books);
    kvern_layer layers[MOST_LAYERS];
    for (size_t l = 0; l < MOST_LAYERS; l++)
        layers[l] = kvern_layer_default(1, 8);
    kvern_context *context = new_context(&books, 1);
    kvern_composition *composition = new_composition(context, layers, MOST_LAYERS);
    kvern_state *s;
    assert_ok(kvern_state_create(composition, 1, &s));
    assert_ok(kvern_state_reserve(s, 0, 3, 1));
    const uint64_t before = memory_of(context).allocations;
    decode(s, MOST_LAYERS, one, 3, 1);
    assert_int_equal(memory_of(context).allocations, before);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// With many rows an attend is cut into whole tiles; with one of them it is cut by spans, whose
// partial results need more scratch. The reservation covers both.
static void reserved_room_covers_attends_of_few_rows(void **state)
{
    (void)state;
    enum { ROWS = 12, TOKENS = 5000, HEADS = 4 };
    static const uint64_t sequences[ROWS] = {1};
    int64_t long_row[ROWS] = {TOKENS}, one[ROWS] = {1};
    bed *b = bed_on(kvern_layer_default(1, 64), ROWS, executor_shuffled(3));
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, long_row, HEADS, NULL);
    assert_ok(kvern_cache_reserve(b->cache, 0, TOKENS + 10, HEADS));
    const uint64_t before = memory_of(b->context).allocations;
    float out[HEADS * 64];
    feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, HEADS, out);
    assert_int_equal(memory_of(b->context).allocations, before);
    bed_destroy(b);
}

// Rows that share a prefix are attended in fewer tiles, which are cut by spans; and rows of a
// window with a kept position, whose windows lie apart, in tiles that touch more spans than a row
// does.
static void reserved_room_covers_attends_of_shared_rows(void **state)
{
    (void)state;
    enum { ROWS = 6, HEADS = 5, GROUP = 5, DIM = 256 };
    static const size_t origin[ROWS] = {0};
    static const uint64_t sequences[ROWS] = {1, 2, 3, 4, 5, 6};
    static const int64_t ones[ROWS] = {1, 1, 1, 1, 1, 1};
    static const int64_t lengths[2][ROWS] = {{3000, 2000, 2500, 64, 65, 2048},
                                             {4096, 5120, 4097, 5100, 4500, 64}};
    static float out[ROWS * HEADS * GROUP * DIM];
    kvern_layer layers[2] = {kvern_layer_default(HEADS, DIM), kvern_layer_default(HEADS, DIM)};
    layers[1].kind = KVERN_LAYER_WINDOW;
    layers[1].window = 3;
    layers[1].keep = 1;
    for (int l = 0; l < 2; l++) {
        ledger books;
        ledger_init(&books);
        kvern_context *context = new_context(&books, 3);
        kvern_composition *composition = new_composition(context, &layers[l], 1);
        kvern_cache *first, *cache;
        int64_t more[ROWS];
        assert_ok(kvern_cache_create(composition, 0, 1, &first));
        feed_one(first, KVERN_PHASE_WINDOW, 1, 64, HEADS, NULL);
        assert_ok(kvern_cache_fork(first, origin, ROWS, &cache));
        kvern_cache_destroy(first);
        for (size_t r = 0; r < ROWS; r++)
            more[r] = lengths[l][r] - 64;
        feed_run(cache, KVERN_PHASE_WINDOW, sequences, more, HEADS, NULL);
        for (size_t r = 0; r < ROWS; r++)
            assert_ok(kvern_cache_reserve(cache, r, 5130, HEADS * GROUP));
        const uint64_t before = memory_of(context).allocations;
        for (int step = 0; step < 3; step++)
            feed_run(cache, KVERN_PHASE_DECODE, sequences, ones, HEADS * GROUP, out);
        assert_int_equal(memory_of(context).allocations, before);
        kvern_cache_destroy(cache);
        kvern_composition_release(composition);
        kvern_context_release(context);
        ledger_finish(&books);
    }
}

// A fork shares the last, partly filled page; its reservation takes the copy already.
static void reserved_room_of_a_fork_covers_the_shared_page(void **state)
{
    (void)state;
    static const size_t row = 0;
    bed *b = bed_on(kvern_layer_default(2, 64), 1, executor_shuffled(1));
    kvern_cache *fork;
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 100, 4, NULL);
    assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
    assert_ok(kvern_cache_reserve(fork, 0, 128, 4)); // no page more than it has
    const uint64_t before = memory_of(b->context).allocations,
                   pages = memory_of(b->context).page_bytes;
    float out[4 * 64];
    for (int i = 0; i < 28; i++)
        feed_one(fork, KVERN_PHASE_DECODE, 2, 1, 4, out);
    assert_int_equal(memory_of(b->context).allocations, before);
    assert_int_equal(memory_of(b->context).page_bytes, pages);
    kvern_cache_destroy(fork);
    bed_destroy(b);
}

// A row that leaves its pages to a fork takes its reserved room along: taken anew once, then
// enough.
static void reserved_room_outlives_a_fork(void **state)
{
    (void)state;
    static const size_t row = 0;
    bed *b = bed_on(kvern_layer_default(2, 64), 1, executor_shuffled(1));
    kvern_cache *fork;
    float out[4 * 64];
    assert_ok(kvern_cache_reserve(b->cache, 0, 500, 4));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 100, 4, NULL);
    assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
    feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 4, out);
    kvern_cache_destroy(fork);
    const uint64_t before = memory_of(b->context).allocations, bytes = kvern_cache_bytes(b->cache);
    assert_int_equal(bytes, kvern_composition_row_bytes(b->composition, 500));
    for (int i = 101; i < 500; i++)
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 4, out);
    assert_int_equal(memory_of(b->context).allocations, before);
    bed_destroy(b);
}

static void reservations_never_shrink(void **state)
{
    (void)state;
    bed *b = bed_on(kvern_layer_default(2, 64), 1, executor_shuffled(1));
    assert_ok(kvern_cache_reserve(b->cache, 0, 500, 4));
    const uint64_t bytes = kvern_cache_bytes(b->cache);
    assert_int_equal(bytes, kvern_composition_row_bytes(b->composition, 500));
    assert_ok(kvern_cache_reserve(b->cache, 0, 10, 4));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 100, 4, NULL);
    assert_ok(kvern_cache_trim(b->cache, 0, 90));
    assert_int_equal(kvern_cache_bytes(b->cache), bytes);
    assert_ok(kvern_cache_reset(b->cache, 0)); // this is what gives it back
    assert_int_equal(kvern_cache_bytes(b->cache), 0);
    bed_destroy(b);
}

// huggingface/transformers#30312: a rollback built new, shorter buffers.
static void fault_K4_rollback_reallocates(void **state)
{
    (void)state;
    bed *b = bed_on(kvern_layer_default(2, 64), 1, executor_shuffled(1));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 62, 4, NULL); // rounds cross the border of a page
    assert_ok(kvern_cache_reserve(b->cache, 0, 70, 4));
    const kvern_memory before = memory_of(b->context);
    const uint64_t bytes = kvern_cache_bytes(b->cache);
    for (uint64_t round = 0; round < 100; round++) {
        feed_one(b->cache, KVERN_PHASE_WINDOW, round, 5, 4, NULL);
        assert_ok(kvern_cache_trim(b->cache, 0, 5));
        assert_int_equal(kvern_cache_bytes(b->cache), bytes);
    }
    const kvern_memory after = memory_of(b->context);
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.held_bytes, before.held_bytes);
    bed_destroy(b);
}

// Without a reservation the pages of a trimmed tail go back, and come again.
static void trimmed_pages_are_given_back(void **state)
{
    (void)state;
    bed *b = bed_on(kvern_layer_default(2, 64), 1, executor_shuffled(1));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 100, 4, NULL);
    const uint64_t held = b->books.held_bytes;
    for (int64_t more = 1; more < 9000; more = more * 5 + 1) {
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, more, 4, NULL);
        assert_ok(kvern_cache_trim(b->cache, 0, more));
        assert_int_equal(kvern_cache_bytes(b->cache), 2 * 64 * 2 * 64 * 2 * 2);
        assert_int_equal(memory_of(b->context).page_bytes, kvern_cache_bytes(b->cache));
        assert_true(b->books.held_bytes <= held + HUGE_ARENA);
    }
    bed_destroy(b);
}

// ollama/ollama#17875: memory grew per request in spite of a shared prefix.
static void fault_S4_retained_branches(void **state)
{
    (void)state;
    static const size_t row = 0;
    bed *b = bed_on(kvern_layer_default(1, 16), 1, executor_shuffled(1));
    kvern_cache *fork;
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 5000, 1, NULL);
    uint64_t live = 0, pages = memory_of(b->context).page_bytes;
    for (uint64_t cycle = 0; cycle < 1000; cycle++) {
        float out[10 * 16];
        assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
        feed_one(fork, KVERN_PHASE_WINDOW, cycle, 10, 1, out);
        assert_true(memory_of(b->context).page_bytes <= pages + 2 * 64 * 16 * 2 * 2);
        kvern_cache_destroy(fork);
        if (cycle == 0) // the context keeps the buffers of a call
            live = b->books.held_bytes;
        assert_int_equal(b->books.held_bytes, live);
        assert_int_equal(memory_of(b->context).page_bytes, pages);
    }
    bed_destroy(b);
}

// Scratch of a prefill is bounded by tiles: it does not grow with queries times positions (as in
// ml-explore/mlx-lm#1611), nor, on one thread, with the positions at all.
static void fault_S6_untiled_scores(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_layer layer = kvern_layer_default(1, 8);
    kvern_context *context = new_context(&books, 1);
    kvern_composition *composition = new_composition(context, &layer, 1);
    uint64_t scratch[2];
    for (int i = 0; i < 2; i++) {
        kvern_cache *cache;
        assert_ok(kvern_cache_create(composition, 0, 1, &cache));
        feed_one(cache, KVERN_PHASE_WINDOW, 1, i ? 6000 : 10, 1, NULL);
        feed f = feed_create(cache, &(uint64_t){1}, &(int64_t){512}, 1);
        kvern_read *read;
        assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, &read));
        const uint64_t before = books.held_bytes;
        assert_ok(kvern_read_attend(read, &f.queries));
        scratch[i] = books.held_bytes - before;
        kvern_read_release(read);
        feed_destroy(&f);
        kvern_cache_destroy(cache);
    }
    assert_true(scratch[0] < 100000);
    assert_int_equal(scratch[1], 0); // what the first one left is enough
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// ---- Unwritten memory ----

// The ledger hands out NaN everywhere. Rows of every length near the borders of pages, tiles and
// spans; random operations that leave written and unwritten slots behind.
static void unwritten_memory_reaches_no_result(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    test_random random = test_random_seed(check_seed());
    kvern_layer layer = kvern_layer_default(2, 24);
    layer.k_codec = kvern_codec_dense(KVERN_F16);
    kvern_context *context = new_context(&books, 2);
    kvern_composition *composition = new_composition(context, &layer, 1);
    static float out[300 * 4 * 24];
    for (int round = 0; round < 60; round++) {
        kvern_cache *cache;
        assert_ok(kvern_cache_create(composition, 0, 1, &cache));
        for (uint64_t i = 0; i < 6; i++) {
            const int64_t count = (int64_t)test_random_below(&random, 300);
            feed_one(cache, KVERN_PHASE_WINDOW, i, count, 4, out);
            for (int64_t j = 0; j < count * 4 * 24; j++)
                assert_true(isfinite(out[j]));
            const uint64_t most = (uint64_t)kvern_cache_length(cache, 0);
            assert_ok(kvern_cache_trim(cache, 0, (int64_t)test_random_below(&random, most + 1)));
        }
        kvern_cache_destroy(cache);
    }
    kvern_composition_release(composition);
    kvern_context_release(context);
    ledger_finish(&books);
}

// ---- Releases in any order ----

static void everything_goes_in_any_order_of_releases(void **state)
{
    (void)state;
    static const size_t row = 0;
    for (int order = 0; order < 120; order++) {
        ledger books;
        ledger_init(&books);
        kvern_layer layer = kvern_layer_default(1, 16);
        kvern_context *context = new_context(&books, 1);
        kvern_composition *composition = new_composition(context, &layer, 1);
        kvern_cache *cache, *fork;
        kvern_read *read;
        assert_ok(kvern_cache_create(composition, 0, 1, &cache));
        feed f = feed_create(cache, &(uint64_t){1}, &(int64_t){100}, 2);
        assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, &read));
        assert_ok(kvern_cache_fork(cache, &row, 1, &fork));
        int left[5] = {0, 1, 2, 3, 4};
        for (int n = 5, rest = order; n > 0; rest /= n, n--) {
            const int at = rest % n, what = left[at];
            left[at] = left[n - 1];
            if (what == 0)
                kvern_context_release(context);
            else if (what == 1)
                kvern_composition_release(composition);
            else if (what == 2)
                kvern_cache_destroy(cache);
            else if (what == 3)
                kvern_cache_destroy(fork);
            else {
                assert_ok(kvern_read_attend(read, &f.queries));
                kvern_read_release(read);
            }
        }
        feed_destroy(&f);
        ledger_finish(&books);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_bytes_stay_within_two_percent_and_an_arena),
        cmocka_unit_test(decoding_in_reserved_room_allocates_nothing),
        cmocka_unit_test(no_buffer_is_smaller_than_asked_for),
        cmocka_unit_test(reserved_room_covers_reads_of_many_layers),
        cmocka_unit_test(reserved_room_covers_attends_of_few_rows),
        cmocka_unit_test(reserved_room_covers_attends_of_shared_rows),
        cmocka_unit_test(reserved_room_of_a_fork_covers_the_shared_page),
        cmocka_unit_test(reserved_room_outlives_a_fork),
        cmocka_unit_test(reservations_never_shrink),
        cmocka_unit_test(fault_K4_rollback_reallocates),
        cmocka_unit_test(trimmed_pages_are_given_back),
        cmocka_unit_test(fault_S4_retained_branches),
        cmocka_unit_test(fault_S6_untiled_scores),
        cmocka_unit_test(unwritten_memory_reaches_no_result),
        cmocka_unit_test(everything_goes_in_any_order_of_releases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
