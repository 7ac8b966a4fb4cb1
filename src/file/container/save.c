// SPDX-License-Identifier: MIT
// Rows to a file.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/file/container/container.h"
#include "src/file/container/page_sum.h"
#include "src/file/safetensors/writer.h"
#include "src/state/checkpoint.h"

#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

// A row as it is, or as it was at a checkpoint.
typedef struct snapshot {
    size_t row;  // of the file
    size_t from; // of the state
    int64_t position;
    const kvern_checkpoint *checkpoint; // or NULL
} snapshot;

// Pages of one tensor are neighbours in the list of numbers.
typedef struct page_group {
    size_t begin, count;
} page_group;

typedef struct saving {
    const kvern_state *state;
    kvern_file_content content;
    kvern_file_identity identity;
    const char *note_key, *note; // NULL: none
    kvern_heap *heap;
    snapshot *snapshots;
    size_t rows, snapshot_count;
    kvern_page_numbers numbers;
    page_group *groups;           // [layers][planned, first]
    uint64_t *sums;               // of each page
    size_t tables, ranges, flags; // entries
    void *scratch;                // of a page
    size_t scratch_bytes;
    const kvern_container_sink *sink; // NULL: to a file
    bool in_pages;
    kvern_safetensors_writer writer;
    XXH3_state_t sum;
} saving;

static const kvern_sized content_sizes =
    KVERN_SIZED(kvern_file_content, KVERN_SIZE_TO(kvern_file_content, reserved));

void kvern_file_content_init(kvern_file_content *content, size_t size)
{
    const kvern_file_content defaults = {0};
    kvern_sized_init(&content_sizes, &defaults, content, size);
}

// ---- What is saved ----

static size_t row_of(const saving *s, size_t index)
{
    return s->content.rows ? s->content.rows[index] : index;
}

static kvern_status check_content(saving *s, const kvern_file_content *given)
{
    kvern_file_content_init(&s->content, sizeof s->content);
    kvern_file_identity_init(&s->identity, sizeof s->identity);
    kvern_status status = given ? kvern_sized_read(&content_sizes, given, &s->content) : KVERN_OK;
    if (!status && (s->content.reserved || s->content.without_checkpoints > 1))
        status = kvern_fail(KVERN_ERR_ARGUMENT, "kvern_file_content has a flag that is unknown");
    if (!status && s->content.identity)
        status = kvern_identity_read(s->content.identity, &s->identity);
    if (status)
        return status;
    s->rows = s->content.rows ? s->content.row_count : kvern_state_rows(s->state);
    if (s->rows > KVERN_MAX_ROWS)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows, more than %d", s->rows, KVERN_MAX_ROWS);
    for (size_t i = 0; i < s->rows; i++) {
        const size_t row = row_of(s, i);
        if (row >= kvern_state_rows(s->state))
            return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, kvern_state_rows(s->state));
        if (s->content.tokens && !s->content.tokens[i] && s->state->batch.lengths[row] > 0)
            return kvern_fail(KVERN_ERR_ARGUMENT, "tokens[%zu] is NULL", i);
    }
    return KVERN_OK;
}

// `block` of `bytes` bytes at least one.
static kvern_status take(const saving *s, size_t count, size_t bytes, void *block)
{
    size_t all;
    if (!kvern_size_mul(count + 1, bytes, &all))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu entries do not fit memory", count);
    return kvern_heap_take_zeroed(s->heap, all, block);
}

static void give(const saving *s, void *block, size_t count, size_t bytes)
{
    if (block)
        kvern_heap_give(s->heap, block, (count + 1) * bytes, KVERN_HEAP_ALIGNMENT);
}

static const kvern_checkpoint *checkpoints_of(const saving *s, size_t index)
{
    return s->content.without_checkpoints ? NULL : s->state->batch.checkpoints[row_of(s, index)];
}

