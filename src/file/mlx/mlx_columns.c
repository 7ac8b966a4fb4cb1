// SPDX-License-Identifier: MIT
#include "src/file/mlx/mlx_columns.h"

#include "src/base/assert.h"
#include "src/base/size.h"
#include "src/rows/row.h"

#include <inttypes.h>
#include <string.h>

// Number `at` of a tensor of I32 or I64, aligned or not.
static int64_t load_integer(const kvern_tensor *tensor, size_t at)
{
    KVERN_ASSERT(at < tensor->elements);
    if (tensor->dtype == KVERN_DTYPE_I64) {
        int64_t wide;
        memcpy(&wide, tensor->data + at * sizeof wide, sizeof wide);
        return wide;
    }
    int32_t value;
    memcpy(&value, tensor->data + at * sizeof value, sizeof value);
    return value;
}

static void add_part(kvern_mlx_columns *c, int64_t begin, int64_t end)
{
    size_t part = 0;
    while (c->end[part] > c->begin[part])
        part++;
    if (end > begin) {
        KVERN_ASSERT(part < 3);
        c->begin[part] = begin;
        c->end[part] = end;
        c->count += end - begin;
    }
}

// ---- The columns of each class ----

// A ring that has come round: what was written last ends at idx, the oldest begins there.
static bool has_turned(const kvern_mlx_item *item)
{
    return item->idx != item->width && item->idx < item->offset;
}

static kvern_mlx_columns of_rotating(const kvern_mlx_item *item)
{
    kvern_mlx_columns c = {.offset = item->offset};
    if (!has_turned(item)) {
        add_part(&c, 0, item->idx);
        return c;
    }
    add_part(&c, 0, item->keep);
    add_part(&c, item->idx, item->width);
    add_part(&c, item->keep, item->idx);
    return c;
}

// The columns of a batch behind the padding of one row. It is below zero where real columns have
// gone.
static kvern_mlx_columns of_batch(const kvern_mlx_item *item, size_t row)
{
    kvern_mlx_columns c = {.offset = load_integer(item->offsets, row)};
    const int64_t padding = kvern_max_i64(0, load_integer(item->padding, row));
    if (!item->rotated) {
        add_part(&c, padding, item->idx);
        return c;
    }
    const int64_t tail = item->width - item->idx; // from idx to the end comes first
    add_part(&c, item->idx + kvern_min_i64(padding, tail), item->width);
    add_part(&c, kvern_max_i64(0, padding - tail), item->idx);
    return c;
}

kvern_mlx_columns kvern_mlx_columns_of(const kvern_mlx_item *item, size_t row, int64_t length)
{
    kvern_mlx_columns c = {.offset = item->offset};
    if (item->class == KVERN_MLX_ARRAYS) {
        c.offset = item->rows ? -1 : 0;
        return c;
    }
    if (item->rows == 0)
        return c;
    if (item->class == KVERN_MLX_ROTATING)
        return of_rotating(item);
    if (item->class == KVERN_MLX_BATCH || item->class == KVERN_MLX_BATCH_ROTATING)
        return of_batch(item, row);
    if (c.offset < 0)
        c.offset = length;
    // What a chunked cache has dropped ends at its start; others have none.
    if (c.offset >= 0)
        add_part(&c, 0, c.offset - item->start);
    return c;
}

// ---- Checks ----

static kvern_status check_rotating(const kvern_mlx_file *file, const kvern_mlx_item *item)
{
    const kvern_mlx_item *i = item;
    if (i->max_size < 1 || i->keep < 0 || i->keep >= i->max_size)
        return kvern_mlx_bad(file, item, "a window of %" PRId64 " that keeps %" PRId64, i->max_size,
                             i->keep);
    if (i->idx < 0 || i->idx > i->width || i->offset < 0)
        return kvern_mlx_bad(file, item,
                             "offset %" PRId64 " and index %" PRId64 " with %" PRId64 " columns",
                             i->offset, i->idx, i->width);
    if (has_turned(i) && (i->width != i->max_size || i->idx < i->keep || i->offset < i->width))
        return kvern_mlx_bad(file, item,
                             "a ring of %" PRId64 " columns at index %" PRId64
                             " and offset %" PRId64 ", with a window of %" PRId64
                             " that keeps %" PRId64,
                             i->width, i->idx, i->offset, i->max_size, i->keep);
    const int64_t count = of_rotating(i).count;
    if (count > i->offset || (count < i->offset && count < i->max_size))
        return kvern_mlx_bad(file, item,
                             "%" PRId64 " columns at offset %" PRId64 ", with a window of %" PRId64,
                             count, i->offset, i->max_size);
    return KVERN_OK;
}

