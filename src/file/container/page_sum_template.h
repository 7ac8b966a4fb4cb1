// SPDX-License-Identifier: MIT
// A file that includes this has defined PAGE_SUM, the name of its function.
#include "src/file/container/page_sum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t PAGE_SUM(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
