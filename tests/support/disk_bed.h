// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_DISK_BED_H
#define KVERN_TESTS_SUPPORT_DISK_BED_H

// Stores on disk in folders of a test's (tests/support/folder.h), whose rows are those of a bed
// (tests/support/store_bed.h). The disk is not waited for.

#include "src/store/disk/disk_store.h"
#include "tests/support/store_bed.h"

// Events that were reported, by kind, and the last one's reason.
typedef struct disk_reports {
    uint64_t events[3];
    char why[512];
} disk_reports;

extern disk_reports disk_reported;

// The defaults, with a directory that is made, and reports that are counted.
kvern_disk_store_options disk_options(void);

// `options` NULL: those; `calls` NULL: the system's, but for waiting.
kvern_disk_store *disk_open(const store_bed *b, const char *folder,
                            const kvern_disk_store_options *options, const kvern_disk_calls *calls);

// Serves a prompt of one row cold, publishes it and waits until it is written.
kvern_disk_outcome disk_put(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                            const int32_t *tokens, size_t count);

// Looks a prompt up; must succeed.
kvern_disk_hit disk_find(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                         const int32_t *tokens, size_t count);

// Looks up, and lets go again: the positions that would be lent.
int64_t disk_found(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                   const int32_t *tokens, size_t count);

// Looks up and lends to a state of one row, which is the caller's; its positions.
int64_t disk_lend(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                  const int32_t *tokens, size_t count, kvern_state **out);

kvern_disk_store_stats disk_stats(kvern_disk_store *d);

// Every invariant of the index, and that it is what lies in the directory.
void disk_expect_sound(kvern_disk_store *d);

// The path of the only entry's file.
const char *disk_only_file(kvern_disk_store *d);

#endif
