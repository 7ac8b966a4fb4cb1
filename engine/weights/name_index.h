// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_NAME_INDEX_H
#define KVERN_ENGINE_NAME_INDEX_H

// Names in sorted order: whatever a file calls its keys and tensors, they are found in logarithmic
// time.

#include "engine/base/text_view.h"

#include <kvern/status.h>

// Each pointer is to the text_view at the start of a struct, so it converts to a pointer to that.
typedef struct name_index {
    const text_view **sorted;
    size_t count;
} name_index;

// Sorts `count` names that begin structs of `stride` bytes at `first`. *repeated is set to a name
// that occurs twice, or to NULL. False when memory is missing.
KVERN_CHECK bool name_index_build(name_index *index, const void *first, size_t stride, size_t count,
                                  const text_view **repeated);

// NULL when there is no such name.
const text_view *name_index_find(const name_index *index, text_view name);

// All zero is permitted.
void name_index_free(name_index *index);

#endif
