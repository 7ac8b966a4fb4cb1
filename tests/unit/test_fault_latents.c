// SPDX-License-Identifier: MIT
// Faults that caches of latents and of index keys have had elsewhere, as scenarios: entries M and R
// of the public ones.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"
#include "tests/support/padded_tensors.h"

#include <kvern/experimental/padded.h>
#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEADS 3

static const uint64_t sequences[3] = {41, 42, 43};

static kvern_layer stored_as(kvern_layer layer, kvern_codec latent, kvern_codec rope,
                             kvern_codec index)
{
    layer.latent_codec = latent;
    if (layer.rope_dim)
        layer.rope_codec = rope;
    if (layer.index_dim)
        layer.index_codec = index;
    return layer;
}

// ---- M1: every lane counts ----

// LMCache/LMCache#2881: bytes were those of one part of a position.
static void fault_M1_every_lane_counts(void **state)
{
    (void)state;
    const kvern_codec f32 = kvern_codec_dense(KVERN_F32), bf16 = kvern_codec_dense(KVERN_BF16);
    const struct {
        kvern_layer layer;
        uint64_t bytes; // of a position
    } cases[] = {
        {kvern_layer_latent(512, 64, 128), (512 + 64 + 128) * 4},
        {kvern_layer_latent(512, 64, 0), (512 + 64) * 4},
        {kvern_layer_latent(512, 0, 0), 512 * 4},
        {stored_as(kvern_layer_latent(512, 64, 128), bf16, f32, bf16), 512 * 2 + 64 * 4 + 128 * 2},
        {stored_as(kvern_layer_latent(512, 64, 128), kvern_codec_affine(8, 64), bf16, bf16),
         512 + 512 / 64 * 4 + (64 + 128) * 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const kvern_layer *layer = &cases[i].layer;
        const uint64_t page = cases[i].bytes * KVERN_PAGE_POSITIONS;
        bed *b = bed_create(*layer, 1);
        assert_int_equal(kvern_composition_bytes_per_token(b->composition), cases[i].bytes);
        assert_int_equal(kvern_composition_row_bytes(b->composition, 65), 2 * page);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 5, 65, HEADS, NULL);
        assert_int_equal(kvern_cache_bytes(b->cache), 2 * page);
        kvern_memory memory = {.size = sizeof memory};
        assert_ok(kvern_context_memory(b->context, &memory));
        assert_int_equal(memory.page_bytes, 2 * page);
        // Planes have all lanes, too: what they hold makes the same row again.
        padded_tensors planes = padded_export(b->cache);
        kvern_cache *again;
        assert_ok(kvern_cache_create(b->composition, 0, 1, &again));
        assert_ok(kvern_cache_import_padded(again, &planes.planes));
        padded_tensors back = padded_export(again);
        padded_expect_same(&planes, &back, "every lane");
        padded_destroy(&planes);
        padded_destroy(&back);
        kvern_cache_destroy(again);
        bed_destroy(b);
    }
}

// ---- M3: before and after an append ----

static void expect_index(const kvern_read *read, uint64_t sequence, int64_t count, size_t value_dim)
{
    enum { MOST = 32, DI = 16 };
    float got[MOST * DI], wanted[64];
    assert_true(count <= MOST && value_dim <= 64);
    assert_ok(kvern_read_export_latent(read, 0, 0, count, NULL, NULL, got));
    for (int64_t p = 0; p < count; p++) {
        feed_values(sequence, p, FEED_V, value_dim, wanted);
        check_same_floats(wanted, got + p * DI, DI, "index keys");
    }
}

// SharpAI/SwiftLM#159: what was selected went by the length after the append. A read knows both
// lengths, and what was stored before the append is there, whatever has been stored since.
static void fault_M3_index_keys_before_the_append(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 3; count += 2) {
        bed *b = bed_create(kvern_layer_latent(32, 8, 16), 1);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 7, 10, HEADS, NULL);
        kvern_read *before, *read;
        assert_ok(kvern_cache_read_donor(b->cache, &(int64_t){0}, &before));
        feed f = feed_create(b->cache, (uint64_t[]){7}, &count, HEADS);
        assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &f, &read));
        assert_int_equal(kvern_read_length(before, 0), 10);
        expect_index(before, 7, 10, 32);
        float none[16];
        assert_status(KVERN_ERR_RANGE,
                      kvern_read_export_latent(before, 0, 0, 11, NULL, NULL, none));
        assert_status(KVERN_ERR_RANGE,
                      kvern_read_export_latent(before, 0, 10, 1, NULL, NULL, none));
        assert_int_equal(kvern_read_length(read, 0), 10 + count);
        expect_index(read, 7, 10 + count, 32);
        // Query i selects among its own position and those before: 10 + i + 1 at most.
        float q[3 * 16], weights[3] = {1, 1, 1};
        int64_t positions[3 * 64], counts[3];
        kvern_selection selection = kvern_selection_default(positions, counts, 3, 64);
        kvern_index_queries index = kvern_index_queries_default(1, 16, 64);
        feed_values(7, 99, FEED_Q, 3 * 16, q);
        index.q = q;
        index.weights = weights;
        assert_ok(kvern_read_select(read, &index, &selection));
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(counts[i], 10 + i + 1);
            for (int64_t p = 0; p < counts[i]; p++)
                assert_int_equal(positions[i * 64 + p], p);
        }
        feed_one(b->cache, KVERN_PHASE_DECODE, 7, 1, HEADS, NULL); // reads stay what they are
        expect_index(before, 7, 10, 32);
        expect_index(read, 7, 10 + count, 32);
        kvern_read_release(before);
        kvern_read_release(read);
        feed_destroy(&f);
        bed_destroy(b);
    }
}

