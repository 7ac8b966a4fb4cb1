// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_PAGE_CACHE_H
#define KVERN_BENCH_PAGE_CACHE_H

// Files that are read from the disk again, and folders of a measurement's own.

#include <kvern/status.h>

#include <stdbool.h>

#define PAGE_CACHE_PATH_BYTES 512

// Has the system forget what it holds of a file in memory. The file has been synced and is mapped
// nowhere. False: pages of it stay, as they do where memory is all that there is (tmpfs).
bool page_cache_drop(const char *path);

// The same of all files of a folder.
bool page_cache_drop_all(const char *folder);

// Makes a folder for this process; `path` has PAGE_CACHE_PATH_BYTES. Errors: KVERN_ERR_IO.
KVERN_CHECK kvern_status page_cache_folder_make(const char *parent, char *path);

// Removes the files in it, and it.
void page_cache_folder_remove(const char *path);

#endif
