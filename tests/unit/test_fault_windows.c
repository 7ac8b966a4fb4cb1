// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: sliding windows, the positions that
// are kept before them, and what can be trimmed. test_fault_rows.c says more about them.
//
// A `window` here counts the kept positions too; rows are always in the order of time, so there is
// no ring whose order could be lost. What remains of each class is which positions a query sees,
// what a row holds, and what it can give up.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"
#include "tests/support/visibility_check.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define DECODE KVERN_PHASE_DECODE
#define WINDOW KVERN_PHASE_WINDOW
#define KNOWN KVERN_PHASE_KNOWN

static const int64_t windows[] = {1, 8, 60, 64, 100, 129, 512};

// Storages whose visible sets are looked at: f32, whose sums are exact, and codes.
static const size_t looked_at[] = {1, 6};

// Long rows are looked at on f32 only: which positions are seen does not depend on the storage.
#define SHORT_WINDOW 129

static kvern_layer small_window(size_t which, int64_t window, int64_t keep, int64_t slack)
{
    const storage *s = &storages[which];
    const size_t dim = s->k_codec.kind == KVERN_CODEC_AFFINE ? 64 : 8;
    return storage_window(s, 1, dim, window, keep, slack);
}

// Checks the steps on all those storages.
static void check_steps(int64_t window, int64_t keep, int64_t slack, const visibility_step *steps,
                        size_t count)
{
    for (size_t i = 0; i < (window <= SHORT_WINDOW ? COUNT(looked_at) : 1); i++) {
        const kvern_layer layer = small_window(looked_at[i], window, keep, slack);
        visibility_check(&layer, steps, count);
    }
}

// Every phase reaches past the window, at every window, with and without kept positions.
static void every_window_is_exact_in_every_phase(void **state)
{
    (void)state;
    for (size_t w = 0; w < COUNT(windows); w++) {
        const int64_t window = windows[w], keeps[] = {0, 1, 5, window - 1};
        const visibility_step steps[] = {{WINDOW, window + 30, 0}, {DECODE, 3, 0},  {KNOWN, 37, 0},
                                         {DECODE, 1, 0},           {WINDOW, 66, 2}, {DECODE, 2, 0}};
        for (size_t k = 0; k < COUNT(keeps); k++) {
            if (keeps[k] < window && (k < 3 || window <= SHORT_WINDOW))
                check_steps(window, keeps[k], 2, steps, COUNT(steps));
        }
    }
}

// The same of chunks: the first query of one sees itself alone.
static void every_chunk_is_exact_in_every_phase(void **state)
{
    (void)state;
    for (size_t w = 0; w < COUNT(windows); w++) {
        const int64_t chunk = windows[w];
        const visibility_step steps[] = {{WINDOW, chunk + 30, 0}, {DECODE, 3, 0},  {KNOWN, 37, 0},
                                         {DECODE, 1, 0},          {WINDOW, 66, 2}, {DECODE, 2, 0}};
        for (size_t i = 0; i < (chunk <= SHORT_WINDOW ? COUNT(looked_at) : 1); i++) {
            const storage *s = &storages[looked_at[i]];
            const size_t dim = s->k_codec.kind == KVERN_CODEC_AFFINE ? 64 : 8;
            const kvern_layer layer = storage_chunked(s, 1, dim, chunk, 2);
            visibility_check(&layer, steps, COUNT(steps));
        }
    }
}

// What can be trimmed reaches back to the second position of the oldest chunk that is held, and
// what goes on from there has not forgotten anything.
static void chunks_are_trimmed_as_far_as_they_are_held(void **state)
{
    (void)state;
    static const int64_t slacks[] = {0, 3, 64, 100};
    enum { TOKENS = 330 };
    for (size_t i = 0; i < 4 * COUNT(slacks); i++) {
        const int64_t slack = slacks[i % 4], chunk = i / 4 % 2 ? 64 : 25;
        const kvern_layer layer = storage_chunked(&storages[i % 9], 1, 64, chunk, slack);
        const int64_t held = (TOKENS - slack - 1) / chunk * chunk, most = TOKENS - held - 1;
        float out[9 * 64];
        bed *b = bed_create(layer, 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, TOKENS, 1, NULL);
        assert_int_equal(kvern_cache_trimmable(b->cache, 0), most);
        assert_true(most >= slack);
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), held + 1);
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, most + 1));
        assert_ok(kvern_cache_trim(b->cache, 0, i % 3 ? most : most / 2));
        const int64_t length = kvern_cache_length(b->cache, 0);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 9, 1, out);
        expect_serial(layer, 1, length, 9, 1, out, "after a trim into a chunk");
        assert_status(KVERN_ERR_RANGE, kvern_cache_read_donor(b->cache, &(int64_t){length + 9},
                                                              &(kvern_read *){NULL}));
        bed_destroy(b);
    }
}

