// SPDX-License-Identifier: MIT
#include "bench/measure/page_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Pages of an open file that are in memory; more than there are: that cannot be said.
static size_t resident_pages(int file, size_t bytes)
{
    const size_t pages = (bytes + 4095) / 4096;
    unsigned char *in_memory = malloc(pages);
    void *data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    size_t count = 0;
    if (!in_memory || data == MAP_FAILED || mincore(data, bytes, in_memory))
        count = pages + 1;
    for (size_t i = 0; i < pages && count <= pages; i++)
        count += in_memory[i] & 1;
    if (data != MAP_FAILED)
        munmap(data, bytes);
    free(in_memory);
    return count;
}

static bool drop(int file)
{
    struct stat facts;
    if (fstat(file, &facts))
        return false;
    return facts.st_size == 0 || (posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
                                  resident_pages(file, (size_t)facts.st_size) == 0);
}

bool page_cache_drop(const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const bool dropped = file >= 0 && drop(file);
    if (file >= 0)
        close(file);
    return dropped;
}

// ---- Folders ----

static bool is_file(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

// Calls `visit` for each path until it fails.
static bool each(const char *folder, bool (*visit)(const char *path))
{
    char path[2 * PAGE_CACHE_PATH_BYTES];
    bool fine = true;
    DIR *directory = opendir(folder);
    if (!directory)
        return false;
    for (const struct dirent *entry; fine && (entry = readdir(directory));) {
        if (!is_file(entry))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        fine = visit(path);
    }
    closedir(directory);
    return fine;
}

bool page_cache_drop_all(const char *folder)
{
    return each(folder, page_cache_drop);
}

kvern_status page_cache_folder_make(const char *parent, char *path)
{
    snprintf(path, PAGE_CACHE_PATH_BYTES, "%s/kvern-bench-%d", parent, (int)getpid());
    return mkdir(path, 0700) ? KVERN_ERR_IO : KVERN_OK;
}

static bool remove_file(const char *path)
{
    return unlink(path) == 0;
}

void page_cache_folder_remove(const char *path)
{
    (void)each(path, remove_file);
    (void)rmdir(path);
}
