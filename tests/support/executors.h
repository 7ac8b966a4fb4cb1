// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_EXECUTORS_H
#define KVERN_TESTS_SUPPORT_EXECUTORS_H

// Executors that run tasks in the orders that a caller's might: a result that depends on who ran
// what, or when, shows here.

#include <kvern/context.h>

// Each says that it has `threads` threads.

// One task after the other on the calling thread: backwards.
kvern_executor executor_backwards(size_t threads);

// One after the other, in a different random order at every call.
kvern_executor executor_shuffled(size_t threads);

// Every task on a thread of its own that is started for it, all at once.
kvern_executor executor_threads(size_t threads);

// Like executor_threads, but each thread first sets the floating-point environment to what a
// hostile program might leave: another rounding mode, subnormal numbers flushed to zero.
kvern_executor executor_odd_environment(size_t threads);

#endif