// ---- M4: layers without an indexer ----

// The call is refused, and the row is what it was.
#define assert_unchanged(cache, status, call)                                                      \
    do {                                                                                           \
        kvern_read *none_ = NULL, **read_ = &none_;                                                \
        const int64_t length_ = kvern_cache_length(cache, 0);                                      \
        const uint64_t bytes_ = kvern_cache_bytes(cache);                                          \
        assert_status(status, call);                                                               \
        assert_null(*read_);                                                                       \
        assert_int_equal(kvern_cache_length(cache, 0), length_);                                   \
        assert_int_equal(kvern_cache_bytes(cache), bytes_);                                        \
    } while (0)

// What a layer does not have is refused in every append, and what it has must be there.
static void check_lanes(kvern_layer layer)
{
    bed *b = bed_create(layer, 1);
    float some[64] = {0};
    const int64_t one = 1, two = 2;
    for (int i = 0; i < 5; i++)
        feed_one(b->cache, KVERN_PHASE_DECODE, 9, 1, HEADS, NULL);
    feed f = feed_create(b->cache, (uint64_t[]){9}, &one, HEADS);
    for (int which = 0; which < 6; which++) {
        kvern_latent_tokens t = f.latents;
        kvern_status wanted = KVERN_ERR_ARGUMENT;
        switch (which) {
        case 0: // a lane too many, or one too few
            t.index = layer.index_dim ? NULL : some;
            break;
        case 1:
            t.rope = layer.rope_dim ? NULL : some;
            break;
        case 2:
            t.latent = NULL;
            break;
        case 3: // other counts
            t.index_counts = &two;
            wanted = layer.index_dim ? KVERN_ERR_RANGE : KVERN_ERR_ARGUMENT;
            break;
        case 4:
            t.rope_counts = &two;
            wanted = layer.rope_dim ? KVERN_ERR_RANGE : KVERN_ERR_ARGUMENT;
            break;
        default:
            t.latent_type = (kvern_type)9;
        }
        assert_unchanged(b->cache, wanted,
                         kvern_cache_append_latent(b->cache, KVERN_PHASE_DECODE, &t, read_));
    }
    kvern_latent_tokens none = f.latents;
    none.latent = NULL;
    assert_unchanged(b->cache, KVERN_ERR_ARGUMENT,
                     kvern_cache_append_latent(b->cache, KVERN_PHASE_DECODE, &none, read_));
    assert_non_null(strstr(kvern_error_detail(), "layer 0: latent is NULL"));
    assert_unchanged(b->cache, KVERN_ERR_UNSUPPORTED,
                     kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &f.tokens, read_));
    assert_non_null(strstr(kvern_error_detail(), "kvern_cache_append_latent are for it"));
    assert_ok(feed_append(b->cache, KVERN_PHASE_DECODE, &f, NULL));
    feed_destroy(&f);
    bed_destroy(b);
}

