// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_HELP_H
#define KVERN_CLI_HELP_H

// What `--help` prints. The options stand under the headings of their groups in the order in which
// they are declared, which argp's own list cannot do.

#include <argp.h>
#include <stdio.h>

// Prints usage, description, options and what the doc has behind a '\v' of a command. Lines of a
// doc that begin with a space, examples for instance, are printed as they are; others are filled.
void help_print(FILE *out, const char *title, const struct argp *command);

// Prints a text as paragraphs of at most 80 columns. A line that begins with a space stays as it
// is, and '\n' begins a new line.
void help_fill(FILE *out, const char *text, size_t bytes);

#endif