static kvern_status check_chunked(const kvern_mlx_file *file, const kvern_mlx_item *item)
{
    const bool is_told = item->offset >= 0 || file->layout == KVERN_MLX_STATES;
    const int64_t count = is_told ? item->offset - item->start : 0;
    if (item->chunk < 1 || item->start < 0)
        return kvern_mlx_bad(file, item, "chunks of %" PRId64 ", and a start of %" PRId64,
                             item->chunk, item->start);
    // Positions of which all are gone are no state: the newest ones stay.
    if (count < 0 || count > item->width || (count == 0 && item->offset > 0))
        return kvern_mlx_bad(file, item,
                             "offset %" PRId64 " and start %" PRId64 " with %" PRId64 " columns",
                             item->offset, item->start, item->width);
    return KVERN_OK;
}

static bool fits_batch(const kvern_mlx_item *item, const kvern_mlx_columns *c, int64_t padding)
{
    if (padding > (item->rotated ? item->width : item->idx))
        return false;
    if (item->class == KVERN_MLX_BATCH || padding > 0)
        return c->offset == c->count && padding >= 0;
    return c->offset >= c->count && (c->offset == c->count || c->count >= item->max_size);
}

static kvern_status check_batch(const kvern_mlx_file *file, const kvern_mlx_item *item)
{
    const bool rotating = item->class == KVERN_MLX_BATCH_ROTATING;
    if (item->idx < 0 || item->idx > item->width ||
        (rotating && (item->max_size < 1 || (item->rotated && item->width != item->max_size))))
        return kvern_mlx_bad(
            file, item, "index %" PRId64 " of %" PRId64 " columns, with a window of %" PRId64 "%s",
            item->idx, item->width, item->max_size, item->rotated ? " that has turned" : "");
    for (size_t r = 0; r < item->rows; r++) {
        const kvern_mlx_columns c = of_batch(item, r);
        const int64_t padding = load_integer(item->padding, r);
        if (!fits_batch(item, &c, padding))
            return kvern_mlx_bad(file, item,
                                 "row %zu: offset %" PRId64 " and a left padding of %" PRId64
                                 " with %" PRId64 " columns",
                                 r, c.offset, padding, item->idx);
    }
    return KVERN_OK;
}

kvern_status kvern_mlx_check_columns(const kvern_mlx_file *file, const kvern_mlx_item *item)
{
    if (item->offset > KVERN_MAX_POSITIONS)
        return kvern_mlx_bad(file, item, "offset %" PRId64, item->offset);
    if (item->class == KVERN_MLX_ARRAYS)
        return KVERN_OK;
    if (item->rows == 0)
        return item->offset == 0
                   ? KVERN_OK
                   : kvern_mlx_bad(file, item, "offset %" PRId64 ", and it is empty", item->offset);
    if (item->class == KVERN_MLX_ROTATING)
        return check_rotating(file, item);
    if (item->class == KVERN_MLX_CHUNKED)
        return check_chunked(file, item);
    if (item->class == KVERN_MLX_BATCH || item->class == KVERN_MLX_BATCH_ROTATING)
        return check_batch(file, item);
    if (item->offset < 0 || item->offset > item->width)
        return kvern_mlx_bad(file, item, "offset %" PRId64 " with %" PRId64 " columns",
                             item->offset, item->width);
    return KVERN_OK;
}
