// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_REMOTE_RAW_H
#define KVERN_BENCH_REMOTE_RAW_H

// What a client of Redis takes at least: values of random bytes, asked for all at once and thrown
// away when they come, by hiredis alone.

#include <kvern/status.h>

#include <stddef.h>

typedef struct remote_raw remote_raw;

// Writes `count` values of `bytes` bytes, which expire. *out is NULL where the library was built
// without a client, or the URL has a password or TLS: there is nothing to compare with then.
// Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status remote_raw_open(const char *url, size_t count, size_t bytes,
                                         remote_raw **out);
void remote_raw_close(remote_raw *raw); // NULL is allowed

// Seconds to have all of them.
KVERN_CHECK kvern_status remote_raw_get(remote_raw *raw, double *seconds);

#endif
