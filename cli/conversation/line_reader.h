// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_LINE_READER_H
#define KVERN_CLI_LINE_READER_H

// Messages typed on a terminal, with line editing and history, and Ctrl-C as a wish instead of the
// end of the program.
//
// A message is a line. A line that ends in a backslash goes on in the next one; what stands between
// two """, and what is pasted, may have as many lines as it wants.

#include "engine/base/text_buffer.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct line_reader line_reader;

typedef enum line_result {
    LINE_READ = 0,
    LINE_INTERRUPTED = 1, // Ctrl-C: what was typed is gone
    LINE_END = 2,         // Ctrl-D on an empty line, or the terminal is gone
    LINE_NO_MEMORY = 3,
    LINE_QUOTED = 4 // read between """, and no command whatever it begins with
} line_result;

typedef struct line_reader_options {
    atomic_bool *interrupt; // set by Ctrl-C from now on; must outlive the reader
    const char *history;    // a file that lines are remembered in; NULL: none
    bool color;             // the prompt may stand out
} line_reader_options;

// Takes over the terminal on stdin and stdout. NULL: the terminal cannot be used, or there is no
// memory. A history that cannot be read or written is none. One reader at a time.
line_reader *line_reader_open(const line_reader_options *options);

// Gives the terminal back. NULL is allowed.
void line_reader_close(line_reader *reader);

// Replaces *message by the next one that is typed.
line_result line_reader_next(line_reader *reader, text_buffer *message);

#endif
