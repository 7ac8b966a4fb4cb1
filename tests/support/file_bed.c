// SPDX-License-Identifier: MIT
#include "tests/support/file_bed.h"

#include "tests/support/check.h"
#include "tests/support/folder.h"

ledger file_books;
kvern_context *file_context;

int file_bed_set_up(void **state)
{
    (void)state;
    kvern_context_options options = kvern_context_options_default();
    folder_make();
    ledger_init(&file_books);
    options.allocator = ledger_allocator(&file_books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &file_context));
    return 0;
}

int file_bed_tear_down(void **state)
{
    (void)state;
    kvern_context_release(file_context);
    ledger_finish(&file_books);
    folder_remove();
    return 0;
}
