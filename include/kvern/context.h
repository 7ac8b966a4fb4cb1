// SPDX-License-Identifier: MIT
#ifndef KVERN_CONTEXT_H
#define KVERN_CONTEXT_H

// The context: where memory comes from, how much of it there may be, which threads do the work, and
// which instruction sets are used. Every other object is made in a context and keeps it alive.
//
//     kvern_context_options options = kvern_context_options_default();
//     options.budget_bytes = UINT64_C(8) << 30;
//     options.threads = 4;
//     kvern_context *context;
//     if (kvern_context_create(&options, &context))
//         return; // kvern_error_detail() says why
//     ...
//     kvern_context_release(context);
//
// One context per process is usual: objects of different contexts share neither budget nor pages,
// and rows do not go from one to the other. Several contexts do no harm.
//
// Thread rule: a context may be used by several threads at once, and so may a composition, which
// never changes, and a store (kvern/store.h). Every other object is used by one thread at a time,
// except reads, which may be attended and released on any thread, also while their cache goes on
// being changed on another one.
// Objects that share pages (forks, extracted and adopted rows, reads) need not know of each other.
//
// Stack: a call takes up to 128 KiB of its thread's stack, and so does a task of an executor. The
// most is needed where a row is converted in place (kvern_layer.start, kvern/composition.h).

#include <kvern/cpu.h>
#include <kvern/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_context kvern_context;

// Where bytes come from. Both functions may be called from any thread, from several at once and
// from tasks of the executor, and never while the library holds a lock: they may call it in turn,
// to look at a context's memory, or to end objects that the interrupted call has nothing to do
// with. They must not wait for a thread that uses the objects of that call, nor release the last
// reference to the context. Pages are taken in arenas of up to 2 MiB, which ask for an
// alignment of 2 MiB where they are that large, so that the system may back them with huge pages;
// everything else is small and rare. Blocks are never resized.
//
// The content of a new block may be anything: the library writes before it reads, and a position
// that was never stored reaches no result.
typedef struct kvern_allocator {
    void *user; // handed back in every call

    // Returns `bytes` bytes (never 0) aligned to `alignment` (a power of two, at most 2 MiB), or
    // NULL when there are none; the content may be anything. NULL is a normal answer: the call that
    // asked for memory fails with KVERN_ERR_MEMORY and changes nothing.
    void *(*allocate)(void *user, size_t bytes, size_t alignment);

    // Takes back a block with the size and alignment that it was asked for with. Never called with
    // NULL.
    void (*release)(void *user, void *block, size_t bytes, size_t alignment);

    // For later releases. A word that is not 0 is refused.
    uintptr_t reserved[2];
} kvern_allocator;

// Who runs parallel work: the threads of an engine, for example, so that the machine is not asked
// for twice as many as it has.
//
// Work is cut into tasks that take from some microseconds to about a millisecond each. How it is
// cut, and which thread takes what, changes no bit of any result.
//
// A task needs at most 128 KiB of stack, as does any call of the library: what the smallest threads
// of a C library have; a fiber or a green thread may have less.
typedef struct kvern_executor {
    void *user; // handed back in every call

    // Calls task(arg, index) once for every index in [0, tasks), in any order, on any threads, and
    // returns when all of them have returned. It must not return before. Results do not depend on
    // who ran what.
    //
    // It is called from every thread that attends in the context, from several at once when they
    // do. A task may call it, too: when the caller attends within a task of the same executor. It
    // may then run the tasks one after the other where it is called; it must not wait for a thread
    // that waits for the calling task. Tasks never wait for tasks that have not begun, so any order
    // will do, on one thread as well.
    void (*run)(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg);

    // How many tasks can make progress at the same time; at least 1. The library sizes its work by
    // this.
    size_t threads;

    // For later releases. A word that is not 0 is refused.
    uintptr_t reserved[2];
} kvern_executor;

