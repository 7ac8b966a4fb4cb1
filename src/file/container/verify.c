// SPDX-License-Identifier: MIT
// Checksums of pages, on all threads.
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/container/container.h"
#include "src/file/container/page_sum.h"

// Bytes of a task at least.
#define TASK_BYTES ((size_t)1 << 20)

static bool is_good(const kvern_file *file, const kvern_file_pages *pages, size_t page)
{
    kvern_page_sum_fn *sum = kvern_page_sum_of(file->context->cpu_features);
    return sum(pages->data + page * pages->page_bytes, pages->page_bytes) ==
           file->sums[pages->first_sum + page];
}

kvern_status kvern_file_check_page(const kvern_file *file, size_t layer, bool first, size_t page)
{
    const kvern_file_pages *pages = &file->pages[2 * layer + first];
    if (is_good(file, pages, page))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_FORMAT, "%s: layer %zu: page %zu%s has another checksum",
                      file->path, layer, page, first ? " of the first form" : "");
}

// One tensor of pages, in pieces.
typedef struct verification {
    const kvern_file *file;
    const kvern_file_pages *pages;
    size_t tasks;
    _Atomic size_t bad; // the first page; SIZE_MAX: none
} verification;

static void note_bad(verification *v, size_t page)
{
    size_t bad = atomic_load(&v->bad);
    while (page < bad && !atomic_compare_exchange_weak(&v->bad, &bad, page))
        ;
}

static void verify_piece(void *arg, size_t index)
{
    verification *v = arg;
    const size_t count = v->pages->count;
    const size_t begin = index * count / v->tasks, end = (index + 1) * count / v->tasks;
    for (size_t i = begin; i < end && i < atomic_load(&v->bad); i++) {
        if (!is_good(v->file, v->pages, i))
            note_bad(v, i);
    }
}

static kvern_status verify_pages(const kvern_file *file, size_t layer, bool first)
{
    const kvern_executor *executor = &file->context->executor;
    verification v = {.file = file, .pages = &file->pages[2 * layer + first], .bad = SIZE_MAX};
    if (v.pages->count == 0)
        return KVERN_OK;
    const size_t most = kvern_ceil_div(v.pages->count * v.pages->page_bytes, TASK_BYTES);
    v.tasks = kvern_min_size(kvern_min_size(most, v.pages->count), 4 * executor->threads);
    if (v.tasks > 1)
        executor->run(executor->user, v.tasks, verify_piece, &v);
    else
        verify_piece(&v, 0);
    const size_t bad = atomic_load(&v.bad);
    return bad == SIZE_MAX ? KVERN_OK : kvern_file_check_page(file, layer, first, bad);
}

kvern_status kvern_file_verify(const kvern_file *file)
{
    if (!file)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file is NULL");
    kvern_status status = KVERN_OK;
    for (size_t g = 0; g < 2 * file->layers && !status; g++)
        status = verify_pages(file, g / 2, g % 2);
    return status;
}