// ml-explore/mlx-lm#1412: a second cache that layers without an indexer had, and never wrote,
// crashed whatever looked at it.
static void fault_M4_layers_without_an_indexer(void **state)
{
    (void)state;
    check_lanes(kvern_layer_latent(32, 8, 0));
    check_lanes(kvern_layer_latent(32, 0, 0));
    check_lanes(kvern_layer_latent(32, 8, 16));
    bed *b = bed_create(kvern_layer_latent(32, 8, 0), 2);
    for (int64_t i = 0; i < 5; i++)
        feed_run(b->cache, KVERN_PHASE_DECODE, sequences, (int64_t[]){1, i % 2}, HEADS, NULL);
    padded_tensors planes = padded_export(b->cache);
    assert_null(planes.planes.index);
    float plane[64] = {0};
    planes.planes.index = plane;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_padded(b->cache, &planes.planes));
    planes.planes.index = NULL;
    kvern_cache *one, *other;
    assert_ok(kvern_cache_extract(b->cache, 1, &one));
    assert_ok(kvern_cache_create(b->composition, 0, 2, &other));
    assert_ok(kvern_cache_import_padded(other, &planes.planes));
    assert_ok(kvern_cache_join(other, &one, 1));
    assert_ok(kvern_cache_keep(other, (size_t[]){2, 0}, 2));
    assert_int_equal(kvern_cache_length(other, 0), 2);
    assert_int_equal(kvern_cache_length(other, 1), 5);
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_latent(other, 0, 0, 1, NULL, NULL, plane));
    float *out = new_floats(2 * HEADS * 32, NAN);
    feed_run(other, KVERN_PHASE_DECODE, (uint64_t[]){sequences[1], sequences[0]}, (int64_t[]){1, 1},
             HEADS, out);
    const kvern_layer layer = kvern_layer_latent(32, 8, 0);
    expect_serial(layer, sequences[1], 2, 1, HEADS, out, "row of 2");
    expect_serial(layer, sequences[0], 5, 1, HEADS, out + HEADS * 32, "row of 5");
    free(out);
    padded_destroy(&planes);
    kvern_cache_destroy(one);
    kvern_cache_destroy(other);
    bed_destroy(b);
}

// ---- M6: lanes of other widths, and of none ----

static void check_widths(kvern_layer layer)
{
    bed *b = bed_create(layer, 1), *c = bed_create(layer, 1);
    const size_t latent = layer.latent_dim, rope = layer.rope_dim;
    kvern_cache *all, *second;
    assert_ok(kvern_cache_create(b->composition, 0, 0, &all));
    feed_one(b->cache, KVERN_PHASE_WINDOW, sequences[0], 3, HEADS, NULL);
    assert_ok(kvern_cache_create(b->composition, 0, 1, &second));
    feed_one(second, KVERN_PHASE_WINDOW, sequences[1], 7, HEADS, NULL);
    kvern_cache *const both[] = {b->cache, second};
    assert_ok(kvern_cache_join(all, both, 2));
    padded_tensors t = padded_export(all);
    assert_int_equal(t.planes.width, 7);
    assert_int_equal(t.planes.left_padding[0], 4);
    assert_int_equal(t.planes.left_padding[1], 0);
    assert_int_equal(t.planes.rope != NULL, rope > 0);
    // Columns are right-justified; padding is zeros.
    float *values = new_floats(layer.k_dim + layer.v_dim, 0);
    for (size_t r = 0; r < 2; r++) {
        for (int64_t column = 0; column < 7; column++) {
            const size_t at = r * 7 + (size_t)column;
            const int64_t position = column - t.planes.left_padding[r];
            memset(values, 0, layer.k_dim * sizeof *values);
            if (position >= 0)
                assert_ok(feed_export(all, r, position, values));
            check_same_floats(values, (float *)t.planes.latent + at * latent, latent, "latent");
            if (rope)
                check_same_floats(values + latent, (float *)t.planes.rope + at * rope, rope,
                                  "rope");
        }
    }
    assert_ok(kvern_cache_keep(all, (size_t[]){1, 0}, 2));
    kvern_cache *alone;
    assert_ok(kvern_cache_extract(all, 1, &alone));
    assert_string_equal(kvern_cache_signature(alone), kvern_cache_signature(c->cache));
    float *out = new_floats(2 * HEADS * latent, NAN);
    feed_one(alone, KVERN_PHASE_WINDOW, sequences[0], 2, HEADS, out);
    expect_serial(layer, sequences[0], 3, 2, HEADS, out, "the row that was extracted");
    free(out);
    free(values);
    padded_destroy(&t);
    kvern_cache_destroy(alone);
    kvern_cache_destroy(second);
    kvern_cache_destroy(all);
    bed_destroy(c);
    bed_destroy(b);
}

// scouzi1966/maclocal-api#66: lanes of no width, and of two widths, broke merging and filtering.
static void fault_M6_lanes_of_other_widths(void **state)
{
    (void)state;
    check_widths(kvern_layer_latent(64, 0, 0));
    check_widths(kvern_layer_latent(512, 64, 0));
    check_widths(kvern_layer_latent(1024, 256, 256));
    check_widths(kvern_layer_latent(8, 256, 0));
}

// ---- R: 64-bit offsets ----

