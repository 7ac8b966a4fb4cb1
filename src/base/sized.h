// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_SIZED_H
#define KVERN_BASE_SIZED_H

// Public structs that begin with their size, and may grow at their end: an older program passes a
// shorter one than this library's, a newer program a longer one.
//
// Accepted are the sizes that releases of this SONAME had: the fields that an older program does
// not know are zero, which is their default (CONTRIBUTING.md). A longer struct is accepted when
// what lies behind the fields that are known here is zero, and refused by name otherwise. A size
// that no release had is refused before anything else of the struct is looked at.

#include <kvern/status.h>

#include <stddef.h>

#define KVERN_SIZED_RELEASES 4

typedef struct kvern_sized {
    const char *name;                      // of the struct
    size_t now;                            // its size in these headers
    size_t released[KVERN_SIZED_RELEASES]; // sizes of releases, oldest first; 0: no more
} kvern_sized;

// The size of a struct whose last field is `field`. No struct has padding at its end: a field that
// is added there would be read from bytes that an older program never wrote.
#define KVERN_SIZE_TO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

// The sizes of one struct, from its last field in every release that made it grow.
#define KVERN_SIZED(type, ...)                                                                     \
    {                                                                                              \
#type, sizeof(type),                                                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

// Copies a struct of the caller to *known, a struct of this library's headers, whose size is then
// this library's. Errors: KVERN_ERR_ARGUMENT (a size that no release had), KVERN_ERR_UNSUPPORTED
// (fields that this library does not know are not zero). *known is unspecified on failure.
KVERN_CHECK kvern_status kvern_sized_read(const kvern_sized *sizes, const void *given, void *known);

// The same for entry `index` of an array. Entries are as far apart as the first one says, and the
// size of each must be that of the first. The sentence names the index.
KVERN_CHECK kvern_status kvern_sized_read_entry(const kvern_sized *sizes, const void *array,
                                                size_t index, void *known);

// Whether the library can write to a struct of the caller (kvern_sized_write); looks at its size
// alone. Errors: KVERN_ERR_ARGUMENT.
KVERN_CHECK kvern_status kvern_sized_check_output(const kvern_sized *sizes, const void *given);

// Writes as much of *known as the caller's struct has room for, and zeros behind it; the caller's
// size stays. `given` has passed kvern_sized_check_output.
void kvern_sized_write(const kvern_sized *sizes, const void *known, void *given);

// For calls that fill a struct with defaults and cannot fail: makes *given a struct of `size` bytes
// that begins with its size, with the contents of *known as far as they go and zeros behind. A size
// that no release had is found by the call that the struct is given to.
void kvern_sized_init(const kvern_sized *sizes, const void *known, void *given, size_t size);

#endif
