// SPDX-License-Identifier: MIT
#include "src/base/machine.h"

#include "src/base/cgroup.h"

#include <kvern/context.h>
#include <kvern/cpu.h>

#include <unistd.h>

#if defined(__linux__)
#include <sched.h>

// A mask must have room for all processors that the kernel was made for, which is 8192 at most;
// cpu_set_t has room for 1024.
#define MASK_SETS 64

// Processors that the thread may run on. 0: unknown.
static uint64_t processors(void)
{
    cpu_set_t sets[MASK_SETS];
    if (sched_getaffinity(0, sizeof sets, sets) != 0)
        return 0;
    return (uint64_t)CPU_COUNT_S(sizeof sets, sets);
}
#else
static uint64_t processors(void)
{
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint64_t)count : 0;
}
#endif

uint32_t kvern_machine_cpus(const char *root)
{
    const uint64_t usable = processors(), limit = kvern_cgroup_cpus(root);
    const uint64_t count = limit && limit < usable ? limit : usable;
    return count < 1 ? 1 : count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
}

uint64_t kvern_machine_memory(const char *root)
{
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    const uint64_t machine = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : 0;
    const uint64_t limit = kvern_cgroup_memory(root);
    return limit && (limit < machine || machine == 0) ? limit : machine;
}

uint32_t kvern_cpu_count(void)
{
    return kvern_machine_cpus("");
}

uint64_t kvern_memory_limit(void)
{
    return kvern_machine_memory("");
}