// vllm-project/vllm#50427: token times stride in 32 bits. Lanes whose tokens lie 2^31 elements
// apart and more, in memory of which only their pages exist; likewise queries and results.
static void fault_R1_lanes_far_apart(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_latent(16, 8, 8);
    const int64_t stride = (INT64_C(1) << 31) + 64;
    const size_t bytes = (size_t)(2 * stride + 64) * sizeof(float);
    float *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED) {
        print_message("not run: the machine does not give address space away\n");
        skip();
    }
    bed *b = bed_create(layer, 1);
    const int64_t counts = 3;
    feed f = feed_create(b->cache, (uint64_t[]){1}, &counts, 1);
    for (int i = 0; i < 3; i++) {
        memcpy(far + i * stride, f.k + i * 24, 24 * sizeof *far);
        memcpy(far + i * stride + 32, f.v + i * 16, 16 * sizeof *far);
    }
    kvern_latent_tokens t = f.latents;
    t.latent = far;
    t.rope = far + 16;
    t.index = far + 32;
    t.latent_token_stride = t.rope_token_stride = t.index_token_stride = stride;
    kvern_read *read;
    assert_ok(kvern_cache_append_latent(b->cache, KVERN_PHASE_WINDOW, &t, &read));
    float got[8], *wanted = new_floats(f.out_count, NAN);
    assert_ok(kvern_cache_export_latent(b->cache, 0, 2, 1, NULL, NULL, got));
    check_same_floats(f.v + 2 * 16, got, 8, "the last index key");
    f.queries.out = wanted;
    assert_ok(kvern_read_attend(read, &f.queries));
    for (int i = 0; i < 3; i++)
        memcpy(far + i * stride, f.q + i * 24, 24 * sizeof *far);
    f.queries.q = f.queries.out = far; // each query is read before its result is written
    f.queries.q_token_stride = f.queries.out_token_stride = stride;
    assert_ok(kvern_read_attend(read, &f.queries));
    for (int i = 0; i < 3; i++)
        check_same_floats(wanted + i * 16, far + i * stride, 16, "far away");
    // An index that does not fit at all is refused.
    t.index_token_stride = INT64_MAX / 2;
    assert_unchanged(b->cache, KVERN_ERR_OVERFLOW,
                     kvern_cache_append_latent(b->cache, KVERN_PHASE_WINDOW, &t, read_));
    kvern_read_release(read);
    free(wanted);
    feed_destroy(&f);
    munmap(far, bytes);
    bed_destroy(b);
}

// A row of zeros but for two positions, near and far, that are alike: they get the same share.
static void check_far(int64_t length, size_t latent, size_t rope)
{
    const kvern_layer layer = kvern_layer_latent(latent, rope, 8);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    float *x = calloc(latent + rope, sizeof *x), *q = calloc(latent + rope, sizeof *q);
    float *out = calloc(latent, sizeof *out);
    const float zeros[KVERN_MAX_LATENT_DIM] = {0};
    assert_true(x && q && out);
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    x[0] = q[0] = q[latent] = x[latent] = 6;
    for (int i = 0; i < 4; i++) {
        const int64_t count = i % 2 ? 1 : i ? length - 2 : 1;
        kvern_latent_tokens t = kvern_latent_tokens_default(&layer);
        t.latent = i % 2 ? x : zeros;
        t.rope = i % 2 ? x + latent : zeros;
        t.index = zeros;
        x[1] = i == 1; // near; the far one has another number there
        x[2] = i == 3;
        t.latent_token_stride = t.rope_token_stride = t.index_token_stride = 0;
        t.counts = &count;
        kvern_read *read = NULL;
        assert_ok(kvern_cache_append_latent(cache, KVERN_PHASE_WINDOW, &t, i == 3 ? &read : NULL));
        if (!read)
            continue;
        kvern_queries queries = kvern_queries_default(&layer, 1);
        queries.q = q;
        queries.out = out;
        queries.counts = &(int64_t){1};
        queries.scale = 1;
        assert_ok(kvern_read_attend(read, &queries));
        kvern_read_release(read);
    }
    assert_true(out[1] > 0.49f && out[1] <= 0.5f); // exp(-72) of the others is next to nothing
    assert_true(out[1] == out[2]);
    assert_true(fabsf(out[0] - 6) < 1e-4f);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
    free(x);
    free(q);
    free(out);
}

// ROCm/aiter#4774: past 2 GiB of keys the scores were 0.
static void fault_R4_past_two_gib(void **state)
{
    (void)state;
    check_far(3000, 32, 8);
    if (check_is_long())
        check_far(460000, 1024, 256); // 2.3 GB
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_M1_every_lane_counts),
        cmocka_unit_test(fault_M3_index_keys_before_the_append),
        cmocka_unit_test(fault_M4_layers_without_an_indexer),
        cmocka_unit_test(fault_M6_lanes_of_other_widths),
        cmocka_unit_test(fault_R1_lanes_far_apart),
        cmocka_unit_test(fault_R4_past_two_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
