// SPDX-License-Identifier: MIT
#include "src/base/context.h"

#include "src/base/assert.h"
#include "src/base/executor.h"
#include "src/base/fail.h"
#include "src/base/sized.h"

#include <string.h>

// Idle buffers that a context keeps. Scratch: as many as calls commonly run at once. Objects: a
// read per layer of a large model may be open at the same time.
#define MOST_IDLE_SCRATCH 4
#define MOST_IDLE_OBJECTS 512

static const kvern_sized OPTIONS_SIZES =
    KVERN_SIZED(kvern_context_options, KVERN_SIZE_TO(kvern_context_options, reserved));
static const kvern_sized MEMORY_SIZES =
    KVERN_SIZED(kvern_memory, KVERN_SIZE_TO(kvern_memory, allocations));

void kvern_context_options_init(kvern_context_options *options, size_t size)
{
    const kvern_context_options defaults = {.size = size, .cpu_features = UINT32_MAX};
    kvern_sized_init(&OPTIONS_SIZES, &defaults, options, size);
}

static kvern_status check_options(const kvern_context_options *options)
{
    if (options->reserved || options->allocator.reserved[0] || options->allocator.reserved[1] ||
        options->executor.reserved[0] || options->executor.reserved[1])
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "a reserved word of the options, the allocator or the executor is not 0");
    if (!options->allocator.allocate != !options->allocator.release)
        return kvern_fail(KVERN_ERR_ARGUMENT, "an allocator needs both of its functions");
    if (options->executor.run && options->executor.threads == 0)
        return kvern_fail(KVERN_ERR_ARGUMENT, "an executor has at least one thread");
    if (options->threads > KVERN_MOST_THREADS || options->executor.threads > KVERN_MOST_THREADS)
        return kvern_fail(KVERN_ERR_ARGUMENT, "more than %d threads", KVERN_MOST_THREADS);
    return KVERN_OK;
}

static kvern_status start_threads(kvern_context *context, const kvern_context_options *options)
{
    if (!options->executor.run)
        return kvern_executor_start(&context->heap, options->threads, &context->executor,
                                    &context->own_threads);
    context->executor = options->executor;
    return KVERN_OK;
}

// The context's own memory comes from its own heap, so the heap is set up outside first.
static kvern_status take_context(const kvern_context_options *options, kvern_context **out)
{
    kvern_heap heap;
    kvern_heap_init(&heap,
                    options->allocator.allocate ? options->allocator : kvern_system_allocator(),
                    options->budget_bytes);
    void *block;
    kvern_status status = kvern_heap_take_zeroed(&heap, sizeof **out, &block);
    if (status)
        return status;
    *out = block;
    kvern_heap_init(&(*out)->heap, heap.allocator, heap.budget_bytes);
    (*out)->heap.held_bytes = (*out)->heap.peak_bytes = sizeof **out;
    (*out)->heap.allocations = 1;
    return KVERN_OK;
}

// What the heap asks for when the budget refuses.
static uint64_t reclaim(void *user, uint64_t bytes)
{
    return kvern_buffers_release_enough(user, bytes);
}

static void free_context(kvern_context *context)
{
    const kvern_allocator allocator = context->heap.allocator;
    allocator.release(allocator.user, context, sizeof *context, KVERN_HEAP_ALIGNMENT);
}

kvern_status kvern_context_create(const kvern_context_options *given, kvern_context **out)
{
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    kvern_context_options options = kvern_context_options_default();
    kvern_status status = given ? kvern_sized_read(&OPTIONS_SIZES, given, &options) : KVERN_OK;
    if (!status)
        status = check_options(&options);
    if (status)
        return status;
    kvern_context *context;
    if ((status = take_context(&options, &context)))
        return status;
    if ((status = start_threads(context, &options))) {
        free_context(context);
        return status;
    }
    pthread_mutex_init(&context->lock, NULL);
    context->references = 1;
    context->buffers[KVERN_SCRATCH].most_idle = MOST_IDLE_SCRATCH;
    context->buffers[KVERN_OBJECT].most_idle = MOST_IDLE_OBJECTS;
    context->heap.reclaim = reclaim;
    context->heap.reclaim_user = context;
    context->cpu_features = kvern_cpu_features() & options.cpu_features;
    *out = context;
    return KVERN_OK;
}

void kvern_context_retain(kvern_context *context)
{
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void kvern_context_release(kvern_context *context)
{
    if (!context || atomic_fetch_sub(&context->references, 1) != 1)
        return;
    KVERN_ASSERT(atomic_load(&context->page_bytes) ==
                 0); // pages hold pools, which hold the context
    (void)kvern_buffers_release_idle(context);
    kvern_thread_pool_stop(context->own_threads);
    pthread_mutex_destroy(&context->lock);
    free_context(context);
}

uint64_t kvern_context_trim(kvern_context *context)
{
    return context ? kvern_buffers_release_idle(context) : 0;
}

uint32_t kvern_context_cpu_features(const kvern_context *context)
{
    return context->cpu_features;
}

kvern_executor kvern_context_executor(const kvern_context *context)
{
    return context->executor;
}

void kvern_memory_init(kvern_memory *memory, size_t size)
{
    const kvern_memory none = {.size = size};
    kvern_sized_init(&MEMORY_SIZES, &none, memory, size);
}

kvern_status kvern_context_memory(const kvern_context *context, kvern_memory *memory)
{
    if (!context || !memory)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context or memory is NULL");
    kvern_status status = kvern_sized_check_output(&MEMORY_SIZES, memory);
    if (status)
        return status;
    const kvern_memory now = {
        .budget_bytes = context->heap.budget_bytes,
        .held_bytes = atomic_load(&context->heap.held_bytes),
        .peak_bytes = atomic_load(&context->heap.peak_bytes),
        .page_bytes = atomic_load(&context->page_bytes),
        .allocations = atomic_load(&context->heap.allocations),
    };
    kvern_sized_write(&MEMORY_SIZES, &now, memory);
    return KVERN_OK;
}
