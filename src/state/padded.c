// SPDX-License-Identifier: MIT
// Rows from and to right-justified padded planes.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/attention.h"
#include "src/math/element.h"
#include "src/math/fpenv.h"
#include "src/rows/row_image.h"
#include "src/state/state.h"

#include <kvern/experimental/padded.h>

#include <inttypes.h>
#include <string.h>

static const kvern_sized PLANES_SIZES =
    KVERN_SIZED(kvern_padded_planes, KVERN_SIZE_TO(kvern_padded_planes, offsets));

void kvern_padded_planes_init(kvern_padded_planes *planes, size_t size)
{
    const kvern_padded_planes defaults = {.k_type = KVERN_BF16, .v_type = KVERN_BF16};
    kvern_sized_init(&PLANES_SIZES, &defaults, planes, size);
}

// ---- Planes ----

// One stream of the planes of one layer.
typedef struct plane {
    size_t layer;
    size_t stream; // its number in the geometry
    const char *name;
    size_t dim;
    kvern_type type;
    char *numbers; // NULL: not in this form
    kvern_affine_arrays codes;
} plane;

// The planes of all streams of a layer.
typedef struct plane_set {
    size_t count;
    plane planes[KVERN_MAX_STREAMS];
} plane_set;

static plane plane_for(const kvern_padded_planes *planes, const kvern_stream_plan *stream)
{
    const bool k = stream->role & KVERN_ROLE_SCORE;
    return (plane){
        .name = stream->name,
        .dim = stream->dim,
        .type = k ? planes->k_type : planes->v_type,
        .numbers = k ? planes->k : planes->v,
        .codes = k ? planes->k_codes : planes->v_codes,
    };
}

static plane_set planes_of(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    plane_set set = {.count = g->stream_count};
    for (size_t s = 0; s < g->stream_count; s++) {
        set.planes[s] = plane_for(planes, &g->streams[s]);
        set.planes[s].layer = cache->layer;
        set.planes[s].stream = s;
    }
    return set;
}

static bool has_codes(const plane *p)
{
    return p->codes.words || p->codes.scales || p->codes.biases || p->codes.reserved[0] ||
           p->codes.reserved[1];
}

static bool any_codes(const plane_set *set)
{
    bool any = false;
    for (size_t s = 0; s < set->count; s++)
        any = any || has_codes(&set->planes[s]);
    return any;
}

// Vector `index` of a plane, of [rows * kv_heads * width] ones, in either form.
static char *numbers_at(const plane *p, size_t index)
{
    return p->numbers + index * p->dim * kvern_type_bytes(p->type);
}

// ---- Checks of both directions ----

static kvern_status read_planes(const kvern_padded_planes *given, kvern_padded_planes *known)
{
    if (!given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "planes is NULL");
    return kvern_sized_read(&PLANES_SIZES, given, known);
}

static kvern_status check_plane(const plane *p, const kvern_stream_plan *planned, size_t vectors)
{
    size_t bytes;
    if (p->numbers && !kvern_type_bytes(p->type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: unknown element type %d of %s", p->layer,
                          (int)p->type, p->name);
    if (!kvern_size_mul(vectors, p->dim * sizeof(float), &bytes) || bytes > PTRDIFF_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: %zu vectors of %s do not fit memory",
                          p->layer, vectors, p->name);
    if (!has_codes(p))
        return KVERN_OK;
    if (p->codes.reserved[0] || p->codes.reserved[1])
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: a reserved pointer of %s is not NULL",
                          p->layer, p->name);
    if (!p->codes.words || !p->codes.scales || !p->codes.biases)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: words, scales or biases of %s is NULL",
                          p->layer, p->name);
    if (planned->type->affine)
        return KVERN_OK;
    char stored[KVERN_CODEC_NAME_BYTES];
    planned->type->name(&planned->codec, stored);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: %s is stored in %s, not in affine codes",
                      p->layer, p->name, stored);
}

static kvern_status check_planes(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    if (planes->width < 0 || planes->width > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: a width of %" PRId64, cache->layer,
                          planes->width);
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    const plane_set set = planes_of(cache, planes);
    size_t vectors;
    if (!kvern_size_mul(cache->batch->row_count * g->kv_heads, (size_t)planes->width, &vectors))
        return kvern_fail(KVERN_ERR_OVERFLOW,
                          "layer %zu: planes of %" PRId64 " columns do not fit memory",
                          cache->layer, planes->width);
    kvern_status status = KVERN_OK;
    for (size_t s = 0; s < set.count && !status; s++)
        status = check_plane(&set.planes[s], &g->streams[s], vectors);
    return status;
}

// ---- Columns and positions ----

// What of a row is in its plane.
typedef struct columns {
    int64_t count, offset;
    int64_t keep;
    int64_t dropped; // positions behind the kept ones that have no column
} columns;

