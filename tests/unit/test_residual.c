// SPDX-License-Identifier: MIT
// Layers that keep positions precise: what is refused, how far rows go back, what they take, and
// the faults that others had with it.
#include "src/state/walk.h"
#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/naive_cache.h"

#include <kvern/kvern.h>
#include <kvern/plan.h>
#include <string.h>

#define DIM 64
#define GROUP 4

static kvern_layer precise_layer(int64_t residual, int64_t sinks)
{
    kvern_layer layer = kvern_layer_default(1, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 64);
    layer.residual = residual;
    layer.precise_sinks = sinks;
    return layer;
}

// ---- Plans ----

static void assert_refused(kvern_layer layer, kvern_status status, const char *part)
{
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    assert_status(status, kvern_composition_create(context, &layer, 1, &composition));
    assert_non_null(strstr(kvern_error_detail(), part));
    kvern_context_release(context);
}

static void plans_are_refused_by_name(void **state)
{
    (void)state;
    assert_refused(precise_layer(-1, 0), KVERN_ERR_RANGE, "residual is -1");
    assert_refused(precise_layer(0, -1), KVERN_ERR_RANGE, "precise_sinks -1");
    kvern_layer window = kvern_layer_window(1, DIM, 100);
    window.residual = 100;
    assert_refused(window, KVERN_ERR_RANGE, "residual is 100");
    kvern_layer wide = precise_layer(10, 0);
    wide.v_codec = kvern_codec_dense(KVERN_F32);
    assert_refused(wide, KVERN_ERR_UNSUPPORTED, "takes more room than bf16");
    kvern_layer latent = kvern_layer_latent(DIM, 16, 0);
    latent.residual = 10;
    assert_refused(latent, KVERN_ERR_UNSUPPORTED, "latents with a residual");
    kvern_layer delta = kvern_layer_delta(1, 1, 16, 16, 0);
    delta.precise_sinks = 4;
    assert_refused(delta, KVERN_ERR_UNSUPPORTED, "recurrent state");
}

// ---- Faults ----

// huggingface/transformers#35760: the very first tokens were quantized at once although a residual
// was configured. What is not behind the residual equals a row in bf16 bit for bit.
static void fault_D4_nothing_is_quantized_too_early(void **state)
{
    (void)state;
    static const int64_t chunks[] = {100, 27, 1, 63};
    bed *precise = bed_create(precise_layer(128, 0), 1), *bf16;
    kvern_layer plain = kvern_layer_default(1, DIM);
    static float a[191 * GROUP * DIM], b[191 * GROUP * DIM];
    bf16 = bed_create(plain, 1);
    for (size_t i = 0; i < 4; i++) {
        feed_one(precise->cache, KVERN_PHASE_WINDOW, 1, chunks[i], GROUP, a);
        feed_one(bf16->cache, KVERN_PHASE_WINDOW, 1, chunks[i], GROUP, b);
        check_same_bytes(a, b, (size_t)chunks[i] * GROUP * DIM * sizeof *a, "all is precise");
    }
    feed_one(precise->cache, KVERN_PHASE_DECODE, 1, 1, GROUP, a); // number 191 sees 192
    feed_one(bf16->cache, KVERN_PHASE_DECODE, 1, 1, GROUP, b);
    assert_memory_not_equal(a, b, GROUP * DIM * sizeof *a);
    bed_destroy(precise);
    bed_destroy(bf16);
}

