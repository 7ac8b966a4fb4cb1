// SPDX-License-Identifier: MIT
// The newest positions of a read, copied to planes of the caller's.
#include "src/attend/read.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/math/element.h"
#include "src/math/fpenv.h"

#include <inttypes.h>
#include <kvern/donor.h>
#include <string.h>

static const kvern_sized PLANES_SIZES =
    KVERN_SIZED(kvern_newest_planes, KVERN_SIZE_TO(kvern_newest_planes, ends));

void kvern_newest_planes_init(kvern_newest_planes *planes, size_t size)
{
    const kvern_newest_planes defaults = {.k_type = KVERN_F32, .v_type = KVERN_F32};
    kvern_sized_init(&PLANES_SIZES, &defaults, planes, size);
}

static const kvern_stream_plan *find_lane(const kvern_geometry *g, kvern_lane lane)
{
    for (size_t s = 0; s < g->stream_count; s++) {
        if (g->streams[s].lane == lane)
            return &g->streams[s];
    }
    return NULL;
}

// Of one stream.
typedef struct plane {
    kvern_lane lane;
    kvern_type type;
    char *to; // NULL: not wanted
} plane;

static kvern_status check_plane(const kvern_read *read, const plane *p, int64_t width)
{
    const kvern_stream_plan *stream = find_lane(read->geometry, p->lane);
    size_t vectors, bytes;
    if (!stream)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a read without keys and values of attention");
    if (p->to && !kvern_type_bytes(p->type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "unknown element type %d of %s", (int)p->type,
                          stream->name);
    if (!kvern_size_mul(read->row_count * stream->heads, (size_t)width, &vectors) ||
        !kvern_size_mul(vectors, stream->dim * sizeof(float), &bytes) || bytes > PTRDIFF_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "planes of %" PRId64 " columns do not fit memory",
                          width);
    return KVERN_OK;
}

// What the last position of a row sees by its place alone, which every row holds. What it sees both
// ways besides may have been dropped when the read has no query there. The positions of a block see
// what the first of them does.
static kvern_visibility last_sight(const kvern_read *read, size_t r)
{
    kvern_read_row row = read->rows[r];
    if (row.length == 0)
        return (kvern_visibility){0};
    const int64_t query = row.block ? row.length - row.base - 1 : 0;
    row.base = row.block ? row.base : row.length - 1;
    row.ranges = NULL;
    return kvern_visibility_of(&read->window, &row, query);
}

// One row, of which `shown` columns at the end are positions.
typedef struct shown_row {
    const kvern_read *read;
    const kvern_read_row *row;
    kvern_visibility sight; // of its last position
    int64_t shown, width;
} shown_row;

// How many of the newest positions a row shows: those that its last position sees without a gap.
static shown_row show_row(const kvern_read *read, size_t r, int64_t width)
{
    const kvern_visibility sight = last_sight(read, r);
    return (shown_row){read, &read->rows[r], sight, kvern_min_i64(sight.end - sight.begin, width),
                       width};
}

// Whether the last position reads a position in the planned codecs, where others are precise.
static bool is_coded(const shown_row *from, int64_t position)
{
    return from->row->coded && position >= from->sight.coded_begin &&
           position < from->sight.coded_end;
}

static void copy_vector(const kvern_stream_plan *stream, void *page, size_t head, size_t slot,
                        kvern_type type, void *to)
{
    float values[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(head < stream->heads && slot < KVERN_PAGE_POSITIONS);
    kvern_stream_decode(stream, page, head, slot, values);
    for (size_t d = 0; d < stream->dim; d++)
        kvern_store_element(type, to, d, values[d]);
}

static void copy_position(const shown_row *from, const plane *p, size_t head, int64_t position,
                          void *to)
{
    const size_t block = (size_t)position / KVERN_PAGE_POSITIONS;
    const bool coded = is_coded(from, position);
    const kvern_geometry *form = coded ? from->read->geometry : from->row->geometry;
    const kvern_pass pass = coded ? KVERN_PASS_CODED : KVERN_PASS_REST;
    const kvern_page *page = kvern_read_page(&from->read->window, from->row, pass, block);
    copy_vector(find_lane(form, p->lane), page->data, head, (size_t)position % KVERN_PAGE_POSITIONS,
                p->type, to);
}

static void export_head(const shown_row *from, const plane *p, size_t head, size_t bytes, char *to)
{
    const int64_t first = from->row->length - from->shown, left = from->width - from->shown;
    memset(to, 0, (size_t)left * bytes);
    for (int64_t i = 0; i < from->shown; i++)
        copy_position(from, p, head, first + i, to + (size_t)(left + i) * bytes);
}

static void export_plane(const shown_row *from, const plane *p, size_t r)
{
    const kvern_stream_plan *stream = find_lane(from->read->geometry, p->lane);
    const size_t bytes = stream->dim * kvern_type_bytes(p->type);
    for (size_t h = 0; p->to && h < stream->heads; h++)
        export_head(from, p, h, bytes,
                    p->to + (r * stream->heads + h) * (size_t)from->width * bytes);
}

static void export_row(const kvern_read *read, const kvern_newest_planes *planes,
                       const plane streams[2], size_t r)
{
    const shown_row from = show_row(read, r, planes->width);
    for (size_t s = 0; s < 2; s++)
        export_plane(&from, &streams[s], r);
    if (planes->offsets)
        planes->offsets[r] = read->rows[r].length;
    if (planes->starts)
        planes->starts[r] = planes->width - from.shown;
    if (planes->ends)
        planes->ends[r] = planes->width;
}

kvern_status kvern_read_export_newest(const kvern_read *read, const kvern_newest_planes *given)
{
    kvern_newest_planes planes;
    if (!read || !given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read or planes is NULL");
    kvern_status status = kvern_sized_read(&PLANES_SIZES, given, &planes);
    if (!status && (planes.width < 0 || planes.width > KVERN_MAX_POSITIONS))
        status = kvern_fail(KVERN_ERR_RANGE, "a width of %" PRId64, planes.width);
    const plane streams[2] = {{KVERN_LANE_K, planes.k_type, planes.k},
                              {KVERN_LANE_V, planes.v_type, planes.v}};
    for (size_t s = 0; s < 2 && !status; s++)
        status = check_plane(read, &streams[s], planes.width);
    if (status)
        return status;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0; r < read->row_count; r++)
        export_row(read, &planes, streams, r);
    kvern_fp_leave(saved);
    return KVERN_OK;
}
