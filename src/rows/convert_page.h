// SPDX-License-Identifier: MIT
#ifndef KVERN_ROWS_CONVERT_PAGE_H
#define KVERN_ROWS_CONVERT_PAGE_H

// The content of a page, from the codecs of before `start` (bf16) to the planned ones.

#include "src/rows/geometry.h"

// Writes the first `slots` positions of the page `old`, which stays as it is, into another one.
void kvern_convert_page(const kvern_geometry *from, const kvern_geometry *to, void *old,
                        void *fresh, size_t slots);

// The same for all positions of one head.
void kvern_convert_head(const kvern_geometry *from, const kvern_geometry *to, void *old,
                        void *fresh, size_t head);

// The same where the page lies. No stream's new form may be larger than its old one. Takes no
// memory but 72 KiB of the caller's stack.
void kvern_convert_in_place(const kvern_geometry *from, const kvern_geometry *to, void *page,
                            size_t slots);

#endif