// ---- A: trim, wrap and write order ----

// What the row holds, for comparisons: kept positions and the newest ones.
static float *held_values(const kvern_cache *cache, int64_t newest, size_t *count)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t floats = layer->kv_heads * (layer->k_dim + layer->v_dim);
    const size_t k_floats = layer->kv_heads * layer->k_dim;
    const int64_t length = kvern_cache_length(cache, 0), keep = layer->keep;
    *count = (size_t)(keep + newest) * floats;
    float *values = new_floats(*count, 0);
    for (int64_t i = 0; i < keep + newest; i++) {
        const int64_t position = i < keep ? i : length - newest + i - keep;
        float *at = values + (size_t)i * floats;
        assert_ok(kvern_cache_export(cache, 0, position, 1, at, at + k_floats));
    }
    return values;
}

// A row past its window is trimmed: what the slack allows is exact, anything more is refused with
// nothing changed.
static void check_trim_after_wrap(kvern_layer layer, int64_t tokens)
{
    bed *b = bed_create(layer, 1);
    const int64_t recent = layer.window - layer.keep, slack = layer.slack;
    size_t before_count, after_count;
    float out[9 * 64];
    for (int64_t i = 0; i < tokens; i++)
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, out);
    const uint64_t bytes = kvern_cache_bytes(b->cache);
    float *before = held_values(b->cache, recent + slack, &before_count);
    assert_int_equal(kvern_cache_trimmable(b->cache, 0), slack);
    assert_int_equal(kvern_cache_min_reusable(b->cache, 0), tokens - slack);
    const int64_t refused[] = {slack + 1, slack + 3, tokens - 1};
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, refused[i]));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(b->cache, 0, tokens + 1));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(b->cache, 0, -1));
    assert_int_equal(kvern_cache_length(b->cache, 0), tokens);
    assert_int_equal(kvern_cache_bytes(b->cache), bytes);
    float *after = held_values(b->cache, recent + slack, &after_count);
    check_same_bytes(before, after, before_count * sizeof *before, "after refused trims");
    assert_ok(kvern_cache_trim(b->cache, 0, slack));
    assert_int_equal(kvern_cache_trimmable(b->cache, 0), 0);
    assert_int_equal(kvern_cache_min_reusable(b->cache, 0), tokens - slack);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 9, 1, out);
    expect_serial(layer, 1, tokens - slack, 9, 1, out, "after a trim by the slack");
    free(before);
    free(after);
    bed_destroy(b);
}

// ml-explore/mlx-lm#1512: a trimmed ring showed evicted positions, at a negative index.
static void fault_A1_trim_after_wrap(void **state)
{
    (void)state;
    static const int64_t slacks[] = {0, 3, 64, 100};
    for (size_t w = 0; w < COUNT(windows); w++) {
        for (size_t s = 0; s < COUNT(slacks); s++) {
            const int64_t keep = (int64_t)(w + s) % 2 * (windows[w] / 3);
            const kvern_layer layer =
                storage_window(&storages[(w + s) % 9], 1, 64, windows[w], keep, slacks[s]);
            check_trim_after_wrap(layer, windows[w] + slacks[s] + 12);
        }
    }
}

// A row that has dropped nothing yet can be trimmed to any length, to the very position where it
// first drops one.
static void fault_A1_trim_before_wrap(void **state)
{
    (void)state;
    static const int64_t keeps[] = {0, 1, 5};
    for (size_t i = 0; i < COUNT(keeps); i++) {
        const int64_t window = 8, slack = 3, full = window + slack;
        for (int64_t tokens = 1; tokens <= full + 1; tokens++) {
            bed *b = bed_create(small_window(0, window, keeps[i], slack), 1);
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, tokens, 1, NULL);
            assert_int_equal(kvern_cache_trimmable(b->cache, 0), tokens <= full ? tokens : slack);
            assert_int_equal(kvern_cache_min_reusable(b->cache, 0),
                             tokens <= full ? 0 : tokens - slack);
            assert_ok(kvern_cache_trim(b->cache, 0, tokens)); // all of them: always
            assert_int_equal(kvern_cache_trimmable(b->cache, 0), 0);
            bed_destroy(b);
        }
    }
}

