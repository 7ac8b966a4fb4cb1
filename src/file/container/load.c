// SPDX-License-Identifier: MIT
// Rows of a file, in a state. They are built in a state of their own, which is refused as a whole
// or joins the caller's.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/file/container/container.h"
#include "src/state/checkpoint.h"
#include "src/state/walk.h"

#include <inttypes.h>
#include <string.h>

// A page that no row has named yet, and what is in front of a row's first one.
#define NOT_SEEN (-1)

// Pages of one tensor while rows are built of them.
typedef struct page_source {
    const kvern_file_pages *pages;
    kvern_pool *pool;    // of the layer's form
    kvern_arena *arena;  // mapped pages; or
    kvern_page **copies; // the pages that have been copied
    int64_t *at;         // of each page: its number in its row, or NOT_SEEN
    int64_t *before;     // and the page before it
} page_source;

typedef struct loading {
    const kvern_file *file;
    kvern_file_load_options options;
    kvern_state *target, *made;
    kvern_heap *heap;
    size_t rows;
    page_source *sources; // [layers][planned, first]
} loading;

static const kvern_sized options_sizes =
    KVERN_SIZED(kvern_file_load_options, KVERN_SIZE_TO(kvern_file_load_options, reserved_too));

void kvern_file_load_options_init(kvern_file_load_options *options, size_t size)
{
    const kvern_file_load_options defaults = {0};
    kvern_sized_init(&options_sizes, &defaults, options, size);
}

// ---- Checks ----

static size_t row_of(const loading *l, size_t index)
{
    return l->options.rows ? l->options.rows[index] : index;
}

static kvern_status check_identity(const loading *l)
{
    kvern_file_identity known;
    if (!l->options.identity)
        return KVERN_OK;
    kvern_status status = kvern_identity_read(l->options.identity, &known);
    return status ? status : kvern_identity_check(l->file, &known);
}

static kvern_status check_options(loading *l, const kvern_file_load_options *given)
{
    kvern_file_load_options_init(&l->options, sizeof l->options);
    kvern_status status = given ? kvern_sized_read(&options_sizes, given, &l->options) : KVERN_OK;
    if (status)
        return status;
    if (l->options.reserved || l->options.reserved_too || l->options.copy > 1 ||
        l->options.verify > 1)
        return kvern_fail(KVERN_ERR_ARGUMENT, "kvern_file_load_options has a flag that is unknown");
    l->rows = l->options.rows ? l->options.row_count : l->file->rows;
    for (size_t i = 0; i < l->rows; i++) {
        if (row_of(l, i) >= l->file->rows)
            return kvern_fail(KVERN_ERR_RANGE, "%s: row %zu of %zu", l->file->path, row_of(l, i),
                              l->file->rows);
    }
    return check_identity(l);
}

// Equal signatures are equal pages; their size is the file's word.
static kvern_status check_layers(const loading *l)
{
    const kvern_composition *own = l->target->composition;
    const kvern_file *file = l->file;
    if (own->context != file->context)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "%s was opened in another context than the state's", file->path);
    if (own->count != file->layers)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: rows of %zu layers, not of %zu", file->path,
                          file->layers, own->count);
    for (size_t i = 0; i < own->count; i++) {
        const char *theirs = kvern_file_signature(file, i);
        if (strcmp(theirs, own->layers[i].signature) != 0)
            return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: layer %zu: rows of %s, not of %s",
                              file->path, i, theirs, own->layers[i].signature);
    }
    return own->sets == file->sets ? KVERN_OK
                                   : kvern_fail(KVERN_ERR_FORMAT, "%s: %zu sets of rows, not %zu",
                                                file->path, file->sets, own->sets);
}

// ---- Pages ----

static void let_go(void *mapping)
{
    kvern_mapping_release(mapping);
}

static kvern_status take_array(const loading *l, size_t count, size_t bytes, void *out)
{
    size_t all;
    if (!kvern_size_mul(count, bytes, &all) || all > SIZE_MAX / 4)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%s: %zu pages do not fit memory", l->file->path,
                          count);
    return kvern_heap_take_zeroed(l->heap, all, out);
}

static kvern_status map_pages(const loading *l, page_source *source)
{
    kvern_mapping *mapping = l->file->tensors.mapping;
    kvern_mapping_retain(mapping);
    kvern_status status = kvern_pool_map(source->pool, source->pages->data, source->pages->count,
                                         let_go, mapping, &source->arena);
    if (status)
        kvern_mapping_release(mapping);
    return status;
}

