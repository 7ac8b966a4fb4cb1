// SPDX-License-Identifier: MIT
// Rows that are to be written: forks of them, in a queue.
#include "src/store/disk/disk_store.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/store/fork.h"

#include <kvern/checkpoint.h>
#include <string.h>

// A row on its way into the queue.
typedef struct publishing {
    kvern_disk_store *store;
    kvern_fork_source source;
    const int32_t *tokens;
    kvern_key_front front; // without a layout
    kvern_disk_job *job;
    kvern_disk_outcome outcome;
} publishing;

// ---- What serves it already ----

// Under the lock: entries do, and also what its checkpoints would.
static bool is_stored(publishing *p)
{
    const kvern_composition *composition = p->source.state->composition;
    const kvern_disk_layout *layout = kvern_disk_find_layout(
        p->store, composition->count, kvern_composition_signature_of, composition);
    if (!layout)
        return false;
    kvern_key_front front = p->front;
    kvern_key_front_set_layout(&front, layout->number);
    kvern_key key = {&front, p->tokens, p->source.count};
    bool stored = kvern_disk_serves(p->store, &key, p->source.floor);
    const kvern_checkpoint *c = kvern_fork_first(&p->source);
    for (; stored && c; c = kvern_fork_next(&p->source, c->below)) {
        key.tokens_count = (size_t)c->position;
        stored = kvern_disk_serves(p->store, &key, kvern_fork_floor(composition, c));
    }
    return stored;
}

static bool has_same_layers(const kvern_composition *a, const kvern_composition *b)
{
    bool same = a == b || a->count == b->count;
    for (size_t l = 0; same && a != b && l < a->count; l++)
        same = strcmp(a->layers[l].signature, b->layers[l].signature) == 0;
    return same;
}

// Whether the tokens of one are the first of both, under one key.
static bool begin_alike(const publishing *p, const kvern_disk_job *job, size_t count)
{
    return p->front.fields == job->front.fields && count <= p->source.count &&
           count <= job->token_count &&
           memcmp(p->front.words, job->front.words, p->front.fields * sizeof p->front.words[0]) ==
               0 &&
           memcmp(p->tokens, job->tokens, count * sizeof p->tokens[0]) == 0 &&
           has_same_layers(p->source.state->composition, job->state->composition);
}

static bool job_serves(const publishing *p, const kvern_disk_job *job)
{
    return job && begin_alike(p, job, p->source.count) && job->floor <= p->source.floor &&
           (job->token_count == p->source.count || !kvern_fork_first(&p->source));
}

// Under the lock.
static bool is_queued(const publishing *p)
{
    const kvern_disk_queue *queue = &p->store->queue;
    const kvern_disk_job *job = queue->first;
    while (job && !job_serves(p, job))
        job = job->next;
    return job || job_serves(p, queue->current);
}

// Whether the new job serves all that one would.
static bool is_beginning(const publishing *p, const kvern_disk_job *job)
{
    return begin_alike(p, job, job->token_count) && p->source.floor <= job->floor &&
           !job->state->batch.checkpoints[0];
}

// Under the lock: beginnings that wait, taken out.
static kvern_disk_job *take_beginnings(const publishing *p)
{
    kvern_disk_queue *queue = &p->store->queue;
    kvern_disk_job *taken = NULL, **link = &queue->first;
    queue->last = NULL;
    while (*link) {
        kvern_disk_job *job = *link;
        if (!is_beginning(p, job)) {
            queue->last = job;
            link = &job->next;
            continue;
        }
        *link = job->next;
        job->next = taken;
        taken = job;
        queue->count--;
        queue->bytes -= job->bytes;
        p->store->stats.served_by_longer++;
    }
    return taken;
}

// ---- The job ----

