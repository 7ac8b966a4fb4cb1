// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_EXECUTOR_H
#define KVERN_BASE_EXECUTOR_H

#include <kvern/context.h>

#define KVERN_MOST_THREADS 1024

// The executor that is used when the caller brings none: `threads` threads (0: one per processor),
// the calling one among them. *pool receives what kvern_executor_stop takes back; NULL for a single
// thread, which needs none.
KVERN_CHECK kvern_status kvern_executor_start(size_t threads, kvern_executor *executor,
                                              void **pool);

void kvern_executor_stop(void *pool);

#endif
