// SPDX-License-Identifier: MIT
#include "cli/io/descriptor.h"

#include <errno.h>
#include <unistd.h>

bool descriptor_write(int fd, const void *data, size_t bytes)
{
    const char *next = data;
    while (bytes > 0) {
        const ssize_t written = write(fd, next, bytes);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        if (written > 0) {
            next += written;
            bytes -= (size_t)written;
        }
    }
    return true;
}
