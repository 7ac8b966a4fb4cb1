// SPDX-License-Identifier: MIT
// Fetches, and the threads that work on them, each on one after the other. The first one does what
// it can, and the second comes in while it is busy: so there is a second connection only where
// there is a use of it. The first also asks a server that did not answer whether it does again.
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"
#include "src/base/sized.h"

#include <stdio.h>
#include <string.h>

#define PROBE_KEYS 64

static const kvern_sized FOUND_SIZES =
    KVERN_SIZED(kvern_remote_found, KVERN_SIZE_TO(kvern_remote_found, reserved));

void kvern_remote_found_init(kvern_remote_found *found, size_t size)
{
    const kvern_remote_found none = {.size = size};
    kvern_sized_init(&FOUND_SIZES, &none, found, size);
}

// ---- The end of a fetch ----

void kvern_remote_fetch_free(kvern_remote_fetch *fetch)
{
    kvern_context *context = fetch->store->context;
    if (fetch->sets)
        kvern_heap_give(&context->heap, fetch->sets, fetch->composition->sets * sizeof(kvern_row),
                        KVERN_HEAP_ALIGNMENT);
    kvern_state_destroy(fetch->row);
    kvern_composition_release(fetch->composition);
    kvern_heap_give(&context->heap, fetch, fetch->block_bytes, KVERN_HEAP_ALIGNMENT);
}

static void count_fetch(kvern_store_lookups *counters, const kvern_remote_fetch *fetch)
{
    const kvern_remote_found *found = &fetch->found;
    counters->count++;
    counters->tokens_asked += fetch->count;
    counters->why[found->why]++;
    if (!found->positions) {
        counters->misses++;
        counters->why_missed[found->why]++;
    } else if (found->why == KVERN_STORE_ALL) {
        counters->full_hits++;
    } else {
        counters->partial_hits++;
    }
}

// Under the lock, once.
static void finish(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    if (fetch->is_done)
        return;
    fetch->is_done = true;
    fetch->found.seconds = (double)(kvern_remote_now() - fetch->begun) / 1000;
    store->stats.fetching--;
    store->stats.fetch_seconds += fetch->found.seconds;
    if (fetch->found.positions)
        store->stats.hit_seconds += fetch->found.seconds;
    count_fetch(&store->stats.lookups, fetch);
    pthread_cond_broadcast(&store->changed);
}

void kvern_remote_finish(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    pthread_mutex_lock(&store->lock);
    finish(store, fetch);
    pthread_mutex_unlock(&store->lock);
}

static kvern_remote_fetch *take_first(kvern_remote_store *store)
{
    kvern_remote_fetch *fetch = store->fetches;
    store->fetches = fetch->next;
    if (!store->fetches)
        store->last_fetch = &store->fetches;
    fetch->is_waiting = false;
    return fetch;
}

void kvern_remote_finish_waiting(kvern_remote_store *store, kvern_store_why why)
{
    while (store->fetches) {
        kvern_remote_fetch *fetch = take_first(store);
        fetch->found.why = why;
        finish(store, fetch);
    }
}

// ---- The threads ----

static void run_fetch(kvern_remote_store *store, kvern_wire *wire, kvern_remote_fetch *fetch)
{
    const bool was_connected = wire->redis;
    wire->deadline = fetch->deadline;
    wire->given_up[1] = &fetch->is_given_up;
    kvern_status status = kvern_remote_serve(store, wire, fetch);
    // A server that began anew has closed the connections of the old one.
    if (status == KVERN_ERR_IO && was_connected && kvern_remote_now() < fetch->deadline)
        status = kvern_remote_serve(store, wire, fetch);
    wire->given_up[1] = NULL;
    wire->deadline = INT64_MAX;
    if (!status)
        return;
    fetch->found.why = status == KVERN_ERR_IO     ? KVERN_STORE_OFFLINE
                       : status == KVERN_ERR_BUSY ? KVERN_STORE_LATE
                                                  : KVERN_STORE_NO_ROOM;
    kvern_wire_close(wire);
    if (status == KVERN_ERR_IO)
        kvern_remote_go_down(store, kvern_error_detail());
}

// Under the lock, which is let go meanwhile.
static void work_on_first(kvern_remote_reader *reader, kvern_wire *wire)
{
    kvern_remote_store *store = reader->store;
    kvern_remote_fetch *fetch = take_first(store);
    fetch->is_running = reader->is_busy = true;
    if (store->fetches)
        pthread_cond_broadcast(&store->changed); // for the next reader
    pthread_mutex_unlock(&store->lock);
    run_fetch(store, wire, fetch);
    pthread_mutex_lock(&store->lock);
    fetch->is_running = reader->is_busy = false;
    kvern_remote_count_wire(store, wire);
    finish(store, fetch);
    const bool is_ended = fetch->is_ended;
    if (!is_ended)
        return;
    pthread_mutex_unlock(&store->lock);
    kvern_remote_fetch_free(fetch);
    pthread_mutex_lock(&store->lock);
}

