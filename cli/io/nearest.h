// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_NEAREST_H
#define KVERN_CLI_NEAREST_H

// Which of some names a person meant who typed another one.

#include <stddef.h>

// The number of letters that are to be inserted, removed, changed or swapped with their neighbour
// to make one word of the other. Words of more than 31 bytes are as far apart as the longer one is
// long.
size_t nearest_distance(const char *a, const char *b);

// The name that is a typing mistake away from `word`, one letter in three at most; NULL: none.
const char *nearest_name(const char *word, const char *const *names, size_t count);

#endif
