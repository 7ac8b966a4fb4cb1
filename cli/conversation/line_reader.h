// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_LINE_READER_H
#define KVERN_CLI_LINE_READER_H

// Messages typed on a terminal, with line editing and history, and Ctrl-C as a wish instead of the
// end of the program.

#include "engine/base/text_buffer.h"

#include <stdatomic.h>

typedef struct line_reader line_reader;

typedef enum line_result {
    LINE_READ = 0,
    LINE_INTERRUPTED = 1, // Ctrl-C: what was typed is gone
    LINE_END = 2,         // Ctrl-D on an empty line, or the terminal is gone
    LINE_NO_MEMORY = 3
} line_result;

// Takes over the terminal on stdin and stdout. From now on Ctrl-C sets *interrupt, which must
// outlive the reader. NULL: the terminal cannot be used, or there is no memory. One reader at a
// time.
line_reader *line_reader_open(atomic_bool *interrupt);

// Gives the terminal back. NULL is allowed.
void line_reader_close(line_reader *reader);

// Replaces *message by the next one that is typed. A line that ends in a backslash goes on in the
// next line.
line_result line_reader_next(line_reader *reader, text_buffer *message);

#endif
