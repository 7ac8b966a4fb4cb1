// SPDX-License-Identifier: MIT
#ifndef KVERN_SERVER_JOB_H
#define KVERN_SERVER_JOB_H

// A job: what one HTTP request asks of the scheduler, one answer or several (choices), and what has
// become of them.
//
// Two threads hold a job. The worker's runs it and fills it; the HTTP thread of its connection
// takes out what is there. `lock` guards what both touch. The last of the two that lets go frees
// it.

#include "engine/base/text_buffer.h"
#include "engine/generation/schedule.h"

#include "server/base/api_error.h"
#include "server/base/waker.h"
#include "server/worker/logprobs.h"
#include "server/worker/measures.h"

#include <pthread.h>

#define JOB_NAME 40

// What an answer is asked for with. Owned by the job.
typedef struct job_prompt {
    int32_t *tokens;
    size_t count;
} job_prompt;

typedef struct job_options {
    job_prompt *prompts; // taken over, with their tokens
    size_t prompt_count;
    size_t each; // answers of every prompt; answer i is of prompt i / each
    int64_t max_tokens;
    sampler_options
        sampling; // answer i % each of a prompt has the seed plus that; biases taken over
    logit_bias *biases;
    const char *const *stops; // copied
    size_t stop_count;
    int top_logprobs;    // of each token; -1: no log probabilities
    size_t most_waiting; // bytes that may wait for a slow reader
} job_options;

typedef struct job_choice {
    struct job *job;
    size_t index;
    uint64_t id; // of the scheduler's request
    bool ended;
    schedule_result result; // once it has ended; its `error` is NULL

    // What has come since it was taken last.
    text_buffer text;
    token_logprobs logprobs;
    bool started; // its beginning has been sent
    bool finish_sent;

    double first, latest; // when tokens came; 0: none yet
} job_choice;

typedef struct job {
    pthread_mutex_t lock;
    int references;
    waker waker; // whoever waits for news, under the lock

    job_options options;
    char **stops; // owned
    job_choice *choices;
    size_t count;
    atomic_bool cancel;  // ends it in the next step
    atomic_bool expired; // it was cancelled since it took too long
    double arrived;
    char name[JOB_NAME]; // of its answer, before it is handed over

    // Under the lock.
    bool accepted;   // all its requests are queued
    bool done;       // all have ended, or it was refused
    bool slow;       // it was cancelled since nobody took what had come
    api_error error; // of a refusal or failure; error.http 0: none

    // The worker's alone.
    const model *model;
    measures *measures;
    size_t running; // choices that are in the scheduler
    bool submitted_all;
    bool news;
    struct job *next;
} job;

// Makes a job with two references; on failure nothing is taken over.
KVERN_CHECK kvern_status job_create(const job_options *options, job **out);

void job_release(job *j);

// ---- The worker's ----

// Queues all choices; on a failure j->error says why, and those that were queued are cancelled.
void job_submit(job *j, schedule *s, const model *model, measures *m);

// Wakes whoever waits, if there is news.
void job_tell(job *j);

#endif
