// SPDX-License-Identifier: MIT
// No function calls the allocator while it holds the context's lock.
#include "src/base/buffer_cache.h"

#include "src/base/assert.h"
#include "src/base/context.h"
#include "src/base/fail.h"
#include "src/base/size.h"

struct kvern_buffer {
    kvern_buffer *next;
    size_t bytes; // of the part that is handed out
    kvern_buffer_kind kind;
    bool fresh;                     // came from the allocator when it was last taken
    kvern_reservation *reservation; // whose it is; NULL: nobody's
};

// The header takes a whole cache line so that the data behind it is aligned.
#define HEADER_BYTES KVERN_HEAP_ALIGNMENT
_Static_assert(sizeof(kvern_buffer) <= HEADER_BYTES, "the header fits its line");

// What a reservation has of one kind, in use or idle: `count` buffers of at least `bytes` bytes.
typedef struct reserved {
    size_t count, bytes;
    kvern_buffer *idle;
} reserved;

// Guarded by the context's lock, but for the references. It lives at least as long as its buffers.
struct kvern_reservation {
    _Atomic size_t references;
    bool has_ended;
    reserved of[KVERN_BUFFER_KINDS];
};

// ---- Lists ----

static void push(kvern_buffer **list, kvern_buffer *buffer)
{
    buffer->next = *list;
    *list = buffer;
}

static kvern_buffer *pop(kvern_buffer **list)
{
    kvern_buffer *buffer = *list;
    if (buffer) {
        *list = buffer->next;
        buffer->next = NULL;
    }
    return buffer;
}

// Unlinks the smallest idle buffer of at least `bytes`. NULL: there is none.
static kvern_buffer *unlink_fitting(kvern_buffer_cache *cache, size_t bytes)
{
    kvern_buffer **best = NULL;
    for (kvern_buffer **at = &cache->idle; *at; at = &(*at)->next) {
        if ((*at)->bytes < bytes || (best && (*at)->bytes >= (*best)->bytes))
            continue;
        best = at;
        if ((*at)->bytes == bytes)
            break;
    }
    if (!best)
        return NULL;
    KVERN_ASSERT(cache->idle_count > 0);
    cache->idle_count--;
    return pop(best);
}

// ---- Buffers ----

uint64_t kvern_buffer_bytes(size_t bytes)
{
    return (uint64_t)HEADER_BYTES + bytes;
}

uint64_t kvern_reservation_bytes(void)
{
    return sizeof(kvern_reservation);
}

static uint64_t whole_bytes(const kvern_buffer *buffer)
{
    return HEADER_BYTES + buffer->bytes;
}

// Gives a list back to the allocator; returns its bytes.
static uint64_t free_buffers(kvern_context *context, kvern_buffer *list)
{
    uint64_t bytes = 0;
    for (kvern_buffer *buffer; (buffer = pop(&list));) {
        bytes += whole_bytes(buffer);
        kvern_heap_give(&context->heap, buffer, whole_bytes(buffer), KVERN_HEAP_ALIGNMENT);
    }
    return bytes;
}

