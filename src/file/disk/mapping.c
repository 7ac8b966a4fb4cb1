// SPDX-License-Identifier: MIT
#include "src/file/disk/mapping.h"

#include "src/base/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

kvern_status kvern_mapping_of(kvern_context *context, const void *data, size_t bytes,
                              kvern_mapping **out)
{
    void *block;
    *out = NULL;
    kvern_status status = kvern_heap_take_zeroed(&context->heap, sizeof **out, &block);
    if (status)
        return status;
    kvern_mapping *mapping = block;
    kvern_context_retain(context);
    mapping->references = 1;
    mapping->context = context;
    mapping->data = data;
    mapping->bytes = bytes;
    *out = mapping;
    return KVERN_OK;
}

static kvern_status check_file(int file, const char *path, size_t *bytes)
{
    struct stat facts;
    if (fstat(file, &facts))
        return kvern_fail(KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return kvern_fail(KVERN_ERR_FORMAT, "%s is not a regular file", path);
    if (facts.st_size == 0)
        return kvern_fail(KVERN_ERR_FORMAT, "%s is empty", path);
    if ((uintmax_t)facts.st_size > SIZE_MAX / 2)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%s does not fit memory", path);
    *bytes = (size_t)facts.st_size;
    return KVERN_OK;
}

static kvern_status map_file(kvern_mapping *mapping, int file, const char *path)
{
    kvern_status status = check_file(file, path, &mapping->bytes);
    if (status)
        return status;
    void *data = mmap(NULL, mapping->bytes, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED)
        return kvern_fail(KVERN_ERR_IO, "%s cannot be mapped: %s", path, strerror(errno));
    mapping->data = data;
    mapping->is_mapped = true;
    return KVERN_OK;
}

kvern_status kvern_mapping_open(kvern_context *context, const char *path, kvern_mapping **out)
{
    kvern_status status = kvern_mapping_of(context, NULL, 0, out);
    if (status)
        return status;
    // A pipe would wait for its writer.
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        status = kvern_fail(KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    else
        status = map_file(*out, file, path);
    if (file >= 0)
        close(file);
    if (status) {
        kvern_mapping_release(*out);
        *out = NULL;
    }
    return status;
}

void kvern_mapping_retain(kvern_mapping *mapping)
{
    atomic_fetch_add_explicit(&mapping->references, 1, memory_order_relaxed);
}

void kvern_mapping_release(kvern_mapping *mapping)
{
    if (!mapping || atomic_fetch_sub(&mapping->references, 1) != 1)
        return;
    kvern_context *context = mapping->context;
    if (mapping->is_mapped)
        munmap((void *)mapping->data, mapping->bytes);
    kvern_heap_give(&context->heap, mapping, sizeof *mapping, KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}
