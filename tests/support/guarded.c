// SPDX-License-Identifier: MIT
#include "tests/support/guarded.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static guarded map(size_t bytes, size_t *readable)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *readable = (bytes + page - 1) / page * page;
    guarded buffer = {.bytes = bytes, .mapped_bytes = *readable + 2 * page};
    buffer.mapping = mmap(NULL, buffer.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer.mapping == MAP_FAILED)
        abort();
    buffer.data = (unsigned char *)buffer.mapping + page;
    if (*readable && mprotect(buffer.data, *readable, PROT_READ | PROT_WRITE) != 0)
        abort();
    return buffer;
}

guarded guarded_at_end(size_t bytes)
{
    size_t readable;
    guarded buffer = map(bytes, &readable);
    buffer.data += readable - bytes;
    return buffer;
}

guarded guarded_at_start(size_t bytes)
{
    size_t readable;
    return map(bytes, &readable);
}

void *guarded_last(const guarded *buffer, size_t bytes)
{
    return buffer->data + buffer->bytes - bytes;
}

void guarded_free(guarded *buffer)
{
    munmap(buffer->mapping, buffer->mapped_bytes);
    *buffer = (guarded){0};
}