// A server that answers may still have some of the keys only (a node of a cluster): keys of many of
// its slots are asked for. They are never there.
static kvern_status ask_for_keys(kvern_wire *wire)
{
    kvern_status status = kvern_wire_connect(wire);
    for (int i = 0; i < PROBE_KEYS && !status; i++) {
        char key[32];
        const char *get[] = {"GET", key};
        snprintf(key, sizeof key, "kvern1:probe:%d", i);
        status = kvern_wire_add(wire, 2, get, NULL);
    }
    return status ? status : kvern_wire_skip(wire, PROBE_KEYS);
}

// Under the lock, likewise.
static void probe(kvern_remote_store *store, kvern_wire *wire)
{
    const int64_t most = (int64_t)store->options.probe_ms * 32;
    store->stats.probes++;
    pthread_mutex_unlock(&store->lock);
    kvern_wire_close(wire);
    const bool answers = ask_for_keys(wire) == KVERN_OK;
    if (answers)
        kvern_remote_come_up(store);
    pthread_mutex_lock(&store->lock);
    kvern_remote_count_wire(store, wire);
    store->probe_wait = 2 * store->probe_wait < most ? 2 * store->probe_wait : most;
    store->probe_at = kvern_remote_now() + store->probe_wait;
}

// Under the lock: whether all readers in front of this one have something to do.
static bool is_next(const kvern_remote_reader *reader)
{
    size_t busy = 0;
    while (busy < reader->number && reader->store->readers[busy].is_busy)
        busy++;
    return busy == reader->number;
}

void *kvern_remote_read(void *given)
{
    kvern_remote_reader *reader = given;
    kvern_remote_store *store = reader->store;
    const bool probes = reader->number == 0;
    kvern_wire wire;
    kvern_remote_wire_init(store, &wire);
    pthread_mutex_lock(&store->lock);
    while (!store->ends) {
        if (store->fetches && is_next(reader))
            work_on_first(reader, &wire);
        else if (probes && store->is_down && kvern_remote_now() >= store->probe_at)
            probe(store, &wire);
        else
            kvern_remote_wait_until(store, probes && store->is_down ? store->probe_at : INT64_MAX);
    }
    kvern_remote_finish_waiting(store, KVERN_STORE_OFFLINE);
    pthread_mutex_unlock(&store->lock);
    kvern_wire_close(&wire);
    return NULL;
}

// ---- Calls ----

