// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_BAD_DISK_H
#define KVERN_TESTS_SUPPORT_BAD_DISK_H

// Disk calls that fail, or end the process, at the call of a number. The disk is not waited for.

#include "src/file/disk/atomic_file.h"

typedef struct bad_disk {
    int call;      // calls so far
    int fail_at;   // which one fails; negative: none
    bool kills;    // it ends the process instead
    bool shortens; // a write takes half of what it is given
    size_t most;   // bytes that one write takes at most; 0: all
} bad_disk;

kvern_disk_calls bad_disk_calls(bad_disk *disk);

#endif
