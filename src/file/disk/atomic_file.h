// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_ATOMIC_FILE_H
#define KVERN_FILE_ATOMIC_FILE_H

// Writing a file so that its name always stands for a whole one: the old one or the new one, also
// when the process is killed or the power fails at any moment.
//
// The bytes go to a temporary file beside it, PATH.tmp-N, made anew (O_EXCL) and locked (flock)
// while it is written. It is synced, renamed to PATH, and the directory is synced. Whoever writes
// the same path takes the first N that nobody holds, and removes what a killed process left there.
// On failure the temporary file goes and PATH is what it was.
//
// New files can be read and written by their owner alone: caches are what somebody said.

#include "src/base/context.h"

#include <sys/types.h>

// What is asked of the system, for tests that let it fail. Each returns what the call of its name
// does, errno included.
typedef struct kvern_disk_calls {
    void *user;
    ssize_t (*write)(void *user, int file, const void *data, size_t bytes);
    int (*sync)(void *user, int file); // of the file, then of its directory
    int (*rename)(void *user, const char *from, const char *to);
    int (*reserve)(void *user, int file, uint64_t bytes); // on the disk; NULL: nothing is
    // What a directory's disk has left; UINT64_MAX, or NULL: nobody knows.
    uint64_t (*free_bytes)(void *user, const char *directory);
    // Asked for room before the first byte of a file of so many bytes is written; its error is that
    // of the write. NULL: nobody is asked.
    kvern_status (*make_room)(void *room_user, uint64_t bytes);
    // Told that the disk, or its owner's share of it, is full, before the write fails for that.
    // NULL: nobody is.
    void (*full)(void *room_user);
    void *room_user;
} kvern_disk_calls;

// Those of the system.
extern const kvern_disk_calls kvern_system_disk;

typedef struct kvern_atomic_file {
    kvern_heap *heap;
    const kvern_disk_calls *calls;
    char *path, *temporary; // in one block of `names_bytes` bytes
    size_t names_bytes;
    int file;
    uint64_t written; // bytes
} kvern_atomic_file;

// Begins; commit or abandon follows. `calls`: NULL means the system's. On failure *out is all zero
// and nothing is left on the disk. Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_atomic_file_begin(kvern_heap *heap, const kvern_disk_calls *calls,
                                                 const char *path, kvern_atomic_file *out);

// Asks for room (kvern_disk_calls), and reserves it on the disk for `bytes` bytes, where the system
// can: KVERN_ERR_IO when the disk has not as much.
KVERN_CHECK kvern_status kvern_atomic_file_expect(kvern_atomic_file *file, uint64_t bytes);

// Writes at the end. Errors: KVERN_ERR_IO.
KVERN_CHECK kvern_status kvern_atomic_file_write(kvern_atomic_file *file, const void *data,
                                                 size_t bytes);

// Makes it the file of that name. Either way the object is done with. Errors: KVERN_ERR_IO; the old
// file is there then, or, where only the directory could not be synced, the new one, and the
// sentence says so.
KVERN_CHECK kvern_status kvern_atomic_file_commit(kvern_atomic_file *file);

// Removes what was written. All zero is allowed.
void kvern_atomic_file_abandon(kvern_atomic_file *file);

#endif
