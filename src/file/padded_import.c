// SPDX-License-Identifier: MIT
// Rows from right-justified padded planes.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/padded_planes.h"
#include "src/math/element.h"
#include "src/math/fpenv.h"
#include "src/rows/row_image.h"
#include "src/state/state.h"

#include <inttypes.h>
#include <string.h>

// ---- checks ----

static kvern_columns columns_of(const kvern_cache *cache, const kvern_padded_planes *planes,
                                size_t r)
{
    const int64_t count = planes->width - planes->left_padding[r], offset = planes->offsets[r];
    return (kvern_columns){count, offset, kvern_cache_planned(cache)->window.keep, offset - count};
}

// Where what the columns have behind the kept positions begins; 0: nothing was dropped.
static int64_t given_from(const kvern_window *window, const kvern_columns *c)
{
    return c->dropped ? kvern_window_whole(window, c->keep + c->dropped) : 0;
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
    const kvern_columns c = columns_of(cache, planes, r);
    if (c.dropped && (window->recent == KVERN_EVERY_POSITION || c.count < c.keep ||
                      kvern_window_least_length(window, given_from(window, &c)) > offset))
        return kvern_fail(KVERN_ERR_RANGE,
                          "layer %zu, row %zu: more than %" PRId64
                          " columns are seen at offset %" PRId64,
                          cache->layer, r, c.count, c.offset);
    if (cache->rows[r].length)
        return kvern_fail(KVERN_ERR_BUSY, "layer %zu: row %zu is not empty", cache->layer, r);
    return KVERN_OK;
}

static kvern_status check_form(const kvern_plane *p)
{
    if (p->numbers && kvern_plane_has_codes(p))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s is given as numbers and as codes",
                          p->layer, p->name);
    if (!p->numbers && !kvern_plane_has_codes(p))
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "layer %zu: %s is given neither as numbers nor as codes", p->layer,
                          p->name);
    return KVERN_OK;
}

// Rows that keep positions precise have two forms of some, which planes do not say.
static kvern_status check_precise(const kvern_cache *cache, const kvern_padded_planes *planes,
                                  size_t r)
{
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    const bool codes = kvern_planes_have_codes(&set);
    if (!codes && !columns_of(cache, planes, r).dropped)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "layer %zu, row %zu: planes %s for %s, which keeps positions precise",
                      cache->layer, r, codes ? "of codes" : "without all positions",
                      kvern_cache_signature(cache));
}

static kvern_status check_import(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    kvern_status status = kvern_planes_check(cache, planes);
    if (status || cache->batch->row_count == 0)
        return status;
    if (!planes->left_padding || !planes->offsets)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: left_padding or offsets is NULL",
                          cache->layer);
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    for (size_t r = 0; r < cache->batch->row_count && !status; r++) {
        status = check_columns(cache, planes, r);
        const bool filled = !status && planes->left_padding[r] < planes->width;
        for (size_t s = 0; s < set.count && filled && !status; s++)
            status = check_form(&set.planes[s]);
        if (cache->coded_set && filled && !status)
            status = check_precise(cache, planes, r);
    }
    return status;
}

// ---- room ----

// What a row is filled with.
typedef struct filling {
    kvern_row_image image;
    const kvern_geometry *geometry;
    kvern_columns columns;
    bool converts; // reaches its start: numbers are rounded to bf16 first
} filling;

static int64_t held_of(const kvern_window *window, const kvern_columns *c)
{
    return kvern_max_i64(given_from(window, c), kvern_window_held(window, c->offset));
}

// The form that the row will have, and how it comes to it.
static void choose_form(const kvern_cache *cache, const kvern_padded_planes *planes, size_t r,
                        filling *f)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    kvern_row row = cache->rows[r];
    if (layer->first_pool && !row.converted) {
        const bool codes = kvern_planes_have_codes(&set);
        f->converts =
            !codes && f->columns.offset >= layer->plan.start && f->columns.offset >= row.boundary;
        f->image.is_other_form = row.converted = codes || f->converts;
    }
    const kvern_form form = kvern_attention_form(kvern_cache_planned(cache), &row);
    f->geometry = form.geometry;
    f->image.pool = form.pool;
    f->image.converted = row.converted;
    f->image.floor = row.floor;
    KVERN_ASSERT(f->image.pool && f->geometry->stream_count > 0);
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

// ---- Rows that keep positions precise ----

// What is coded of them follows from an append, and so they are appended to, one by one: the planes
// of each begin elsewhere.

static kvern_layer_rows one_row(const kvern_cache *cache, size_t r)
{
    kvern_layer_rows one = kvern_cache_layer_rows(cache);
    KVERN_ASSERT(one.coded && !one.undos && r < one.count);
    one.count = 1;
    one.rows += r;
    one.changes += r;
    one.conversions += r;
    one.coded += r;
    one.coded_changes += r;
    return one;
}

