// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SLOT_STORE_H
#define KVERN_TESTS_SUPPORT_SLOT_STORE_H

#include <kvern/experimental/slot.h>

// Stores keys or values of a token, packed [heads, dim], where a slot says, as a caller's kernel
// does: rounded to its type.
void slot_store(const kvern_slot_stream *s, size_t heads, size_t dim, const float *values);

#endif