static kvern_status open_source(loading *l, size_t layer, bool first)
{
    const kvern_planned_layer *planned = &l->target->composition->layers[layer];
    const kvern_geometry *geometry = first ? &planned->first : &planned->geometry;
    page_source *source = &l->sources[2 * layer + first];
    void *block;
    source->pages = &l->file->pages[2 * layer + first];
    source->pool = first ? planned->first_pool : planned->pool;
    const size_t count = source->pages->count;
    if (count == 0)
        return KVERN_OK;
    if (!source->pool || source->pages->page_bytes != geometry->page_bytes)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: layer %zu: pages of %zu bytes, not of %zu",
                          l->file->path, layer, source->pages->page_bytes, geometry->page_bytes);
    kvern_status status = take_array(l, count, sizeof source->at[0], &block);
    if (status)
        return status;
    source->at = memset(block, 0xff, count * sizeof source->at[0]);
    if ((status = take_array(l, count, sizeof source->before[0], &block)))
        return status;
    source->before = memset(block, 0xff, count * sizeof source->before[0]);
    if (!l->options.copy)
        return map_pages(l, source);
    if (!(status = take_array(l, count, sizeof source->copies[0], &block)))
        source->copies = block;
    return status;
}

static kvern_status open_sources(loading *l)
{
    const size_t layers = l->target->composition->count;
    void *block;
    kvern_status status = take_array(l, 2 * layers, sizeof l->sources[0], &block);
    if (status)
        return status;
    l->sources = block;
    for (size_t g = 0; g < 2 * layers && !status; g++)
        status = open_source(l, g / 2, g % 2);
    return status;
}

static void close_source(const loading *l, page_source *source)
{
    const size_t count = source->pages ? source->pages->count : 0;
    for (size_t i = 0; source->copies && i < count; i++) {
        if (source->copies[i])
            kvern_page_release(source->copies[i]);
    }
    kvern_arena_release(source->arena);
    if (source->copies)
        kvern_heap_give(l->heap, source->copies, count * sizeof source->copies[0],
                        KVERN_HEAP_ALIGNMENT);
    if (source->at)
        kvern_heap_give(l->heap, source->at, count * sizeof source->at[0], KVERN_HEAP_ALIGNMENT);
    if (source->before)
        kvern_heap_give(l->heap, source->before, count * sizeof source->before[0],
                        KVERN_HEAP_ALIGNMENT);
}

static void close_sources(const loading *l)
{
    const size_t count = 2 * l->target->composition->count;
    for (size_t g = 0; l->sources && g < count; g++)
        close_source(l, &l->sources[g]);
    if (l->sources)
        kvern_heap_give(l->heap, l->sources, count * sizeof l->sources[0], KVERN_HEAP_ALIGNMENT);
}

static kvern_status copy_page(const loading *l, size_t layer, bool first, size_t number)
{
    page_source *source = &l->sources[2 * layer + first];
    const size_t bytes = source->pages->page_bytes;
    kvern_status status = kvern_file_check_page(l->file, layer, first, number);
    if (!status)
        status = kvern_pool_take_first(source->pool, source->pages->count, &source->copies[number]);
    if (!status)
        memcpy(source->copies[number]->data, source->pages->data + number * bytes, bytes);
    return status;
}

// A page with a reference for the caller.
static kvern_status get_page(const loading *l, size_t layer, bool first, size_t number,
                             kvern_page **out)
{
    page_source *source = &l->sources[2 * layer + first];
    kvern_status status = KVERN_OK;
    if (source->arena) {
        *out = kvern_arena_page(source->arena, number);
        return KVERN_OK;
    }
    if (!source->copies[number])
        status = copy_page(l, layer, first, number);
    if (status)
        return status;
    *out = source->copies[number];
    kvern_page_retain(*out);
    return KVERN_OK;
}

// Whether the page belongs there: rows share pages from their beginning on, as far as they hold
// them (src/attend/sharing.h).
static bool is_in_place(page_source *source, size_t number, int64_t at, int64_t before)
{
    if (source->at[number] == NOT_SEEN)
        source->at[number] = at;
    if (source->before[number] == NOT_SEEN)
        source->before[number] = before;
    return source->at[number] == at && (before == NOT_SEEN || source->before[number] == before);
}

// ---- One row ----

static kvern_status refuse(const loading *l, const kvern_row_set *set, const int64_t *shot,
                           const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "%s: layer %zu, row %" PRId64 " at %" PRId64 ": %s",
                      l->file->path, set->layer->index, shot[0], shot[1], what);
}

