// SPDX-License-Identifier: MIT
// Kernels for aarch64 come with pages of 4, 16 or 64 KiB. Here the calls that map memory answer as
// with the largest: whatever the library maps is given back in whole pages, and all of it.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/sanitizer.h"

#include <kvern/kvern.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYSTEM_PAGE ((size_t)65536)

#if HAS_SANITIZER

static void all_that_is_mapped_is_given_back(void **state)
{
    (void)state;
    print_message("not run: a sanitizer has calls of its own to map memory\n");
    skip();
}

#else

static _Atomic size_t mapped, maps, refused;

static size_t whole_pages(size_t bytes)
{
    return (bytes + SYSTEM_PAGE - 1) / SYSTEM_PAGE * SYSTEM_PAGE;
}

static void *map(size_t bytes, int protection, int flags, int file, off_t offset)
{
    return (void *)syscall(SYS_mmap, NULL, bytes, protection, flags, file, offset);
}

static void unmap(char *address, size_t bytes)
{
    if (bytes)
        (void)syscall(SYS_munmap, address, bytes);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (address || !(flags & MAP_ANONYMOUS))
        return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
    const size_t length = whole_pages(bytes);
    char *found = map(length + SYSTEM_PAGE, protection, flags, file, offset);
    if (found == MAP_FAILED)
        return MAP_FAILED;
    const size_t before = (SYSTEM_PAGE - (uintptr_t)found % SYSTEM_PAGE) % SYSTEM_PAGE;
    unmap(found, before);
    unmap(found + before + length, SYSTEM_PAGE - before);
    mapped += length;
    maps++;
    return found + before;
}

int munmap(void *address, size_t bytes)
{
    if ((uintptr_t)address % SYSTEM_PAGE) {
        refused++;
        errno = EINVAL;
        return -1;
    }
    mapped -= whole_pages(bytes);
    unmap(address, whole_pages(bytes));
    return 0;
}

// Two pages of these rows fill an arena but for 60 KiB: it is mapped, and no multiple of 64 KiB.
static void all_that_is_mapped_is_given_back(void **state)
{
    (void)state;
    const kvern_layer layer = kvern_layer_default(7, 568);
    const size_t before = mapped, maps_before = maps;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    for (int i = 0; i < 3; i++)
        feed_one(cache, KVERN_PHASE_WINDOW, 1, 64, 7, NULL);
    assert_true(maps > maps_before);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
    assert_int_equal(refused, 0);
    assert_int_equal(mapped, before);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_mapped_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