// ml-explore/mlx-examples#1093: a full ring held one position less after a prefill than after
// decodes.
static void fault_A3_capacity_by_path(void **state)
{
    (void)state;
    for (size_t w = 0; w < COUNT(windows); w++) {
        const kvern_layer layer =
            storage_window(&storages[w], 2, 64, windows[w], windows[w] / 4, 10);
        const int64_t first = 2 * windows[w];
        bed *p = bed_create(layer, 1), *q = bed_create(layer, 1);
        for (int64_t i = 0; i < first; i++)
            feed_one(p->cache, KVERN_PHASE_DECODE, 1, 1, 4, NULL);
        feed_one(q->cache, KVERN_PHASE_WINDOW, 1, first, 4, NULL);
        for (int64_t i = 0; i < 50; i++) {
            float out[2][4 * 64];
            feed_one(p->cache, KVERN_PHASE_DECODE, 1, 1, 4, out[0]);
            feed_one(q->cache, KVERN_PHASE_DECODE, 1, 1, 4, out[1]);
            check_same_bytes(out[0], out[1], sizeof out[0], "decodes after both");
            assert_int_equal(kvern_cache_trimmable(p->cache, 0),
                             kvern_cache_trimmable(q->cache, 0));
        }
        size_t count;
        float *held[2] = {held_values(p->cache, windows[w] - layer.keep, &count),
                          held_values(q->cache, windows[w] - layer.keep, &count)};
        check_same_bytes(held[0], held[1], count * sizeof(float), "held positions");
        free(held[0]);
        free(held[1]);
        bed_destroy(p);
        bed_destroy(q);
    }
}

// ml-explore/mlx-examples#1000: a second multi-token append to a rotated ring.
static void fault_A4_window_append_into_a_rotated_ring(void **state)
{
    (void)state;
    const visibility_step steps[] = {{WINDOW, 10, 0}, {DECODE, 10, 0}, {WINDOW, 6, 0},
                                     {DECODE, 3, 0},  {KNOWN, 20, 0},  {WINDOW, 40, 0}};
    check_steps(16, 0, 0, steps, COUNT(steps));
    check_steps(16, 3, 0, steps, 4);
    check_steps(16, 15, 5, steps, COUNT(steps));
}

// Blaizzy/mlx-vlm#2031: the front was trimmed by an allocation step.
static void fault_A6_capacity_used_as_length(void **state)
{
    (void)state;
    const visibility_step steps[] = {{DECODE, 301, 0}, {DECODE, 60, 0}};
    check_steps(300, 0, 0, steps, COUNT(steps));
    check_steps(300, 4, 64, steps, COUNT(steps));
}

// rajveer43/VeloxQuant-MLX#371: a trim compared with the absolute offset reached columns that were
// never written. The bed's memory is NaN wherever nothing was stored.
static void fault_A7_two_counters(void **state)
{
    (void)state;
    for (int64_t slack = 0; slack < 5; slack++) {
        const kvern_layer layer = small_window(slack % 2 ? 6 : 0, 4, 0, slack);
        bed *b = bed_create(layer, 1);
        float out[6 * 64];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 20, 1, NULL);
        assert_status(slack < 3 ? KVERN_ERR_UNSUPPORTED : KVERN_OK,
                      kvern_cache_trim(b->cache, 0, 3));
        const int64_t length = slack < 3 ? 20 : 17;
        assert_int_equal(kvern_cache_length(b->cache, 0), length);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 6, 1, out);
        expect_serial(layer, 1, length, 6, 1, out, "after the trim");
        bed_destroy(b);
    }
}

// awslabs/keys_values#140: writes that were not exactly one ring long spoiled a full ring.
static void fault_A9_partial_writes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {128, 1, 32, 44, 127};
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 2, 64, 128, s % 3, 0);
        float wanted[2 * 64], out[128 * 2 * 64];
        for (size_t i = 0; i < COUNT(sizes); i++) {
            bed *b = bed_create(layer, 1);
            int64_t last = 0;
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 300, 2, NULL);
            for (int64_t done = 0; done < 128; done += last) {
                last = sizes[i] < 128 - done ? sizes[i] : 128 - done;
                feed_one(b->cache, KVERN_PHASE_WINDOW, 1, last, 2, out);
            }
            const float *newest = out + (last - 1) * 2 * 64;
            if (i == 0)
                memcpy(wanted, newest, sizeof wanted);
            check_same_bytes(wanted, newest, sizeof wanted, storages[s].name);
            bed_destroy(b);
        }
    }
}

// huggingface/transformers#37574: the newest entry was misplaced when the length first equalled the
// window.
static void fault_A10_boundary_step(void **state)
{
    (void)state;
    for (int64_t window = 5; window <= 12; window++) {
        const visibility_step steps[] = {{WINDOW, 6, 0}, {DECODE, 4, 0}, {DECODE, 6, 0}};
        check_steps(window, 0, 0, steps, COUNT(steps));
        check_steps(window, 2, 1, steps, COUNT(steps));
    }
}

