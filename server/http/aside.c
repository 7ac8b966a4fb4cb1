// SPDX-License-Identifier: MIT
#include "server/http/aside.h"

#include <pthread.h>
#include <stdlib.h>

struct aside {
    pthread_t thread;
    pthread_mutex_t lock; // of all below
    pthread_cond_t more;
    aside_work *first, **end;
    bool closing;
};

// NULL: there is none, and no more will come.
static aside_work *await_work(aside *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->first && !a->closing) {
        pthread_cond_wait(&a->more, &a->lock);
    }
    aside_work *work = a->first;
    if (work) {
        a->first = work->next;
        a->end = a->first ? a->end : &a->first;
    }
    pthread_mutex_unlock(&a->lock);
    return work;
}

static void *run_all(void *user)
{
    aside_work *work;
    while ((work = await_work(user))) {
        work->run(work->user);
    }
    return NULL;
}

kvern_status aside_create(aside **out, engine_error *error)
{
    aside *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a thread");
    }
    a->end = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->more, NULL);
    if (pthread_create(&a->thread, NULL, run_all, a) != 0) {
        pthread_mutex_destroy(&a->lock);
        pthread_cond_destroy(&a->more);
        free(a);
        return engine_fail(error, KVERN_ERR_THREADS, "starting a thread failed");
    }
    *out = a;
    return KVERN_OK;
}

bool aside_add(aside *a, aside_work *work)
{
    work->next = NULL;
    pthread_mutex_lock(&a->lock);
    const bool open = !a->closing;
    if (open) {
        *a->end = work;
        a->end = &work->next;
        pthread_cond_signal(&a->more);
    }
    pthread_mutex_unlock(&a->lock);
    return open;
}

void aside_stop(aside *a)
{
    if (!a) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    const bool stopped = a->closing;
    a->closing = true;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    if (!stopped) {
        pthread_join(a->thread, NULL);
    }
}

void aside_destroy(aside *a)
{
    if (!a) {
        return;
    }
    aside_stop(a);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->more);
    free(a);
}
