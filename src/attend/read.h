// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_READ_H
#define KVERN_ATTEND_READ_H

// The inside of a read: the rows' tables, retained, with the lengths they had.

#include "src/attend/attend.h"

struct kvern_read {
    kvern_context *context;
    kvern_geometry geometry;
    size_t row_count;
    kvern_read_row rows[];
};

// Makes a read of `row_count` empty rows for the caller to fill; the context is retained. On
// failure *out is NULL.
KVERN_CHECK kvern_status kvern_read_create(kvern_context *context, const kvern_geometry *geometry,
                                           size_t row_count, kvern_read **out);

// Makes sure that one read and its attends of one query per row take nothing from the allocator.
KVERN_CHECK kvern_status kvern_read_reserve(kvern_context *context, const kvern_geometry *geometry,
                                            size_t row_count, size_t query_heads,
                                            int64_t positions);

#endif
