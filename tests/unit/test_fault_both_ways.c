// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: tokens that see each other both ways
// in rows that begin in bf16 and are quantized later, in layers of all kinds, and in those that
// share others. test_fault_transitions.c has the same without such tokens.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/soundness.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
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

static kvern_layer windowed(kvern_layer layer, int64_t window)
{
    layer.kind = KVERN_LAYER_WINDOW;
    layer.window = window;
    return layer;
}

static kvern_layer residual(kvern_layer layer, int64_t positions)
{
    layer.residual = positions;
    return layer;
}

// ---- A prefill with images ----

#define PREFILL 1088

// The images of the prompt.
static const kvern_range images[] = {{20, 90}, {200, 300}, {500, 540}, {600, 601}, {700, 1000}};

// The chunk from `at` to `end` with its images. `out`: its results.
static void append_chunk(kvern_cache *cache, int64_t at, int64_t end, float *out)
{
    static const uint64_t id = 1;
    const int64_t count = end - at;
    kvern_range ranges[COUNT(images)];
    size_t range_count = 0;
    feed f = feed_create(cache, &id, &count, HEADS);
    kvern_read *read;
    for (size_t i = 0; i < COUNT(images); i++) {
        if (images[i].begin >= at && images[i].end <= end)
            ranges[range_count++] = (kvern_range){images[i].begin - at, images[i].end - at};
        else
            assert_true(images[i].end <= at || images[i].begin >= end); // none is cut
    }
    f.tokens.ranges = ranges;
    f.tokens.range_counts = &range_count;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_RANGES, &f.tokens, &read));
    f.queries.out = out;
    assert_ok(kvern_read_attend(read, &f.queries));
    kvern_read_release(read);
    feed_destroy(&f);
    expect_sound_cache(cache);
}

// All results of the prompt in chunks that end at `ends`. `boundaries`: the end of each chunk's
// planned chunk, or NULL. *converted_at: the length at which the row was converted; -1: never.
static float *prefill(kvern_layer layer, const int64_t *ends, const int64_t *boundaries,
                      int64_t *converted_at)
{
    bed *b = bed_create(layer, 1);
    float *out = new_floats(PREFILL * FLOATS, NAN);
    *converted_at = -1;
    for (int64_t at = 0; at < PREFILL; at = *ends++) {
        if (boundaries)
            assert_ok(kvern_cache_plan_boundary(b->cache, 0, *boundaries++));
        append_chunk(b->cache, at, *ends, out + (size_t)at * FLOATS);
        if (*converted_at < 0 && kvern_cache_converted(b->cache, 0))
            *converted_at = *ends;
    }
    bed_destroy(b);
    return out;
}

// `wanted` NULL: whatever the results are.
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

// Up to the append that converts everything is read in bf16, its images too, and nothing behind.
static void expect_precise_until(kvern_layer layer, const int64_t *ends, int64_t converts_at,
                                 const float *got)
{
    kvern_layer precise = layer;
    int64_t never;
    precise.k_codec = precise.v_codec = kvern_codec_dense(KVERN_BF16);
    precise.start = KVERN_NO_START;
    precise.residual = 0;
    float *wanted = prefill(precise, ends, NULL, &never);
    check_same_bytes(wanted, got, (size_t)converts_at * FLOATS * sizeof *got, "in bf16");
    for (size_t t = (size_t)converts_at; t < PREFILL; t++)
        assert_memory_not_equal(wanted + t * FLOATS, got + t * FLOATS, FLOATS * sizeof *got);
    free(wanted);
}

// jundot/omlx#1547: a conversion in the middle of a chunked prefill changed later chunks. With
// images in the prompt, too, it follows from the row's length at the ends of appends alone, also
// where it falls on an append that ends within a window of an image; and a chunk that is split
// behind an image keeps its own end as boundary, and so its bits.
static void fault_D7_conversion_in_a_prefill_with_images(void **state)
{
    (void)state;
    static const int64_t small[] = {150, 310, 460, 546, 700, PREFILL}, large[] = {560, PREFILL},
                         one[] = {PREFILL}, split[] = {100, 540, 560, 650, PREFILL},
                         ends[] = {560, 560, 560, PREFILL, PREFILL};
    static const int64_t starts[] = {512, 541, 0};
    static const int64_t converts[3][4] = {
        {546, 560, PREFILL, 540}, {546, 560, PREFILL, 560}, {150, 560, PREFILL, 100}};
    for (size_t i = 0; i < 9; i++) {
        kvern_layer layer = affine(i % 2 ? 8 : 4, starts[i % 3]);
        if (i / 3 == 1)
            layer = windowed(layer, 130);
        if (i / 3 == 2)
            layer = residual(layer, 30);
        int64_t at;
        float *wanted = prefill(layer, large, NULL, &at);
        assert_int_equal(at, converts[i % 3][1]);
        if (i / 3 < 2)
            expect_precise_until(layer, large, at, wanted);
        expect_prefill(layer, large, NULL, converts[i % 3][1], wanted);
        expect_prefill(layer, small, NULL, converts[i % 3][0], NULL);
        expect_prefill(layer, one, NULL, converts[i % 3][2], NULL);
        expect_prefill(layer, split, ends, converts[i % 3][1], wanted);
        expect_prefill(layer, split, NULL, converts[i % 3][3], NULL); // a moved boundary
        free(wanted);
    }
}

