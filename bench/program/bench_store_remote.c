// SPDX-License-Identifier: MIT
// kvern bench store remote: a row at a server that machines share.

#include "bench/program/bench_store_remote.h"

#include "bench/measure/clock.h"
#include "bench/measure/remote_timing.h"
#include "cli/io/report.h"

#include <kvern/status.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS 8
#define MOST_RUNS 100

static const struct {
    const char *name, *what;
    double share; // of the row's bytes that go over the network
    size_t offset;
} REMOTE_ITEMS[ITEMS] = {
    {"publish", "the row, of which nothing is there", 1, offsetof(remote_times, publish)},
    {"again", "the same row", 0, offsetof(remote_times, again)},
    {"ask", "a prompt of which nothing is there", 0, offsetof(remote_times, ask)},
    {"fetch", "the row, until it can be lent", 1, offsetof(remote_times, fetch)},
    {"half", "the first half of it", 0.5, offsetof(remote_times, half)},
    {"raw", "as many bytes by hiredis alone", 1, offsetof(remote_times, raw)},
    {"beside", "ask, while the row is being fetched", 0, offsetof(remote_times, beside)},
    {"two", "the row twice at once", 2, offsetof(remote_times, two)},
};

typedef struct remote_table {
    const store_remote *what;
    uint64_t bytes, tokens;
    double samples[ITEMS][MOST_RUNS]; // seconds
} remote_table;

static kvern_status measure(remote_table *table)
{
    const remote_case c = {table->what->url, table->what->mib << 20};
    remote_run *run;
    kvern_status status = remote_timing_open(&c, &run);
    if (status)
        return status;
    table->bytes = remote_timing_bytes(run);
    table->tokens = remote_timing_tokens(run);
    for (size_t r = 0; r < table->what->runs && !status; r++) {
        remote_times times = {0};
        status = remote_timing_measure(run, &times);
        for (size_t i = 0; i < ITEMS; i++)
            memcpy(&table->samples[i][r], (char *)&times + REMOTE_ITEMS[i].offset, sizeof(double));
    }
    remote_timing_close(run);
    return status;
}

static int print_table(remote_table *table, json_t *list)
{
    for (size_t i = 0; i < ITEMS; i++) {
        const quartiles q = clock_quartiles(table->samples[i], table->what->runs);
        if (q.median == 0)
            continue; // there is nothing to compare with
        const double rate = REMOTE_ITEMS[i].share * (double)table->bytes / q.median;
        if (!list)
            printf("%10.3f ms  %9.3f-%-9.3f %7.2f GB/s  %-8s %s\n", 1e3 * q.median, 1e3 * q.low,
                   1e3 * q.high, 1e-9 * rate, REMOTE_ITEMS[i].name, REMOTE_ITEMS[i].what);
        else if (json_array_append_new(
                     list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "name", REMOTE_ITEMS[i].name,
                                     "what", REMOTE_ITEMS[i].what, "ms", 1e3 * q.median, "ms_low",
                                     1e3 * q.low, "ms_high", 1e3 * q.high, "bytes_per_s", rate)))
            return report_error("no memory for the table");
    }
    return CLI_SUCCESS;
}

int bench_store_remote(const store_remote *given, json_t **cells)
{
    store_remote what = *given;
    what.runs = what.runs < MOST_RUNS ? what.runs : MOST_RUNS;
    remote_table *table = calloc(1, sizeof *table);
    json_t *list = NULL;
    if (!table)
        return report_error("no memory");
    table->what = &what;
    const kvern_status status = measure(table);
    int code = CLI_SUCCESS;
    if (status)
        code = report_error("remote: %s: %s", what.url,
                            *kvern_error_detail() ? kvern_error_detail()
                                                  : kvern_status_message(status));
    else if (what.json && !(list = json_array()))
        code = report_error("no memory");
    else
        code = print_table(table, list);
    if (list)
        *cells = json_pack("{s:I, s:I, s:o}", "bytes", (json_int_t)table->bytes, "tokens",
                           (json_int_t)table->tokens, "items", list);
    free(table);
    return code;
}