// ml-explore/mlx-lm#1914, which was no fault: appends of several tokens hold more than the window
// for a while. Here whole pages: what a row holds never exceeds what row_bytes says.
static void fault_A12_plateau(void **state)
{
    (void)state;
    static const int64_t sizes[] = {4, 1, 63, 64, 65};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        bed *b = bed_create(small_window(6, 1024, 0, 0), 1);
        const uint64_t page = 64 * kvern_composition_bytes_per_token(b->composition);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 1024, 1, NULL);
        uint64_t most = 0;
        for (int64_t round = 0; round < 300; round++) {
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, sizes[i], 1, NULL);
            const uint64_t bytes = kvern_cache_bytes(b->cache);
            most = bytes > most ? bytes : most;
        }
        // 16 pages of a window that begins anywhere in its first page, and of the append.
        const uint64_t extra = (uint64_t)(sizes[i] + 62) / 64;
        assert_true(most <= (17 + extra) * page);
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, NULL);
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, NULL);
        assert_true(kvern_cache_bytes(b->cache) <= 17 * page);
        bed_destroy(b);
    }
}

// EricLBuehler/mistral.rs#2333: a ring with less room than its window met a first append that was
// longer than both.
static void fault_A13_large_first_append(void **state)
{
    (void)state;
    const visibility_step small[] = {{WINDOW, 7, 0}, {DECODE, 5, 0}};
    const visibility_step large[] = {{WINDOW, 1100, 0}, {DECODE, 2, 0}};
    check_steps(4, 0, 0, small, COUNT(small));
    check_steps(4, 3, 0, small, COUNT(small));
    check_steps(1024, 0, 0, large, COUNT(large));
    static const int64_t reserved[] = {2, 512, 5000}, window[] = {4, 1024, 100};
    static const int64_t first[] = {7, 1500, 700};
    for (size_t i = 0; i < 3; i++) {
        const kvern_layer layer = storage_window(&storages[i * 3], 1, 64, window[i], 0, 0);
        bed *b = bed_create(layer, 1);
        float *out = new_floats((size_t)first[i] * 64, NAN);
        assert_ok(kvern_cache_reserve(b->cache, 0, reserved[i], 1));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, first[i], 1, out);
        expect_serial(layer, 1, 0, first[i], 1, out, "more than the room and the window");
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, out);
        expect_serial(layer, 1, first[i], 1, 1, out, "a decode after it");
        free(out);
        bed_destroy(b);
    }
}

// ---- B: window edges ----

// ml-explore/mlx-lm#390: the mask of a prefill let one key too many through.
static void fault_B1_inclusive_window(void **state)
{
    (void)state;
    const visibility_step prefill[] = {{WINDOW, 200, 0}},
                          decode[] = {{WINDOW, 150, 0}, {DECODE, 9, 0}};
    for (size_t i = 0; i < COUNT(looked_at); i++) {
        const kvern_layer layer = small_window(looked_at[i], 128, 0, 0);
        for (int64_t p = 20; p < 26; p++) { // 23 is the first that query 150 sees
            visibility_check_position(&layer, prefill, 1, p);
            visibility_check_position(&layer, decode, 2, p);
        }
        assert_true(layer_sees(&layer, 150, 23) && !layer_sees(&layer, 150, 22));
    }
}

// trymirai/lalamo#200: rows of the mask counted from the start of the suffix.
static void fault_B3_relative_mask_rows(void **state)
{
    (void)state;
    const visibility_step steps[] = {{WINDOW, 10, 0}, {WINDOW, 4, 0}};
    check_steps(8, 0, 0, steps, COUNT(steps));
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 2, 64, 8, s % 4, 0);
        bed *a = bed_create(layer, 1), *b = bed_create(layer, 1);
        float window[4 * 8 * 64], decode[8 * 64];
        feed_one(a->cache, KVERN_PHASE_WINDOW, 1, 10, 8, NULL);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, 8, NULL);
        feed_one(a->cache, KVERN_PHASE_WINDOW, 1, 4, 8, window);
        for (int i = 0; i < 4; i++) {
            feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 8, decode);
            check_same_bytes(window + i * 8 * 64, decode, sizeof decode, storages[s].name);
        }
        bed_destroy(a);
        bed_destroy(b);
    }
}

