// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_FILE_BED_H
#define KVERN_TESTS_SUPPORT_FILE_BED_H

// What a test of files begins with: a folder of its own (tests/support/folder.h), and a context of
// one thread whose memory is kept books of.

#include "tests/support/ledger.h"

#include <kvern/context.h>

extern ledger file_books;
extern kvern_context *file_context;

// For cmocka; whatever was not given back fails the test that tears it down.
int file_bed_set_up(void **state);
int file_bed_tear_down(void **state);

#endif
