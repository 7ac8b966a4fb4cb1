// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_WORKER_H
#define KVERN_SERVER_WORKER_H

// The thread that owns the scheduler: it takes jobs from a queue of bounded length, steps while
// there are any, and sleeps otherwise. Everybody else only talks to it.

#include "server/worker/job.h"
#include "server/worker/measures.h"

typedef struct worker worker;

typedef struct worker_options {
    model *model;
    kvern_composition *composition;
    schedule_options schedule; // most_rows is set
    size_t most_queued;        // answers that may wait for a row
    // For GET /cache:
    const char *model_name;
    const char *kv;   // how rows are stored, as the program's options name it
    bool chats;       // there is a chat template
    bool shows_texts; // of prompts: nobody may look but who sent them
} worker_options;

// Makes the scheduler and starts the thread. What the options name must live until worker_destroy.
// On failure *out is NULL.
KVERN_CHECK kvern_status worker_create(const worker_options *options, worker **out,
                                       engine_error *error);

// Ends all jobs as cancelled, and the thread. NULL is allowed.
void worker_destroy(worker *w);

typedef enum worker_answer { WORKER_TAKEN = 0, WORKER_FULL, WORKER_DRAINING } worker_answer;

// Hands a job over, with one of its references if it was taken. *retry_seconds: when the queue may
// have room again, where it is full.
worker_answer worker_push(worker *w, job *j, unsigned *retry_seconds);

// No more jobs are taken.
void worker_drain(worker *w);
// Waits until no job is left, at most so long; then cancels those that are left, and waits for
// their end. False: some were.
bool worker_finish(worker *w, double seconds);

// A look at what the scheduler holds, as a text that the worker's thread writes between two steps.
typedef struct worker_question {
    pthread_mutex_t lock;
    int references;
    waker waker;
    bool done;
    bool failed; // no memory
    text_buffer text;
    struct worker_question *next;
} worker_question;

// Asks for what GET /cache answers. The caller owns one reference; NULL: no memory.
worker_question *worker_ask(worker *w);
void worker_question_release(worker_question *q);

// What is known without asking, of the latest step.
typedef struct worker_facts {
    schedule_statistics statistics;
    measures measures;
    kvern_memory memory;
    kvern_store_stats store;
    kvern_disk_store_stats disk;
    kvern_remote_store_stats remote; // of the moment when it is looked at
    bool has_store, has_disk, has_remote;
    size_t queued, running; // answers
    size_t most_rows, most_queued;
    double kv_usage; // of the budget or of what rows could take; from 0 to 1
    uint64_t kv_bytes;
    bool draining;
} worker_facts;

void worker_look(worker *w, worker_facts *out);

#endif
