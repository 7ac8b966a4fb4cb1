// SPDX-License-Identifier: MIT
// Checksums of pages: every kernel of this machine gives what xxHash's scalar code does.

#include "src/file/container/page_sum.h"
#include "tests/support/check.h"
#include "tests/support/guarded.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"

#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_SCALAR
#include <xxhash.h>

// Of the largest page that is summed here; a block of XXH3 has 1024 bytes.
#define MOST_BYTES 70000

static void expect_equal(const guarded *arena, size_t bytes)
{
    const kernel_variants variants = kernel_variants_here();
    const void *data = guarded_last(arena, bytes);
    const uint64_t wanted = XXH3_64bits(data, bytes);
    for (size_t v = 0; v < variants.count; v++)
        assert_int_equal(wanted, kvern_page_sum_of(variants.features[v])(data, bytes));
}

// Each length up to some blocks, and some beyond, with a page behind it that cannot be read.
static void every_kernel_gives_the_sums_of_scalar_code(void **state)
{
    (void)state;
    guarded arena = guarded_at_end(MOST_BYTES);
    test_random random = test_random_seed(check_seed());
    unsigned char *bytes = guarded_last(&arena, MOST_BYTES);
    for (size_t i = 0; i < MOST_BYTES; i++)
        bytes[i] = (unsigned char)test_random_below(&random, 256);
    for (size_t count = 0; count < 5000; count++)
        expect_equal(&arena, count);
    for (size_t i = 0; i < 100; i++)
        expect_equal(&arena, test_random_below(&random, MOST_BYTES + 1));
    expect_equal(&arena, 65536);
    guarded_free(&arena);
}

int main(void)
{
    kernel_variants_print("page sum");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_gives_the_sums_of_scalar_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
