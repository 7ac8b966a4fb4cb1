// SPDX-License-Identifier: MIT
#include "cli/io/program_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

bool program_file(const char *relative, char path[PATH_MAX])
{
    char own[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length <= 0) {
        return false;
    }
    own[length] = 0;
    char *slash = strrchr(own, '/');
    if (!slash) {
        return false;
    }
    *slash = 0;
    return snprintf(path, PATH_MAX, "%s/%s", own, relative) < PATH_MAX && access(path, F_OK) == 0;
}

bool models_folder(char path[PATH_MAX])
{
    const char *chosen = getenv("KVERN_MODELS"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length = PATH_MAX;
    if (chosen && chosen[0]) {
        length = snprintf(path, PATH_MAX, "%s", chosen);
    } else if (cache && cache[0]) {
        length = snprintf(path, PATH_MAX, "%s/kvern/models", cache);
    } else if (home && home[0]) {
        length = snprintf(path, PATH_MAX, "%s/.cache/kvern/models", home);
    }
    return length < PATH_MAX;
}
