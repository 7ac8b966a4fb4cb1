// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_MACHINE_H
#define KVERN_BASE_MACHINE_H

// How much of the machine the process may use: kvern_cpu_count and kvern_memory_limit. `root` is
// put before the paths of control groups (src/base/cgroup.h).

#include <stdint.h>

uint32_t kvern_machine_cpus(const char *root);
uint64_t kvern_machine_memory(const char *root);

#endif
