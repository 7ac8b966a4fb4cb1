// SPDX-License-Identifier: MIT
#include "src/base/sized.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// Longer ones are no structs of a newer release, but sizes that were never set.
#define MOST_BYTES ((size_t)4096)

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static bool is_known(const kvern_sized *sizes, size_t size)
{
    if (size >= sizes->now)
        return size <= MOST_BYTES;
    for (size_t i = 0; i < KVERN_SIZED_RELEASES && sizes->released[i]; i++) {
        if (size == sizes->released[i])
            return true;
    }
    return false;
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i])
            return false;
    }
    return true;
}

// `where` is empty, or says which entry of an array it is.
static kvern_status check_size(const kvern_sized *sizes, size_t size, const char *where)
{
    if (is_known(sizes, size))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_ARGUMENT, "%s%s.size is %zu, expected %zu", where, sizes->name,
                      size, sizes->now);
}

static kvern_status read_known(const kvern_sized *sizes, const void *given, const char *where,
                               void *known)
{
    const size_t size = size_of(given), common = kvern_min_size(size, sizes->now);
    kvern_status status = check_size(sizes, size, where);
    if (status)
        return status;
    if (size > sizes->now && !is_zero((const unsigned char *)given + sizes->now, size - sizes->now))
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "%s%s.size is %zu, and fields behind the %zu bytes that are known are "
                          "set",
                          where, sizes->name, size, sizes->now);
    memset(known, 0, sizes->now);
    memcpy(known, given, common);
    memcpy(known, &sizes->now, sizeof sizes->now);
    return KVERN_OK;
}

kvern_status kvern_sized_read(const kvern_sized *sizes, const void *given, void *known)
{
    return read_known(sizes, given, "", known);
}

kvern_status kvern_sized_read_entry(const kvern_sized *sizes, const void *array, size_t index,
                                    void *known)
{
    char where[40];
    snprintf(where, sizeof where, "layer %zu: ", index);
    const size_t step = size_of(array);
    kvern_status status = check_size(sizes, step, index ? "layer 0: " : where);
    if (status)
        return status;
    const void *entry = (const char *)array + index * step;
    if (size_of(entry) != step)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s%s.size is %zu, and that of layer 0 is %zu", where,
                          sizes->name, size_of(entry), step);
    return read_known(sizes, entry, where, known);
}

kvern_status kvern_sized_check_output(const kvern_sized *sizes, const void *given)
{
    return check_size(sizes, size_of(given), "");
}

void kvern_sized_write(const kvern_sized *sizes, const void *known, void *given)
{
    kvern_sized_init(sizes, known, given, size_of(given));
}

void kvern_sized_init(const kvern_sized *sizes, const void *known, void *given, size_t size)
{
    if (size < sizeof size)
        return;
    memset(given, 0, size);
    memcpy(given, known, kvern_min_size(size, sizes->now));
    memcpy(given, &size, sizeof size);
}