// lablup/mlxcel#419: a mask sized by an offset that only grows ended the process.
static void fault_B4_monotonic_offset(void **state)
{
    (void)state;
    const visibility_step steps[] = {
        {WINDOW, 100, 0}, {WINDOW, 5, 0}, {DECODE, 200, 0}, {WINDOW, 5, 0}};
    check_steps(64, 0, 0, steps, COUNT(steps));
    check_steps(64, 7, 1, steps, COUNT(steps));
}

// huggingface/transformers#45940: columns of a ring that were never written were scored.
static void fault_B6_unfilled_columns(void **state)
{
    (void)state;
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 1, 64, 16, s % 2 * 4, 8);
        bed *b = bed_create(layer, 1);
        float out[5 * 64];
        assert_ok(kvern_cache_reserve(b->cache, 0, 200, 1));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 5, 1, out);
        for (int i = 0; i < 5 * 64; i++)
            assert_true(isfinite(out[i]));
        for (int64_t p = 5; p < 8; p++) {
            feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, out);
            // Within the window it is an ordinary row.
            expect_serial(storage_layer(&storages[s], 1, 64), 1, p, 1, 1, out, storages[s].name);
        }
        bed_destroy(b);
    }
}

// One step of a state; the results of each layer go to out[layer].
static void run_step(kvern_state *s, size_t layers, kvern_phase phase, const uint64_t *sequences,
                     const int64_t *counts, size_t query_heads, float **out)
{
    assert_ok(kvern_step_begin(s, phase, counts));
    for (size_t l = 0; l < layers; l++) {
        feed f = feed_create(kvern_state_cache(s, l), sequences, counts, query_heads);
        kvern_read *read;
        assert_ok(kvern_step_append(s, l, &f.tokens, &read));
        f.queries.out = out ? out[l] : f.out;
        assert_ok(kvern_read_attend(read, &f.queries));
        kvern_read_release(read);
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
}

// huggingface/transformers#48482: a mixed model's masks were sized by the wrong kind of layer.
static void fault_B7_layers_of_different_kinds(void **state)
{
    (void)state;
    enum { LAYERS = 5 };
    const kvern_layer layers[LAYERS] = {
        kvern_layer_default(2, 64), storage_window(&storages[0], 2, 64, 8, 0, 0),
        storage_window(&storages[6], 1, 64, 13, 2, 4), storage_layer(&storages[3], 2, 64),
        storage_window(&storages[9], 2, 64, 8, 0, 64)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    static float results[LAYERS][3 * 4 * 64];
    float *out[LAYERS];
    for (size_t l = 0; l < LAYERS; l++)
        out[l] = results[l];
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, LAYERS, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    run_step(s, LAYERS, KVERN_PHASE_WINDOW, &(uint64_t){1}, &(int64_t){20}, 4, NULL);
    run_step(s, LAYERS, KVERN_PHASE_WINDOW, &(uint64_t){1}, &(int64_t){3}, 4, out);
    for (size_t l = 0; l < LAYERS; l++)
        expect_serial(layers[l], 1, 20, 3, 4, out[l], "a layer beside others");
    assert_int_equal(kvern_state_trimmable(s, 0), 0); // of the window without slack
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_trim(s, 0, 1));
    for (size_t l = 0; l < LAYERS; l++)
        assert_int_equal(kvern_cache_length(kvern_state_cache(s, l), 0), 23);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// The result of the last of `length` positions when one value of one of them is changed.
static void attend_changed(kvern_layer layer, int64_t length, int64_t changed, int in_keys,
                           float *out)
{
    bed *b = bed_create(layer, 1);
    feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){length}, 2);
    if (changed >= 0)
        (in_keys ? f.k : f.v)[changed * 64 + changed % 64] += 8;
    kvern_read *read;
    const int64_t count = 1, first = length - 1, start = length - 1, zero = 0;
    assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &f, &read));
    f.queries.counts = &count;
    f.queries.first = &first;
    f.queries.q_start = &start;
    f.queries.out_start = &zero;
    f.queries.out = out;
    assert_ok(kvern_read_attend(read, &f.queries));
    kvern_read_release(read);
    feed_destroy(&f);
    bed_destroy(b);
}

