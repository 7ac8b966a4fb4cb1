// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: rows that begin in bf16 and are
// quantized later, and what crosses that. test_fault_rows.c says more about them.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIM 64
#define HEADS 4 // of queries, over two KV heads
#define FLOATS ((size_t)HEADS * DIM)

static kvern_layer affine(uint32_t bits, int64_t start)
{
    kvern_layer layer = kvern_layer_default(2, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(bits, 64);
    layer.start = start;
    return layer;
}

// waybarrios/vllm-mlx#69: a trim passed over quantized storage, which went on holding all.
static void fault_D1_trim_of_quantized_storage(void **state)
{
    (void)state;
    static const int64_t starts[] = {KVERN_NO_START, 0, 200};
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    float out[27 * FLOATS], wanted[27 * FLOATS];
    for (size_t i = 0; i < 18; i++) {
        const kvern_layer layer = affine(bits[i % 6], starts[i / 6]);
        bed *b = bed_create(layer, 1), *fresh = bed_create(affine(bits[i % 6], KVERN_NO_START), 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 253, HEADS, NULL);
        assert_ok(kvern_cache_trim(b->cache, 0, 253 - 17));
        assert_int_equal(kvern_cache_length(b->cache, 0), 17);
        assert_int_equal(kvern_cache_bytes(b->cache),
                         64 * kvern_composition_bytes_per_token(b->composition));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 27, HEADS, out);
        assert_int_equal(kvern_cache_length(b->cache, 0), 44);
        feed_one(fresh->cache, KVERN_PHASE_WINDOW, 1, 17, HEADS, NULL);
        feed_one(fresh->cache, KVERN_PHASE_WINDOW, 1, 27, HEADS, wanted);
        check_same_bytes(wanted, out, sizeof out, "after a trim");
        bed_destroy(b);
        bed_destroy(fresh);
    }
}

// ml-explore/mlx-swift-lm#312: the conversion replaced an object that its owner still used.
static void fault_D2_conversion_breaks_ownership(void **state)
{
    (void)state;
    const kvern_layer layers[2] = {affine(4, 8), kvern_layer_default(2, DIM)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, 2, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    const kvern_cache *handle = kvern_state_cache(s, 0);
    for (int64_t step = 0; step < 7; step++) {
        const int64_t count = step ? 1 : 6;
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &count));
        for (size_t l = 0; l < 2; l++) {
            feed f = feed_create(kvern_state_cache(s, l), &(uint64_t){1}, &count, 2);
            assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(s));
        assert_int_equal(kvern_cache_length(handle, 0), 6 + step);
        assert_int_equal(kvern_cache_converted(handle, 0), 6 + step >= 8);
    }
    assert_ptr_equal(handle, kvern_state_cache(s, 0));
    float k[12 * 2 * DIM], v[12 * 2 * DIM], wanted[2][12 * 2 * DIM];
    assert_ok(kvern_cache_export(handle, 0, 0, 12, k, v));
    bed *plain = bed_create(affine(4, KVERN_NO_START), 1); // bf16 first loses nothing: its scales
    feed_one(plain->cache, KVERN_PHASE_WINDOW, 1, 12, 2, NULL); // are bf16, and so are its values
    assert_ok(kvern_cache_export(plain->cache, 0, 0, 12, wanted[0], wanted[1]));
    check_same_bytes(wanted[0], k, sizeof k, "all twelve keys");
    check_same_bytes(wanted[1], v, sizeof v, "all twelve values");
    bed_destroy(plain);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// The results of the next `count` tokens must be those of another layer's cache.
static void expect_next(kvern_cache *a, kvern_cache *b, kvern_phase phase, int64_t count,
                        const char *what)
{
    float *got = new_floats((size_t)count * FLOATS, NAN);
    float *wanted = new_floats((size_t)count * FLOATS, NAN);
    feed_one(a, phase, 1, count, HEADS, got);
    feed_one(b, phase, 1, count, HEADS, wanted);
    check_same_bytes(wanted, got, (size_t)count * FLOATS * sizeof *got, what);
    free(got);
    free(wanted);
}