// What a context is made with. Zero is the default of every field but size and cpu_features.
typedef struct kvern_context_options {
    size_t size; // sizeof(kvern_context_options); set by kvern_context_options_default

    // No allocation is made that would bring the bytes held above this; 0 means no limit. A call
    // that would need one fails with KVERN_ERR_BUDGET and changes nothing. Everything that the
    // library takes from the allocator counts, tables and scratch too; threads' stacks do not.
    uint64_t budget_bytes;

    // NULL functions mean the default: aligned memory from the system, with huge pages asked for
    // where a block is large enough. The allocator must outlive every object made in the context.
    kvern_allocator allocator;

    // A NULL `run` means the default: a pool of `threads` threads made and owned by the context
    // (the calling thread works too), or the calling thread alone when `threads` is 1. The caller's
    // executor must outlive every object made in the context.
    kvern_executor executor;

    // Threads of the default executor; 0 means kvern_cpu_count of them, 1024 at most. They
    // leave the signals of the process to the caller's threads. A child of fork() does not have
    // them: it leaves such a context alone, its release too. Ignored when the caller brings an
    // executor.
    size_t threads;

    // Instruction sets that may be used, on top of what KVERN_CPU allows (see kvern/cpu.h).
    // UINT32_MAX, the default, allows all.
    uint32_t cpu_features;

    // For a later release. Refused when it is not 0.
    uint32_t reserved;
} kvern_context_options;

// Writes the defaults to `size` bytes, sizeof(kvern_context_options) of the caller: no budget,
// system memory, one thread per processor, every instruction set.
KVERN_API void kvern_context_options_init(kvern_context_options *options, size_t size);

// The same as a value.
static inline kvern_context_options kvern_context_options_default(void)
{
    kvern_context_options options;
    kvern_context_options_init(&options, sizeof options);
    return options;
}

// Makes a context. `options` is borrowed for the call; NULL means the defaults. On success *out
// holds one reference, given back with kvern_context_release. On failure *out is NULL. Errors:
// KVERN_ERR_ARGUMENT (out is NULL, options->size is not a known size, only one allocator function
// given, an executor with 0 threads, more than 1024 threads, reserved words that are not 0),
// KVERN_ERR_UNSUPPORTED (fields that the library does not know), KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET, KVERN_ERR_THREADS.
KVERN_API KVERN_CHECK kvern_status kvern_context_create(const kvern_context_options *options,
                                                        kvern_context **out);

// Gives the caller's reference back. The context goes when the last object made in it has gone, so
// the order of releases is free. NULL is allowed.
KVERN_API void kvern_context_release(kvern_context *context);

// The feature bits in use: what the machine has, within KVERN_CPU and the options.
KVERN_API uint32_t kvern_context_cpu_features(const kvern_context *context);

// The executor in use, for work of the caller's own (an engine's matrix products) on the same
// threads. It is valid while the context lives. A task of the default executor may start work on it
// again, by kvern_read_attend too: that runs on the task's own thread. Of the caller's own executor
// it is the caller who knows.
KVERN_API kvern_executor kvern_context_executor(const kvern_context *context);

// Memory of a context. The numbers are those of one moment each: other threads may change them
// while they are read. An older library leaves 0 in what it does not know. `held_bytes` is exactly
// what the allocator has given and not got back for objects of this context, the context itself
// included.
typedef struct kvern_memory {
    size_t size;           // sizeof(kvern_memory); set by kvern_memory_init
    uint64_t budget_bytes; // 0: no limit
    uint64_t held_bytes;   // taken from the allocator now
    uint64_t peak_bytes;   // the most that was held at once
    uint64_t page_bytes;   // within held_bytes: pages in use by rows and reads
    uint64_t allocations;  // calls of allocate that succeeded, since the context was made
} kvern_memory;

// Makes *memory ready to be filled: its size, which is `size`, sizeof(kvern_memory) of the caller,
// and zeros.
KVERN_API void kvern_memory_init(kvern_memory *memory, size_t size);

// The same as a value.
static inline kvern_memory kvern_memory_default(void)
{
    kvern_memory memory;
    kvern_memory_init(&memory, sizeof memory);
    return memory;
}

// Fills *memory, whose size must be set. On failure it is unchanged. Errors: KVERN_ERR_ARGUMENT
// (NULL, or a size that no release had).
KVERN_API KVERN_CHECK kvern_status kvern_context_memory(const kvern_context *context,
                                                        kvern_memory *memory);

// Bytes of memory that the process may use: what the machine has, or less where a container is
// given less (memory.max of its control group, or memory.limit_in_bytes). What others use of it is
// not looked at. 0 when the system does not tell. For callers that choose a budget.
KVERN_API uint64_t kvern_memory_limit(void);

// Gives back memory that the context keeps for calls to come and that nobody has reserved: what
// attends and reads leave behind. The next ones take it anew. The library does so by itself before
// a budget refuses anything. Returns the bytes given back; 0 for NULL.
KVERN_API uint64_t kvern_context_trim(kvern_context *context);

#ifdef __cplusplus
}
#endif

#endif