// sgl-project/sglang#31501: the left edge was that of a tile, so positions just outside leaked in.
static void fault_B9_tile_granular_edge(void **state)
{
    (void)state;
    static const int64_t sizes[] = {60, 64, 100, 1, 129, 512};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const kvern_layer layer = storage_window(&storages[i], 1, 64, sizes[i], 0, 0);
        float wanted[2 * 64], got[2 * 64];
        attend_changed(layer, 1000, -1, 0, wanted);
        const int64_t edge = 1000 - sizes[i]; // the first position inside
        const int64_t outside[] = {edge - 1, edge - 2, edge - 37, edge / 64 * 64 - 1, 0};
        for (size_t j = 0; j < COUNT(outside); j++) {
            for (int in_keys = 0; in_keys < 2; in_keys++) {
                attend_changed(layer, 1000, outside[j], in_keys, got);
                check_same_bytes(wanted, got, sizeof got, "a change outside");
            }
        }
        attend_changed(layer, 1000, edge, 0, got);
        assert_memory_not_equal(wanted, got, sizeof got);
        attend_changed(layer, 1000, edge, 1, got);
        if (sizes[i] > 1) // a single weight is 1 whatever its score
            assert_memory_not_equal(wanted, got, sizeof got);
    }
}

// lablup/mlxcel#1776: masks had the width of the buffer, which runs ahead of the offset.
static void fault_B11_physical_length(void **state)
{
    (void)state;
    const visibility_step steps[] = {{WINDOW, 4, 0}, {DECODE, 1, 0}, {WINDOW, 3, 0}};
    check_steps(16, 0, 0, steps, COUNT(steps));
    check_steps(16, 2, 2, steps, COUNT(steps));
    bed *b = bed_create(small_window(0, 16, 0, 0), 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 4, 1, NULL);
    // It could not fail if there were no room behind the offset.
    assert_true(kvern_cache_bytes(b->cache) >
                8 * kvern_composition_bytes_per_token(b->composition));
    bed_destroy(b);
}

// ---- G, H, N: rows beside others ----

// ml-explore/mlx-lm#439: padding entered the window and pushed real positions out.
static void fault_G14_padding_in_a_window(void **state)
{
    (void)state;
    enum { DIM = 64, LENGTH = 6 };
    static const int64_t counts[2] = {6, 2}, start[2] = {0, LENGTH + 4}, one[2] = {1, 1};
    static const uint64_t sequences[2] = {1, 2};
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 1, DIM, 4, s % 4, 0);
        bed *b = bed_create(layer, 2);
        float *k = new_floats(2 * LENGTH * DIM, NAN), *v = new_floats(2 * LENGTH * DIM, NAN);
        for (size_t r = 0; r < 2; r++) {
            for (int64_t i = 0; i < counts[r]; i++) {
                feed_values(sequences[r], i, FEED_K, DIM, k + (start[r] + i) * DIM);
                feed_values(sequences[r], i, FEED_V, DIM, v + (start[r] + i) * DIM);
            }
        }
        kvern_tokens tokens = kvern_tokens_default(&layer);
        tokens.k = k;
        tokens.v = v;
        tokens.k_start = tokens.v_start = start;
        tokens.counts = counts;
        assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_WINDOW, &tokens, NULL));
        for (int64_t i = 0; i < 5; i++) {
            float out[2][DIM];
            feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, 1, out[0]);
            for (size_t r = 0; r < 2; r++)
                expect_serial(layer, sequences[r], counts[r] + i, 1, 1, out[r], storages[s].name);
        }
        free(k);
        free(v);
        bed_destroy(b);
    }
}

// Blaizzy/mlx-vlm#1946: a row's answer depended on the length of its neighbour.
static void fault_H3_neighbour_dependence(void **state)
{
    (void)state;
    static const int64_t neighbours[] = {0, 3, 30, 300};
    static const uint64_t sequences[2] = {1, 2};
    static float out[(90 + 300) * 4 * 64];
    for (size_t s = 0; s < storage_count; s++) {
        for (size_t i = 0; i < 4; i++) {
            const kvern_layer layer = i % 2
                                          ? storage_layer(&storages[s], 2, 64)
                                          : storage_window(&storages[s], 2, 64, 33, (int64_t)i, 2);
            const int64_t counts[2] = {90, neighbours[i]}, more[2] = {5, i != 0};
            bed *b = bed_create(layer, 2);
            feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, counts, 4, out);
            expect_serial(layer, 1, 0, 90, 4, out, storages[s].name);
            feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, more, 4, out);
            expect_serial(layer, 1, 90, 5, 4, out, storages[s].name);
            bed_destroy(b);
        }
    }
}

