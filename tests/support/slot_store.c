// SPDX-License-Identifier: MIT
#include "tests/support/slot_store.h"

#include "tests/support/rounding.h"

void slot_store(const kvern_slot_stream *s, size_t heads, size_t dim, const float *values)
{
    for (size_t h = 0; h < heads; h++) {
        for (int64_t d = 0; d < (int64_t)dim; d++) {
            const float value = values[h * dim + (size_t)d];
            const int64_t head = (int64_t)h * s->head_stride;
            if (d < s->whole)
                element_set(
                    s->type, s->data,
                    (size_t)(head + d / s->group * s->group_stride + d % s->group * s->dim_stride),
                    value);
            else
                element_set(s->type, s->rest, (size_t)(head + (d - s->whole) * s->dim_stride),
                            value);
        }
    }
}
