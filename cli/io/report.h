// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_REPORT_H
#define KVERN_CLI_REPORT_H

// What the program tells its caller: exit codes, error lines, and whether its output arrived.

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define CLI_SUCCESS 0
#define CLI_FAILURE 1
#define CLI_USAGE 2
#define CLI_NO_FIT 3   // `kvern fit`: the context does not fit
#define CLI_SIGNAL 128 // and the number of the signal that ended a job

// Makes descriptors 0 to 2 safe to use even when the caller closed them, turns a closed pipe into
// an error of the write, and has the end of the process check that all output was written. Called
// once, first.
void report_start(void);

// Prints "kvern: " and the message as one line on stderr; control characters become '?', since a
// message may quote a hostile file. Returns CLI_FAILURE.
int report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The same for a failure of the engine.
int report_engine_error(const engine_error *error);

// Whether text on stdout may have colours: it is a terminal that has them, and NO_COLOR is not set.
bool report_color(void);

// Writes to stdout at once. Returns false when that failed; the end of the process reports it.
bool report_write(const void *data, size_t bytes);

#endif
