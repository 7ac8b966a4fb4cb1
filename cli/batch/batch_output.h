// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_BATCH_OUTPUT_H
#define KVERN_CLI_BATCH_OUTPUT_H

// The file of results: one JSON object in each line. It grows by whole lines, each written at once,
// so that a job that is killed at any moment can go on where it was: what is there is done.

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define BATCH_JOB_TEXT 17

typedef struct batch_output {
    const char *path; // borrowed
    int fd;
    bool regular;             // a file; a pipe or a device holds nothing to go on from
    off_t size;               // of the whole lines
    char job[BATCH_JOB_TEXT]; // what every result says of the job that it comes from
    json_t *done;             // object: the keys (batch_id_key) of what the file holds
} batch_output;

// Opens or makes a file, and reads what it holds. A last line that was not written to its end is
// cut off. The file is locked: one job at a time. `job` is a fingerprint (batch_fingerprint.h). On
// failure *out is all zero, but for fd. Errors: KVERN_ERR_IO, KVERN_ERR_FORMAT (a line that no job
// has written: it is left alone), KVERN_ERR_ARGUMENT (results of another model or other options),
// KVERN_ERR_BUSY (another job writes to it), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status batch_output_open(const char *path, const char *job, batch_output *out,
                                           engine_error *error);

// Whether a file of results, which need not exist yet, is the file that is read under another name;
// "-" is standard input. To be asked before it is opened.
bool batch_output_same(const char *path, const char *input);

// Whether the file holds the result of this key.
bool batch_output_has(const batch_output *out, const char *key);

// Writes a result and releases it; NULL: there was no memory to make it. On failure nothing of it
// stays in a file. Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status batch_output_write(batch_output *out, json_t *result, engine_error *error);

// Closes the file. KVERN_ERR_IO when the system has lost something. All zero with fd -1, and a
// second time, are permitted.
KVERN_CHECK kvern_status batch_output_close(batch_output *out, engine_error *error);

#endif