// Positions that a row holds.
static int64_t held_positions(const kvern_cache *cache, const kvern_row *row)
{
    const int64_t keep = kvern_cache_planned(cache)->window.keep;
    return row->held == 0 ? row->length : keep + row->length - row->held;
}

static int64_t position_of(const columns *c, int64_t column)
{
    return column < c->keep ? column : column + c->dropped;
}

// ---- Export ----

int64_t kvern_cache_padded_width(const kvern_cache *cache)
{
    int64_t width = 0;
    for (size_t r = 0; r < cache->batch->row_count; r++)
        width = kvern_max_i64(width, held_positions(cache, &cache->rows[r]));
    return width;
}

static kvern_status check_export(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    kvern_status status = kvern_cache_check_idle(cache);
    if (!status)
        status = check_planes(cache, planes);
    if (status)
        return status;
    if (planes->width < kvern_cache_padded_width(cache))
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu: %" PRId64 " columns for rows of %" PRId64 " positions",
                          cache->layer, planes->width, kvern_cache_padded_width(cache));
    const plane_set set = planes_of(cache, planes);
    for (size_t r = 0; r < cache->batch->row_count && any_codes(&set); r++) {
        if (cache->rows[r].length && !kvern_cache_converted(cache, r))
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "layer %zu: row %zu is not stored in affine codes yet", cache->layer,
                              r);
    }
    return KVERN_OK;
}

static void clear_vector(const kvern_stream_plan *stream, const plane *p, size_t index)
{
    if (p->numbers)
        memset(numbers_at(p, index), 0, p->dim * kvern_type_bytes(p->type));
    if (has_codes(p))
        stream->type->affine->clear(&stream->codec, p->dim, &p->codes, index);
}

// One head of one position, in the forms that are asked for.
static void export_vector(const kvern_stream_plan *stream, const plane *p, void *page, size_t head,
                          size_t slot, size_t index)
{
    if (p->numbers) {
        float values[KVERN_MAX_HEAD_DIM];
        kvern_stream_decode(stream, page, head, slot, values);
        for (size_t d = 0; d < p->dim; d++)
            kvern_store_element(p->type, numbers_at(p, index), d, values[d]);
    }
    if (has_codes(p))
        stream->type->affine->export(&stream->codec, kvern_stream_form(stream),
                                     kvern_page_block(stream, page, head), p->dim, slot, &p->codes,
                                     index);
}

// One head of one row: `left` columns of padding, then the row's.
static void export_head(const kvern_cache *cache, const kvern_row *row, const plane *p,
                        const columns *c, size_t head, size_t first, size_t left)
{
    const kvern_stream_plan *stream =
        &kvern_attention_form(kvern_cache_planned(cache), row).geometry->streams[p->stream];
    const kvern_geometry *planned = &kvern_cache_planned(cache)->geometry;
    for (size_t i = 0; i < left; i++)
        clear_vector(&planned->streams[p->stream], p, first + i);
    for (int64_t i = 0; i < c->count; i++) {
        const size_t position = (size_t)position_of(c, i);
        void *page = kvern_table_page(row->table, position / KVERN_PAGE_POSITIONS)->data;
        export_vector(stream, p, page, head, position % KVERN_PAGE_POSITIONS,
                      first + left + (size_t)i);
    }
}

static void export_row(const kvern_cache *cache, const kvern_padded_planes *planes, size_t r)
{
    const kvern_row *row = &cache->rows[r];
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const plane_set set = planes_of(cache, planes);
    const int64_t count = held_positions(cache, row);
    const columns c = {count, row->length, layer->window.keep, row->length - count};
    const size_t heads = layer->geometry.kv_heads, width = (size_t)planes->width;
    for (size_t h = 0; h < heads; h++) {
        const size_t first = (r * heads + h) * width, left = width - (size_t)count;
        for (size_t s = 0; s < set.count; s++)
            export_head(cache, row, &set.planes[s], &c, h, first, left);
    }
    if (planes->left_padding)
        planes->left_padding[r] = planes->width - count;
    if (planes->offsets)
        planes->offsets[r] = row->length;
}

kvern_status kvern_cache_export_padded(const kvern_cache *cache, const kvern_padded_planes *given)
{
    kvern_padded_planes known;
    const kvern_padded_planes *planes = &known;
    kvern_status status = read_planes(given, &known);
    if (!status)
        status = check_export(cache, planes);
    if (status)
        return status;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0; r < cache->batch->row_count; r++)
        export_row(cache, planes, r);
    kvern_fp_leave(saved);
    return KVERN_OK;
}

// ---- Import: checks ----

static columns columns_of(const kvern_cache *cache, const kvern_padded_planes *planes, size_t r)
{
    const int64_t count = planes->width - planes->left_padding[r], offset = planes->offsets[r];
    return (columns){count, offset, kvern_cache_planned(cache)->window.keep, offset - count};
}

