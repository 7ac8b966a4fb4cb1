// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_HISTORY_FILE_H
#define KVERN_CLI_HISTORY_FILE_H

// Where the lines of conversations are remembered.

#include <limits.h>
#include <stdbool.h>

// $XDG_STATE_HOME/kvern/history, or ~/.local/state/kvern/history; makes its folders, for their
// owner alone. False: there is no such place.
bool history_file_path(char path[PATH_MAX]);

#endif
