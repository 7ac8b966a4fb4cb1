// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_SIGNALS_H
#define KVERN_CLI_SIGNALS_H

// All signals that the program minds. What the caller has it ignore (nohup) stays ignored.

#include <stdatomic.h>
#include <stdbool.h>

// A closed pipe and a limit of file sizes (ulimit -f) become errors of the write. Called once,
// first.
void signals_start(void);

// Ends the program as a closed pipe ends others; returns where the caller has that ignored.
void signals_die_of_pipe(void);

// ---- A job that ends in order ----

// From now on the first SIGINT or SIGTERM is noted; the next one ends the program.
void signals_note_interrupts(void);

// The signal that was noted; 0: none.
int signals_noted(void);

// ---- A file that is not finished ----

// A signal that ends the program removes this file first. One file at a time. False: the path is
// too long.
bool signals_remove_at_end(const char *path);

// The file is finished or gone.
void signals_keep_file(void);

// ---- A conversation on a terminal ----

// Takes care of the terminal on stdin: whatever ends or stops the program gives it back as it is
// now. From now on Ctrl-C sets *interrupt instead of ending the program. What happens is told by
// bytes on *fd, so that a wait for a key cannot miss it, whichever thread the signal was given to,
// and however shortly before the wait it came. False: the system lacks something.
bool signals_watch_terminal(atomic_bool *interrupt, int *fd);

// The next event of the terminal; SIGNALS_NONE: nothing happened.
typedef enum signals_event {
    SIGNALS_NONE = 0,
    SIGNALS_INTERRUPT = 'c', // Ctrl-C
    SIGNALS_RESIZE = 'w',
    SIGNALS_CONTINUE = 'r' // the program was stopped, and the screen may hold anything
} signals_event;
signals_event signals_next_event(void);

void signals_unwatch_terminal(void);

#endif
