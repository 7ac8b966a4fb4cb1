// SPDX-License-Identifier: MIT
// The thread that writes what is queued.
#include "src/store/disk/disk_store.h"

#include "src/base/fail.h"
#include "src/base/thread_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

void kvern_disk_job_free(kvern_disk_store *store, kvern_disk_job *job)
{
    if (!job)
        return;
    kvern_state_destroy(job->state);
    kvern_heap_give(kvern_disk_heap(store), job, job->block_bytes, KVERN_HEAP_ALIGNMENT);
}

// ---- One entry ----

// How often room is made on a full disk. More may be needed than the file takes: space of files
// that somebody has mapped does not come back at once, and others use the disk.
#define MOST_ATTEMPTS 4

// A file that is being written.
typedef struct writing {
    kvern_disk_store *store;
    uint64_t bytes; // that it takes; 0: not known yet
    bool is_full;   // the disk
} writing;

static void note_full(void *user)
{
    ((writing *)user)->is_full = true;
}

static kvern_status make_room(void *user, uint64_t bytes)
{
    writing *w = user;
    kvern_disk_store *store = w->store;
    const uint64_t budget = store->options.budget_bytes;
    w->bytes = bytes;
    if (!budget || kvern_disk_make_room(store, bytes, budget))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_BUDGET,
                      "%" PRIu64 " bytes do not fit the directory's %" PRIu64
                      ", or pinned entries leave them no room",
                      bytes, budget);
}

static void count_failure(kvern_disk_store *store, const char *name, kvern_status status,
                          const char *why)
{
    pthread_mutex_lock(&store->lock);
    if (status == KVERN_ERR_BUDGET)
        store->stats.refused++;
    else
        store->stats.failures++;
    pthread_mutex_unlock(&store->lock);
    kvern_disk_report(store, KVERN_DISK_NOT_WRITTEN, name, why);
}

// Whether there is another file under the name than the index knows, which that then forgets. Of
// what was written that is so, also where a file that somebody removed has left it its inode.
static bool is_new(kvern_disk_store *store, const char *name, const char *path, bool written)
{
    kvern_disk_rest rest = {0};
    struct stat facts;
    if (lstat(path, &facts))
        return false;
    pthread_mutex_lock(&store->lock);
    kvern_disk_entry *known = kvern_disk_find_name(store, name);
    const bool same = known && !written && known->inode == facts.st_ino;
    if (known && !same) {
        kvern_disk_index_drop(store, known, &rest);
        store->stats.replaced++;
    }
    pthread_mutex_unlock(&store->lock);
    kvern_disk_rest_free(store, &rest);
    return !same;
}

static void take_in(kvern_disk_store *store, kvern_disk_entry *added)
{
    kvern_disk_rest rest = {0};
    pthread_mutex_lock(&store->lock);
    store->stats.publications++;
    store->stats.written_bytes += added->bytes;
    kvern_disk_index_drop_beginnings(store, added, &rest);
    pthread_mutex_unlock(&store->lock);
    kvern_disk_remove(store, &rest);
}

// What was written is looked at as anything that lies there. A file that cannot be indexed would be
// outside the budget.
static void settle(kvern_disk_store *store, const kvern_disk_job *job, const char *path)
{
    kvern_disk_entry *added = NULL;
    kvern_status status = kvern_disk_look(store, job->name, &added);
    if (added) {
        take_in(store, added);
        return;
    }
    unlink(path);
    count_failure(store, job->name, status ? status : KVERN_ERR_IO,
                  status ? kvern_error_detail() : "what was written is not there, or damaged");
}

// What is missing on a full disk for the file: all of it where the disk says that there is room,
// which may be its owner's share that is full.
static uint64_t missing_bytes(const writing *w)
{
    const kvern_disk_calls *calls = &w->store->calls;
    uint64_t left = 0;
    if (calls->free_bytes)
        left = calls->free_bytes(calls->user, w->store->directory);
    if (w->bytes == 0)
        return 1;
    return left < w->bytes ? w->bytes - left : w->bytes;
}

