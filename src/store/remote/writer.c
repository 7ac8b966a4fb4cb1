// SPDX-License-Identifier: MIT
// Rows that are to be written, in a queue, and the thread that writes them.
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"

#include <kvern/checkpoint.h>
#include <string.h>

void kvern_remote_job_free(kvern_remote_store *store, kvern_remote_job *job)
{
    if (!job)
        return;
    kvern_state_destroy(job->state);
    kvern_heap_give(kvern_remote_heap(store), job, job->block_bytes, KVERN_HEAP_ALIGNMENT);
}

kvern_remote_job *kvern_remote_take_jobs(kvern_remote_store *store)
{
    kvern_remote_queue *queue = &store->queue;
    kvern_remote_job *jobs = queue->first;
    for (const kvern_remote_job *job = jobs; job; job = job->next) {
        queue->count--;
        queue->bytes -= job->bytes;
        store->stats.dropped++;
    }
    queue->first = queue->last = NULL;
    pthread_cond_broadcast(&store->changed);
    return jobs;
}

void kvern_remote_free_jobs(kvern_remote_store *store, kvern_remote_job *jobs)
{
    while (jobs) {
        kvern_remote_job *next = jobs->next;
        kvern_remote_job_free(store, jobs);
        jobs = next;
    }
}

// ---- The thread ----

static void count_job(kvern_remote_store *store, kvern_wire *wire, kvern_status status,
                      int64_t begun)
{
    pthread_mutex_lock(&store->lock);
    kvern_remote_count_wire(store, wire);
    if (!status)
        store->stats.publish_seconds += (double)(kvern_remote_now() - begun) / 1000;
    const bool tell =
        status && status != KVERN_ERR_IO && status != KVERN_ERR_BUSY && !store->is_told;
    if (!status)
        store->stats.publications++;
    else if (status == KVERN_ERR_IO || status == KVERN_ERR_BUSY)
        store->stats.dropped++;
    else if (status == KVERN_ERR_BUDGET)
        store->stats.refused++;
    else
        store->stats.failures++;
    store->is_told = status && (store->is_told || tell);
    pthread_mutex_unlock(&store->lock);
    if (tell)
        kvern_remote_report(store, KVERN_REMOTE_NOT_WRITTEN, kvern_error_detail());
}

static void write_job(kvern_remote_store *store, kvern_wire *wire, const kvern_remote_job *job)
{
    const bool was_connected = wire->redis;
    const int64_t begun = kvern_remote_now();
    kvern_status status = kvern_remote_put(store, wire, job);
    // A server that began anew has closed the connections of the old one.
    if (status == KVERN_ERR_IO && was_connected)
        status = kvern_remote_put(store, wire, job);
    if (status == KVERN_ERR_IO)
        kvern_remote_go_down(store, kvern_error_detail());
    if (status)
        kvern_wire_close(wire); // answers may be on their way
    count_job(store, wire, status, begun);
}

// Under the lock, which is let go meanwhile. The job counts until its pages have gone.
static void run_job(kvern_remote_store *store, kvern_wire *wire)
{
    kvern_remote_queue *queue = &store->queue;
    kvern_remote_job *job = queue->first;
    queue->first = job->next;
    if (!queue->first)
        queue->last = NULL;
    queue->current = job;
    pthread_mutex_unlock(&store->lock);
    write_job(store, wire, job);
    pthread_mutex_lock(&store->lock);
    queue->current = NULL;
    pthread_mutex_unlock(&store->lock);
    const uint64_t bytes = job->bytes;
    kvern_remote_job_free(store, job);
    pthread_mutex_lock(&store->lock);
    queue->count--;
    queue->bytes -= bytes;
    pthread_cond_broadcast(&store->changed);
}

void *kvern_remote_writer(void *user)
{
    kvern_remote_store *store = user;
    kvern_wire wire;
    kvern_remote_wire_init(store, &wire);
    pthread_mutex_lock(&store->lock);
    while (store->queue.first || !store->ends) {
        if (store->queue.first)
            run_job(store, &wire);
        else
            kvern_remote_wait_until(store, INT64_MAX);
    }
    pthread_mutex_unlock(&store->lock);
    kvern_wire_close(&wire);
    return NULL;
}

void kvern_remote_store_flush(kvern_remote_store *store)
{
    pthread_mutex_lock(&store->lock);
    while (store->queue.count)
        kvern_remote_wait_until(store, INT64_MAX);
    pthread_mutex_unlock(&store->lock);
}

uint64_t kvern_remote_store_give_up(kvern_remote_store *store)
{
    uint64_t count = 0;
    pthread_mutex_lock(&store->lock);
    kvern_remote_job *jobs = kvern_remote_take_jobs(store);
    pthread_mutex_unlock(&store->lock);
    for (const kvern_remote_job *job = jobs; job; job = job->next)
        count++;
    kvern_remote_free_jobs(store, jobs);
    return count;
}

