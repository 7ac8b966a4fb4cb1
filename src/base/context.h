// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_CONTEXT_H
#define KVERN_BASE_CONTEXT_H

// The inside of a context, and the reference that every object made in it holds.

#include "src/base/buffer_cache.h"
#include "src/base/heap.h"

#include <pthread.h>
#include <stdbool.h>

struct kvern_context {
    _Atomic size_t references;
    kvern_heap heap;
    kvern_executor executor;
    struct kvern_thread_pool *own_threads; // the default executor's pool, or NULL
    uint32_t cpu_features;
    _Atomic uint64_t page_bytes; // pages in use, for kvern_memory
    _Atomic bool has_store;      // pages count for one store (src/store/claim.h)

    pthread_mutex_t lock; // guards the buffers; nothing is called while it is held
    kvern_buffer_cache buffers[KVERN_BUFFER_KINDS];
};

void kvern_context_retain(kvern_context *context);

#endif
