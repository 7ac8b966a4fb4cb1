// SPDX-License-Identifier: MIT
#include "cli/conversation/history_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Makes all folders of a path to a file.
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        const bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) {
            return false;
        }
    }
    return true;
}

bool history_file_path(char path[PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length;
    if (state && state[0] == '/') {
        length = snprintf(path, PATH_MAX, "%s/kvern/history", state);
    } else if (home && home[0] == '/') {
        length = snprintf(path, PATH_MAX, "%s/.local/state/kvern/history", home);
    } else {
        return false;
    }
    return length < PATH_MAX && make_folders(path);
}
