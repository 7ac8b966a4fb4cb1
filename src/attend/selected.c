// SPDX-License-Identifier: MIT
#include "src/attend/selected.h"

#include "src/attend/materialized.h"
#include "src/attend/tile.h"
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"

#include <string.h>

// Rows of a round at most, and bytes of pages that a round fills where one query does not need
// more; a machine with many threads gets a query for every few of them.
#define MOST_ROWS 1024
#define ROUND_PAGE_BYTES ((size_t)16 << 20)
#define THREADS_PER_QUERY 4

// Bytes to copy below which handing work to other threads costs more than it saves.
#define LEAST_PARALLEL_BYTES ((size_t)1 << 18)

// How large a round is.
typedef struct extent {
    size_t rows;         // compact rows
    size_t pages;        // of a row at most; 0: all rows are dense
    size_t page_bytes;   // of the largest form
    int64_t longest;     // positions of a row at most
    size_t attend_bytes; // scratch of attending them
} extent;

// A compact row that has pages of its own: what it is made of.
typedef struct source {
    const int64_t *positions; // NULL: the row is dense
    int64_t count;
    const kvern_read_row *row;
} source;

typedef struct round {
    const kvern_view *view;              // of the rows that there are
    const kvern_latent_weights *weights; // NULL: positions are attended as they are stored
    extent size;
    size_t row_count;
    // In the scratch buffer, `size.rows` of each:
    kvern_read_row *rows;
    source *sources;
    int64_t *counts, *first, *q_start, *out_start;
    uint32_t *order;   // two numbers per row
    char *tables;      // table_bytes each
    kvern_page *pages; // size.pages per row
    char *data;        // a page for each
    char *attend_scratch;
    _Atomic size_t next; // page to gather, counted as if all rows had size.pages
} round;

// ---- Scratch ----

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t table_bytes(const extent *size)
{
    return whole_lines(kvern_table_bytes(size->pages));
}

// Takes `count` things of `bytes` bytes from the front of what is laid out.
static bool lay(size_t *at, size_t count, size_t bytes, size_t *begin)
{
    size_t product;
    *begin = *at;
    return kvern_size_mul(count, bytes, &product) && product <= SIZE_MAX - 64 &&
           kvern_size_add(*at, whole_lines(product), at);
}

// Where the parts of a round lie in its scratch.
typedef struct layout {
    size_t rows, sources, numbers, order, tables, pages, data, attend, bytes;
} layout;

static bool lay_out(const extent *size, layout *to)
{
    size_t page_count, at = 0;
    const bool fits = kvern_size_mul(size->rows, size->pages, &page_count) &&
                      lay(&at, page_count, size->page_bytes, &to->data) &&
                      lay(&at, size->rows, sizeof(kvern_read_row), &to->rows) &&
                      lay(&at, size->rows, sizeof(source), &to->sources) &&
                      lay(&at, size->rows, 4 * sizeof(int64_t), &to->numbers) &&
                      lay(&at, size->rows, 2 * sizeof(uint32_t), &to->order) &&
                      lay(&at, size->rows, table_bytes(size), &to->tables) &&
                      lay(&at, page_count, sizeof(kvern_page), &to->pages) &&
                      lay(&at, 1, size->attend_bytes, &to->attend);
    to->bytes = at;
    return fits;
}

static void place(round *r, char *scratch, const layout *at)
{
    const size_t rows = r->size.rows;
    r->rows = (kvern_read_row *)(scratch + at->rows);
    r->sources = (source *)(scratch + at->sources);
    r->counts = (int64_t *)(scratch + at->numbers);
    r->first = r->counts + rows;
    r->q_start = r->first + rows;
    r->out_start = r->q_start + rows;
    r->order = (uint32_t *)(scratch + at->order);
    r->tables = scratch + at->tables;
    r->pages = (kvern_page *)(scratch + at->pages);
    r->data = scratch + at->data;
    r->attend_scratch = scratch + at->attend;
}

// How many of `queries` queries go into a round.
static size_t rows_of_round(const kvern_context *context, size_t queries, size_t pages,
                            size_t page_bytes)
{
    size_t row_bytes, most = MOST_ROWS;
    if (!kvern_size_mul(pages, page_bytes, &row_bytes))
        most = 1; // which does not fit either
    else if (row_bytes > 0)
        most = kvern_max_size(ROUND_PAGE_BYTES / row_bytes,
                              kvern_ceil_div(context->executor.threads, THREADS_PER_QUERY));
    return kvern_min_size(kvern_min_size(most, MOST_ROWS), queries);
}

