// SPDX-License-Identifier: MIT
#include "tests/support/folder.h"

#include "tests/support/check.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATHS 16

static char folder[256];

void folder_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/kvern-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(2);
    }
}

size_t folder_files(void)
{
    DIR *directory = opendir(folder);
    size_t count = 0;
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count++;
    }
    closedir(directory);
    return count;
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts;
    (void)kind;
    (void)place;
    (void)remove(path);
    return 0;
}

void folder_remove(void)
{
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *folder_path(const char *name)
{
    static char paths[PATHS][600];
    static size_t next;
    char *path = paths[next++ % PATHS];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

bool folder_has(const char *name)
{
    return access(folder_path(name), F_OK) == 0;
}

void folder_expect_files(size_t count)
{
    assert_int_equal(count, folder_files());
}

unsigned char *folder_read(const char *name, size_t *bytes)
{
    FILE *file = fopen(folder_path(name), "rb");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, 0, SEEK_END));
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes ? *bytes : 1);
    assert_non_null(data);
    assert_int_equal(*bytes, fread(data, 1, *bytes, file));
    fclose(file);
    return data;
}

void folder_write(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(folder_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(bytes, fwrite(data, 1, bytes, file));
    assert_int_equal(0, fclose(file));
}
