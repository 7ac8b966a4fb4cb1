// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_CONTAINER_FORGE_H
#define KVERN_TESTS_SUPPORT_CONTAINER_FORGE_H

// Containers (kvern/file.h) whose bytes are changed, and whose checksums are right again, for what
// is behind checksums.

#include "src/file/safetensors/reader.h"

#include <kvern/file.h>
#include <stdbool.h>

// Bytes of a file, aligned to 4096 bytes, in a block that ends with them.
typedef struct forgery {
    unsigned char *data;
    size_t bytes;
} forgery;

forgery forgery_of(const void *data, size_t bytes);
forgery forgery_read(const char *name); // of the test's folder
void forgery_free(forgery *f);

// Replaces the only `from` of the header by `to`, which has as many bytes. False: there is none.
bool forgery_replace(forgery *f, const char *from, const char *to);

// Opens it, verifies it and loads it, mapped or copied; the first status that is not KVERN_OK.
kvern_status forgery_use(const forgery *f, kvern_context *context, bool copy, kvern_state *state);

// The data of a tensor; it must be there.
unsigned char *forgery_tensor(forgery *f, kvern_context *context, const char *name, size_t *bytes);

// Makes the sum of the file right, where it is a safetensors file that has one; and those of its
// pages, where wanted.
void forgery_sum(forgery *f, kvern_context *context, bool pages);

#endif