static kvern_status prepare_precise(kvern_cache *cache, const kvern_padded_planes *planes)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    kvern_status status = KVERN_OK;
    kvern_layer_rows_clear_changes(&rows);
    for (size_t r = 0; r < rows.count && !status; r++) {
        const kvern_columns c = columns_of(cache, planes, r);
        const kvern_layer_rows one = one_row(cache, r);
        if (c.count)
            status = layer->ops->prepare(layer, &one, &c.count, 0, 0);
    }
    if (status)
        kvern_cache_cancel(cache);
    return status;
}

static void fill_precise(kvern_cache *cache, const kvern_padded_planes *planes, size_t r)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_columns c = columns_of(cache, planes, r);
    const kvern_layer_rows one = one_row(cache, r);
    const int64_t k = (int64_t)layer->plan.k_dim, v = (int64_t)layer->plan.v_dim;
    const int64_t start =
        (int64_t)(r * layer->plan.kv_heads) * planes->width + planes->left_padding[r];
    const kvern_lane_views views = {
        .lanes = {[KVERN_LANE_K] = {planes->k, planes->k_type, k, planes->width * k, &start},
                  [KVERN_LANE_V] = {planes->v, planes->v_type, v, planes->width * v, &start}},
        .both = {.phase = KVERN_PHASE_KNOWN}};
    if (c.count == 0)
        return;
    layer->ops->commit(layer, &one);
    layer->ops->store(layer, &one, &views, &c.count);
    layer->ops->settle(layer, &one, 0);
}

// ---- Filling ----

// Takes all that filling can fail for.
static kvern_status prepare_import(kvern_cache *cache, const kvern_padded_planes *planes)
{
    if (cache->coded_set)
        return prepare_precise(cache, planes);
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

// ---- storing ----

// One head of one position. `through_bf16`: as a row stores it that is converted afterwards.
static void import_vector(const kvern_stream_plan *stream, const kvern_plane *p, void *page,
                          size_t head, size_t slot, size_t index, bool through_bf16)
{
    if (!p->numbers) {
        stream->type->affine->import(&stream->codec, kvern_stream_form(stream),
                                     kvern_page_block(stream, page, head), p->dim, slot, &p->codes,
                                     index);
    } else if (through_bf16) {
        uint16_t rounded[KVERN_MAX_STREAM_DIM];
        for (size_t d = 0; d < p->dim; d++)
            rounded[d] =
                kvern_bf16_from_f32(kvern_load_element(p->type, kvern_plane_numbers(p, index), d));
        kvern_stream_encode(stream, page, head, slot, KVERN_BF16, rounded);
    } else {
        kvern_stream_encode(stream, page, head, slot, p->type, kvern_plane_numbers(p, index));
    }
}

static void store_row(const kvern_cache *cache, const filling *f, const kvern_padded_planes *planes,
                      size_t r)
{
    const kvern_geometry *g = f->geometry;
    const kvern_table *table = cache->rows[r].table;
    KVERN_ASSERT(kvern_row_is_sound(&cache->rows[r]));
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    const kvern_columns *c = &f->columns;
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t position = kvern_columns_position(c, i);
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
        if (cache->coded_set)
            fill_precise(cache, planes, r);
        else
            fill_row(cache, planes, r);
        cache->batch->lengths[r] = cache->rows[r].length;
    }
    kvern_fp_leave(saved);
}

kvern_status kvern_cache_fill_padded(kvern_cache *cache, const kvern_padded_planes *planes)
{
    kvern_status status = check_import(cache, planes);
    if (!status)
        status = prepare_import(cache, planes);
    if (!status)
        commit_import(cache, planes);
    return status;
}

kvern_status kvern_cache_import_padded(kvern_cache *cache, const kvern_padded_planes *given)
{
    kvern_padded_planes known;
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = kvern_planes_read(given, &known);
    return status ? status : kvern_cache_fill_padded(cache, &known);
}

// ---- states ----

// The planes of one layer, which check_layers has read already.
static kvern_padded_planes layer_planes(const kvern_padded_planes *layers, size_t layer)
{
    kvern_padded_planes planes = {0};
    kvern_status status = kvern_sized_read_entry(&kvern_planes_sizes, layers, layer, &planes);
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
        kvern_status status = kvern_sized_read_entry(&kvern_planes_sizes, layers, l, &planes);
        const bool shared = kvern_layer_is_shared(&state->composition->layers[l]);
        if (!status)
            status = shared ? kvern_planes_check_surplus(&state->composition->layers[l], &planes)
                            : check_import(&state->caches[l], &planes);
        if (status)
            return status;
        if (shared)
            continue;
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
        if (kvern_layer_is_shared(&state->composition->layers[l]))
            continue;
        const kvern_padded_planes planes = layer_planes(layers, l);
        status = prepare_import(&state->caches[l], &planes);
        for (size_t done = 0; status && done < l; done++)
            kvern_cache_cancel(&state->caches[done]);
    }
    if (status)
        return status;
    for (size_t l = 0; l < state->composition->count; l++) {
        if (kvern_layer_is_shared(&state->composition->layers[l]))
            continue;
        const kvern_padded_planes planes = layer_planes(layers, l);
        commit_import(&state->caches[l], &planes);
    }
    return KVERN_OK;
}
