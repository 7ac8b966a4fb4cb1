// SPDX-License-Identifier: MIT
#include "engine/base/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static kvern_status map_descriptor(int descriptor, const char *path, mapped_file *out,
                                   engine_error *error)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(facts.st_mode)) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path,
                           S_ISDIR(facts.st_mode) ? "is a directory" : "is not a regular file");
    }
    if ((uintmax_t)facts.st_size > SIZE_MAX / 2) {
        return engine_fail(error, KVERN_ERR_OVERFLOW, "%s: too large for this machine", path);
    }
    if (facts.st_size == 0) {
        return KVERN_OK;
    }
    void *mapping = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED) {
        return engine_fail(error, KVERN_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    }
    *out = (mapped_file){.data = mapping, .bytes = (size_t)facts.st_size, .mapped = true};
    return KVERN_OK;
}

kvern_status mapped_file_open(const char *path, mapped_file *out, engine_error *error)
{
    *out = (mapped_file){0};
    // Without O_NONBLOCK, opening a named pipe would wait for a writer.
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    kvern_status status = map_descriptor(descriptor, path, out, error);
    close(descriptor);
    return status;
}

void mapped_file_close(mapped_file *file)
{
    if (file->mapped) {
        munmap((void *)file->data, file->bytes);
    }
    *file = (mapped_file){0};
}

bool mapped_file_holds(const mapped_file *file, const void *data)
{
    const unsigned char *at = data;
    return file->bytes > 0 && at >= file->data && at < file->data + file->bytes;
}

void mapped_file_drop(const mapped_file *file, const void *data, size_t bytes)
{
    if (!file->mapped || bytes == 0) {
        return;
    }
    // Outwards to whole pages: a neighbour's page that goes with it is read again when it is
    // needed, and many small tensors leave nothing behind.
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t start = (size_t)((const unsigned char *)data - file->data);
    size_t first = start / page * page;
    madvise((void *)(file->data + first), start + bytes - first, MADV_DONTNEED);
}
