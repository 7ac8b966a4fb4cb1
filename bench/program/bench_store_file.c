// SPDX-License-Identifier: MIT
// kvern bench store file: a row in a file, beside what the disk and the memory can do at most.

#include "bench/program/bench_store_file.h"

#include "bench/measure/clock.h"
#include "bench/measure/file_timing.h"
#include "cli/io/report.h"

#include <kvern/status.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS 12

// The numbers of a round, as they are printed.
static const struct {
    const char *name, *what;
    size_t offset;
} FILE_ITEMS[ITEMS] = {
    {"write", "a plain write of as many bytes, synced", offsetof(file_times, write)},
    {"save", "the row to a file", offsetof(file_times, save)},
    {"load", "the file opened and mapped", offsetof(file_times, load)},
    {"first_decode", "a decode of all layers then", offsetof(file_times, first)},
    {"second_decode", "the next one", offsetof(file_times, second)},
    {"page_faults", "one byte of each page of the file read", offsetof(file_times, faults)},
    {"verify", "the checksums of all pages", offsetof(file_times, verify)},
    {"disk_read", "a plain read of the file that is not in memory",
     offsetof(file_times, disk_read)},
    {"disk_load", "such a file opened and mapped", offsetof(file_times, disk_load)},
    {"disk_decode", "a decode of all layers then", offsetof(file_times, disk_first)},
    {"disk_verify", "the checksums of all pages instead", offsetof(file_times, disk_verify)},
    {"read", "the bytes of the file from memory", offsetof(file_times, read_limit)},
};

typedef struct file_table {
    const store_file *what;
    uint64_t bytes;
    double *samples[ITEMS]; // `runs` seconds each
} file_table;

static kvern_status measure(file_table *table)
{
    const store_file *what = table->what;
    const file_case c = {what->folder, what->mib << 20, what->threads};
    file_run *run;
    kvern_status status = file_timing_open(&c, &run);
    for (size_t r = 0; r < what->runs + 1 && !status; r++) {
        file_times times = {0};
        status = file_timing_measure(run, &times); // the first round warms up
        table->bytes = file_timing_bytes(run);
        times.read_limit = (double)table->bytes / times.read_limit;
        for (size_t i = 0; i < ITEMS && r > 0; i++)
            memcpy(&table->samples[i][r - 1], (char *)&times + FILE_ITEMS[i].offset,
                   sizeof(double));
    }
    file_timing_close(run);
    return status;
}

static json_t *item_json(size_t item, const quartiles *q, double rate)
{
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "name", FILE_ITEMS[item].name, "what",
                     FILE_ITEMS[item].what, "ms", 1e3 * q->median, "ms_low", 1e3 * q->low,
                     "ms_high", 1e3 * q->high, "bytes_per_s", rate);
}

static int print_table(const file_table *table, json_t *list)
{
    for (size_t i = 0; i < ITEMS; i++) {
        const quartiles q = clock_quartiles(table->samples[i], table->what->runs);
        const double rate = (double)table->bytes / q.median;
        if (q.low < 0)
            continue; // it could not be measured here
        if (list && json_array_append_new(list, item_json(i, &q, rate)))
            return report_error("no memory for the table");
        if (!list)
            printf("%10.3f ms  %9.3f-%-9.3f %7.2f GB/s  %-14s %s\n", 1e3 * q.median, 1e3 * q.low,
                   1e3 * q.high, 1e-9 * rate, FILE_ITEMS[i].name, FILE_ITEMS[i].what);
    }
    return CLI_SUCCESS;
}

static int run_table(file_table *table, json_t **cells)
{
    const kvern_status status = measure(table);
    json_t *list = NULL;
    if (status == KVERN_ERR_MEMORY)
        return report_error("file: not enough memory for the row");
    if (status)
        return report_error("file: in %s: %s", table->what->folder,
                            *kvern_error_detail() ? kvern_error_detail()
                                                  : kvern_status_message(status));
    if (table->what->json && !(list = json_array()))
        return report_error("no memory");
    const int code = print_table(table, list);
    if (list)
        *cells = json_pack("{s:I, s:I, s:o}", "threads", (json_int_t)table->what->threads, "bytes",
                           (json_int_t)table->bytes, "items", list);
    return code;
}

int bench_store_file(const store_file *what, json_t **cells)
{
    file_table table = {.what = what};
    double *samples = calloc(ITEMS * what->runs, sizeof *samples);
    if (!samples)
        return report_error("no memory");
    for (size_t i = 0; i < ITEMS; i++)
        table.samples[i] = samples + i * what->runs;
    const int code = run_table(&table, cells);
    free(samples);
    return code;
}
