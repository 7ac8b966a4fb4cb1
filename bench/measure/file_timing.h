// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_FILE_TIMING_H
#define KVERN_BENCH_FILE_TIMING_H

// Rows in files: how fast they are saved, mapped and verified, beside what the disk and the memory
// can do at most, measured in turns with them.

#include <kvern/status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct file_case {
    const char *folder; // where files go
    uint64_t bytes;     // of the rows' pages, about
    size_t threads;
} file_case;

// Of one round, in seconds; bandwidths are those of `file_bytes`.
typedef struct file_times {
    double write;  // as many bytes from memory to a new file, synced, and given its name
    double save;   // the rows
    double load;   // opened and mapped
    double first;  // a decode of all layers then
    double second; // the next one
    double faults; // reading one byte of every page of another mapping
    // With nothing of the file in memory; negative where it cannot be had out of there:
    double disk_read;   // reading it from the disk, once
    double disk_load;   // opened and mapped
    double disk_first;  // a decode of all layers then
    double disk_verify; // checksums of all pages, of another load
    double verify;      // checksums of all pages
    double read_limit;  // bytes per second of memory
} file_times;

typedef struct file_run file_run;

// Makes rows of the case. A failure to measure is an error of the system or of memory:
// kvern_error_detail says which. On failure *out is NULL.
KVERN_CHECK kvern_status file_timing_open(const file_case *c, file_run **out);
void file_timing_close(file_run *run); // removes its files; NULL is allowed

// Does everything once.
KVERN_CHECK kvern_status file_timing_measure(file_run *run, file_times *times);

uint64_t file_timing_bytes(const file_run *run); // of the file

#endif
