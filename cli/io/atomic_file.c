// SPDX-License-Identifier: MIT
#include "cli/io/atomic_file.h"

#include "cli/io/descriptor.h"
#include "cli/io/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct atomic_file {
    int fd;
    bool direct;              // path is no regular file: nothing to rename or remove
    bool exists;              // the temporary file does
    char path[PATH_MAX];      // symbolic links resolved
    char temporary[PATH_MAX]; // in the same folder
    char name[PATH_MAX];      // as the caller wrote it, for messages
};

static kvern_status fail(const atomic_file *file, int reason, engine_error *error)
{
    return engine_fail(error, KVERN_ERR_IO, "%s: %s", file->name, strerror(reason));
}

// The name is known before the file exists, so that no signal finds a file without a name.
static int make_temporary(char *path)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    const int fd = mkostemp(path, O_CLOEXEC);
    const int reason = errno;
    if (fd >= 0) {
        signals_remove_at_end(path);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    return fd;
}

// Opens the temporary file with the permissions that the final one should have.
static kvern_status open_temporary(atomic_file *file, engine_error *error)
{
    const int length = snprintf(file->temporary, sizeof file->temporary, "%s.XXXXXX", file->path);
    if (length >= (int)sizeof file->temporary) {
        return fail(file, ENAMETOOLONG, error);
    }
    file->fd = make_temporary(file->temporary);
    if (file->fd < 0) {
        return fail(file, errno, error);
    }
    file->exists = true;
    const mode_t mask = umask(0);
    umask(mask);
    return fchmod(file->fd, 0666 & ~mask) == 0 ? KVERN_OK : fail(file, errno, error);
}

static kvern_status open_target(atomic_file *file, engine_error *error)
{
    struct stat info;
    if (stat(file->name, &info) != 0) {
        if (errno != ENOENT) {
            return fail(file, errno, error);
        }
        strcpy(file->path, file->name);
        return open_temporary(file, error);
    }
    if (S_ISDIR(info.st_mode)) {
        return fail(file, EISDIR, error);
    }
    if (S_ISREG(info.st_mode)) {
        return realpath(file->name, file->path) ? open_temporary(file, error)
                                                : fail(file, errno, error);
    }
    file->direct = true;
    file->fd = open(file->name, O_WRONLY | O_CLOEXEC);
    return file->fd < 0 ? fail(file, errno, error) : KVERN_OK;
}

kvern_status atomic_file_create(const char *path, atomic_file **out, engine_error *error)
{
    *out = NULL;
    atomic_file *file = calloc(1, sizeof *file);
    if (!file) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory", path);
    }
    file->fd = -1;
    kvern_status status;
    if (snprintf(file->name, sizeof file->name, "%s", path) >= (int)sizeof file->name) {
        status = fail(file, ENAMETOOLONG, error);
    } else {
        status = open_target(file, error);
    }
    if (status != KVERN_OK) {
        atomic_file_abandon(file);
        return status;
    }
    *out = file;
    return KVERN_OK;
}

// Asks the file system to set the space aside. Where there is no such call, a full disk shows when
// the file is written.
static int allocate_space(int fd, uint64_t bytes)
{
#ifdef __linux__
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
#else
    (void)fd;
    (void)bytes;
    return 0;
#endif
}

// A file system that cannot do that is no failure.
kvern_status atomic_file_take_space(atomic_file *file, uint64_t bytes, engine_error *error)
{
    if (file->direct || bytes == 0 || allocate_space(file->fd, bytes) == 0) {
        return KVERN_OK;
    }
    if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s (%llu bytes are needed)", file->name,
                           strerror(errno), (unsigned long long)bytes);
    }
    return KVERN_OK;
}

kvern_status atomic_file_write(atomic_file *file, const void *data, size_t bytes,
                               engine_error *error)
{
    return descriptor_write(file->fd, data, bytes) ? KVERN_OK : fail(file, errno, error);
}

static void close_file(atomic_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    if (file->exists) {
        signals_keep_file();
    }
    free(file);
}

kvern_status atomic_file_finish(atomic_file *file, engine_error *error)
{
    if (!file->direct && (fsync(file->fd) != 0 || rename(file->temporary, file->path) != 0)) {
        const kvern_status status = fail(file, errno, error);
        atomic_file_abandon(file);
        return status;
    }
    close_file(file);
    return KVERN_OK;
}

void atomic_file_abandon(atomic_file *file)
{
    if (!file) {
        return;
    }
    if (file->exists) {
        unlink(file->temporary);
    }
    close_file(file);
}

const char *atomic_file_name(const atomic_file *file)
{
    return file->name;
}