// Checkpoints by age. Those of rows that have joined may be of one age.
static bool is_before(const snapshot *a, const snapshot *b)
{
    if (a->checkpoint->age != b->checkpoint->age)
        return a->checkpoint->age < b->checkpoint->age;
    return a->row != b->row ? a->row < b->row : a->position < b->position;
}

// The checkpoint that comes behind `last` (NULL: the first one).
static bool next_checkpoint(const saving *s, const snapshot *last, snapshot *next)
{
    bool found = false;
    for (size_t i = 0; i < s->rows; i++) {
        for (const kvern_checkpoint *at = checkpoints_of(s, i); at; at = at->below) {
            const snapshot shot = {i, row_of(s, i), at->position, at};
            if ((last && !is_before(last, &shot)) || (found && !is_before(&shot, next)))
                continue;
            *next = shot;
            found = true;
        }
    }
    return found;
}

static kvern_status list_snapshots(saving *s)
{
    size_t count = s->rows;
    void *block;
    for (size_t i = 0; i < s->rows; i++) {
        for (const kvern_checkpoint *at = checkpoints_of(s, i); at; at = at->below)
            count++;
    }
    kvern_status status = take(s, count, sizeof s->snapshots[0], &block);
    if (status)
        return status;
    s->snapshots = block;
    for (size_t i = 0; i < s->rows; i++)
        s->snapshots[s->snapshot_count++] =
            (snapshot){i, row_of(s, i), s->state->batch.lengths[row_of(s, i)], NULL};
    const snapshot *last = NULL;
    while (s->snapshot_count < count && next_checkpoint(s, last, &s->snapshots[s->snapshot_count]))
        last = &s->snapshots[s->snapshot_count++];
    KVERN_ASSERT(s->snapshot_count == count);
    return KVERN_OK;
}

static const kvern_row *row_at(const saving *s, size_t set, size_t snapshot)
{
    const struct snapshot *shot = &s->snapshots[snapshot];
    if (shot->checkpoint)
        return &shot->checkpoint->sets[set];
    return &kvern_batch_rows(&s->state->batch, set).rows[shot->from];
}

static size_t flag_words(const kvern_row *row)
{
    if (!row->ranges)
        return 0;
    return kvern_min_size(row->ranges->flag_words, kvern_pages_of(row->length));
}

// ---- Which pages ----

// Slots of page number `page` of the row that hold a position.
static uint64_t slots_of(const kvern_row_set *set, const kvern_row *row, size_t page)
{
    const int64_t at = (int64_t)page * KVERN_PAGE_POSITIONS;
    const int64_t keep = row->held > 0 ? kvern_row_set_keep(set) : 0;
    uint64_t slots = 0;
    for (int64_t i = 0; i < KVERN_PAGE_POSITIONS; i++) {
        if (at + i < row->length && (at + i < keep || at + i >= row->held))
            slots |= UINT64_C(1) << i;
    }
    return slots;
}

// Calls for every page of a row that is saved, in order.
typedef kvern_status each_page(saving *s, const kvern_row_set *set, const kvern_row *row,
                               size_t page);

static kvern_page *page_at(const kvern_row *row, size_t page)
{
    return row->table->whole ? row->table->pages[0] : kvern_table_page(row->table, page);
}

static kvern_status for_pages(saving *s, const kvern_row_set *set, const kvern_row *row,
                              each_page *call)
{
    const kvern_page_span span = kvern_row_set_span(set, row->length, row->held);
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < kvern_page_span_count(&span) && !status; i++)
        status = call(s, set, row, kvern_page_span_at(&span, i));
    return status;
}

static kvern_status number_page(saving *s, const kvern_row_set *set, const kvern_row *row,
                                size_t page)
{
    const uint64_t slots = row->table->whole ? 1 : slots_of(set, row, page);
    kvern_page_numbers_add(&s->numbers, page_at(row, page), slots);
    return KVERN_OK;
}