// The largest page of the rows.
static size_t page_bytes_of(const kvern_view *view)
{
    size_t bytes = view->geometry->page_bytes;
    for (size_t r = 0; r < view->row_count; r++)
        if (view->rows[r].geometry)
            bytes = kvern_max_size(bytes, view->rows[r].geometry->page_bytes);
    return bytes;
}

// A view of compact rows.
static kvern_view compact_view(const kvern_view *view, const kvern_read_row *rows, size_t row_count)
{
    kvern_view compact = *view;
    compact.rows = rows;
    compact.row_count = row_count;
    return compact;
}

static bool is_dense(int64_t position, int64_t count)
{
    return count == position + 1;
}

// Looks at all queries of the call.
static kvern_status measure(const kvern_context *context, const kvern_view *view,
                            const kvern_queries *queries, const kvern_selection *selection,
                            const kvern_latent_weights *weights, extent *size)
{
    int64_t most = 0;
    kvern_query_number at = {0, 0, 0};
    *size = (extent){.page_bytes = page_bytes_of(view)};
    for (; kvern_query_number_find(view, queries->counts, &at); kvern_query_number_step(&at)) {
        const int64_t position = view->rows[at.row].base + queries->first[at.row] + at.index;
        const int64_t count = selection->counts[at.n];
        size->longest = kvern_max_i64(size->longest, count);
        if (!is_dense(position, count))
            most = kvern_max_i64(most, count);
    }
    size->pages = kvern_pages_of(most);
    size->rows = rows_of_round(context, at.n, size->pages, size->page_bytes);
    const kvern_view compact = compact_view(view, NULL, size->rows);
    size->attend_bytes =
        weights
            ? kvern_materialized_scratch_bytes(context, view->geometry, weights, size->rows, 1)
            : kvern_attend_scratch_bytes(context, &compact, queries->query_heads, size->longest);
    if (size->attend_bytes == SIZE_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "a selection of %zu queries does not fit memory",
                          at.n);
    return KVERN_OK;
}

size_t kvern_selected_scratch_bytes(const kvern_context *context, const kvern_view *view,
                                    size_t queries, size_t vectors, int64_t positions,
                                    int64_t selected, const kvern_latent_weights *dims)
{
    layout at;
    extent size = {.page_bytes = view->geometry->page_bytes, .longest = positions};
    const size_t kv_heads = view->geometry->kv_heads;
    size_t heads;
    size.pages = kvern_pages_of(kvern_min_i64(selected, positions));
    size.rows = rows_of_round(context, queries, size.pages, size.page_bytes);
    // Rows of few heads fill their tiles badly: by a tile per KV head at most. So many heads of one
    // row have no fewer tiles.
    const kvern_view one = compact_view(view, NULL, 1);
    if (!kvern_size_mul(size.rows, KVERN_TILE_VECTORS * kv_heads, &heads) ||
        !kvern_size_add(heads, vectors, &heads) || !kvern_size_add(heads, kv_heads, &heads))
        return SIZE_MAX;
    size.attend_bytes =
        kvern_attend_scratch_bytes(context, &one, heads - heads % kv_heads, positions);
    if (dims)
        size.attend_bytes = kvern_max_size(
            size.attend_bytes,
            kvern_materialized_scratch_bytes(context, view->geometry, dims, size.rows, 1));
    return size.attend_bytes == SIZE_MAX || !lay_out(&size, &at) ? SIZE_MAX : at.bytes;
}

// ---- Gathering ----

// The table of a compact row, whose pages are in scratch: nobody retains or releases it.
static kvern_table *make_table(const round *r, size_t index, int64_t count)
{
    kvern_table *table = (kvern_table *)(r->tables + index * table_bytes(&r->size));
    memset(table, 0, sizeof *table);
    table->capacity = r->size.pages;
    table->count = kvern_pages_of(count);
    KVERN_ASSERT(table->count <= r->size.pages);
    for (size_t p = 0; p < table->count; p++) {
        const size_t page = index * r->size.pages + p;
        r->pages[page] = (kvern_page){.data = r->data + page * r->size.page_bytes};
        table->pages[p] = &r->pages[page];
    }
    return table;
}

// Adds the compact row of a query.
static void add_row(round *r, const kvern_queries *q, const kvern_selection *selection,
                    const kvern_query_number *at)
{
    const kvern_read_row *row = &r->view->rows[at->row];
    const size_t index = r->row_count++;
    const int64_t position = row->base + q->first[at->row] + at->index;
    const int64_t count = selection->counts[at->n];
    KVERN_ASSERT(index < r->size.rows && count >= 1 && position < row->length);
    const bool dense = is_dense(position, count);
    r->rows[index] = (kvern_read_row){
        .table = dense ? row->table : make_table(r, index, count),
        .geometry = row->geometry,
        .base = count - 1,
        .length = count,
    };
    r->sources[index] = (source){
        dense ? NULL : selection->positions + (int64_t)at->n * selection->stride, count, row};
    r->counts[index] = 1;
    r->first[index] = 0;
    r->q_start[index] = q->q_start[at->row] + at->index;
    r->out_start[index] = q->out_start[at->row] + at->index;
}

