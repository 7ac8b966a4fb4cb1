// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_PROGRAM_FILES_H
#define KVERN_CLI_PROGRAM_FILES_H

// Programs that belong to this one, and what it keeps.

#include <limits.h>
#include <stdbool.h>

// The path of a file that lies at `relative` to the folder of the running program, "kvern-bench" or
// "../libexec/kvern/x". False: it is not known where that is, or there is no such file.
bool program_file(const char *relative, char path[PATH_MAX]);

// The folder that models are kept in: $KVERN_MODELS, else $XDG_CACHE_HOME/kvern/models, else
// ~/.cache/kvern/models. False: there is none.
bool models_folder(char path[PATH_MAX]);

#endif