// The pages of one tensor: of rows of that layer and form, precise ones and coded ones alike.
static void number_group(saving *s, size_t layer, bool first)
{
    page_group *group = &s->groups[2 * layer + first];
    group->begin = s->numbers.count;
    for (size_t set = 0; set < s->state->batch.sets; set++) {
        const kvern_row_set of = kvern_row_set_of(s->state->composition, set);
        for (size_t i = 0; i < s->snapshot_count && of.layer->index == layer; i++) {
            const kvern_row *row = row_at(s, set, i);
            kvern_status status = KVERN_OK;
            if (kvern_row_set_is_first(&of, row->converted) == first)
                status = for_pages(s, &of, row, number_page);
            (void)status; // numbering does not fail
        }
    }
    group->count = s->numbers.count - group->begin;
}

static void count_entries(saving *s)
{
    for (size_t set = 0; set < s->state->batch.sets; set++) {
        const kvern_row_set of = kvern_row_set_of(s->state->composition, set);
        for (size_t i = 0; i < s->snapshot_count; i++) {
            const kvern_row *row = row_at(s, set, i);
            const kvern_page_span span = kvern_row_set_span(&of, row->length, row->held);
            s->tables += kvern_page_span_count(&span);
            s->ranges += row->range_count;
            s->flags += flag_words(row);
        }
    }
}

static kvern_status number_pages(saving *s)
{
    const size_t layers = s->state->composition->count;
    void *block;
    count_entries(s);
    kvern_status status = kvern_page_numbers_create(s->heap, s->tables, &s->numbers);
    if (!status && !(status = take(s, 2 * layers, sizeof s->groups[0], &block)))
        s->groups = block;
    if (status)
        return status;
    for (size_t l = 0; l < layers; l++) {
        number_group(s, l, false);
        number_group(s, l, true);
    }
    if (!(status = take(s, s->numbers.count, sizeof s->sums[0], &block)))
        s->sums = block;
    return status;
}

// ---- The header ----

static kvern_status say(void *writer, const char *key, const char *value)
{
    return kvern_safetensors_say(writer, key, value);
}

static kvern_status say_number(saving *s, const char *key, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return say(&s->writer, key, text);
}

static kvern_status say_all(saving *s)
{
    kvern_status status = say(&s->writer, "format", KVERN_CONTAINER_FORMAT);
    if (!status)
        status = say_number(s, "version", KVERN_FILE_VERSION);
    if (!status)
        status = say_number(s, "page_positions", KVERN_PAGE_POSITIONS);
    if (!status)
        status = say_number(s, "layers", s->state->composition->count);
    if (!status)
        status = say_number(s, "rows", s->rows);
    for (size_t l = 0; l < s->state->composition->count && !status; l++) {
        char key[32];
        snprintf(key, sizeof key, "layer.%zu", l);
        status = say(&s->writer, key, s->state->composition->layers[l].signature);
    }
    if (!status)
        status = kvern_identity_each(&s->identity, say, &s->writer);
    if (!status && s->note)
        status = say(&s->writer, s->note_key, s->note);
    return status;
}

static const kvern_geometry *geometry_of(const saving *s, size_t layer, bool first)
{
    const kvern_planned_layer *planned = &s->state->composition->layers[layer];
    return first ? &planned->first : &planned->geometry;
}

static kvern_status describe_pages(saving *s)
{
    kvern_status status = KVERN_OK;
    for (size_t g = 0; g < 2 * s->state->composition->count && !status; g++) {
        const uint64_t shape[] = {s->groups[g].count, geometry_of(s, g / 2, g % 2)->page_bytes};
        char name[48];
        if (shape[0] == 0)
            continue;
        snprintf(name, sizeof name, "pages.%zu%s", g / 2, g % 2 ? ".first" : "");
        status = kvern_safetensors_describe(&s->writer, name, KVERN_DTYPE_U8, 2, shape,
                                            KVERN_CONTAINER_ALIGNMENT);
    }
    return status;
}

static int64_t token_count(const saving *s)
{
    int64_t count = 0;
    for (size_t i = 0; i < s->rows; i++)
        count += s->snapshots[i].position;
    return count;
}