// ---- Publishing ----

// A row on its way into the queue.
typedef struct publishing {
    kvern_remote_store *store;
    kvern_fork_source source;
    const int32_t *tokens;
    kvern_key_front front;
    char name[KVERN_REMOTE_HASH_DIGITS + 1];
    kvern_remote_job *job;
    kvern_remote_outcome outcome;
} publishing;

static bool is_queued(const publishing *p)
{
    const kvern_remote_queue *queue = &p->store->queue;
    const kvern_remote_job *job = queue->first;
    while (job && strcmp(job->name, p->name) != 0)
        job = job->next;
    return job || (queue->current && strcmp(queue->current->name, p->name) == 0);
}

// Under the lock: whether nothing is to be done. Before a fork is made, and again when it is there.
static bool is_settled(publishing *p)
{
    kvern_remote_store *store = p->store;
    if (store->options.read_only) {
        p->outcome = KVERN_REMOTE_READ_ONLY;
    } else if (store->is_down) {
        p->outcome = KVERN_REMOTE_OFFLINE;
        store->stats.dropped++;
    } else if (is_queued(p)) {
        p->outcome = KVERN_REMOTE_WAITS;
    } else {
        return false;
    }
    return true;
}

static kvern_status make_job(publishing *p)
{
    const size_t count = p->source.count;
    const size_t bytes = sizeof(kvern_remote_job) + count * sizeof(int32_t);
    void *block;
    kvern_status status =
        kvern_heap_take(kvern_remote_heap(p->store), bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_remote_job *job = p->job = block;
    *job = (kvern_remote_job){.block_bytes = bytes, .token_count = count};
    memcpy(&job->front, &p->front, sizeof job->front);
    memcpy(job->name, p->name, sizeof job->name);
    memcpy(job->tokens, p->tokens, count * sizeof(int32_t));
    kvern_remote_space(&p->front, p->source.state->composition, job->space);
    if ((status = kvern_fork_make(&p->source, &job->state)))
        return status;
    job->bytes = kvern_state_bytes(job->state) + kvern_state_checkpoint_bytes(job->state) + bytes;
    return KVERN_OK;
}

static bool has_room(const kvern_remote_store *store, uint64_t bytes)
{
    const kvern_remote_queue *queue = &store->queue;
    if (queue->count == 0)
        return true;
    return queue->count < store->options.queue_entries &&
           queue->bytes < store->options.queue_bytes &&
           bytes <= store->options.queue_bytes - queue->bytes;
}

static void put_job(publishing *p)
{
    kvern_remote_queue *queue = &p->store->queue;
    if (queue->last)
        queue->last->next = p->job;
    else
        queue->first = p->job;
    queue->last = p->job;
    queue->count++;
    queue->bytes += p->job->bytes;
    p->job = NULL;
    pthread_cond_broadcast(&p->store->changed);
}

static void queue_job(publishing *p)
{
    pthread_mutex_lock(&p->store->lock);
    if (!is_settled(p)) {
        if (has_room(p->store, p->job->bytes)) {
            put_job(p);
        } else {
            p->outcome = KVERN_REMOTE_FULL;
            p->store->stats.dropped++;
        }
    }
    pthread_mutex_unlock(&p->store->lock);
}

static kvern_status publish(publishing *p)
{
    kvern_status status = kvern_fork_check(&p->source);
    if (status)
        return status;
    kvern_remote_name(&p->front, p->source.state->composition, p->tokens, p->source.count, p->name);
    pthread_mutex_lock(&p->store->lock);
    const bool settled = is_settled(p);
    pthread_mutex_unlock(&p->store->lock);
    if (settled)
        return KVERN_OK;
    if (!(status = make_job(p)))
        queue_job(p);
    kvern_remote_job_free(p->store, p->job);
    return status;
}

kvern_status kvern_remote_store_publish(kvern_remote_store *store, const kvern_store_key *key,
                                        const int32_t *tokens, size_t count,
                                        const kvern_state *state, size_t row,
                                        kvern_remote_outcome *outcome)
{
    if (!store || !tokens || !state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, tokens or state is NULL");
    publishing p = {
        .store = store,
        .source = {.state = state, .row = row, .count = count},
        .tokens = tokens,
        .outcome = KVERN_REMOTE_QUEUED,
    };
    kvern_status status = kvern_kept_row_check(store->context, state, row, count);
    if (!status)
        status = kvern_key_front_make(key, &p.front);
    if (!status)
        status = kvern_disk_check_fields(&p.front);
    if (!status)
        status = publish(&p);
    if (!status && outcome)
        *outcome = p.outcome;
    return status;
}
