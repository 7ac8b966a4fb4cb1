// SPDX-License-Identifier: MIT
#include "src/base/context.h"

#include "src/base/executor.h"
#include "src/base/fail.h"

#include <string.h>

// Idle buffers that a context keeps. Scratch: as many as calls commonly run at once. Objects: a
// read per layer of a large model may be open at the same time.
#define MOST_IDLE_SCRATCH 4
#define MOST_IDLE_OBJECTS 512

kvern_context_options kvern_context_options_default(void)
{
    kvern_context_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.cpu_features = UINT32_MAX;
    return options;
}

static kvern_status check_options(const kvern_context_options *options)
{
    if (options->size != sizeof *options)
        return kvern_fail(KVERN_ERR_ARGUMENT, "kvern_context_options.size is %zu, expected %zu",
                          options->size, sizeof *options);
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

static void free_context(kvern_context *context)
{
    const kvern_allocator allocator = context->heap.allocator;
    allocator.release(allocator.user, context, sizeof *context, KVERN_HEAP_ALIGNMENT);
}

kvern_status kvern_context_create(const kvern_context_options *options, kvern_context **out)
{
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    const kvern_context_options defaults = kvern_context_options_default();
    if (!options)
        options = &defaults;
    kvern_status status = check_options(options);
    if (status)
        return status;
    kvern_context *context;
    if ((status = take_context(options, &context)))
        return status;
    if ((status = start_threads(context, options))) {
        free_context(context);
        return status;
    }
    pthread_mutex_init(&context->lock, NULL);
    context->references = 1;
    context->scratch.most_idle = MOST_IDLE_SCRATCH;
    context->objects.most_idle = MOST_IDLE_OBJECTS;
    context->cpu_features = kvern_cpu_features() & options->cpu_features;
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
    kvern_shelf_clear(context, &context->scratch);
    kvern_shelf_clear(context, &context->objects);
    kvern_thread_pool_stop(context->own_threads);
    pthread_mutex_destroy(&context->lock);
    free_context(context);
}

uint32_t kvern_context_cpu_features(const kvern_context *context)
{
    return context->cpu_features;
}

kvern_executor kvern_context_executor(const kvern_context *context)
{
    return context->executor;
}

kvern_status kvern_context_memory(const kvern_context *context, kvern_memory *memory)
{
    if (!context || !memory || memory->size != sizeof *memory)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "a context and a kvern_memory with its size are needed");
    memory->budget_bytes = context->heap.budget_bytes;
    memory->held_bytes = atomic_load(&context->heap.held_bytes);
    memory->peak_bytes = atomic_load(&context->heap.peak_bytes);
    memory->page_bytes = atomic_load(&context->page_bytes);
    memory->allocations = atomic_load(&context->heap.allocations);
    return KVERN_OK;
}
