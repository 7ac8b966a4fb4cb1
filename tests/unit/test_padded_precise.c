// SPDX-License-Identifier: MIT
// Padded planes of layers that keep positions precise (kvern_layer.residual): what an append of the
// same numbers stores, all or nothing; what does not say which positions are precise is refused.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/padded_tensors.h"
#include "tests/support/storages.h"

#include <kvern/experimental/padded.h>
#include <kvern/kvern.h>

#include <string.h>

#define ROWS 3
#define HEADS 2 // of queries
#define DIM 64

static const uint64_t sequences[ROWS] = {1, 2, 3};

static kvern_layer dense(kvern_type type)
{
    kvern_layer layer = kvern_layer_default(1, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_dense(type);
    return layer;
}

static kvern_cache *new_cache(const bed *b, size_t rows)
{
    kvern_cache *cache;
    assert_ok(kvern_cache_create(b->composition, 0, rows, &cache));
    return cache;
}

// Appends the same token to both and attends it.
static void expect_same_attends(kvern_cache *a, kvern_cache *b, const char *what)
{
    static const int64_t ones[ROWS] = {1, 1, 1};
    float wanted[ROWS * HEADS * DIM], got[ROWS * HEADS * DIM];
    feed_run(a, KVERN_PHASE_DECODE, sequences, ones, HEADS, wanted);
    feed_run(b, KVERN_PHASE_DECODE, sequences, ones, HEADS, got);
    check_same_bytes(wanted, got, sizeof wanted, what);
}

// Rows that keep positions precise take what an append of them takes, all or nothing; codes, and
// rows without all of their positions, do not say what is precise.
static void check_precise_rows(kvern_layer layer)
{
    static const int64_t lengths[3] = {300, 0, 90};
    bed *b = bed_create(layer, 3), *from = bed_create(dense(KVERN_F32), 3);
    kvern_cache *copy = new_cache(b, 3);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
    feed_run(from->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
    padded_tensors planes = padded_export(from->cache);
    for (int64_t refuse = 0;; refuse++) {
        ledger_refuse(&b->books, refuse);
        const kvern_status status = kvern_cache_import_padded(copy, &planes.planes);
        const bool refused = ledger_relent(&b->books);
        if (!refused) {
            assert_ok(status);
            assert_true(refuse > 1);
            break;
        }
        if (status) {
            assert_int_equal(status, KVERN_ERR_MEMORY);
            assert_int_equal(kvern_cache_bytes(copy), 0);
        }
        kvern_cache_destroy(copy);
        copy = new_cache(b, 3);
    }
    assert_int_equal(kvern_cache_bytes(copy), kvern_cache_bytes(b->cache));
    for (int i = 0; i < 70; i++) // a page leaves the residual
        expect_same_attends(b->cache, copy, "precise rows");
    kvern_cache *other = new_cache(b, 3);
    padded_tensors codes = padded_create(from->cache, 300, true, false, KVERN_F32, KVERN_F32);
    memcpy(codes.planes.left_padding, planes.planes.left_padding, 3 * sizeof(int64_t));
    memcpy(codes.planes.offsets, planes.planes.offsets, 3 * sizeof(int64_t));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_import_padded(other, &codes.planes));
    assert_non_null(strstr(kvern_error_detail(), "planes of codes"));
    if (layer.kind != KVERN_LAYER_FULL) {
        planes.planes.offsets[0] += 64;
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_import_padded(other, &planes.planes));
        assert_non_null(strstr(kvern_error_detail(), "planes without all positions"));
    }
    assert_int_equal(kvern_cache_bytes(other), 0);
    kvern_cache_destroy(other);
    kvern_cache_destroy(copy);
    padded_destroy(&codes);
    padded_destroy(&planes);
    bed_destroy(from);
    bed_destroy(b);
}

static void precise_rows_are_appended_to(void **state)
{
    (void)state;
    for (size_t s = 0; s < storage_count; s++) {
        if (!storages[s].residual)
            continue;
        check_precise_rows(storage_layer(&storages[s], 1, 64));
        check_precise_rows(storage_window(&storages[s], 1, 64, 90, 3, 0));
        check_precise_rows(storage_chunked(&storages[s], 1, 64, 128, 6));
    }
}

// A layer that keeps positions precise beside one that does not: both are filled, or neither.
static void states_are_filled(void **state)
{
    (void)state;
    static const int64_t lengths[ROWS] = {300, 0, 90};
    kvern_layer layers[] = {dense(KVERN_BF16), dense(KVERN_BF16), dense(KVERN_BF16)};
    layers[1].k_codec = layers[1].v_codec = kvern_codec_affine(4, 64);
    layers[1].residual = 70;
    bed *from = bed_create(dense(KVERN_F32), ROWS), *b = bed_create(layers[1], ROWS);
    feed_run(from->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, lengths, 1, NULL);
    padded_tensors planes = padded_export(from->cache);
    const kvern_padded_planes all[] = {planes.planes, planes.planes, planes.planes};
    kvern_composition *composition;
    kvern_state *filled;
    assert_ok(kvern_composition_create(b->context, layers, 3, &composition));
    for (int64_t refuse = 0;; refuse++) {
        assert_ok(kvern_state_create(composition, ROWS, &filled));
        ledger_refuse(&b->books, refuse);
        const kvern_status status = kvern_state_import_padded(filled, all);
        const bool refused = ledger_relent(&b->books);
        if (!refused) {
            assert_ok(status);
            break;
        }
        for (size_t l = 0; l < 3 && status; l++)
            assert_int_equal(kvern_cache_bytes(kvern_state_cache(filled, l)), 0);
        kvern_state_destroy(filled);
    }
    for (size_t r = 0; r < ROWS; r++) {
        assert_int_equal(kvern_state_length(filled, r), lengths[r]);
        for (int64_t p = 0; p < lengths[r]; p++) {
            float wanted[2][DIM], got[2][DIM];
            assert_ok(kvern_cache_export(b->cache, r, p, 1, wanted[0], wanted[1]));
            assert_ok(kvern_cache_export(kvern_state_cache(filled, 1), r, p, 1, got[0], got[1]));
            check_same_bytes(wanted, got, sizeof wanted, "of a state");
        }
    }
    kvern_state_destroy(filled);
    kvern_composition_release(composition);
    padded_destroy(&planes);
    bed_destroy(from);
    bed_destroy(b);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precise_rows_are_appended_to),
        cmocka_unit_test(states_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
