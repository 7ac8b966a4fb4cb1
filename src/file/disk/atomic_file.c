// SPDX-License-Identifier: MIT
#include "src/file/disk/atomic_file.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

// Processes that write one path at the same time.
#define MOST_WRITERS 1000
#define SUFFIX_BYTES 16
// Some systems write no more at once.
#define MOST_WRITE_BYTES ((size_t)1 << 30)

static ssize_t system_write(void *user, int file, const void *data, size_t bytes)
{
    (void)user;
    return write(file, data, bytes);
}

static int system_sync(void *user, int file)
{
    (void)user;
    return fsync(file);
}

static int system_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to);
}

// Without fallocate nothing is reserved: the emulation writes everything twice.
static int system_reserve(void *user, int file, uint64_t bytes)
{
    (void)user;
#ifdef __linux__
    return fallocate(file, 0, 0, (off_t)bytes);
#else
    (void)file;
    (void)bytes;
    return 0;
#endif
}

static uint64_t system_free_bytes(void *user, const char *directory)
{
    struct statvfs facts;
    (void)user;
    return statvfs(directory, &facts) ? UINT64_MAX : (uint64_t)facts.f_bavail * facts.f_frsize;
}

const kvern_disk_calls kvern_system_disk = {
    .write = system_write,
    .sync = system_sync,
    .rename = system_rename,
    .reserve = system_reserve,
    .free_bytes = system_free_bytes,
};

static kvern_status fail(const kvern_atomic_file *file, const char *what)
{
    const int error = errno;
    if (file->calls->full && (error == ENOSPC || error == EDQUOT))
        file->calls->full(file->calls->room_user);
    return kvern_fail(KVERN_ERR_IO, "%s: it cannot be %s: %s", file->path, what, strerror(error));
}

// ---- The temporary file ----

// Whether the name still stands for the open file.
static bool is_named(const kvern_atomic_file *file, int open_file)
{
    struct stat named, opened;
    return !fstat(open_file, &opened) && !lstat(file->temporary, &named) &&
           named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

// Whether nobody else holds the open file's lock, or the file system has no locks.
static bool take_lock(int open_file, bool without_locks)
{
    return !flock(open_file, LOCK_EX | LOCK_NB) || (without_locks && errno != EWOULDBLOCK);
}

// Removes a temporary file whose writer is no more. While the lock is held nobody else does.
static bool remove_left(const kvern_atomic_file *file)
{
    const int left = open(file->temporary, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (left < 0)
        return errno == ENOENT;
    const bool removed = take_lock(left, false) && is_named(file, left) && !unlink(file->temporary);
    close(left);
    return removed;
}

// Somebody may find the new file before it is locked, and remove it.
static bool make_temporary(kvern_atomic_file *file)
{
    file->file = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file->file < 0)
        return false;
    if (take_lock(file->file, true) && is_named(file, file->file))
        return true;
    close(file->file);
    errno = EEXIST;
    return false;
}

static kvern_status find_temporary(kvern_atomic_file *file)
{
    char *suffix = file->temporary + strlen(file->path);
    for (int number = 0; number < MOST_WRITERS; number++) {
        snprintf(suffix, SUFFIX_BYTES, ".tmp-%d", number);
        if (make_temporary(file))
            return KVERN_OK;
        if (errno != EEXIST)
            return fail(file, "begun");
        if (remove_left(file) && make_temporary(file))
            return KVERN_OK;
    }
    return kvern_fail(KVERN_ERR_IO, "%s: there are %d temporary files of that name already",
                      file->path, MOST_WRITERS);
}

static void free_names(kvern_atomic_file *file)
{
    kvern_heap_give(file->heap, file->path, file->names_bytes, KVERN_HEAP_ALIGNMENT);
    *file = (kvern_atomic_file){0};
}

kvern_status kvern_atomic_file_begin(kvern_heap *heap, const kvern_disk_calls *calls,
                                     const char *path, kvern_atomic_file *out)
{
    const size_t bytes = strlen(path) + 1;
    void *names;
    *out = (kvern_atomic_file){0};
    kvern_status status =
        kvern_heap_take(heap, 2 * bytes + SUFFIX_BYTES, KVERN_HEAP_ALIGNMENT, &names);
    if (status)
        return status;
    *out = (kvern_atomic_file){.heap = heap, .calls = calls ? calls : &kvern_system_disk};
    out->names_bytes = 2 * bytes + SUFFIX_BYTES;
    out->path = names;
    out->temporary = out->path + bytes;
    memcpy(out->path, path, bytes);
    memcpy(out->temporary, path, bytes);
    if ((status = find_temporary(out)))
        free_names(out);
    return status;
}

// ---- Writing ----

kvern_status kvern_atomic_file_expect(kvern_atomic_file *file, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%s: %" PRIu64 " bytes", file->path, bytes);
    const kvern_disk_calls *calls = file->calls;
    if (calls->make_room) {
        kvern_status status = calls->make_room(calls->room_user, bytes);
        if (status)
            return status;
    }
    // Other errors are of file systems that reserve nothing.
    if (bytes && calls->reserve && calls->reserve(calls->user, file->file, bytes) &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return fail(file, "given the disk space that it takes");
    return KVERN_OK;
}

kvern_status kvern_atomic_file_write(kvern_atomic_file *file, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        const size_t part = kvern_min_size(bytes, MOST_WRITE_BYTES);
        const ssize_t done = file->calls->write(file->calls->user, file->file, from, part);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = ENOSPC;
        if (done <= 0)
            return fail(file, "written");
        from += done;
        bytes -= (size_t)done;
        file->written += (uint64_t)done;
    }
    return KVERN_OK;
}

// ---- The end ----

void kvern_atomic_file_abandon(kvern_atomic_file *file)
{
    if (!file->path)
        return;
    unlink(file->temporary);
    close(file->file);
    free_names(file);
}

// The folder's name is written over that of the temporary file, which is no more.
static kvern_status sync_directory(kvern_atomic_file *file)
{
    char *slash = strrchr(file->temporary, '/');
    if (!slash)
        memcpy(file->temporary, ".", 2);
    else
        slash[slash == file->temporary] = '\0';
    const int directory = open(file->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems have nothing to sync there.
    const bool failed = directory < 0 || (file->calls->sync(file->calls->user, directory) &&
                                          errno != EINVAL && errno != ENOTSUP);
    kvern_status status = KVERN_OK;
    if (failed)
        status = kvern_fail(KVERN_ERR_IO, "%s is new, but its directory cannot be synced: %s",
                            file->path, strerror(errno));
    if (directory >= 0)
        close(directory);
    return status;
}

// The lock lasts until the file has its name: until then it is a temporary one.
kvern_status kvern_atomic_file_commit(kvern_atomic_file *file)
{
    const kvern_disk_calls *calls = file->calls;
    kvern_status status = KVERN_OK;
    if (calls->sync(calls->user, file->file))
        status = fail(file, "synced");
    else if (calls->rename(calls->user, file->temporary, file->path))
        status = fail(file, "given its name");
    if (status) {
        kvern_atomic_file_abandon(file);
        return status;
    }
    const bool closed = !close(file->file);
    status = closed ? sync_directory(file) : fail(file, "closed");
    free_names(file);
    return status;
}