// The tensors behind the pages begin at multiples of 8, those of 64 bits first.
static kvern_status describe_rest(saving *s)
{
    const struct {
        const char *name;
        kvern_dtype dtype;
        size_t dims;
        uint64_t shape[3];
        bool is_there;
    } rest[] = {
        {"snapshots", KVERN_DTYPE_I64, 2, {s->snapshot_count, 2}, true},
        {"records",
         KVERN_DTYPE_I64,
         3,
         {s->state->batch.sets, s->snapshot_count, KVERN_RECORD_FIELDS},
         true},
        {"ranges", KVERN_DTYPE_I64, 2, {s->ranges, 2}, s->ranges > 0},
        {"flags", KVERN_DTYPE_U64, 1, {s->flags}, s->flags > 0},
        {"page_sums", KVERN_DTYPE_U64, 1, {s->numbers.count}, true},
        {"tables", KVERN_DTYPE_U32, 1, {s->tables}, true},
        {"tokens", KVERN_DTYPE_I32, 1, {(uint64_t)token_count(s)}, s->content.tokens},
        {"sum", KVERN_DTYPE_U64, 1, {1}, true},
    };
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < sizeof rest / sizeof rest[0] && !status; i++) {
        if (rest[i].is_there)
            status =
                kvern_safetensors_describe(&s->writer, rest[i].name, rest[i].dtype, rest[i].dims,
                                           rest[i].shape, kvern_dtypes[rest[i].dtype].bytes);
    }
    return status;
}

static kvern_status write_header(saving *s)
{
    size_t bytes;
    kvern_status status = say_all(s);
    if (!status)
        status = describe_pages(s);
    if (!status)
        status = describe_rest(s);
    if (!status)
        status = kvern_safetensors_start(&s->writer);
    if (status)
        return status;
    const char *header = kvern_safetensors_header(&s->writer, &bytes);
    XXH3_64bits_reset(&s->sum);
    XXH3_64bits_update(&s->sum, header, bytes);
    return KVERN_OK;
}

// ---- Data ----

static kvern_status write_group(saving *s, size_t layer, bool first)
{
    const page_group *group = &s->groups[2 * layer + first];
    const kvern_geometry *geometry = geometry_of(s, layer, first);
    kvern_page_sum_fn *sum = kvern_page_sum_of(s->state->composition->context->cpu_features);
    kvern_status status = KVERN_OK;
    for (size_t i = group->begin; i < group->begin + group->count && !status; i++) {
        const kvern_numbered_page *numbered = &s->numbers.list[i];
        const void *content = kvern_page_content(&s->state->composition->layers[layer], geometry,
                                                 numbered->page, numbered->slots, s->scratch);
        s->sums[i] = sum(content, geometry->page_bytes);
        status = kvern_safetensors_put(&s->writer, content, geometry->page_bytes);
    }
    return status;
}

static kvern_status take_scratch(saving *s)
{
    for (size_t g = 0; g < 2 * s->state->composition->count; g++) {
        if (s->groups[g].count)
            s->scratch_bytes =
                kvern_max_size(s->scratch_bytes, geometry_of(s, g / 2, g % 2)->page_bytes);
    }
    if (s->scratch_bytes == 0)
        return KVERN_OK;
    return kvern_heap_take(s->heap, s->scratch_bytes, KVERN_HEAP_ALIGNMENT, &s->scratch);
}

static kvern_status write_pages(saving *s)
{
    kvern_status status = KVERN_OK;
    s->in_pages = true;
    for (size_t g = 0; g < 2 * s->state->composition->count && !status; g++)
        status = write_group(s, g / 2, g % 2);
    s->in_pages = false;
    return status;
}

// What the sum of the file is about, besides the header. Padding is zeros, and not part of it.
static kvern_status put(saving *s, const void *data, size_t bytes)
{
    if (bytes == 0)
        return KVERN_OK;
    XXH3_64bits_update(&s->sum, data, bytes);
    return kvern_safetensors_put(&s->writer, data, bytes);
}

