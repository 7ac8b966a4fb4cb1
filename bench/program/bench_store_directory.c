// SPDX-License-Identifier: MIT
// kvern bench store directory: a store on disk that has many entries.

#include "bench/program/bench_store_directory.h"

#include "bench/measure/store_directory.h"
#include "cli/io/report.h"

#include <stddef.h>
#include <stdio.h>

// The times of a directory, as they are printed.
static const struct {
    const char *name, *what;
    size_t offset;
} TIMES[] = {
    {"opened", "opening it", offsetof(store_directory_result, opened)},
    {"found", "finding an entry and letting it go", offsetof(store_directory_result, found)},
    {"missed", "finding that there is none", offsetof(store_directory_result, missed)},
    {"unchanged", "looking again, nothing changed", offsetof(store_directory_result, unchanged)},
    {"changed", "looking again behind a new entry", offsetof(store_directory_result, changed)},
};
#define TIME_COUNT (sizeof TIMES / sizeof TIMES[0])

static const quartiles *time_of(const store_directory_result *r, size_t time)
{
    return (const quartiles *)((const char *)r + TIMES[time].offset);
}

static void print_directory(const store_directory_case *c, const store_directory_result *r)
{
    const double entries = (double)c->entries;
    printf("%zu entries, %.0f bytes each in files, %.0f in memory\n", c->entries,
           (double)r->file_bytes / entries, (double)r->index_bytes / entries);
    for (size_t i = 0; i < TIME_COUNT; i++) {
        const quartiles *q = time_of(r, i);
        printf("%12.2f us  %11.2f-%-11.2f  %-10s %s\n", 1e6 * q->median, 1e6 * q->low,
               1e6 * q->high, TIMES[i].name, TIMES[i].what);
    }
    fflush(stdout);
}

static json_t *directory_json(const store_directory_case *c, const store_directory_result *r)
{
    json_t *cell = json_pack("{s:I, s:I, s:I}", "entries", (json_int_t)c->entries, "file_bytes",
                             (json_int_t)r->file_bytes, "index_bytes", (json_int_t)r->index_bytes);
    for (size_t i = 0; i < TIME_COUNT; i++) {
        const quartiles *q = time_of(r, i);
        json_object_set_new(cell, TIMES[i].name,
                            json_pack("{s:f, s:f, s:f}", "us", 1e6 * q->median, "us_low",
                                      1e6 * q->low, "us_high", 1e6 * q->high));
    }
    return cell;
}

int bench_store_directories(const store_directories *what, json_t **cells)
{
    if (what->json && !(*cells = json_array()))
        return report_error("no memory");
    for (size_t i = 0; i < what->entries->count; i++) {
        const store_directory_case c = {what->entries->value[i], what->folder, what->threads};
        store_directory_result r = {0};
        const kvern_status status = store_directory_measure(&c, what->runs, &r);
        if (status)
            return report_error("directory: in %s: %s", what->folder,
                                *kvern_error_detail() ? kvern_error_detail()
                                                      : kvern_status_message(status));
        if (r.allocations)
            return report_error("directory: lookups took memory");
        if (!*cells)
            print_directory(&c, &r);
        else if (json_array_append_new(*cells, directory_json(&c, &r)))
            return report_error("no memory for the table");
    }
    return CLI_SUCCESS;
}