static kvern_status check_columns(const kvern_cache *cache, const kvern_padded_planes *planes,
                                  size_t r)
{
    const kvern_window *window = &kvern_cache_planned(cache)->window;
    const int64_t left = planes->left_padding[r];
    if (left < 0 || left > planes->width)
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu, row %zu: a left padding of %" PRId64 " in %" PRId64
                          " columns",
                          cache->layer, r, left, planes->width);
    const int64_t offset = planes->offsets[r], count = planes->width - left;
    if (offset < count || offset > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu, row %zu: offset %" PRId64 " with %" PRId64 " columns",
                          cache->layer, r, offset, count);
    const columns c = columns_of(cache, planes, r);
    if (c.dropped && (window->recent == KVERN_EVERY_POSITION || c.count - c.keep < window->recent))
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu, row %zu: more than %" PRId64
                          " columns are seen at offset %" PRId64,
                          cache->layer, r, c.count, c.offset);
    if (cache->rows[r].length)
        return kvern_fail(KVERN_ERR_BUSY, "layer %zu: row %zu is not empty", cache->layer, r);
    return KVERN_OK;
}

static kvern_status check_form(const plane *p)
{
    if (p->numbers && has_codes(p))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s is given as numbers and as codes",
                          p->layer, p->name);
    if (!p->numbers && !has_codes(p))
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: %s is given neither as numbers nor as codes", p->layer,
                          p->name);
    return KVERN_OK;
}

static kvern_status check_import(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    kvern_status status = check_planes(cache, planes);
    if (status || cache->batch->row_count == 0)
        return status;
    if (!planes->left_padding || !planes->offsets)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: left_padding or offsets is NULL",
                          cache->layer);
    const plane_set set = planes_of(cache, planes);
    for (size_t r = 0; r < cache->batch->row_count && !status; r++) {
        status = check_columns(cache, planes, r);
        const bool filled = !status && planes->left_padding[r] < planes->width;
        for (size_t s = 0; s < set.count && filled && !status; s++)
            status = check_form(&set.planes[s]);
    }
    return status;
}

// ---- Import: room ----

// What a row is filled with.
typedef struct filling {
    kvern_row_image image;
    const kvern_geometry *geometry;
    columns columns;
    bool converts; // reaches its start: numbers are rounded to bf16 first
} filling;

static int64_t held_of(const kvern_window *window, const columns *c)
{
    const int64_t given = c->dropped ? c->keep + c->dropped : 0;
    return kvern_max_i64(given, kvern_window_held(window, c->offset));
}

// The form that the row will have, and how it comes to it.
static void choose_form(const kvern_cache *cache, const kvern_padded_planes *planes, size_t r,
                        filling *f)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const plane_set set = planes_of(cache, planes);
    kvern_row row = cache->rows[r];
    if (layer->first_pool && !row.converted) {
        const bool codes = any_codes(&set);
        f->converts =
            !codes && f->columns.offset >= layer->plan.start && f->columns.offset >= row.boundary;
        f->image.is_other_form = row.converted = codes || f->converts;
    }
    const kvern_form form = kvern_attention_form(kvern_cache_planned(cache), &row);
    f->geometry = form.geometry;
    f->image.pool = form.pool;
    f->image.converted = row.converted;
    f->image.floor = row.floor;
    if (f->image.is_other_form)
        f->image.floor = layer->plan.start > 0 ? f->columns.offset : 0;
}

// What filling row r means. The same before and after its room was taken.
static filling filling_of(const kvern_cache *cache, const kvern_padded_planes *planes, size_t r)
{
    const kvern_window *window = &kvern_cache_planned(cache)->window;
    filling f = {.columns = columns_of(cache, planes, r)};
    f.image.length = f.columns.offset;
    f.image.keep = window->keep;
    f.image.held = held_of(window, &f.columns);
    choose_form(cache, planes, r, &f);
    return f;
}

// Takes all that filling can fail for.
static kvern_status prepare_import(kvern_cache *cache, const kvern_padded_planes *planes)
{
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    memset(rows.changes, 0, rows.count * sizeof rows.changes[0]);
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        const filling f = filling_of(cache, planes, r);
        if (f.columns.count == 0)
            continue;
        kvern_status status = kvern_row_image_prepare(&cache->rows[r], &f.image,
                                                      &kvern_cache_layer_rows(cache).changes[r]);
        if (status) {
            kvern_cache_cancel(cache);
            return status;
        }
    }
    return KVERN_OK;
}

// ---- Import: storing ----