static kvern_status take_fresh(kvern_context *context, kvern_buffer_kind kind, size_t bytes,
                               kvern_buffer **out)
{
    size_t whole;
    void *block;
    if (!kvern_size_add(HEADER_BYTES, bytes, &whole))
        return kvern_fail(KVERN_ERR_OVERFLOW, "a buffer of %zu bytes does not fit memory", bytes);
    kvern_status status = kvern_heap_take(&context->heap, whole, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    *out = block;
    **out = (kvern_buffer){.bytes = bytes, .kind = kind, .fresh = true};
    return KVERN_OK;
}

static kvern_buffer *take_idle(kvern_context *context, kvern_reservation *reservation,
                               kvern_buffer_kind kind, size_t bytes)
{
    kvern_buffer *buffer = NULL;
    pthread_mutex_lock(&context->lock);
    if (reservation && bytes <= reservation->of[kind].bytes)
        buffer = pop(&reservation->of[kind].idle);
    if (!buffer)
        buffer = unlink_fitting(&context->buffers[kind], bytes);
    pthread_mutex_unlock(&context->lock);
    KVERN_ASSERT(!buffer || (buffer->bytes >= bytes && buffer->kind == kind && !buffer->fresh));
    return buffer;
}

kvern_status kvern_buffer_take(kvern_context *context, kvern_reservation *reservation,
                               kvern_buffer_kind kind, size_t bytes, void **out)
{
    kvern_buffer *buffer = take_idle(context, reservation, kind, bytes);
    *out = NULL;
    kvern_status status = buffer ? KVERN_OK : take_fresh(context, kind, bytes, &buffer);
    if (!status)
        *out = (char *)buffer + HEADER_BYTES;
    return status;
}

static kvern_buffer *buffer_of(void *data)
{
    KVERN_ASSERT((uintptr_t)data % HEADER_BYTES == 0);
    return (kvern_buffer *)((char *)data - HEADER_BYTES);
}

void kvern_buffer_undo(kvern_context *context, void *data)
{
    if (data && buffer_of(data)->fresh)
        (void)free_buffers(context, buffer_of(data));
    else
        kvern_buffer_give(context, data);
}

// Back to its reservation, which may have ended or want larger ones by now. False: it is surplus.
static bool give_reserved(kvern_buffer *buffer)
{
    reserved *of = &buffer->reservation->of[buffer->kind];
    if (buffer->reservation->has_ended || buffer->bytes < of->bytes)
        return false;
    push(&of->idle, buffer);
    return true;
}

void kvern_buffer_give(kvern_context *context, void *data)
{
    if (!data)
        return;
    kvern_buffer *buffer = buffer_of(data), *surplus = NULL;
    kvern_buffer_cache *cache = &context->buffers[buffer->kind];
    buffer->fresh = false;
    pthread_mutex_lock(&context->lock);
    if (buffer->reservation) {
        surplus = give_reserved(buffer) ? NULL : buffer;
    } else {
        push(&cache->idle, buffer);
        if (++cache->idle_count > cache->most_idle)
            surplus = unlink_fitting(cache, 0);
    }
    pthread_mutex_unlock(&context->lock);
    (void)free_buffers(context, surplus);
}

// ---- Idle memory ----

uint64_t kvern_buffers_release_enough(kvern_context *context, uint64_t bytes)
{
    kvern_buffer *list = NULL;
    uint64_t idle = 0, taken = 0;
    pthread_mutex_lock(&context->lock);
    for (size_t k = 0; k < KVERN_BUFFER_KINDS; k++)
        for (const kvern_buffer *b = context->buffers[k].idle; b; b = b->next)
            idle += whole_bytes(b);
    for (size_t k = 0; k < KVERN_BUFFER_KINDS && idle >= bytes; k++) {
        kvern_buffer_cache *cache = &context->buffers[k];
        while (cache->idle && taken < bytes) {
            taken += whole_bytes(cache->idle);
            push(&list, pop(&cache->idle));
            cache->idle_count--;
        }
    }
    pthread_mutex_unlock(&context->lock);
    return free_buffers(context, list);
}

uint64_t kvern_buffers_release_idle(kvern_context *context)
{
    kvern_buffer *lists[KVERN_BUFFER_KINDS];
    uint64_t bytes = 0;
    pthread_mutex_lock(&context->lock);
    for (size_t k = 0; k < KVERN_BUFFER_KINDS; k++) {
        lists[k] = context->buffers[k].idle;
        context->buffers[k].idle = NULL;
        context->buffers[k].idle_count = 0;
    }
    pthread_mutex_unlock(&context->lock);
    for (size_t k = 0; k < KVERN_BUFFER_KINDS; k++)
        bytes += free_buffers(context, lists[k]);
    return bytes;
}

// ---- Reservations ----

// What a reservation becomes.
typedef struct extension {
    reserved to; // its list: the buffers that are to come
    bool larger; // than all that it has, which go
} extension;

static kvern_status take_extension(kvern_context *context, const reserved *has, size_t count,
                                   size_t bytes, kvern_buffer_kind kind, extension *out)
{
    *out = (extension){{kvern_max_size(has->count, count), kvern_max_size(has->bytes, bytes), NULL},
                       bytes > has->bytes};
    const size_t keeps = out->larger ? 0 : has->count;
    for (size_t i = keeps; i < out->to.count; i++) {
        kvern_buffer *buffer;
        kvern_status status = take_fresh(context, kind, out->to.bytes, &buffer);
        if (status) {
            (void)free_buffers(context, out->to.idle);
            return status;
        }
        push(&out->to.idle, buffer);
    }
    return KVERN_OK;
}

// The new buffers come; returns those that go.
static kvern_buffer *extend(kvern_reservation *r, kvern_buffer_kind kind, extension *by)
{
    reserved *of = &r->of[kind];
    kvern_buffer *gone = by->larger ? of->idle : NULL;
    if (by->larger)
        of->idle = NULL;
    of->count = by->to.count;
    of->bytes = by->to.bytes;
    for (kvern_buffer *buffer; (buffer = pop(&by->to.idle));) {
        buffer->reservation = r;
        buffer->fresh = false;
        push(&of->idle, buffer);
    }
    return gone;
}

static kvern_status take_extensions(kvern_context *context, const kvern_reservation *r,
                                    const size_t *count, const size_t *bytes, extension *out)
{
    for (kvern_buffer_kind k = 0; k < KVERN_BUFFER_KINDS; k++) {
        kvern_status status = take_extension(context, &r->of[k], count[k], bytes[k], k, &out[k]);
        if (status) {
            while (k-- > 0)
                (void)free_buffers(context, out[k].to.idle);
            return status;
        }
    }
    return KVERN_OK;
}

// Only its owner extends a reservation, so its numbers are read without the lock.
kvern_status kvern_reservation_extend(kvern_context *context, kvern_reservation **reservation,
                                      const size_t *count, const size_t *bytes)
{
    kvern_reservation *r = *reservation;
    extension by[KVERN_BUFFER_KINDS];
    kvern_buffer *gone[KVERN_BUFFER_KINDS];
    void *block = NULL;
    kvern_status status = r ? KVERN_OK : kvern_heap_take_zeroed(&context->heap, sizeof *r, &block);
    if (status)
        return status;
    r = r ? r : block;
    if ((status = take_extensions(context, r, count, bytes, by))) {
        kvern_heap_give(&context->heap, block, sizeof *r, KVERN_HEAP_ALIGNMENT);
        return status;
    }
    if (block)
        r->references = 1;
    pthread_mutex_lock(&context->lock);
    KVERN_ASSERT(!r->has_ended);
    for (kvern_buffer_kind k = 0; k < KVERN_BUFFER_KINDS; k++)
        gone[k] = extend(r, k, &by[k]);
    pthread_mutex_unlock(&context->lock);
    for (kvern_buffer_kind k = 0; k < KVERN_BUFFER_KINDS; k++)
        (void)free_buffers(context, gone[k]);
    *reservation = r;
    return KVERN_OK;
}

void kvern_reservation_retain(kvern_reservation *reservation)
{
    if (reservation)
        atomic_fetch_add_explicit(&reservation->references, 1, memory_order_relaxed);
}

void kvern_reservation_release(kvern_context *context, kvern_reservation *reservation)
{
    if (!reservation || atomic_fetch_sub(&reservation->references, 1) != 1)
        return;
    KVERN_ASSERT(reservation->has_ended);
    kvern_heap_give(&context->heap, reservation, sizeof *reservation, KVERN_HEAP_ALIGNMENT);
}

void kvern_reservation_end(kvern_context *context, kvern_reservation *reservation)
{
    kvern_buffer *lists[KVERN_BUFFER_KINDS];
    if (!reservation)
        return;
    pthread_mutex_lock(&context->lock);
    reservation->has_ended = true;
    for (size_t k = 0; k < KVERN_BUFFER_KINDS; k++) {
        lists[k] = reservation->of[k].idle;
        reservation->of[k].idle = NULL;
    }
    pthread_mutex_unlock(&context->lock);
    for (size_t k = 0; k < KVERN_BUFFER_KINDS; k++)
        (void)free_buffers(context, lists[k]);
    kvern_reservation_release(context, reservation);
}
