// SPDX-License-Identifier: MIT
// Padded planes of chunked caches of mlx-lm.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/padded_tensors.h"
#include "tests/support/storages.h"

#include <kvern/experimental/padded.h>
#include <kvern/kvern.h>

#include <string.h>

// A chunked cache of mlx-lm (ChunkedKVCache) drops what lies more than a chunk behind, wherever
// chunks begin: its `start` is any number. What is left of an older chunk is not looked at, and a
// row that lacks a part of its own chunk is refused.
static void chunks_come_from_any_start(void **state)
{
    (void)state;
    enum { CHUNK = 40, LENGTH = 110, SLACK = 100 };
    const kvern_layer layer = storage_chunked(&storages[0], 2, 64, CHUNK, SLACK);
    bed *b = bed_create(layer, 1);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, LENGTH, 2, NULL);
    float out[51 * 2 * 64];
    padded_tensors all = padded_export(b->cache);
    assert_int_equal(all.planes.width, LENGTH);
    for (int64_t start = 1; start < LENGTH; start++) {
        kvern_cache *copy;
        assert_ok(kvern_cache_create(b->composition, 0, 1, &copy));
        padded_tensors t =
            padded_create(b->cache, LENGTH - start, false, false, KVERN_F32, KVERN_F32);
        for (size_t h = 0; h < 2; h++) {
            const size_t bytes = (size_t)(LENGTH - start) * 64 * sizeof(float);
            const size_t skipped = ((size_t)LENGTH * h + (size_t)start) * 64 * sizeof(float);
            memcpy((char *)t.planes.k + h * bytes, (char *)all.planes.k + skipped, bytes);
            memcpy((char *)t.planes.v + h * bytes, (char *)all.planes.v + skipped, bytes);
        }
        t.planes.left_padding[0] = 0;
        t.planes.offsets[0] = LENGTH;
        const int64_t held = (start + CHUNK - 1) / CHUNK * CHUNK;
        if (held >= LENGTH) {
            assert_status(KVERN_ERR_RANGE, kvern_cache_import_padded(copy, &t.planes));
        } else {
            assert_ok(kvern_cache_import_padded(copy, &t.planes));
            assert_int_equal(kvern_cache_padded_width(copy), LENGTH - held);
            assert_int_equal(kvern_cache_trimmable(copy, 0), LENGTH - held - 1);
            feed_one(copy, KVERN_PHASE_DECODE, 1, 1, 2, out);
            feed_one(copy, KVERN_PHASE_WINDOW, 1, 50, 2, out + 2 * 64);
            expect_serial(layer, 1, LENGTH, 51, 2, out, "from any start");
        }
        padded_destroy(&t);
        kvern_cache_destroy(copy);
    }
    padded_destroy(&all);
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_come_from_any_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
