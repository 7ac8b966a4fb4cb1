// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_MODEL_NAME_H
#define KVERN_CLI_MODEL_NAME_H

// Models by name: what `kvern pull` has fetched, and whatever else lies in its folder.

#include <limits.h>
#include <stdbool.h>

// The file that a model argument stands for: itself if there is such a file or it is a path, else
// NAME.gguf in the folder of models if that exists, or a directory NAME in it with a config.json.
// Otherwise it stays what it is, and opening it will fail. The result is `name` or `path`.
const char *model_name_resolve(const char *name, char path[PATH_MAX]);

// Whether what this made of an argument is still a name alone, and no file here has it.
bool model_name_missing(const char *name);

#endif
