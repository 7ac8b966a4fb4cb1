// SPDX-License-Identifier: MIT
#include "engine/gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

static int compare_strings(const gguf_string *a, const gguf_string *b)
{
    size_t common = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->data, b->data, common);
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int compare_elements(const void *a, const void *b)
{
    return compare_strings(*(const gguf_string *const *)a, *(const gguf_string *const *)b);
}

bool gguf_names_build(gguf_names *names, const void *first, size_t stride, size_t count,
                      const gguf_string **repeated)
{
    *repeated = NULL;
    names->count = count;
    names->sorted = calloc(count ? count : 1, sizeof *names->sorted);
    if (!names->sorted) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        names->sorted[i] = (const gguf_string *)((const char *)first + i * stride);
    }
    qsort(names->sorted, count, sizeof *names->sorted, compare_elements);
    for (size_t i = 1; i < count; i++) {
        if (compare_strings(names->sorted[i - 1], names->sorted[i]) == 0) {
            *repeated = names->sorted[i];
            break;
        }
    }
    return true;
}

const gguf_string *gguf_names_find(const gguf_names *names, const char *name)
{
    gguf_string wanted = {name, strlen(name)};
    const gguf_string *key = &wanted;
    const gguf_string **found =
        bsearch(&key, names->sorted, names->count, sizeof *names->sorted, compare_elements);
    return found ? *found : NULL;
}