// ml-explore/mlx-lm#1699: positions moved under a step. unslothai/unsloth#3795: rows of a batch had
// one position. Here layers that convert and that drop positions, past both.
static void fault_H1_H4_positions_of_rows(void **state)
{
    (void)state;
    enum { LAYERS = 3 };
    static const uint64_t sequences[2] = {1, 2};
    const kvern_layer layers[LAYERS] = {storage_window(&storages[0], 1, 64, 8, 0, 0),
                                        storage_window(&storages[10], 1, 64, 100, 4, 8),
                                        storage_layer(&storages[9], 1, 64)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, LAYERS, &composition));
    assert_ok(kvern_state_create(composition, 2, &s));
    int64_t lengths[2] = {0, 0};
    for (int64_t step = 0; step < 130; step++) {
        const int64_t counts[2] = {step ? 1 : 2, step ? 1 : 7};
        assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, counts));
        for (size_t l = 0; l < LAYERS; l++) {
            const kvern_cache *cache = kvern_state_cache(s, (l + (size_t)step) % LAYERS);
            feed f = feed_create(cache, sequences, counts, 1);
            assert_ok(kvern_step_append(s, (l + (size_t)step) % LAYERS, &f.tokens, NULL));
            for (size_t r = 0; r < 2; r++)
                assert_int_equal(kvern_step_position(s, r), lengths[r]);
            feed_destroy(&f);
        }
        assert_ok(kvern_step_end(s));
        for (size_t r = 0; r < 2; r++) {
            lengths[r] += counts[r];
            assert_int_equal(kvern_state_length(s, r), lengths[r]);
            assert_int_equal(kvern_step_position(s, r), -1);
        }
    }
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// ml-explore/mlx-lm#1467: a batch's mask met grouped scores; rows equal to KV heads are the trap.
static void fault_N1_batch_and_groups(void **state)
{
    (void)state;
    static const size_t row_counts[] = {2, 8};
    for (size_t i = 0; i < 2; i++) {
        for (size_t s = 0; s < storage_count; s += 3) {
            const size_t rows = row_counts[i], heads = 40;
            const kvern_layer layer = storage_window(&storages[s], 8, 64, 5, s % 2 * 2, 0);
            bed *b = bed_create(layer, rows);
            uint64_t sequences[8];
            int64_t first[8], second[8], at = 0;
            for (size_t r = 0; r < rows; r++) {
                sequences[r] = r + 1;
                first[r] = (int64_t)(r * 5 % 13);
                second[r] = 1 + (int64_t)(r % 3);
                at += second[r];
            }
            float *out = new_floats((size_t)at * heads * 64, NAN);
            feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, first, heads, NULL);
            feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, second, heads, out);
            at = 0;
            for (size_t r = 0; r < rows; r++) {
                expect_serial(layer, sequences[r], first[r], second[r], heads,
                              out + (size_t)at * heads * 64, storages[s].name);
                at += second[r];
            }
            free(out);
            bed_destroy(b);
        }
    }
}

// ---- I: resuming ----

// ollama/ollama#10055: a prefix was claimed of which the window was not held any more.
static void fault_I8_resume_point(void **state)
{
    (void)state;
    static const size_t row = 0;
    for (int64_t slack = 0; slack < 3; slack++) {
        bed *b = bed_create(small_window(0, 8, 0, slack), 1);
        for (int i = 0; i < 20; i++)
            feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 1, NULL);
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 20 - slack);
        for (int64_t at = 20; at >= 10; at--) {
            kvern_cache *fork;
            float out[64];
            assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
            if (at >= 20 - slack) {
                assert_ok(kvern_cache_trim(fork, 0, 20 - at));
                feed_one(fork, KVERN_PHASE_DECODE, 1, 1, 1, out);
                expect_serial(small_window(0, 8, 0, slack), 1, at, 1, 1, out, "resumed");
            } else {
                assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(fork, 0, 20 - at));
                assert_int_equal(kvern_cache_length(fork, 0), 20);
            }
            kvern_cache_destroy(fork);
        }
        bed_destroy(b);
    }
}

// A donor read whose queries saw positions that have been dropped is refused, not answered from
// what is left.
static void fault_I8_donor_read_past_the_window(void **state)
{
    (void)state;
    const kvern_layer layer = small_window(0, 8, 3, 2);
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 40, 1, NULL);
    for (int64_t count = 1; count <= 6; count++) {
        kvern_read *read;
        assert_status(count <= 3 ? KVERN_OK : KVERN_ERR_RANGE,
                      kvern_cache_read_donor(b->cache, &count, &read));
        kvern_read_release(read);
    }
    bed_destroy(b);
}

// ---- O: kept positions ----

