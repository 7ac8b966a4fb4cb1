// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_FOLDER_H
#define KVERN_TESTS_SUPPORT_FOLDER_H

// A folder of its own for the files of a test program of the library.

#include <stdbool.h>
#include <stddef.h>

void folder_make(void);
void folder_remove(void); // with all that is in it

// The path of a file in it; the next 16 calls leave it intact.
const char *folder_path(const char *name);

bool folder_has(const char *name);
size_t folder_files(void);

// Fails the test unless so many files are in it.
void folder_expect_files(size_t count);

// A whole file, in a block from malloc of exactly its size (one byte for an empty one).
unsigned char *folder_read(const char *name, size_t *bytes);
void folder_write(const char *name, const void *data, size_t bytes);

#endif
