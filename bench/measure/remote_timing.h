// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_REMOTE_TIMING_H
#define KVERN_BENCH_REMOTE_TIMING_H

// Rows at a server that machines share: how fast they are written, asked for and fetched.

#include <kvern/status.h>

#include <stdint.h>

typedef struct remote_case {
    const char *url;
    uint64_t bytes; // of the row's pages, about
} remote_case;

// Of one round, in seconds.
typedef struct remote_times {
    double publish; // a row of which nothing is there, until it is
    double again;   // the same row once more
    double ask;     // a prompt of as many tokens of which nothing is there
    double fetch;   // all of the row but its last token, until it can be lent
    double half;    // the first half of it
    double raw;     // as many bytes by hiredis alone (remote_raw.h); 0: not measured
    double beside;  // `ask`, while the row is being fetched
    double two;     // the row twice at once, until both can be lent
} remote_times;

typedef struct remote_run remote_run;

// Makes a row of the case, and a store. kvern_error_detail says why that cannot be done. On failure
// *out is NULL.
KVERN_CHECK kvern_status remote_timing_open(const remote_case *c, remote_run **out);
void remote_timing_close(remote_run *run); // what it wrote expires; NULL is allowed

// Does everything once, under a key of its own. KVERN_ERR_IO: the server did not do it.
KVERN_CHECK kvern_status remote_timing_measure(remote_run *run, remote_times *times);

uint64_t remote_timing_bytes(const remote_run *run);  // of the row's pages
uint64_t remote_timing_tokens(const remote_run *run); // of the row

#endif