// huggingface/transformers#35760: the first tokens were quantized at once.
static void fault_D4_transition_too_early(void **state)
{
    (void)state;
    for (uint32_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
        bed *b = bed_create(affine(bits, 64), 1), *precise = bed_create(affine(bits, 65), 1);
        bed *quantized = bed_create(affine(bits, KVERN_NO_START), 1);
        const uint64_t converted = 64 * kvern_composition_bytes_per_token(b->composition);
        expect_next(b->cache, precise->cache, KVERN_PHASE_WINDOW, 5, "in bf16");
        for (int64_t length = 5; length < 63; length++) {
            assert_false(kvern_cache_converted(b->cache, 0));
            assert_int_equal(kvern_cache_max_append(b->cache, 0), 64 - length);
            expect_next(b->cache, precise->cache, KVERN_PHASE_DECODE, 1, "in bf16");
        }
        assert_int_equal(kvern_cache_bytes(b->cache), 64 * 2 * 2 * DIM * 2);
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 0);
        // The append that reaches the start is read in bf16, and then everything is quantized.
        expect_next(b->cache, precise->cache, KVERN_PHASE_DECODE, 1, "the converting append");
        assert_true(kvern_cache_converted(b->cache, 0));
        assert_false(kvern_cache_converted(precise->cache, 0));
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 64);
        assert_int_equal(kvern_cache_bytes(b->cache), converted);
        feed_one(quantized->cache, KVERN_PHASE_WINDOW, 1, 64, HEADS, NULL);
        expect_next(b->cache, quantized->cache, KVERN_PHASE_DECODE, 1, "quantized");
        expect_next(b->cache, quantized->cache, KVERN_PHASE_KNOWN, 70, "quantized");
        bed_destroy(b);
        bed_destroy(precise);
        bed_destroy(quantized);
    }
}

// rajveer43/VeloxQuant-MLX#369: a trim lowered the offset below a frontier that stayed, and later
// positions were read from what was there before.
static void fault_D5_trim_below_the_start(void **state)
{
    (void)state;
    static const int64_t trims[] = {1, 2, 6, 9, 10};
    for (size_t i = 0; i < 5; i++) {
        bed *b = bed_create(affine(4, 8), 1), *fresh = bed_create(affine(4, KVERN_NO_START), 1);
        float got[4 * FLOATS], wanted[4 * FLOATS];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, HEADS, NULL);
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 10);
        assert_int_equal(kvern_cache_trimmable(b->cache, 0), 10);
        assert_ok(kvern_cache_trim(b->cache, 0, trims[i]));
        assert_true(kvern_cache_converted(b->cache, 0));
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 10);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 2, 4, HEADS, got);
        feed_one(fresh->cache, KVERN_PHASE_WINDOW, 1, 10 - trims[i], HEADS, NULL);
        feed_one(fresh->cache, KVERN_PHASE_WINDOW, 2, 4, HEADS, wanted);
        check_same_bytes(wanted, got, sizeof got, "the new values");
        assert_ok(kvern_cache_reset(b->cache, 0)); // and back to empty bf16
        assert_false(kvern_cache_converted(b->cache, 0));
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 0);
        assert_int_equal(kvern_cache_max_append(b->cache, 0), 8);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 7, HEADS, NULL);
        assert_false(kvern_cache_converted(b->cache, 0));
        bed_destroy(b);
        bed_destroy(fresh);
    }
}

#define PREFILL 1088

// All results of a prefill in chunks that end at `ends`. `boundaries`: the end of each chunk's
// planned chunk, or NULL.
static float *prefill(kvern_layer layer, const int64_t *ends, const int64_t *boundaries,
                      int64_t *converted_at)
{
    bed *b = bed_create(layer, 1);
    float *out = new_floats(PREFILL * FLOATS, NAN);
    *converted_at = -1;
    for (int64_t at = 0; at < PREFILL; ends++) {
        if (boundaries)
            assert_ok(kvern_cache_plan_boundary(b->cache, 0, *boundaries++));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, *ends - at, HEADS, out + (size_t)at * FLOATS);
        at = *ends;
        if (*converted_at < 0 && kvern_cache_converted(b->cache, 0))
            *converted_at = at;
    }
    bed_destroy(b);
    return out;
}

static void expect_prefill(kvern_layer layer, const int64_t *ends, const int64_t *boundaries,
                           int64_t converts_at, const float *wanted)
{
    int64_t converted_at;
    float *got = prefill(layer, ends, boundaries, &converted_at);
    assert_int_equal(converted_at, converts_at);
    if (wanted)
        check_same_bytes(wanted, got, PREFILL * FLOATS * sizeof *got, "the same boundaries");
    free(got);
}

// jundot/omlx#1547: a conversion in the middle of a chunked prefill changed later chunks. Here it
// follows from the row's length at the ends of appends alone; and a chunk that is split for the
// sake of neighbours keeps its own end as boundary, and so its bits.
static void fault_D7_conversion_at_chunk_boundaries(void **state)
{
    (void)state;
    static const int64_t small[] = {256, 512, 768, 1024, PREFILL}, large[] = {544, PREFILL},
                         one[] = {PREFILL}, split[] = {100, 531, 544, 600, PREFILL},
                         ends[] = {544, 544, 544, PREFILL, PREFILL};
    static const int64_t starts[] = {512, 513, 0};
    static const int64_t converts[3][3] = {
        {512, 544, PREFILL}, {768, 544, PREFILL}, {256, 544, PREFILL}};
    for (size_t i = 0; i < 3; i++) {
        const kvern_layer layer = affine(i % 2 ? 8 : 4, starts[i]);
        int64_t at;
        float *wanted = prefill(layer, large, NULL, &at);
        assert_int_equal(at, converts[i][1]);
        expect_prefill(layer, large, NULL, converts[i][1], wanted);
        expect_prefill(layer, small, NULL, converts[i][0], NULL);
        expect_prefill(layer, one, NULL, converts[i][2], NULL);
        expect_prefill(layer, split, ends, converts[i][1], wanted);
        expect_prefill(layer, split, NULL, i == 2 ? 100 : 531, NULL); // a moved boundary
        free(wanted);
    }
}

