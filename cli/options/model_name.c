// SPDX-License-Identifier: MIT
#include "cli/options/model_name.h"

#include "cli/io/program_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *model_name_resolve(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!name[0] || strchr(name, '/') || access(name, F_OK) == 0 || !models_folder(folder)) {
        return name;
    }
    const int length = snprintf(path, PATH_MAX, "%s/%s.gguf", folder, name);
    if (length >= PATH_MAX || access(path, F_OK) == 0) {
        return length < PATH_MAX ? path : name;
    }
    char config[PATH_MAX]; // of a directory
    const int end = snprintf(config, PATH_MAX, "%s/%s/config.json", folder, name);
    if (end >= PATH_MAX || access(config, F_OK) != 0) {
        return name;
    }
    snprintf(path, PATH_MAX, "%.*s", end - (int)sizeof "config.json", config);
    return path;
}

bool model_name_missing(const char *name)
{
    static const char ENDING[] = ".gguf";
    const size_t bytes = strlen(name), ending = sizeof ENDING - 1;
    const bool file = bytes >= ending && strcmp(name + bytes - ending, ENDING) == 0;
    return name[0] && !file && !strchr(name, '/') && access(name, F_OK) != 0;
}
