// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_EXECUTOR_H
#define KVERN_BASE_EXECUTOR_H

#include "src/base/thread_pool.h"

#define KVERN_MOST_THREADS 1024

// The executor that is used when the caller brings none: `threads` threads (0: kvern_cpu_count,
// KVERN_MOST_THREADS at most), the calling one among them. *pool receives what
// kvern_thread_pool_stop takes back; NULL for a single thread, which needs none.
KVERN_CHECK kvern_status kvern_executor_start(kvern_heap *heap, size_t threads,
                                              kvern_executor *executor, kvern_thread_pool **pool);

#endif