// Copies what is stored at up to 64 positions to a page, from its first slot on: those of one page
// at a time.
static void gather_page(const source *from, int64_t begin, void *page)
{
    uint8_t slots[KVERN_PAGE_POSITIONS];
    const int64_t end = kvern_min_i64(begin + KVERN_PAGE_POSITIONS, from->count);
    const kvern_geometry *g = from->row->geometry;
    for (int64_t i = begin, run; i < end; i += run) {
        const int64_t block = from->positions[i] / KVERN_PAGE_POSITIONS;
        for (run = 0; i + run < end && from->positions[i + run] / KVERN_PAGE_POSITIONS == block;
             run++)
            slots[run] = (uint8_t)(from->positions[i + run] % KVERN_PAGE_POSITIONS);
        void *stored = kvern_table_page(from->row->table, (size_t)block)->data;
        for (size_t s = 0; s < g->stream_count; s++)
            if (g->streams[s].role & (KVERN_ROLE_SCORE | KVERN_ROLE_VALUE))
                kvern_stream_gather(&g->streams[s], stored, slots, (size_t)run, page,
                                    (size_t)(i - begin));
    }
}

static void run_gather(void *arg, size_t index)
{
    round *r = arg;
    const size_t pages = r->size.pages, all = r->row_count * pages;
    size_t taken;
    (void)index;
    while ((taken = atomic_fetch_add(&r->next, 1)) < all) {
        const source *from = &r->sources[taken / pages];
        const int64_t begin = (int64_t)(taken % pages) * KVERN_PAGE_POSITIONS;
        if (from->positions && begin < from->count)
            gather_page(from, begin, r->data + taken * r->size.page_bytes);
    }
}

static void gather(round *r, kvern_context *context)
{
    const size_t pages = r->row_count * r->size.pages;
    r->next = 0;
    if (pages < 2 || context->executor.threads == 1 ||
        pages * r->size.page_bytes < LEAST_PARALLEL_BYTES)
        run_gather(r, 0);
    else
        context->executor.run(context->executor.user,
                              kvern_min_size(context->executor.threads, pages), run_gather, r);
}

// ---- Rounds ----

static kvern_status attend_round(round *r, kvern_context *context, const kvern_queries *queries)
{
    const kvern_view view = compact_view(r->view, r->rows, r->row_count);
    kvern_queries q = *queries;
    q.counts = r->counts;
    q.first = r->first;
    q.q_start = r->q_start;
    q.out_start = r->out_start;
    gather(r, context);
    if (r->weights) {
        kvern_attend_materialized_within(context, &view, &q, r->weights, r->attend_scratch);
        return KVERN_OK;
    }
    return kvern_attend_within(context, &view, &q, r->order, r->attend_scratch,
                               r->size.attend_bytes);
}

static kvern_status attend_rounds(round *r, kvern_context *context, const kvern_queries *queries,
                                  const kvern_selection *selection)
{
    kvern_query_number at = {0, 0, 0};
    kvern_status status = KVERN_OK;
    while (!status && kvern_query_number_find(r->view, queries->counts, &at)) {
        r->row_count = 0;
        do {
            add_row(r, queries, selection, &at);
            kvern_query_number_step(&at);
        } while (r->row_count < r->size.rows &&
                 kvern_query_number_find(r->view, queries->counts, &at));
        status = attend_round(r, context, queries);
    }
    return status;
}

kvern_status kvern_attend_selected(kvern_context *context, kvern_reservation *reservation,
                                   const kvern_view *view, const kvern_queries *queries,
                                   const kvern_selection *selection,
                                   const kvern_latent_weights *weights)
{
    round r = {.view = view, .weights = weights};
    layout at;
    void *scratch;
    kvern_status status = measure(context, view, queries, selection, weights, &r.size);
    if (status || r.size.rows == 0)
        return status;
    if (!lay_out(&r.size, &at))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu selected positions of %zu queries",
                          r.size.pages * KVERN_PAGE_POSITIONS, r.size.rows);
    if ((status = kvern_buffer_take(context, reservation, KVERN_SCRATCH, at.bytes, &scratch)))
        return status;
    place(&r, scratch, &at);
    status = attend_rounds(&r, context, queries, selection);
    kvern_buffer_give(context, scratch);
    return status;
}
