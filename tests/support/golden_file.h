// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_GOLDEN_FILE_H
#define KVERN_TESTS_SUPPORT_GOLDEN_FILE_H

// Golden files of numbers, read from front to back. A file that ends early fails the test.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void golden_file_take(FILE *file, void *to, size_t bytes);

// A number of 32 bits in the machine's order.
int32_t golden_file_number(FILE *file);

#endif
