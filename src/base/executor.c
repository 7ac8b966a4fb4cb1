// SPDX-License-Identifier: MIT
#include "src/base/executor.h"

#include "src/base/size.h"

#include <kvern/cpu.h>

static void run_serial(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    (void)user;
    for (size_t i = 0; i < tasks; i++)
        task(arg, i);
}

kvern_status kvern_executor_start(kvern_heap *heap, size_t threads, kvern_executor *executor,
                                  kvern_thread_pool **pool)
{
    const size_t count = threads ? threads : kvern_min_size(kvern_cpu_count(), KVERN_MOST_THREADS);
    *pool = NULL;
    *executor = (kvern_executor){.run = run_serial, .threads = 1};
    if (count == 1)
        return KVERN_OK;
    kvern_status status = kvern_thread_pool_start(heap, count, pool);
    if (!status)
        *executor = (kvern_executor){.user = *pool, .run = kvern_thread_pool_run, .threads = count};
    return status;
}