// One head of one position. `through_bf16`: as a row stores it that is converted afterwards.
static void import_vector(const kvern_stream_plan *stream, const plane *p, void *page, size_t head,
                          size_t slot, size_t index, bool through_bf16)
{
    if (!p->numbers) {
        stream->type->affine->import(&stream->codec, kvern_stream_form(stream),
                                     kvern_page_block(stream, page, head), p->dim, slot, &p->codes,
                                     index);
    } else if (through_bf16) {
        uint16_t rounded[KVERN_MAX_HEAD_DIM];
        for (size_t d = 0; d < p->dim; d++)
            rounded[d] = kvern_bf16_from_f32(kvern_load_element(p->type, numbers_at(p, index), d));
        kvern_stream_encode(stream, page, head, slot, KVERN_BF16, rounded);
    } else {
        kvern_stream_encode(stream, page, head, slot, p->type, numbers_at(p, index));
    }
}

static void store_row(const kvern_cache *cache, const filling *f, const kvern_padded_planes *planes,
                      size_t r)
{
    const kvern_geometry *g = f->geometry;
    const kvern_table *table = cache->rows[r].table;
    const plane_set set = planes_of(cache, planes);
    const columns *c = &f->columns;
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t position = position_of(c, i);
        if (position >= c->keep && position < f->image.held)
            continue;
        const size_t slot = (size_t)position % KVERN_PAGE_POSITIONS;
        void *page = kvern_table_page(table, (size_t)position / KVERN_PAGE_POSITIONS)->data;
        for (size_t h = 0; h < g->kv_heads; h++) {
            const size_t index =
                (r * g->kv_heads + h + 1) * (size_t)planes->width - (size_t)(c->count - i);
            for (size_t s = 0; s < set.count; s++)
                import_vector(&g->streams[s], &set.planes[s], page, h, slot, index, f->converts);
        }
    }
}

static void fill_row(kvern_cache *cache, const kvern_padded_planes *planes, size_t r)
{
    const filling f = filling_of(cache, planes, r);
    if (f.columns.count == 0)
        return;
    kvern_row_image_commit(&cache->rows[r], &f.image, &kvern_cache_layer_rows(cache).changes[r]);
    store_row(cache, &f, planes, r);
}

static void commit_import(kvern_cache *cache, const kvern_padded_planes *planes)
{
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0; r < cache->batch->row_count; r++) {
        fill_row(cache, planes, r);
        cache->batch->lengths[r] = cache->rows[r].length;
    }
    kvern_fp_leave(saved);
}

kvern_status kvern_cache_import_padded(kvern_cache *cache, const kvern_padded_planes *given)
{
    kvern_padded_planes known;
    const kvern_padded_planes *planes = &known;
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = read_planes(given, &known);
    if (!status)
        status = check_import(cache, planes);
    if (!status)
        status = prepare_import(cache, planes);
    if (!status)
        commit_import(cache, planes);
    return status;
}

// ---- Import: states ----

// The planes of one layer, which check_layers has read already.
static kvern_padded_planes layer_planes(const kvern_padded_planes *layers, size_t layer)
{
    kvern_padded_planes planes = {0};
    kvern_status status = kvern_sized_read_entry(&PLANES_SIZES, layers, layer, &planes);
    KVERN_ASSERT(!status);
    (void)status;
    return planes;
}

static kvern_status check_layers(const kvern_state *state, const kvern_padded_planes *layers)
{
    if (!layers)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layers is NULL");
    for (size_t l = 0; l < state->composition->count; l++) {
        kvern_padded_planes planes;
        kvern_status status = kvern_sized_read_entry(&PLANES_SIZES, layers, l, &planes);
        if (!status)
            status = check_import(&state->caches[l], &planes);
        if (status)
            return status;
        for (size_t r = 0; r < kvern_state_rows(state); r++) {
            if (planes.offsets[r] != layers->offsets[r])
                return kvern_fail(KVERN_ERR_RANGE,
                                  "row %zu: offset %" PRId64 " in layer %zu, %" PRId64
                                  " in layer 0",
                                  r, planes.offsets[r], l, layers->offsets[r]);
        }
    }
    return KVERN_OK;
}

kvern_status kvern_state_import_padded(kvern_state *state, const kvern_padded_planes *layers)
{
    kvern_status status = kvern_state_check_idle(state);
    if (!status)
        status = check_layers(state, layers);
    for (size_t l = 0; !status && l < state->composition->count; l++) {
        const kvern_padded_planes planes = layer_planes(layers, l);
        status = prepare_import(&state->caches[l], &planes);
        for (size_t done = 0; status && done < l; done++)
            kvern_cache_cancel(&state->caches[done]);
    }
    if (status)
        return status;
    for (size_t l = 0; l < state->composition->count; l++) {
        const kvern_padded_planes planes = layer_planes(layers, l);
        commit_import(&state->caches[l], &planes);
    }
    return KVERN_OK;
}
