// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_SNAPSHOT_H
#define KVERN_SERVER_SNAPSHOT_H

// What the worker's thread sees between two steps, for others.

#include "server/worker/worker.h"

// The numbers of this moment, but for `draining`; `queued` counts what the scheduler has.
void snapshot_facts(const schedule *s, const worker_options *options, const measures *m,
                    worker_facts *out);

// Names of what went wrong on connections to the store that machines share, by kvern_remote_error.
extern const char *const snapshot_remote_errors[KVERN_REMOTE_ERRORS];

// Appends what GET /cache answers (docs/server.md). False: no memory.
bool snapshot_write(const schedule *s, const worker_options *options, const job *jobs,
                    const worker_facts *facts, text_buffer *out);

#endif
