// SPDX-License-Identifier: MIT
#include "src/base/shelf.h"

#include "src/base/context.h"
#include "src/base/fail.h"
#include "src/base/size.h"

struct kvern_buffer {
    kvern_buffer *next;
    size_t bytes; // of the part that is handed out
    bool fresh;   // came from the allocator when it was last taken
};

// The header takes a whole cache line so that the data behind it is aligned.
#define HEADER_BYTES KVERN_HEAP_ALIGNMENT
_Static_assert(sizeof(kvern_buffer) <= HEADER_BYTES, "the header fits its line");

uint64_t kvern_shelf_bytes(size_t bytes)
{
    return (uint64_t)HEADER_BYTES + bytes;
}

static void free_buffer(kvern_context *context, kvern_buffer *buffer)
{
    kvern_heap_give(&context->heap, buffer, HEADER_BYTES + buffer->bytes, KVERN_HEAP_ALIGNMENT);
}

// Unlinks the smallest idle buffer of at least `bytes`; the caller holds the lock. NULL: there is
// none.
static kvern_buffer *unlink_fitting(kvern_shelf *shelf, size_t bytes)
{
    kvern_buffer **best = NULL;
    for (kvern_buffer **at = &shelf->idle; *at; at = &(*at)->next) {
        if ((*at)->bytes < bytes || (best && (*at)->bytes >= (*best)->bytes))
            continue;
        best = at;
        if ((*at)->bytes == bytes)
            break;
    }
    if (!best)
        return NULL;
    kvern_buffer *found = *best;
    *best = found->next;
    shelf->idle_count--;
    return found;
}

// A buffer from the allocator.
static kvern_status take_fresh(kvern_context *context, size_t bytes, kvern_buffer **out)
{
    size_t whole;
    void *block;
    if (!kvern_size_add(HEADER_BYTES, bytes, &whole))
        return kvern_fail(KVERN_ERR_OVERFLOW, "a buffer of %zu bytes does not fit memory", bytes);
    kvern_status status = kvern_heap_take(&context->heap, whole, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    *out = block;
    (*out)->bytes = bytes;
    (*out)->fresh = true;
    return KVERN_OK;
}

kvern_status kvern_shelf_take(kvern_context *context, kvern_shelf *shelf, size_t bytes, void **out)
{
    pthread_mutex_lock(&context->lock);
    kvern_buffer *buffer = unlink_fitting(shelf, bytes);
    pthread_mutex_unlock(&context->lock);
    *out = NULL;
    kvern_status status = buffer ? KVERN_OK : take_fresh(context, bytes, &buffer);
    if (!status)
        *out = (char *)buffer + HEADER_BYTES;
    return status;
}

static kvern_buffer *buffer_of(void *data)
{
    return (kvern_buffer *)((char *)data - HEADER_BYTES);
}

void kvern_shelf_undo(kvern_context *context, kvern_shelf *shelf, void *data)
{
    if (data && buffer_of(data)->fresh)
        free_buffer(context, buffer_of(data));
    else
        kvern_shelf_give(context, shelf, data);
}

void kvern_shelf_give(kvern_context *context, kvern_shelf *shelf, void *data)
{
    if (!data)
        return;
    kvern_buffer *buffer = buffer_of(data);
    buffer->fresh = false;
    pthread_mutex_lock(&context->lock);
    buffer->next = shelf->idle;
    shelf->idle = buffer;
    shelf->idle_count++;
    kvern_buffer *surplus = shelf->idle_count > shelf->most_idle ? unlink_fitting(shelf, 0) : NULL;
    pthread_mutex_unlock(&context->lock);
    if (surplus)
        free_buffer(context, surplus);
}

static void allow_idle(kvern_context *context, kvern_shelf *shelf, size_t count)
{
    pthread_mutex_lock(&context->lock);
    shelf->most_idle = kvern_max_size(shelf->most_idle, count);
    pthread_mutex_unlock(&context->lock);
}

// The buffers that are taken are chained through their own first bytes until they go back.
kvern_status kvern_shelf_reserve(kvern_context *context, kvern_shelf *shelf, size_t count,
                                 size_t bytes)
{
    const size_t least = kvern_max_size(bytes, sizeof(void *));
    void *taken = NULL;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        void *data;
        status = kvern_shelf_take(context, shelf, least, &data);
        if (!status) {
            *(void **)data = taken;
            taken = data;
        }
    }
    if (!status)
        allow_idle(context, shelf, count);
    while (taken) {
        void *next = *(void **)taken;
        if (status)
            kvern_shelf_undo(context, shelf, taken);
        else
            kvern_shelf_give(context, shelf, taken);
        taken = next;
    }
    return status;
}

void kvern_shelf_clear(kvern_context *context, kvern_shelf *shelf)
{
    while (shelf->idle) {
        kvern_buffer *buffer = shelf->idle;
        shelf->idle = buffer->next;
        shelf->idle_count--;
        free_buffer(context, buffer);
    }
}
