// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_DESCRIPTOR_H
#define KVERN_CLI_DESCRIPTOR_H

// Writing to file descriptors.

#include <stdbool.h>
#include <stddef.h>

// Writes all bytes, however many calls that takes. False: errno says why, and some of them may have
// been written.
bool descriptor_write(int fd, const void *data, size_t bytes);

#endif