// ml-explore/mlx-lm#1631: kept positions were lost in a batch, and could not be quantized.
static void fault_O1_keep_between_layouts(void **state)
{
    (void)state;
    static const size_t rows[3] = {1, 0, 1};
    static const uint64_t sequences[2] = {1, 2}, forked[3] = {2, 1, 2};
    static const int64_t first[2] = {40, 3}, one[2] = {1, 1}, ones[3] = {1, 1, 1};
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_window(&storages[s], 2, 64, 16, 4, 0);
        const visibility_step steps[] = {{DECODE, 40, 0}, {WINDOW, 30, 0}, {DECODE, 2, 0}};
        kvern_layer one_head = layer;
        one_head.kv_heads = 1;
        visibility_check(&one_head, steps, COUNT(steps));
        bed *b = bed_create(layer, 2);
        kvern_cache *fork, *other;
        float out[3][4 * 64], kept[2][4 * 128];
        feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, first, 4, NULL);
        for (int i = 0; i < 40; i++)
            feed_run(b->cache, KVERN_PHASE_DECODE, sequences, one, 4, NULL);
        assert_ok(kvern_cache_export(b->cache, 0, 0, 4, kept[0], NULL));
        assert_ok(kvern_cache_fork(b->cache, rows, 3, &fork));
        assert_ok(kvern_cache_create(b->composition, 0, 1, &other));
        assert_ok(kvern_cache_adopt(other, 0, fork, 1));
        assert_ok(kvern_cache_export(other, 0, 0, 4, kept[1], NULL));
        check_same_bytes(kept[0], kept[1], sizeof kept[0], "kept keys");
        if (layer.start < 70) { // otherwise the conversion depends on what came before
            feed_run(fork, KVERN_PHASE_DECODE, forked, ones, 4, out[0]);
            expect_serial(layer, 1, 80, 1, 4, out[1], storages[s].name);
            expect_serial(layer, 2, 43, 1, 4, out[2], storages[s].name);
            feed_one(other, KVERN_PHASE_DECODE, 1, 1, 4, out[0]);
            expect_serial(layer, 1, 80, 1, 4, out[0], storages[s].name);
        }
        kvern_cache_destroy(other);
        kvern_cache_destroy(fork);
        bed_destroy(b);
    }
}

// ml-explore/mlx-swift-lm#584: a trim of a wrapped ring reached into the kept positions.
static void fault_O3_trim_into_kept_positions(void **state)
{
    (void)state;
    for (int64_t slack = 0; slack <= 8; slack++) {
        for (int64_t trim = 1; trim < 20; trim++) {
            bed *b = bed_create(small_window(trim % 2 ? 3 : 0, 8, 2, slack), 1);
            float before[2][64] = {{0}}, after[2][64] = {{0}};
            feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 20, 1, NULL);
            assert_ok(kvern_cache_export(b->cache, 0, 0, 2, before[0], NULL));
            assert_status(trim <= slack ? KVERN_OK : KVERN_ERR_UNSUPPORTED,
                          kvern_cache_trim(b->cache, 0, trim));
            assert_ok(kvern_cache_export(b->cache, 0, 0, 2, after[0], NULL));
            check_same_bytes(before, after, sizeof before, "kept keys");
            bed_destroy(b);
        }
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_is_exact_in_every_phase),
        cmocka_unit_test(every_chunk_is_exact_in_every_phase),
        cmocka_unit_test(chunks_are_trimmed_as_far_as_they_are_held),
        cmocka_unit_test(fault_A1_trim_after_wrap),
        cmocka_unit_test(fault_A1_trim_before_wrap),
        cmocka_unit_test(fault_A3_capacity_by_path),
        cmocka_unit_test(fault_A4_window_append_into_a_rotated_ring),
        cmocka_unit_test(fault_A6_capacity_used_as_length),
        cmocka_unit_test(fault_A7_two_counters),
        cmocka_unit_test(fault_A9_partial_writes),
        cmocka_unit_test(fault_A10_boundary_step),
        cmocka_unit_test(fault_A12_plateau),
        cmocka_unit_test(fault_A13_large_first_append),
        cmocka_unit_test(fault_B1_inclusive_window),
        cmocka_unit_test(fault_B3_relative_mask_rows),
        cmocka_unit_test(fault_B4_monotonic_offset),
        cmocka_unit_test(fault_B6_unfilled_columns),
        cmocka_unit_test(fault_B7_layers_of_different_kinds),
        cmocka_unit_test(fault_B9_tile_granular_edge),
        cmocka_unit_test(fault_B11_physical_length),
        cmocka_unit_test(fault_G14_padding_in_a_window),
        cmocka_unit_test(fault_H3_neighbour_dependence),
        cmocka_unit_test(fault_H1_H4_positions_of_rows),
        cmocka_unit_test(fault_N1_batch_and_groups),
        cmocka_unit_test(fault_I8_resume_point),
        cmocka_unit_test(fault_I8_donor_read_past_the_window),
        cmocka_unit_test(fault_O1_keep_between_layouts),
        cmocka_unit_test(fault_O3_trim_into_kept_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