static kvern_status make_job(publishing *p)
{
    const size_t bytes = sizeof(kvern_disk_job) + p->source.count * sizeof(int32_t);
    const kvern_composition *composition = p->source.state->composition;
    void *block;
    kvern_status status =
        kvern_heap_take(kvern_disk_heap(p->store), bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_disk_job *job = p->job = block;
    *job = (kvern_disk_job){
        .block_bytes = bytes, .token_count = p->source.count, .floor = p->source.floor};
    memcpy(&job->front, &p->front, sizeof job->front);
    memcpy(job->tokens, p->tokens, p->source.count * sizeof(int32_t));
    kvern_disk_name(&p->front, composition->count, kvern_composition_signature_of, composition,
                    p->tokens, p->source.count, job->name);
    if ((status = kvern_fork_make(&p->source, &job->state)))
        return status;
    job->bytes = kvern_state_bytes(job->state) + kvern_state_checkpoint_bytes(job->state) + bytes;
    return KVERN_OK;
}

// Under the lock: whether the queue has room once its beginnings have gone.
static bool has_room(const publishing *p)
{
    const kvern_disk_store *store = p->store;
    const kvern_disk_store_options *options = &store->options;
    uint64_t count = store->queue.count, bytes = store->queue.bytes;
    for (const kvern_disk_job *job = store->queue.first; job; job = job->next) {
        if (is_beginning(p, job)) {
            count--;
            bytes -= job->bytes;
        }
    }
    return count == 0 || (count < options->queue_entries && bytes < options->queue_bytes &&
                          p->job->bytes <= options->queue_bytes - bytes);
}

// Under the lock.
static void put_job(publishing *p)
{
    kvern_disk_queue *queue = &p->store->queue;
    if (queue->last)
        queue->last->next = p->job;
    else
        queue->first = p->job;
    queue->last = p->job;
    queue->count++;
    queue->bytes += p->job->bytes;
    p->job = NULL;
    pthread_cond_broadcast(&queue->changed);
}

// ---- The call ----

// Whether there is nothing to do. Before a fork is made, and again when it is there.
static bool is_served(publishing *p)
{
    if (!is_stored(p) && !is_queued(p))
        return false;
    p->store->stats.stored_already++;
    p->outcome = KVERN_DISK_STORED;
    return true;
}

static void queue_job(publishing *p)
{
    kvern_disk_store *store = p->store;
    kvern_disk_job *beginnings = NULL;
    pthread_mutex_lock(&store->lock);
    const bool served = is_served(p);
    if (!served && has_room(p)) {
        beginnings = take_beginnings(p);
        put_job(p);
    } else if (!served) { // beginnings that wait are better than nothing
        p->outcome = KVERN_DISK_DROPPED;
        store->stats.dropped++;
    }
    pthread_mutex_unlock(&store->lock);
    while (beginnings) {
        kvern_disk_job *next = beginnings->next;
        kvern_disk_job_free(store, beginnings);
        beginnings = next;
    }
}

static kvern_status publish(publishing *p)
{
    kvern_status status = kvern_fork_check(&p->source);
    if (status)
        return status;
    if (!kvern_disk_is_writer(p->store)) {
        p->outcome = KVERN_DISK_READER;
        return KVERN_OK;
    }
    pthread_mutex_lock(&p->store->lock);
    const bool served = is_served(p);
    pthread_mutex_unlock(&p->store->lock);
    if (served)
        return KVERN_OK;
    status = make_job(p);
    if (!status)
        queue_job(p);
    kvern_disk_job_free(p->store, p->job);
    return status;
}

kvern_status kvern_disk_store_publish(kvern_disk_store *store, const kvern_store_key *key,
                                      const int32_t *tokens, size_t count, const kvern_state *state,
                                      size_t row, kvern_disk_outcome *outcome)
{
    if (!store || !tokens || !state)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, tokens or state is NULL");
    publishing p = {
        .store = store,
        .source = {.state = state, .row = row, .count = count},
        .tokens = tokens,
        .outcome = KVERN_DISK_QUEUED,
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