// rajveer43/VeloxQuant-MLX#369: a trim lowered the length, but not what had irreversibly been
// encoded. Here a row goes back as far as it is precise and no further, and what it says about
// being reusable is what it is.
static void fault_D5_trim_below_what_is_coded(void **state)
{
    (void)state;
    const kvern_layer layer = precise_layer(70, 3);
    static float got[70 * GROUP * DIM];
    for (int64_t length = 60; length < 400; length += 37) {
        bed *b = bed_create(layer, 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, length, GROUP, NULL);
        const int64_t coded = (length - 70) / 64 * 64, most = kvern_cache_trimmable(b->cache, 0);
        assert_int_equal(most, coded > 64 ? length - coded : length);
        const int64_t least = kvern_cache_min_reusable(b->cache, 0);
        assert_int_equal(least, coded > 64 ? coded + 69 : 0);
        assert_true(least < length);
        if (most < length) {
            assert_false(kvern_cache_can(b->cache, KVERN_CAN_TRIM));
            assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_trim(b->cache, 0, most + 1));
            assert_int_equal(kvern_cache_length(b->cache, 0), length);
        }
        const int64_t left = least ? least : length - 5;
        assert_ok(kvern_cache_trim(b->cache, 0, length - left));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 70, GROUP, got);
        expect_serial(layer, 1, left, 70, GROUP, got, "cut back and grown again");
        assert_ok(kvern_cache_trim(b->cache, 0, kvern_cache_length(b->cache, 0)));
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 70, GROUP, got);
        expect_serial(layer, 1, 0, 70, GROUP, got, "emptied and begun again");
        bed_destroy(b);
    }
}

// A row that goes back to where its coded pages end has none of its precise pages. A fork, whose
// table others hold too, lost count of how many had gone.
static void forks_go_back_to_what_is_coded(void **state)
{
    (void)state;
    const kvern_layer layer = precise_layer(1, 0);
    static float got[70 * GROUP * DIM];
    bed *b = bed_create(layer, 1);
    kvern_cache *fork;
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 129, GROUP, NULL);
    assert_ok(kvern_cache_fork(b->cache, &(size_t){0}, 1, &fork));
    assert_ok(kvern_cache_trim(fork, 0, 1));
    assert_null(kvern_caches_walk(fork));
    feed_one(fork, KVERN_PHASE_WINDOW, 1, 70, GROUP, got);
    expect_serial(layer, 1, 128, 70, GROUP, got, "a fork that went back");
    assert_null(kvern_caches_walk(fork));
    kvern_cache_destroy(fork);
    bed_destroy(b);
}

// ---- What rows take ----

// Decodes of a row with reserved room take nothing, also where a page leaves the residual.
static void reserved_decodes_take_nothing(void **state)
{
    (void)state;
    bed *b = bed_create(precise_layer(100, 70), 1);
    assert_ok(kvern_cache_reserve(b->cache, 0, 700, GROUP));
    static float out[GROUP * DIM];
    feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, GROUP, out);
    const uint64_t allocations = b->books.allocations, held = b->books.held_bytes;
    const uint64_t bytes = kvern_cache_bytes(b->cache);
    for (int64_t i = 1; i < 700; i++) {
        feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, GROUP, out);
        assert_int_equal(kvern_cache_bytes(b->cache), bytes);
        assert_int_equal(b->books.held_bytes, held);
    }
    assert_int_equal(b->books.allocations, allocations);
    assert_int_equal(bytes, kvern_composition_row_bytes(b->composition, 700));
    bed_destroy(b);
}

// ---- Donors ----

// A donor read has the queries of its last position; those before them may have read pages in bf16
// that are not there any more.
static void donors_read_what_is_precise(void **state)
{
    (void)state;
    bed *b = bed_create(precise_layer(70, 0), 1);
    kvern_read *read;
    int64_t count = 1;
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 134, GROUP, NULL); // number 133 reads 64 coded
    assert_ok(kvern_cache_read_donor(b->cache, &count, &read));
    kvern_read_release(read);
    count = 2;
    assert_status(KVERN_ERR_RANGE, kvern_cache_read_donor(b->cache, &count, &read));
    assert_non_null(strstr(kvern_error_detail(), "not precise any more"));
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_refused_by_name),
        cmocka_unit_test(fault_D4_nothing_is_quantized_too_early),
        cmocka_unit_test(fault_D5_trim_below_what_is_coded),
        cmocka_unit_test(forks_go_back_to_what_is_coded),
        cmocka_unit_test(reserved_decodes_take_nothing),
        cmocka_unit_test(donors_read_what_is_precise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