static kvern_status fill_table(const loading *l, const kvern_row_set *set,
                               const kvern_file_record *record, const int64_t *shot,
                               const kvern_page_span *span, kvern_table *table)
{
    const bool first = kvern_row_set_is_first(set, record->fields[KVERN_RECORD_CONVERTED]);
    page_source *source = &l->sources[2 * set->layer->index + first];
    int64_t before = NOT_SEEN;
    for (size_t i = 0; i < kvern_page_span_count(span); i++) {
        const uint32_t number = l->file->tables[record->table + i];
        const size_t at = kvern_page_span_at(span, i);
        if (i == span->kept && span->gap)
            before = NOT_SEEN;
        if (number >= source->pages->count || !is_in_place(source, number, (int64_t)at, before))
            return refuse(l, set, shot, "a page that is not there, or not the row's");
        kvern_status status =
            get_page(l, set->layer->index, first, number, &table->pages[table->count]);
        if (status)
            return status;
        table->count++;
        before = number;
    }
    return KVERN_OK;
}

static kvern_status build_table(const loading *l, const kvern_row_set *set,
                                const kvern_file_record *record, const int64_t *shot,
                                kvern_row *row)
{
    const kvern_page_span span = kvern_row_set_span(set, row->length, row->held);
    const bool first = kvern_row_set_is_first(set, row->converted);
    if (span.kept + span.gap > span.end ||
        kvern_page_span_count(&span) != (size_t)record->fields[KVERN_RECORD_PAGES])
        return refuse(l, set, shot, "other pages than it holds");
    if (row->length == 0)
        return KVERN_OK;
    kvern_pool *pool = first ? set->layer->first_pool : set->layer->pool;
    kvern_status status = kvern_table_create(pool, kvern_page_span_count(&span), &row->table);
    if (status)
        return status;
    row->kept = span.kept;
    row->table->kept = span.kept;
    row->table->gap = span.gap;
    row->table->whole = set->layer->geometry.whole;
    return fill_table(l, set, record, shot, &span, row->table);
}

// Flags are those of the first range, from its first position to its last.
static bool are_flags_right(const kvern_ranges *ranges, int64_t length)
{
    int64_t first = -1, last = -1;
    if (ranges->flag_words == 0)
        return true;
    if (ranges->flag_words > kvern_pages_of(length))
        return false;
    for (size_t i = 0; i < ranges->flag_words; i++) {
        if (!ranges->flags[i])
            continue;
        if (first < 0)
            first = (int64_t)i * 64 + __builtin_ctzll(ranges->flags[i]);
        last = (int64_t)i * 64 + 63 - __builtin_clzll(ranges->flags[i]);
    }
    return ranges->list[0].begin == first && ranges->list[0].end == last + 1;
}

static kvern_status build_ranges(const loading *l, const kvern_row_set *set,
                                 const kvern_file_record *record, const int64_t *shot,
                                 kvern_row *row)
{
    const size_t count = (size_t)record->fields[KVERN_RECORD_RANGES];
    const size_t words = (size_t)record->fields[KVERN_RECORD_FLAGS];
    if (count == 0)
        return words ? refuse(l, set, shot, "flags without a range") : KVERN_OK;
    if (row->length == 0)
        return refuse(l, set, shot, "ranges without positions");
    kvern_status status = kvern_ranges_create(l->heap, count, words, &row->ranges);
    if (status)
        return status;
    row->range_count = count;
    for (size_t i = 0; i < count; i++) {
        const int64_t *range = l->file->ranges + 2 * (record->range + i);
        row->ranges->list[i] = (kvern_range){range[0], range[1]};
    }
    if (words)
        memcpy(row->ranges->flags, l->file->flags + record->flag, words * sizeof(uint64_t));
    return are_flags_right(row->ranges, row->length)
               ? KVERN_OK
               : refuse(l, set, shot, "flags of other positions than its first range");
}

// What the record says, before anything of it is used.
static kvern_status check_record(const loading *l, const kvern_row_set *set, const int64_t *fields,
                                 const int64_t *shot)
{
    const bool forms = set->layer->plan.start != KVERN_NO_START;
    const bool split = set->layer->window.is_split;
    if (kvern_layer_is_shared(set->layer)) {
        for (size_t i = 0; i < KVERN_RECORD_FIELDS; i++) {
            if (fields[i] && i != KVERN_RECORD_BOUNDARY)
                return refuse(l, set, shot, "a layer that keeps nothing has a row");
        }
        return KVERN_OK;
    }
    if (!set->coded && fields[KVERN_RECORD_LENGTH] != shot[1])
        return kvern_fail(
            KVERN_ERR_FORMAT, "%s: layer %zu, row %" PRId64 ": %" PRId64 " positions, not %" PRId64,
            l->file->path, set->layer->index, shot[0], fields[KVERN_RECORD_LENGTH], shot[1]);
    if (fields[KVERN_RECORD_CONVERTED] && (!forms || split != set->coded))
        return refuse(l, set, shot, "it is converted, in a layer without a start");
    if (fields[KVERN_RECORD_HELD] > 0 && set->layer->geometry.whole)
        return refuse(l, set, shot, "a window of a row that is whole");
    return KVERN_OK;
}