// A planned boundary holds a row back, one position before it too, and only that row.
static void fault_D7_boundary_is_per_row(void **state)
{
    (void)state;
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t ten[3] = {10, 10, 10}, one[3] = {1, 1, 1};
    bed *b = bed_create(affine(4, 8), 3);
    assert_ok(kvern_cache_plan_boundary(b->cache, 1, 12));
    assert_ok(kvern_cache_plan_boundary(b->cache, 2, 5)); // before the start: no matter
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, ten, HEADS, NULL);
    for (int64_t length = 10; length <= 13; length++) {
        assert_true(kvern_cache_converted(b->cache, 0));
        assert_int_equal(kvern_cache_converted(b->cache, 1), length >= 12);
        assert_true(kvern_cache_converted(b->cache, 2));
        feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, HEADS, NULL);
    }
    assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 10);
    assert_int_equal(kvern_cache_min_reusable(b->cache, 1), 12);
    bed_destroy(b);
}

// ml-explore/mlx-swift-examples#334: whether to convert was decided by the first layer.
static void fault_D8_transition_by_layer(void **state)
{
    (void)state;
    enum { LAYERS = 6, ROWS = 2 };
    kvern_layer layers[LAYERS] = {kvern_layer_window(2, DIM, 6),
                                  affine(4, KVERN_NO_START),
                                  affine(4, 8),
                                  affine(8, 20),
                                  affine(4, 0),
                                  affine(4, 8)};
    layers[5].kind = KVERN_LAYER_WINDOW;
    layers[5].window = 6;
    static const uint64_t sequences[ROWS] = {1, 2};
    static const int64_t starts[LAYERS] = {-1, -1, 8, 20, 0, 8};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, LAYERS, &composition));
    assert_ok(kvern_state_create(composition, ROWS, &s));
    for (int64_t step = 0; step < 20; step++) {
        const int64_t counts[ROWS] = {step ? 1 : 3, step ? step % 2 : 10};
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
        for (size_t l = LAYERS; l-- > 0;) {
            feed f = feed_create(kvern_state_cache(s, l), sequences, counts, HEADS);
            assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(s));
        for (size_t r = 0; r < ROWS; r++) {
            const int64_t length = kvern_state_length(s, r);
            for (size_t l = 0; l < LAYERS; l++)
                assert_int_equal(kvern_cache_converted(kvern_state_cache(s, l), r),
                                 length >= starts[l]);
        }
    }
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// A read that is open over a conversion goes on answering in bf16.
static void a_read_outlives_the_conversion(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        kvern_layer layer = affine(4, 100), precise = kvern_layer_default(2, DIM);
        if (kind) {
            layer.kind = precise.kind = KVERN_LAYER_WINDOW;
            layer.window = precise.window = 70;
        }
        bed *b = bed_create(layer, 1);
        kvern_read *read, *donor;
        float out[3][30 * FLOATS];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 80, HEADS, NULL);
        feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){30}, HEADS);
        assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &f, &read));
        assert_true(kvern_cache_converted(b->cache, 0));
        const int64_t count = kind ? 1 : 30; // what a window still holds
        assert_ok(kvern_cache_read_donor(b->cache, &count, &donor));
        for (int i = 0; i < 2; i++) {
            f.queries.out = out[i];
            assert_ok(kvern_read_attend(read, &f.queries));
            expect_serial(precise, 1, 80, 30, HEADS, out[i], "in bf16");
            if (i == 0)
                feed_one(b->cache, KVERN_PHASE_WINDOW, 3, 200, HEADS, NULL);
        }
        f.queries.out = out[2];
        f.queries.q = f.q + (30 - count) * HEADS * DIM;
        assert_ok(kvern_read_attend(donor, &f.queries)); // but a donor read is of what is stored
        assert_memory_not_equal(out[0] + (size_t)(30 - count) * FLOATS, out[2],
                                (size_t)count * FLOATS * sizeof(float));
        kvern_read_release(read);
        kvern_read_release(donor);
        feed_destroy(&f);
        bed_destroy(b);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_D1_trim_of_quantized_storage),
        cmocka_unit_test(fault_D2_conversion_breaks_ownership),
        cmocka_unit_test(fault_D4_transition_too_early),
        cmocka_unit_test(fault_D5_trim_below_the_start),
        cmocka_unit_test(fault_D7_conversion_at_chunk_boundaries),
        cmocka_unit_test(fault_D7_boundary_is_per_row),
        cmocka_unit_test(fault_D8_transition_by_layer),
        cmocka_unit_test(a_read_outlives_the_conversion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