static kvern_status write_snapshots(saving *s)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < s->snapshot_count && !status; i++) {
        const int64_t entry[] = {(int64_t)s->snapshots[i].row, s->snapshots[i].position};
        status = put(s, entry, sizeof entry);
    }
    return status;
}

typedef kvern_status each_row(saving *s, const kvern_row_set *set, const kvern_row *row);

static kvern_status for_rows(saving *s, each_row *call)
{
    kvern_status status = KVERN_OK;
    for (size_t set = 0; set < s->state->batch.sets && !status; set++) {
        const kvern_row_set of = kvern_row_set_of(s->state->composition, set);
        for (size_t i = 0; i < s->snapshot_count && !status; i++)
            status = call(s, &of, row_at(s, set, i));
    }
    return status;
}

static kvern_status write_record(saving *s, const kvern_row_set *set, const kvern_row *row)
{
    const kvern_page_span span = kvern_row_set_span(set, row->length, row->held);
    const int64_t fields[KVERN_RECORD_FIELDS] = {
        [KVERN_RECORD_LENGTH] = row->length,
        [KVERN_RECORD_HELD] = row->held,
        [KVERN_RECORD_FLOOR] = row->floor,
        [KVERN_RECORD_BOUNDARY] = row->boundary,
        [KVERN_RECORD_CONVERTED] = row->converted,
        [KVERN_RECORD_PAGES] = (int64_t)kvern_page_span_count(&span),
        [KVERN_RECORD_RANGES] = (int64_t)row->range_count,
        [KVERN_RECORD_FLAGS] = (int64_t)flag_words(row),
    };
    return put(s, fields, sizeof fields);
}

static kvern_status write_ranges(saving *s, const kvern_row_set *set, const kvern_row *row)
{
    kvern_status status = KVERN_OK;
    (void)set;
    for (size_t i = 0; i < row->range_count && !status; i++) {
        const int64_t range[] = {row->ranges->list[i].begin, row->ranges->list[i].end};
        status = put(s, range, sizeof range);
    }
    return status;
}

// Flags of positions that were trimmed off are not the row's.
static kvern_status write_flags(saving *s, const kvern_row_set *set, const kvern_row *row)
{
    kvern_status status = KVERN_OK;
    (void)set;
    for (size_t i = 0; i < flag_words(row) && !status; i++) {
        uint64_t word = row->ranges->flags[i];
        const int64_t left = row->length - (int64_t)i * 64;
        if (left < 64)
            word &= (UINT64_C(1) << left) - 1;
        status = put(s, &word, sizeof word);
    }
    return status;
}

// Numbers within the tensor of its form.
static kvern_status write_number(saving *s, const kvern_row_set *set, const kvern_row *row,
                                 size_t page)
{
    const bool first = kvern_row_set_is_first(set, row->converted);
    const size_t begin = s->groups[2 * set->layer->index + first].begin;
    const uint32_t number =
        (uint32_t)(kvern_page_numbers_find(&s->numbers, page_at(row, page)) - begin);
    return put(s, &number, sizeof number);
}

static kvern_status write_table(saving *s, const kvern_row_set *set, const kvern_row *row)
{
    return for_pages(s, set, row, write_number);
}

static kvern_status write_tokens(saving *s)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; s->content.tokens && i < s->rows && !status; i++)
        status = put(s, s->content.tokens[i], (size_t)s->snapshots[i].position * sizeof(int32_t));
    return status;
}

static kvern_status write_rest(saving *s)
{
    kvern_status status = write_snapshots(s);
    if (!status)
        status = for_rows(s, write_record);
    if (!status)
        status = for_rows(s, write_ranges);
    if (!status)
        status = for_rows(s, write_flags);
    if (!status)
        status = put(s, s->sums, s->numbers.count * sizeof s->sums[0]);
    if (!status)
        status = for_rows(s, write_table);
    if (!status)
        status = write_tokens(s);
    if (status)
        return status;
    const uint64_t sum = XXH3_64bits_digest(&s->sum);
    return kvern_safetensors_put(&s->writer, &sum, sizeof sum);
}

