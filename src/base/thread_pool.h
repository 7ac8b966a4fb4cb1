// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_THREAD_POOL_H
#define KVERN_BASE_THREAD_POOL_H

// The threads of the default executor.
//
// A run ends as soon as its tasks are done. It does not wait for threads that took no task, so that
// a thread which the system does not let run holds nobody up: on a busy machine that is the
// difference between some percent and a hundred times. (pthreadpool, which was here before, waits
// for every thread in every run, and waits forever for one that could not be started.)

#include "src/base/heap.h"

#include <signal.h>

typedef struct kvern_thread_pool kvern_thread_pool;

// Starts a pool in which `threads` threads (at least 2) work, the one that calls run among them. On
// failure *out is NULL and no thread is left. Errors: KVERN_ERR_THREADS, KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_thread_pool_start(kvern_heap *heap, size_t threads,
                                                 kvern_thread_pool **out);

// The run function of a kvern_executor whose user is the pool. Callers on several threads take
// turns. Within a task of a run, of any pool, the tasks are run one after the other where the call
// is made.
void kvern_thread_pool_run(void *pool, size_t tasks, void (*task)(void *arg, size_t index),
                           void *arg);

// Ends the threads. NULL is allowed. Nobody may be running.
void kvern_thread_pool_stop(kvern_thread_pool *pool);

// The signals that our threads leave to the caller's: what they are started with is blocked.
void kvern_left_signals(sigset_t *set);

#endif
