// SPDX-License-Identifier: MIT
#include "tests/support/golden_file.h"

#include "tests/support/check.h"

void golden_file_take(FILE *file, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, file) != bytes)
        fail_msg("the golden file ends early, at byte %ld", ftell(file));
}

int32_t golden_file_number(FILE *file)
{
    int32_t number;
    golden_file_take(file, &number, sizeof number);
    return number;
}
