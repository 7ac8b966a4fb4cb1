// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_PROGRESS_H
#define KVERN_CLI_PROGRESS_H

// A progress bar on stderr, for a person: nothing is written when stderr is no terminal, and
// nothing remains on the screen when it ends.

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    const char *label; // "loading", "prompt"
    const char *unit;  // "tokens"; NULL: bytes
    bool shown;        // something stands on the line now
    double started;    // number_seconds of the first update
    double drawn;      // of the last drawing
} progress;

// A bar that has not been drawn yet. Strings must outlive it.
progress progress_start(const char *label, const char *unit);

// From now on no bar is drawn.
void progress_disable(void);

// Tells how far the work is. Draws at most ten times a second.
void progress_update(progress *bar, uint64_t done, uint64_t total);

// Removes the bar. More updates draw it again.
void progress_end(progress *bar);

#endif
