// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_BATCH_JOB_H
#define KVERN_CLI_BATCH_JOB_H

// A job: the prompts of a file go through a scheduler, and their answers into a file as they come
// to an end.

#include "cli/batch/batch_output.h"
#include "cli/io/progress.h"
#include "cli/session/served_model.h"

#include "engine/generation/schedule.h"

typedef struct batch_options {
    session_options session; // first, as parsers want it
    const char *prompts;     // a path, or "-"
    const char *out;
    size_t parallel;
} batch_options;

typedef struct batch_job {
    const batch_options *options;
    text_buffer text; // of the prompts
    size_t at;        // of the next line in it
    size_t line;      // its number
    json_t *seen;     // object: keys of the ids so far, and the lines that they are in
    json_t *unknown;  // object: keys of lines that nobody knows, each of which was reported once
    batch_output output;
    served_model served;
    schedule *schedule;
    size_t active; // requests of the scheduler

    size_t lines;        // with something in them
    size_t done;         // answers written by this job
    size_t skipped;      // that the file of results had already
    size_t bad;          // lines that are no prompts
    size_t failed;       // prompts that could not be answered
    int interrupted;     // the signal that ended it early; 0: none
    engine_error broken; // why the job cannot go on; KVERN_OK: it can
    schedule_statistics statistics;
    kvern_remote_store_stats remote; // zeros without one
    kvern_store_stats store;         // at the end

    progress bar;
    char label[64];
} batch_job;

// Reads the prompts, loads the model, and then opens the file of results. On failure *job is closed
// and that file is as it was; one that was not there is not there.
KVERN_CHECK kvern_status batch_job_open(const batch_options *options, batch_job *job,
                                        engine_error *error);

// Answers until all is done, the file takes no more, or the user interrupts; bad lines and failed
// prompts are reported as they come. What is finished then is written.
void batch_job_run(batch_job *job);

// Ends what still runs, and everything else. Closing the file of results may fail.
KVERN_CHECK kvern_status batch_job_close(batch_job *job, engine_error *error);

#endif