// ---- States ----

#define ROWS 2
#define STEPS 7

static const uint64_t sequences[ROWS] = {1, 2};
static const int64_t counts[STEPS][ROWS] = {{3, 10}, {5, 2},  {1, 0},  {7, 9},
                                            {20, 1}, {30, 8}, {90, 70}};

// A feed with one range for each row: all of its tokens but the first.
typedef struct image_feed {
    feed f;
    kvern_range ranges[ROWS];
    size_t range_counts[ROWS];
} image_feed;

static void feed_images(const kvern_cache *cache, const int64_t *tokens, image_feed *made)
{
    size_t at = 0;
    made->f = feed_create(cache, sequences, tokens, HEADS);
    for (size_t r = 0; r < ROWS; r++) {
        made->range_counts[r] = tokens[r] > 2;
        if (made->range_counts[r])
            made->ranges[at++] = (kvern_range){1, tokens[r]};
    }
    made->f.tokens.ranges = made->ranges;
    made->f.tokens.range_counts = made->range_counts;
}

// What a read gives for the queries of a feed, in `out`, against what is `wanted`; NULL: whatever
// that is.
static void expect_results(const kvern_read *read, feed *f, const float *wanted, const char *what)
{
    for (size_t i = 0; i < f->out_count; i++)
        f->out[i] = NAN;
    assert_ok(kvern_read_attend(read, &f->queries));
    if (wanted)
        check_same_bytes(wanted, f->out, f->out_count * sizeof *f->out, what);
}

typedef struct world {
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
} world;

static world world_create(const kvern_layer *layers, size_t count)
{
    world w;
    assert_ok(kvern_context_create(NULL, &w.context));
    assert_ok(kvern_composition_create(w.context, layers, count, &w.composition));
    assert_ok(kvern_state_create(w.composition, ROWS, &w.state));
    return w;
}

static void world_destroy(world *w)
{
    expect_sound_state(w->state);
    kvern_state_destroy(w->state);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
}

// ml-explore/mlx-swift-examples#334: whether to convert was decided by the first layer. In steps
// with images each layer converts by its own length and kind, and reads what it would alone.
static void fault_D8_transition_by_layer_with_images(void **state)
{
    (void)state;
    const kvern_layer layers[] = {kvern_layer_window(2, DIM, 6),
                                  affine(4, KVERN_NO_START),
                                  affine(4, 8),
                                  affine(8, 20),
                                  affine(4, 0),
                                  windowed(affine(4, 8), 6),
                                  residual(affine(4, 20), 10),
                                  kvern_layer_chunked(2, DIM, 16)};
    static const int64_t starts[COUNT(layers)] = {-1, -1, 8, 20, 0, 8, 20, -1};
    world w = world_create(layers, COUNT(layers));
    bed *alone[COUNT(layers)];
    for (size_t l = 0; l < COUNT(layers); l++)
        alone[l] = bed_create(layers[l], ROWS);
    for (size_t step = 0; step < STEPS; step++) {
        assert_ok(kvern_step_begin(w.state, KVERN_PHASE_RANGES, counts[step]));
        for (size_t l = COUNT(layers); l-- > 0;) {
            image_feed in, by_itself;
            kvern_read *read;
            feed_images(alone[l]->cache, counts[step], &by_itself);
            assert_ok(kvern_cache_append(alone[l]->cache, KVERN_PHASE_RANGES, &by_itself.f.tokens,
                                         &read));
            expect_results(read, &by_itself.f, NULL, NULL);
            kvern_read_release(read);
            feed_images(kvern_state_cache(w.state, l), counts[step], &in);
            assert_ok(kvern_step_append(w.state, l, &in.f.tokens, &read));
            expect_results(read, &in.f, by_itself.f.out, "a layer of a state");
            kvern_read_release(read);
            feed_destroy(&by_itself.f);
            feed_destroy(&in.f);
        }
        assert_ok(kvern_step_end(w.state));
        for (size_t i = 0; i < ROWS * COUNT(layers); i++) {
            const size_t r = i % ROWS, l = i / ROWS;
            assert_int_equal(kvern_cache_converted(kvern_state_cache(w.state, l), r),
                             kvern_state_length(w.state, r) >= starts[l]);
        }
    }
    for (size_t l = 0; l < COUNT(layers); l++)
        bed_destroy(alone[l]);
    world_destroy(&w);
}

