// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_OPTION_NAMES_H
#define KVERN_CLI_OPTION_NAMES_H

// Which words of a command line are names of options. getopt takes "-b" for "--budget", which
// begins with it, and "-ngl" for "-n gl": here such words are refused, and what may have been meant
// is named.

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#define OPTION_NAMES_TEXT 400

// Whether all options in argv are ones of `command` and its children (theirs alone, not of further
// children): a long name or the unambiguous beginning of one behind two dashes; a long name behind
// one dash; a letter, whose value may follow it at once when it is a number (-n16). Else `text`
// says what is wrong with the first one that is not.
bool option_names_known(const struct argp *command, int argc, char **argv,
                        char text[OPTION_NAMES_TEXT]);

#endif
