// SPDX-License-Identifier: MIT
#include "server/worker/worker.h"

#include "server/worker/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct worker {
    worker_options options;
    schedule *schedule;
    measures measures; // the thread's
    job *jobs;         // that are in the scheduler; the thread's

    pthread_t thread;
    pthread_mutex_t lock; // of all below
    pthread_cond_t work;  // for the thread
    pthread_cond_t ended; // a job has ended
    job *first, **end;    // that nobody has looked at yet
    worker_question *questions;
    size_t answers; // of all jobs that were taken and have not ended
    size_t active;  // such jobs
    bool draining, closing, cancel_all;
    worker_facts facts;
};

// ---- The thread ----

static void cancel_jobs(job *j)
{
    for (; j; j = j->next) {
        atomic_store(&j->cancel, true);
    }
}

// Waits for something to do, and takes it. False: it is to end.
static bool await_work(worker *w, job **arrived, worker_question **questions)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->questions && !w->jobs && !w->closing) {
        pthread_cond_wait(&w->work, &w->lock);
    }
    *arrived = w->first;
    *questions = w->questions;
    w->first = NULL;
    w->end = &w->first;
    w->questions = NULL;
    const bool go_on = !w->closing || w->jobs || *arrived, cancel = w->cancel_all;
    pthread_mutex_unlock(&w->lock);
    cancel_jobs(cancel ? w->jobs : NULL);
    cancel_jobs(cancel ? *arrived : NULL);
    return go_on;
}

static void submit_all(worker *w, job *arrived)
{
    while (arrived) {
        job *j = arrived;
        arrived = j->next;
        job_submit(j, w->schedule, w->options.model, &w->measures);
        j->next = w->jobs;
        w->jobs = j;
    }
}

static void answer_all(worker *w, worker_question *questions)
{
    while (questions) {
        worker_question *q = questions;
        questions = q->next;
        text_buffer text = TEXT_BUFFER_INIT;
        worker_facts facts;
        worker_look(w, &facts);
        const bool written = snapshot_write(w->schedule, &w->options, w->jobs, &facts, &text);
        pthread_mutex_lock(&q->lock);
        q->text = text;
        q->failed = !written;
        q->done = true;
        waker_wake(&q->waker);
        pthread_mutex_unlock(&q->lock);
        worker_question_release(q);
    }
}

static void note_end(worker *w, const job *j)
{
    pthread_mutex_lock(&w->lock);
    w->answers -= j->count;
    w->active--;
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
}

// Tells who waits, and lets go of what has ended.
static void tell_all(worker *w)
{
    job **at = &w->jobs;
    while (*at) {
        job *j = *at;
        const bool ended = j->running == 0;
        if (ended) {
            *at = j->next;
            note_end(w, j);
        } else {
            at = &j->next;
        }
        job_tell(j);
        if (ended) {
            job_release(j);
        }
    }
}

// What others may see of this moment.
static void publish_facts(worker *w)
{
    worker_facts now;
    snapshot_facts(w->schedule, &w->options, &w->measures, &now);
    pthread_mutex_lock(&w->lock);
    w->facts = now;
    pthread_mutex_unlock(&w->lock);
}

static void *work(void *user)
{
    worker *w = user;
    job *arrived;
    worker_question *questions;
    while (await_work(w, &arrived, &questions)) {
        submit_all(w, arrived);
        answer_all(w, questions);
        (void)schedule_step(w->schedule);
        publish_facts(w);
        tell_all(w);
    }
    answer_all(w, questions);
    return NULL;
}

// ---- Life ----

static kvern_status start(worker *w, engine_error *error)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_cond_init(&w->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return pthread_create(&w->thread, NULL, work, w) == 0
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_THREADS, "starting a thread failed");
}

kvern_status worker_create(const worker_options *options, worker **out, engine_error *error)
{
    worker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the server");
    }
    w->options = *options;
    w->end = &w->first;
    kvern_status status = schedule_create(options->model, options->composition, &options->schedule,
                                          &w->schedule, error);
    if (status == KVERN_OK) {
        snapshot_facts(w->schedule, &w->options, &w->measures, &w->facts);
        status = start(w, error);
    }
    if (status != KVERN_OK) {
        schedule_destroy(w->schedule);
        free(w);
        return status;
    }
    *out = w;
    return KVERN_OK;
}

void worker_destroy(worker *w)
{
    if (!w) {
        return;
    }
    worker_drain(w);
    (void)worker_finish(w, 0);
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    schedule_destroy(w->schedule);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->ended);
    free(w);
}

// ---- Jobs ----

// When a place may come free, by how long requests have taken so far.
static unsigned retry_seconds(const worker *w)
{
    const histogram *all = &w->facts.measures.request;
    const double each = all->count ? all->sum / (double)all->count : 1;
    const double seconds = each / (double)w->options.schedule.most_rows;
    return seconds < 1 ? 1 : seconds > 60 ? 60 : (unsigned)seconds + 1;
}

static bool has_room(const worker *w, const job *j)
{
    const size_t most = w->options.schedule.most_rows + w->options.most_queued;
    return w->answers + j->count <= most;
}

worker_answer worker_push(worker *w, job *j, unsigned *retry)
{
    worker_answer answer = WORKER_TAKEN;
    pthread_mutex_lock(&w->lock);
    if (w->draining) {
        answer = WORKER_DRAINING;
    } else if (!has_room(w, j)) {
        answer = WORKER_FULL;
        *retry = retry_seconds(w);
    } else {
        w->answers += j->count;
        w->active++;
        j->next = NULL;
        *w->end = j;
        w->end = &j->next;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return answer;
}

void worker_drain(worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->draining = true;
    pthread_mutex_unlock(&w->lock);
}

static struct timespec deadline_of(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const long nanoseconds = at.tv_nsec + (long)((seconds - (double)(time_t)seconds) * 1e9);
    at.tv_sec += (time_t)seconds + nanoseconds / 1000000000;
    at.tv_nsec = nanoseconds % 1000000000;
    return at;
}

bool worker_finish(worker *w, double seconds)
{
    const struct timespec deadline = deadline_of(seconds);
    int late = 0;
    pthread_mutex_lock(&w->lock);
    while (w->active > 0 && late == 0) {
        late = pthread_cond_timedwait(&w->ended, &w->lock, &deadline);
    }
    const bool finished = w->active == 0;
    w->cancel_all = !finished;
    pthread_cond_signal(&w->work);
    while (w->active > 0) {
        pthread_cond_wait(&w->ended, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return finished;
}

// ---- Questions ----

worker_question *worker_ask(worker *w)
{
    worker_question *q = calloc(1, sizeof *q);
    if (!q || pthread_mutex_init(&q->lock, NULL) != 0) {
        free(q);
        return NULL;
    }
    q->references = 2;
    pthread_mutex_lock(&w->lock);
    q->next = w->questions;
    w->questions = q;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    return q;
}

void worker_question_release(worker_question *q)
{
    pthread_mutex_lock(&q->lock);
    const int left = --q->references;
    pthread_mutex_unlock(&q->lock);
    if (left == 0) {
        text_buffer_free(&q->text);
        pthread_mutex_destroy(&q->lock);
        free(q);
    }
}

void worker_look(worker *w, worker_facts *out)
{
    pthread_mutex_lock(&w->lock);
    *out = w->facts;
    out->draining = w->draining;
    out->queued = w->answers > out->running ? w->answers - out->running : 0;
    pthread_mutex_unlock(&w->lock);
    if (out->has_remote) { // it goes on between steps
        (void)!kvern_remote_store_get_stats(w->options.schedule.remote, &out->remote);
    }
}