// ---- Shared layers ----

#define DONORS 5

static void plan_shared(kvern_layer layers[2 * DONORS])
{
    layers[0] = kvern_layer_default(2, DIM);
    layers[1] = kvern_layer_window(2, DIM, 12);
    layers[2] = affine(4, 20); // converted in the fourth and the fifth step
    layers[3] = residual(affine(4, KVERN_NO_START), 20);
    layers[4] = kvern_layer_chunked(2, DIM, 16);
    for (size_t l = 0; l < DONORS; l++)
        layers[DONORS + l] = kvern_layer_shared(layers, l);
}

// A shared layer reads what its donor's append of this step does, its ranges and its form included.
static void shared_layers_read_the_ranges_of_their_donors(void **state)
{
    (void)state;
    kvern_layer layers[2 * DONORS];
    plan_shared(layers);
    world w = world_create(layers, 2 * DONORS);
    for (size_t step = 0; step < STEPS; step++) {
        assert_ok(kvern_step_begin(w.state, KVERN_PHASE_RANGES, counts[step]));
        for (size_t l = 0; l < DONORS; l++) {
            image_feed in;
            kvern_read *read, *shared;
            feed_images(kvern_state_cache(w.state, l), counts[step], &in);
            assert_ok(kvern_step_append(w.state, l, &in.f.tokens, &read));
            expect_results(read, &in.f, NULL, NULL);
            float *wanted = malloc((in.f.out_count + 1) * sizeof *wanted);
            assert_non_null(wanted);
            memcpy(wanted, in.f.out, in.f.out_count * sizeof *wanted);
            assert_ok(kvern_step_read_donor(w.state, DONORS + l, &shared));
            expect_results(shared, &in.f, wanted, "a shared layer");
            kvern_read_release(read);
            kvern_read_release(shared);
            free(wanted);
            feed_destroy(&in.f);
        }
        assert_ok(kvern_step_end(w.state));
        expect_sound_state(w.state);
    }
    for (size_t l = 0; l < DONORS; l++) // they answer as their donors do
        assert_int_equal(kvern_cache_trim_length(kvern_state_cache(w.state, DONORS + l), 0, 100),
                         kvern_cache_trim_length(kvern_state_cache(w.state, l), 0, 100));
    assert_int_equal(kvern_cache_trim_length(kvern_state_cache(w.state, DONORS), 0, 100), 67);
    world_destroy(&w);
}

static void shared_layers_leave_blocks_to_their_donors(void **state)
{
    (void)state;
    static const int64_t five[ROWS] = {5, 5};
    kvern_layer layers[2 * DONORS];
    plan_shared(layers);
    world w = world_create(layers, 2 * DONORS);
    for (size_t l = 0; l < DONORS; l++) {
        kvern_read *read;
        const bool can = layers[l].kind != KVERN_LAYER_CHUNKED;
        feed f = feed_create(kvern_state_cache(w.state, l), sequences, five, HEADS);
        assert_true(kvern_composition_can(w.composition, l, KVERN_CAN_BIDIRECTIONAL));
        assert_true(kvern_composition_can(w.composition, DONORS + l, KVERN_CAN_BIDIRECTIONAL));
        assert_int_equal(kvern_composition_can(w.composition, l, KVERN_CAN_BLOCK), can);
        assert_false(kvern_composition_can(w.composition, DONORS + l, KVERN_CAN_BLOCK));
        assert_status(
            KVERN_ERR_UNSUPPORTED,
            kvern_cache_read_block(kvern_state_cache(w.state, DONORS + l), &f.tokens, &read));
        assert_null(read);
        assert_non_null(strstr(kvern_error_detail(), "shared:"));
        feed_destroy(&f);
    }
    world_destroy(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_D7_conversion_in_a_prefill_with_images),
        cmocka_unit_test(fault_D8_transition_by_layer_with_images),
        cmocka_unit_test(shared_layers_read_the_ranges_of_their_donors),
        cmocka_unit_test(shared_layers_leave_blocks_to_their_donors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