static kvern_status make_fetch(kvern_remote_store *store, const kvern_store_key *key,
                               kvern_composition *composition, const int32_t *tokens, size_t count,
                               kvern_remote_fetch **out)
{
    size_t bytes;
    void *block;
    if (__builtin_mul_overflow(count, sizeof tokens[0], &bytes) ||
        __builtin_add_overflow(bytes, sizeof **out, &bytes))
        return kvern_fail(KVERN_ERR_MEMORY, "a prompt that does not fit memory");
    kvern_status status =
        kvern_heap_take(kvern_remote_heap(store), bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_remote_fetch *fetch = block;
    memset(fetch, 0, sizeof *fetch);
    fetch->block_bytes = bytes;
    fetch->store = store;
    fetch->found = kvern_remote_found_default();
    fetch->count = count;
    if (count)
        memcpy(fetch->tokens, tokens, count * sizeof tokens[0]);
    if ((status = kvern_key_front_make(key, &fetch->front))) {
        kvern_heap_give(kvern_remote_heap(store), block, bytes, KVERN_HEAP_ALIGNMENT);
        return status;
    }
    kvern_composition_retain(composition);
    fetch->composition = composition;
    *out = fetch;
    return KVERN_OK;
}

static void queue_fetch(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    pthread_mutex_lock(&store->lock);
    store->stats.fetching++;
    if (store->is_down || store->stats.fetching > KVERN_REMOTE_FETCHES) {
        fetch->found.why = store->is_down ? KVERN_STORE_OFFLINE : KVERN_STORE_LATE;
        finish(store, fetch);
    } else {
        fetch->is_waiting = true;
        *store->last_fetch = fetch;
        store->last_fetch = &fetch->next;
        pthread_cond_broadcast(&store->changed);
    }
    pthread_mutex_unlock(&store->lock);
}

kvern_status kvern_remote_store_begin(kvern_remote_store *store, const kvern_store_key *key,
                                      kvern_composition *composition, const int32_t *tokens,
                                      size_t count, int64_t least, uint32_t milliseconds,
                                      kvern_remote_fetch **out)
{
    if (out)
        *out = NULL;
    if (!store || !composition || !out || (count && !tokens))
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, composition, tokens or out is NULL");
    if (composition->context != store->context)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the composition belongs to another context");
    kvern_status status = make_fetch(store, key, composition, tokens, count, out);
    if (status)
        return status;
    (*out)->least = least > 0 ? least : 1;
    (*out)->begun = kvern_remote_now();
    (*out)->deadline = (*out)->begun + (milliseconds ? milliseconds : store->options.fetch_ms);
    queue_fetch(store, *out);
    return KVERN_OK;
}

// Under the lock.
static void unlink_fetch(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    kvern_remote_fetch **at = &store->fetches;
    while (*at != fetch)
        at = &(*at)->next;
    *at = fetch->next;
    if (!*at)
        store->last_fetch = at;
    fetch->is_waiting = false;
}

// Under the lock: its time is over, whatever is being done for it; it is told as it would have
// been.
static void look_at_time(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    if (fetch->is_done || kvern_remote_now() < fetch->deadline)
        return;
    atomic_store(&fetch->is_given_up, true);
    if (!fetch->is_waiting)
        return; // its thread will notice at once
    unlink_fetch(store, fetch);
    fetch->found.why = KVERN_STORE_LATE;
    finish(store, fetch);
}

static bool poll_fetch(kvern_remote_store *store, kvern_remote_fetch *fetch,
                       kvern_remote_found *found)
{
    look_at_time(store, fetch);
    if (fetch->is_done && found)
        kvern_sized_write(&FOUND_SIZES, &fetch->found, found);
    return fetch->is_done;
}

bool kvern_remote_store_poll(kvern_remote_store *store, kvern_remote_fetch *fetch,
                             kvern_remote_found *found)
{
    pthread_mutex_lock(&store->lock);
    const bool done = poll_fetch(store, fetch, found);
    pthread_mutex_unlock(&store->lock);
    return done;
}

bool kvern_remote_store_wait(kvern_remote_store *store, kvern_remote_fetch *fetch,
                             uint32_t milliseconds, kvern_remote_found *found)
{
    const int64_t until = kvern_remote_now() + milliseconds;
    pthread_mutex_lock(&store->lock);
    bool done = poll_fetch(store, fetch, found);
    while (!done && kvern_remote_now() < until) {
        const int64_t next = fetch->deadline > kvern_remote_now() ? fetch->deadline : until;
        kvern_remote_wait_until(store, next < until ? next : until);
        done = poll_fetch(store, fetch, found);
    }
    pthread_mutex_unlock(&store->lock);
    return done;
}

static kvern_status check_loan(kvern_remote_store *store, kvern_remote_fetch *fetch,
                               const kvern_state *state, size_t row)
{
    if (!kvern_remote_store_poll(store, fetch, NULL))
        return kvern_fail(KVERN_ERR_BUSY, "the fetch has not come to its end");
    if (!fetch->found.positions)
        return kvern_fail(KVERN_ERR_ARGUMENT, "nothing was fetched");
    kvern_status status = kvern_loan_check_row(store->context, state, row);
    if (status)
        return status;
    return kvern_loan_check_layers(fetch->composition->count, kvern_composition_signature_of,
                                   fetch->composition, state->composition);
}

kvern_status kvern_remote_store_lend(kvern_remote_store *store, kvern_remote_fetch *fetch,
                                     kvern_state *state, size_t row)
{
    if (!store || !fetch || !state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, fetch or state is NULL");
    kvern_status status = check_loan(store, fetch, state, row);
    if (status)
        return status;
    const int64_t positions = fetch->found.positions;
    kvern_kept_row_lend(state, row, fetch->sets, positions, positions);
    pthread_mutex_lock(&store->lock);
    kvern_loan_count(&store->stats.lookups, positions);
    pthread_mutex_unlock(&store->lock);
    return KVERN_OK;
}

void kvern_remote_store_end(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    if (!fetch)
        return;
    pthread_mutex_lock(&store->lock);
    atomic_store(&fetch->is_given_up, true);
    fetch->is_ended = true;
    if (fetch->is_waiting) {
        unlink_fetch(store, fetch);
        fetch->found.why = KVERN_STORE_LATE;
        finish(store, fetch);
    }
    const bool is_running = fetch->is_running;
    pthread_mutex_unlock(&store->lock);
    if (!is_running)
        kvern_remote_fetch_free(fetch);
}