// On failure the row may have a part of what it needs; it is reset with its state.
static kvern_status build_row(const loading *l, size_t set, size_t snapshot, kvern_row *row)
{
    const kvern_row_set of = kvern_row_set_of(l->target->composition, set);
    const kvern_file_record *record = kvern_file_record_of(l->file, set, snapshot);
    const int64_t *shot = kvern_file_snapshot(l->file, snapshot), *fields = record->fields;
    kvern_status status = check_record(l, &of, fields, shot);
    if (status)
        return status;
    row->boundary = fields[KVERN_RECORD_BOUNDARY];
    if (kvern_layer_is_shared(of.layer))
        return KVERN_OK;
    row->length = fields[KVERN_RECORD_LENGTH];
    row->held = fields[KVERN_RECORD_HELD];
    row->floor = fields[KVERN_RECORD_FLOOR];
    row->converted = fields[KVERN_RECORD_CONVERTED];
    if ((status = build_table(l, &of, record, shot, row)))
        return status;
    return build_ranges(l, &of, record, shot, row);
}

// ---- All rows ----

static kvern_status build_checkpoint(const loading *l, size_t row, size_t snapshot)
{
    const int64_t position = kvern_file_snapshot(l->file, snapshot)[1];
    kvern_checkpoint *made;
    for (const kvern_checkpoint *at = l->made->batch.checkpoints[row]; at; at = at->below) {
        if (at->position == position)
            return kvern_fail(KVERN_ERR_FORMAT, "%s: row %zu has two checkpoints at %" PRId64,
                              l->file->path, row_of(l, row), position);
    }
    kvern_status status = kvern_checkpoint_make(l->made, position, &made);
    if (status)
        return status;
    for (size_t set = 0; set < l->made->batch.sets && !status; set++)
        status = build_row(l, set, snapshot, &made->sets[set]);
    if (status)
        kvern_checkpoint_give_up(l->made, made);
    else
        kvern_checkpoint_link(l->made, row, made);
    return status;
}

static kvern_status build_rows(const loading *l)
{
    kvern_status status = KVERN_OK;
    for (size_t set = 0; set < l->made->batch.sets; set++) {
        for (size_t i = 0; i < l->rows && !status; i++)
            status =
                build_row(l, set, row_of(l, i), &kvern_batch_rows(&l->made->batch, set).rows[i]);
    }
    for (size_t i = 0; i < l->rows; i++)
        l->made->batch.lengths[i] = kvern_file_length(l->file, row_of(l, i));
    for (size_t s = l->file->rows; s < l->file->snapshot_count && !status; s++) {
        const size_t row = (size_t)kvern_file_snapshot(l->file, s)[0];
        for (size_t i = 0; i < l->rows && !status; i++) {
            if (row_of(l, i) == row)
                status = build_checkpoint(l, i, s);
        }
    }
    return status;
}

// What a state of rows that were appended is like, these must be like.
static kvern_status check_made(const loading *l)
{
    const char *wrong = kvern_state_walk(l->made);
    return wrong ? kvern_fail(KVERN_ERR_FORMAT, "%s: %s", l->file->path, wrong) : KVERN_OK;
}

static kvern_status make_state(loading *l)
{
    kvern_status status = kvern_state_make(l->target->composition, l->rows, &l->made);
    if (status)
        return status;
    l->made->batch.checkpoint_budget = UINT64_MAX;
    status = build_rows(l);
    return status ? status : check_made(l);
}

kvern_status kvern_file_load(const kvern_file *file, const kvern_file_load_options *options,
                             kvern_state *state)
{
    if (!file || !state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or state is NULL");
    loading l = {.file = file, .target = state, .heap = &file->context->heap};
    kvern_status status = kvern_state_check_idle(state);
    if (!status)
        status = check_options(&l, options);
    if (!status)
        status = check_layers(&l);
    if (!status && l.options.verify && !l.options.copy)
        status = kvern_file_verify(file);
    if (!status)
        status = open_sources(&l);
    if (!status)
        status = make_state(&l);
    close_sources(&l);
    if (!status)
        status = kvern_state_join(state, &l.made, 1);
    kvern_state_destroy(l.made);
    return status;
}
