// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_CGROUP_H
#define KVERN_BASE_CGROUP_H

// What the control groups of Linux let the process have: the limits of a container. Version 2 and
// version 1 are read, each from the group of the process up to the outermost one that is visible;
// the tightest limit counts. Files that are missing, cannot be read or say something else limit
// nothing.

#include <stdint.h>

// `root` is put before all paths: "" on a real system.

// Processors' worth of time, rounded up; 0: not limited.
uint64_t kvern_cgroup_cpus(const char *root);

// Bytes of memory; 0: not limited.
uint64_t kvern_cgroup_memory(const char *root);

#endif
