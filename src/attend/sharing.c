// SPDX-License-Identifier: MIT
#include "src/attend/sharing.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <string.h>

// The blocks that a row's queries see, apart from the kept ones.
typedef struct blocks {
    size_t begin, end;
} blocks;

static int64_t first_position(const kvern_attend_job *job, size_t row)
{
    return job->view->rows[row].base + job->queries->first[row];
}

static blocks blocks_of(const kvern_attend_job *job, size_t row)
{
    KVERN_ASSERT(job->queries->counts[row] > 0);
    const kvern_visibility sees =
        kvern_visibility_of_some(&job->view->window, &job->view->rows[row],
                                 job->queries->first[row], job->queries->counts[row]);
    return (blocks){(size_t)(sees.begin / KVERN_BLOCK_POSITIONS),
                    (size_t)(sees.end - 1) / KVERN_BLOCK_POSITIONS + 1};
}

static blocks common_blocks(blocks a, blocks b)
{
    return (blocks){kvern_max_size(a.begin, b.begin), kvern_min_size(a.end, b.end)};
}

// As the row's first query meets it.
static const kvern_page *page_at(const kvern_attend_job *job, size_t row, size_t block)
{
    const kvern_window *window = &job->view->window;
    const kvern_read_row *r = &job->view->rows[row];
    const kvern_visibility sees = kvern_visibility_of(window, r, job->queries->first[row]);
    const int64_t at = (int64_t)block * KVERN_BLOCK_POSITIONS;
    const bool is_coded = at >= sees.coded_begin && at < sees.coded_end;
    return kvern_read_page(window, r, is_coded ? KVERN_PASS_CODED : KVERN_PASS_REST, block);
}

static int compare_numbers(uintptr_t a, uintptr_t b)
{
    return (a > b) - (a < b);
}

static int compare_pages(const kvern_attend_job *job, size_t a, size_t b, size_t block)
{
    return compare_numbers((uintptr_t)page_at(job, a, block), (uintptr_t)page_at(job, b, block));
}

// By the first block in which rows differ that share block common.begin.
static int compare_tables(const kvern_attend_job *job, size_t a, size_t b, blocks common)
{
    size_t same = common.begin, end = common.end;
    KVERN_ASSERT(same < end && !compare_pages(job, a, b, same));
    while (end - same > 1) { // block `same` is shared, block `end` is not or lies behind all
        const size_t middle = same + (end - same) / 2;
        if (compare_pages(job, a, b, middle))
            end = middle;
        else
            same = middle;
    }
    return end < common.end ? compare_pages(job, a, b, end) : 0;
}

// The order of rows: by first page, where their windows begin, all pages, and the shorter
// one first. So rows that see a page that others do not see any more, or not yet, are neighbours.
static int compare_rows(const kvern_attend_job *job, size_t a, size_t b)
{
    const blocks of_a = blocks_of(job, a), of_b = blocks_of(job, b);
    const blocks common = common_blocks(of_a, of_b);
    int order = job->view->window.keep > 0 ? compare_pages(job, a, b, 0) : 0;
    if (!order && common.begin < common.end)
        order = compare_pages(job, a, b, common.begin);
    if (!order)
        order = compare_numbers(of_a.begin, of_b.begin);
    if (!order && common.begin < common.end)
        order = compare_tables(job, a, b, common);
    return order ? order : compare_numbers(of_a.end, of_b.end);
}

// Merges the sorted lists from[begin, middle) and from[middle, end).
static void merge(const kvern_attend_job *job, const uint32_t *from, size_t begin, size_t middle,
                  size_t end, uint32_t *to)
{
    size_t left = begin, right = middle;
    for (size_t i = begin; i < end; i++) {
        if (right == end || (left < middle && compare_rows(job, from[left], from[right]) <= 0))
            to[i] = from[left++];
        else
            to[i] = from[right++];
    }
}

// Sorts by merging ever longer lists. Says whether the result is in `spare`.
static bool sort_rows(const kvern_attend_job *job, uint32_t *order, uint32_t *spare, size_t count)
{
    bool in_spare = false;
    for (size_t width = 1; width < count; width *= 2, in_spare = !in_spare) {
        const uint32_t *from = in_spare ? spare : order;
        for (size_t at = 0; at < count; at += 2 * width)
            merge(job, from, at, kvern_min_size(at + width, count),
                  kvern_min_size(at + 2 * width, count), in_spare ? order : spare);
    }
    return in_spare;
}

size_t kvern_sharing_order(const kvern_attend_job *job, uint32_t *order, uint32_t *spare)
{
    size_t count = 0;
    for (size_t r = 0; r < job->view->row_count; r++)
        if (job->queries->counts[r] > 0)
            order[count++] = (uint32_t)r;
    if (sort_rows(job, order, spare, count))
        memcpy(order, spare, count * sizeof order[0]);
    return count;
}

// Whether rows a and b have the first page that both see in common. Then they have the same form,
// for a page has one.
static bool share_pages(const kvern_attend_job *job, size_t a, size_t b)
{
    const blocks common = common_blocks(blocks_of(job, a), blocks_of(job, b));
    if (job->view->window.keep > 0)
        return compare_pages(job, a, b, 0) == 0;
    return common.begin < common.end && compare_pages(job, a, b, common.begin) == 0;
}

size_t kvern_sharing_together(const kvern_attend_job *job, const uint32_t *order, size_t count)
{
    const bool limited = kvern_visibility_is_limited(&job->view->window);
    KVERN_ASSERT(count > 0);
    size_t rows = 1, vectors = kvern_row_vectors(job, order[0]);
    int64_t least = first_position(job, order[0]), most = least;
    for (; rows < count && vectors < KVERN_TILE_VECTORS; rows++) {
        const size_t row = order[rows], more = kvern_row_vectors(job, row);
        least = kvern_min_i64(least, first_position(job, row));
        most = kvern_max_i64(most, first_position(job, row));
        if (more > KVERN_TILE_VECTORS - vectors || !share_pages(job, order[rows - 1], row) ||
            (limited && most - least > KVERN_TILE_REACH))
            break;
        vectors += more;
    }
    return rows;
}