// ---- The call ----

static void free_saving(saving *s)
{
    give(s, s->snapshots, s->snapshot_count, sizeof s->snapshots[0]);
    give(s, s->groups, 2 * s->state->composition->count, sizeof s->groups[0]);
    give(s, s->sums, s->numbers.count, sizeof s->sums[0]);
    kvern_page_numbers_free(&s->numbers);
    kvern_heap_give(s->heap, s->scratch, s->scratch_bytes, KVERN_HEAP_ALIGNMENT);
}

// Pages are not padded: zeros in front of them are.
static kvern_status put_to_sink(void *user, const void *data, size_t bytes)
{
    const saving *s = user;
    return s->sink->put(s->sink->user, data, bytes, data && s->in_pages);
}

static kvern_status write_file(saving *s, const kvern_disk_calls *calls, const char *path)
{
    kvern_context *context = s->state->composition->context;
    const kvern_safetensors_sink sink = {s, put_to_sink};
    kvern_status status = s->sink
                              ? kvern_safetensors_writer_begin_sink(context, &sink, &s->writer)
                              : kvern_safetensors_writer_begin(context, calls, path, &s->writer);
    if (!status)
        status = write_header(s);
    if (!status)
        status = write_pages(s);
    if (!status)
        status = write_rest(s);
    if (!status)
        return kvern_safetensors_commit(&s->writer);
    kvern_safetensors_abandon(&s->writer);
    return status;
}

// Where to: a sink, or a path with the calls that write there.
typedef struct destination {
    const kvern_container_sink *sink;
    const kvern_disk_calls *calls;
    const char *path;
} destination;

static kvern_status save(const destination *to, const kvern_state *state,
                         const kvern_file_content *content, const char *note_key, const char *note)
{
    kvern_status status = kvern_container_check_machine();
    if (status)
        return status;
    if (!state || (!to->path && !to->sink))
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or path is NULL");
    saving s = {
        .state = state,
        .heap = &state->composition->context->heap,
        .note_key = note_key,
        .note = note,
        .sink = to->sink,
    };
    if (!(status = kvern_state_check_idle(state)))
        status = check_content(&s, content);
    if (!status)
        status = list_snapshots(&s);
    if (!status)
        status = number_pages(&s);
    if (!status)
        status = take_scratch(&s);
    if (!status)
        status = write_file(&s, to->calls, to->path);
    free_saving(&s);
    return status;
}

kvern_status kvern_file_save_by(const kvern_disk_calls *calls, const kvern_state *state,
                                const kvern_file_content *content, const char *path)
{
    const destination to = {.calls = calls, .path = path};
    return save(&to, state, content, NULL, NULL);
}

static kvern_status save_noted(const destination *to, const kvern_state *state,
                               const kvern_file_content *content, const char *name,
                               const char *note)
{
    char key[64];
    snprintf(key, sizeof key, KVERN_NOTE "%s", name);
    return save(to, state, content, key, note);
}

kvern_status kvern_file_save_noted(const kvern_disk_calls *calls, const kvern_state *state,
                                   const kvern_file_content *content, const char *name,
                                   const char *note, const char *path)
{
    const destination to = {.calls = calls, .path = path};
    return save_noted(&to, state, content, name, note);
}

kvern_status kvern_file_save_to(const kvern_container_sink *sink, const kvern_state *state,
                                const kvern_file_content *content, const char *name,
                                const char *note)
{
    const destination to = {.sink = sink};
    return save_noted(&to, state, content, name, note);
}

kvern_status kvern_file_save(const kvern_state *state, const kvern_file_content *content,
                             const char *path)
{
    return kvern_file_save_by(NULL, state, content, path);
}