// On a full disk files of the store's go, as many bytes as are missing, and it is tried again.
static kvern_status write_file(kvern_disk_store *store, const kvern_disk_job *job, const char *path)
{
    writing w = {.store = store};
    kvern_disk_calls calls = store->calls;
    kvern_status status;
    size_t attempts = 0;
    calls.make_room = make_room;
    calls.full = note_full;
    calls.room_user = &w;
    do {
        w.is_full = false;
        status = kvern_disk_write(&calls, job, path);
    } while (status && w.is_full && attempts++ < MOST_ATTEMPTS &&
             kvern_disk_give_up(store, missing_bytes(&w)));
    return status;
}

static void write_job(kvern_disk_store *store, const kvern_disk_job *job)
{
    char path[KVERN_DISK_PATH_BYTES];
    kvern_disk_path(store, NULL, job->name, path);
    pthread_mutex_lock(&store->disk_lock);
    kvern_status status = write_file(store, job, path);
    if (status)
        count_failure(store, job->name, status, kvern_error_detail());
    if (is_new(store, job->name, path,
               !status)) // also where only the directory could not be synced
        settle(store, job, path);
    pthread_mutex_unlock(&store->disk_lock);
}

// ---- The thread ----

// Under the lock.
static kvern_disk_job *take_job(kvern_disk_queue *queue)
{
    kvern_disk_job *job = queue->first;
    queue->first = job->next;
    if (!queue->first)
        queue->last = NULL;
    queue->current = job;
    return job;
}

// Under the lock. The job counts until its pages have gone.
static void run_job(kvern_disk_store *store)
{
    kvern_disk_queue *queue = &store->queue;
    kvern_disk_job *job = take_job(queue);
    const uint64_t bytes = job->bytes;
    pthread_mutex_unlock(&store->lock);
    write_job(store, job);
    pthread_mutex_lock(&store->lock);
    queue->current = NULL;
    pthread_mutex_unlock(&store->lock);
    kvern_disk_job_free(store, job);
    pthread_mutex_lock(&store->lock);
    queue->count--;
    queue->bytes -= bytes;
    pthread_cond_broadcast(&queue->changed);
}

static void *work(void *user)
{
    kvern_disk_store *store = user;
    kvern_disk_queue *queue = &store->queue;
    pthread_mutex_lock(&store->lock);
    while (queue->first || !queue->ends) {
        if (queue->first)
            run_job(store);
        else
            pthread_cond_wait(&queue->changed, &store->lock);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

kvern_status kvern_disk_writer_start(kvern_disk_store *store)
{
    sigset_t left, own;
    kvern_left_signals(&left);
    pthread_sigmask(SIG_BLOCK, &left, &own);
    const int failed = pthread_create(&store->thread, NULL, work, store);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    if (!failed)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_THREADS, "no thread to write with: %s", strerror(failed));
}

// Under the lock: the jobs that wait, taken out.
static kvern_disk_job *drop_jobs(kvern_disk_store *store)
{
    kvern_disk_queue *queue = &store->queue;
    kvern_disk_job *jobs = queue->first;
    for (const kvern_disk_job *job = jobs; job; job = job->next) {
        queue->count--;
        queue->bytes -= job->bytes;
        store->stats.dropped++;
    }
    queue->first = queue->last = NULL;
    return jobs;
}

void kvern_disk_writer_end(kvern_disk_store *store)
{
    kvern_disk_job *dropped = NULL;
    pthread_mutex_lock(&store->lock);
    store->queue.ends = true;
    if (store->options.drop_at_close)
        dropped = drop_jobs(store);
    pthread_cond_broadcast(&store->queue.changed);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->thread, NULL);
    while (dropped) {
        kvern_disk_job *next = dropped->next;
        kvern_disk_job_free(store, dropped);
        dropped = next;
    }
}

void kvern_disk_store_flush(kvern_disk_store *store)
{
    pthread_mutex_lock(&store->lock);
    while (store->queue.count)
        pthread_cond_wait(&store->queue.changed, &store->lock);
    pthread_mutex_unlock(&store->lock);
}
