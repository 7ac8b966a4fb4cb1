// SPDX-License-Identifier: MIT
#include "engine/weights/name_index.h"

#include <stdlib.h>
#include <string.h>

static int compare_strings(const text_view *a, const text_view *b)
{
    size_t common = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->data, b->data, common);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int compare_elements(const void *a, const void *b)
{
    return compare_strings(*(const text_view *const *)a, *(const text_view *const *)b);
}

bool name_index_build(name_index *index, const void *first, size_t stride, size_t count,
                      const text_view **repeated)
{
    *repeated = NULL;
    index->count = count;
    index->sorted = calloc(count ? count : 1, sizeof *index->sorted);
    if (!index->sorted) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        index->sorted[i] = (const text_view *)((const char *)first + i * stride);
    }
    qsort(index->sorted, count, sizeof *index->sorted, compare_elements);
    for (size_t i = 1; i < count; i++) {
        if (compare_strings(index->sorted[i - 1], index->sorted[i]) == 0) {
            *repeated = index->sorted[i];
            break;
        }
    }
    return true;
}

const text_view *name_index_find(const name_index *index, text_view name)
{
    const text_view *key = &name;
    const text_view **found =
        bsearch(&key, index->sorted, index->count, sizeof *index->sorted, compare_elements);
    return found ? *found : NULL;
}

void name_index_free(name_index *index)
{
    free(index->sorted);
    *index = (name_index){0};
}
