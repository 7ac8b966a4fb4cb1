// SPDX-License-Identifier: MIT
#include "cli/io/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_FLOAT "<f4"
#else
#define NATIVE_FLOAT ">f4"
#endif

struct npy_writer {
    int fd;
    bool direct;         // path is no regular file: nothing to rename or remove
    char path[PATH_MAX]; // symbolic links resolved
    char name[PATH_MAX]; // as the caller wrote it, for messages
    size_t columns, rows_left;
};

// What a signal has to remove. The handler may run between any two instructions, so the path is
// written before the flag is set, and the flag is cleared before the path goes out of use.
static char temporary_path[PATH_MAX];
static volatile sig_atomic_t temporary_exists;
static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};
#define SIGNAL_COUNT (sizeof SIGNALS / sizeof SIGNALS[0])
static struct sigaction previous[SIGNAL_COUNT];

static void remove_and_die(int signal_number)
{
    if (temporary_exists) {
        unlink(temporary_path);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number); // delivered when this handler returns
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = remove_and_die};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        sigaction(SIGNALS[i], &action, &previous[i]);
        if (previous[i].sa_handler == SIG_IGN) {
            sigaction(SIGNALS[i], &previous[i], NULL); // nohup
        }
    }
}

static void unwatch_signals(void)
{
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        sigaction(SIGNALS[i], &previous[i], NULL);
    }
}

static kvern_status fail(const npy_writer *writer, int reason, engine_error *error)
{
    return engine_fail(error, KVERN_ERR_IO, "%s: %s", writer->name, strerror(reason));
}

// Opens the temporary file with the permissions that the final one should have.
static kvern_status open_temporary(npy_writer *writer, engine_error *error)
{
    int length = snprintf(temporary_path, sizeof temporary_path, "%s.XXXXXX", writer->path);
    if (length >= (int)sizeof temporary_path) {
        return fail(writer, ENAMETOOLONG, error);
    }
    watch_signals();
    writer->fd = mkstemp(temporary_path);
    if (writer->fd < 0) {
        int reason = errno;
        unwatch_signals();
        return fail(writer, reason, error);
    }
    temporary_exists = 1;
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(writer->fd, 0666 & ~mask) != 0) {
        return fail(writer, errno, error);
    }
    return KVERN_OK;
}

static kvern_status open_target(npy_writer *writer, engine_error *error)
{
    struct stat info;
    if (stat(writer->name, &info) != 0) {
        if (errno != ENOENT) {
            return fail(writer, errno, error);
        }
        strcpy(writer->path, writer->name);
        return open_temporary(writer, error);
    }
    if (S_ISDIR(info.st_mode)) {
        return fail(writer, EISDIR, error);
    }
    if (S_ISREG(info.st_mode)) {
        if (!realpath(writer->name, writer->path)) {
            return fail(writer, errno, error);
        }
        return open_temporary(writer, error);
    }
    writer->direct = true;
    writer->fd = open(writer->name, O_WRONLY | O_CLOEXEC);
    return writer->fd < 0 ? fail(writer, errno, error) : KVERN_OK;
}

static kvern_status write_all(npy_writer *writer, const void *data, size_t bytes,
                              engine_error *error)
{
    const char *next = data;
    while (bytes > 0) {
        ssize_t written = write(writer->fd, next, bytes);
        if (written < 0 && errno != EINTR) {
            return fail(writer, errno, error);
        }
        if (written > 0) {
            next += written;
            bytes -= (size_t)written;
        }
    }
    return KVERN_OK;
}

// Magic, version, length of the dictionary, the dictionary; padded so that the values begin at a
// multiple of 64 bytes.
static kvern_status write_header(npy_writer *writer, size_t rows, engine_error *error)
{
    static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char header[192];
    memcpy(header, magic, sizeof magic);
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '" NATIVE_FLOAT "', 'fortran_order': False, "
                          "'shape': (%zu, %zu), }",
                          rows, writer->columns);
    size_t total = (10 + (size_t)length + 1 + 63) / 64 * 64;
    memset(header + 10 + length, ' ', total - 10 - (size_t)length);
    header[total - 1] = '\n';
    header[8] = (char)((total - 10) & 0xff);
    header[9] = (char)((total - 10) >> 8);
    return write_all(writer, header, total, error);
}

// Takes the space from the disk; a file system that cannot do that is no failure.
static kvern_status take_space(npy_writer *writer, size_t bytes, engine_error *error)
{
    if (writer->direct || bytes == 0 ||
        fallocate(writer->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0) {
        return KVERN_OK;
    }
    if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s (%zu bytes are needed)", writer->name,
                           strerror(errno), bytes);
    }
    return KVERN_OK;
}

static kvern_status begin(npy_writer *writer, const char *path, size_t rows, size_t columns,
                          engine_error *error)
{
    size_t bytes;
    if (__builtin_mul_overflow(rows, columns, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes) || bytes > INT64_MAX - 4096) {
        return engine_fail(error, KVERN_ERR_OVERFLOW, "%s: %zu x %zu values are too many", path,
                           rows, columns);
    }
    if (snprintf(writer->name, sizeof writer->name, "%s", path) >= (int)sizeof writer->name) {
        return fail(writer, ENAMETOOLONG, error);
    }
    kvern_status status = open_target(writer, error);
    if (status == KVERN_OK) {
        status = take_space(writer, bytes, error);
    }
    if (status == KVERN_OK) {
        status = write_header(writer, rows, error);
    }
    return status;
}

kvern_status npy_create(const char *path, size_t rows, size_t columns, npy_writer **out,
                        engine_error *error)
{
    *out = NULL;
    npy_writer *writer = calloc(1, sizeof *writer);
    if (!writer) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory", path);
    }
    writer->fd = -1;
    writer->columns = columns;
    writer->rows_left = rows;
    kvern_status status = begin(writer, path, rows, columns, error);
    if (status != KVERN_OK) {
        npy_abandon(writer);
        return status;
    }
    *out = writer;
    return KVERN_OK;
}

kvern_status npy_write_rows(npy_writer *writer, const float *values, size_t rows,
                            engine_error *error)
{
    if (rows > writer->rows_left) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "%s: more rows than announced", writer->name);
    }
    writer->rows_left -= rows;
    return write_all(writer, values, rows * writer->columns * sizeof(float), error);
}

static void end_writer(npy_writer *writer)
{
    if (writer->fd >= 0) {
        close(writer->fd);
    }
    if (temporary_exists) {
        temporary_exists = 0;
        unwatch_signals();
    }
    free(writer);
}

kvern_status npy_finish(npy_writer *writer, engine_error *error)
{
    kvern_status status = KVERN_OK;
    if (writer->rows_left) {
        status = engine_fail(error, KVERN_ERR_ARGUMENT, "%s: %zu rows are missing", writer->name,
                             writer->rows_left);
    } else if (!writer->direct &&
               (fsync(writer->fd) != 0 || rename(temporary_path, writer->path) != 0)) {
        status = fail(writer, errno, error);
    }
    if (status != KVERN_OK) {
        npy_abandon(writer);
    } else {
        end_writer(writer);
    }
    return status;
}

void npy_abandon(npy_writer *writer)
{
    if (!writer) {
        return;
    }
    if (temporary_exists) {
        unlink(temporary_path);
    }
    end_writer(writer);
}
