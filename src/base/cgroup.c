// SPDX-License-Identifier: MIT
#include "src/base/cgroup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Longer paths are looked at up to here, and those of a group are cut off at whole names.
#define MOST_PATH 1024

// A value that a file of version 1 has when there is no limit: the largest whole page of memory.
#define UNLIMITED_FROM (UINT64_C(1) << 60)

// The group of the process in one hierarchy, and where that is mounted.
typedef struct hierarchy {
    const char *controller; // NULL: that of version 2, which has all
    const char *mount;
} hierarchy;

static const hierarchy unified = {NULL, "/sys/fs/cgroup"};
static const hierarchy hybrid = {NULL, "/sys/fs/cgroup/unified"};
static const hierarchy cpu_v1 = {"cpu", "/sys/fs/cgroup/cpu"};
static const hierarchy memory_v1 = {"memory", "/sys/fs/cgroup/memory"};

// The tighter of two limits, of which 0 is none.
static uint64_t tighter(uint64_t a, uint64_t b)
{
    return a == 0 || (b && b < a) ? b : a;
}

// ---- The group ----

// Whether a list of controllers, separated by commas and ended by a colon, has one of this name.
static bool has_controller(const char *list, const char *name)
{
    const size_t length = strlen(name);
    while (*list && *list != ':') {
        const size_t end = strcspn(list, ",:");
        if (end == length && memcmp(list, name, length) == 0)
            return true;
        list += end + (list[end] == ',');
    }
    return false;
}

// Whether a line of /proc/self/cgroup, number:controllers:path, is that of the hierarchy; *path is
// its path then.
static bool is_line_of(const hierarchy *h, char *line, char **path)
{
    char *controllers = strchr(line, ':');
    char *colon = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!colon)
        return false;
    *path = colon + 1;
    (*path)[strcspn(*path, "\n")] = '\0';
    if (!h->controller)
        return strncmp(line, "0::", 3) == 0;
    return has_controller(controllers + 1, h->controller);
}

// The path of the process's group. Where it lies outside of what is mounted, as in a container that
// sees the host's paths, that is "": the outermost group that can be seen.
static void find_group(const char *root, const hierarchy *h, char group[MOST_PATH])
{
    char name[MOST_PATH], line[MOST_PATH], *path;
    group[0] = '\0';
    if (snprintf(name, sizeof name, "%s/proc/self/cgroup", root) >= (int)sizeof name)
        return;
    FILE *file = fopen(name, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (!is_line_of(h, line, &path))
            continue;
        if (!strstr(path, "/.."))
            memcpy(group, path, strlen(path) + 1);
        break;
    }
    if (file)
        fclose(file);
}

// ---- Its files ----

// Reads the first line of a file of the group.
static bool read_file(const char *root, const hierarchy *h, const char *group, const char *name,
                      char line[64])
{
    char path[3 * MOST_PATH];
    const int length = snprintf(path, sizeof path, "%s%s%s/%s", root, h->mount, group, name);
    FILE *file = length < (int)sizeof path ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    const bool ok = fgets(line, 64, file) != NULL;
    fclose(file);
    return ok;
}

// The number that a text begins with, without a sign; *rest is what follows.
static bool parse_number(const char *text, uint64_t *out, char **rest)
{
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtoull(text, rest, 10);
    return errno == 0;
}

static bool read_number(const char *root, const hierarchy *h, const char *group, const char *name,
                        uint64_t *out)
{
    char line[64], *rest;
    return read_file(root, h, group, name, line) && parse_number(line, out, &rest);
}

// Time per period, as processors.
static uint64_t cpus_of(uint64_t quota, uint64_t period)
{
    return quota && period ? quota / period + (quota % period != 0) : 0;
}

// "QUOTA PERIOD" or "max PERIOD".
static uint64_t read_cpus_v2(const char *root, const hierarchy *h, const char *group)
{
    char line[64], *rest;
    uint64_t quota, period;
    if (!read_file(root, h, group, "cpu.max", line) || !parse_number(line, &quota, &rest) ||
        *rest != ' ' || !parse_number(rest + 1, &period, &rest))
        return 0;
    return cpus_of(quota, period);
}

static uint64_t read_cpus_v1(const char *root, const hierarchy *h, const char *group)
{
    uint64_t quota, period;
    if (!read_number(root, h, group, "cpu.cfs_quota_us", &quota) || // -1: none
        !read_number(root, h, group, "cpu.cfs_period_us", &period))
        return 0;
    return cpus_of(quota, period);
}

static uint64_t read_memory_v2(const char *root, const hierarchy *h, const char *group)
{
    uint64_t bytes; // or "max"
    return read_number(root, h, group, "memory.max", &bytes) ? bytes : 0;
}

static uint64_t read_memory_v1(const char *root, const hierarchy *h, const char *group)
{
    uint64_t bytes;
    const bool ok = read_number(root, h, group, "memory.limit_in_bytes", &bytes);
    return ok && bytes < UNLIMITED_FROM ? bytes : 0;
}

// ---- Limits ----

typedef uint64_t read_limit(const char *root, const hierarchy *h, const char *group);

// The tightest limit of the process's group and those around it.
static uint64_t limit_of(const char *root, const hierarchy *h, read_limit *read)
{
    char group[MOST_PATH];
    find_group(root, h, group);
    uint64_t limit = read(root, h, group);
    while (group[0]) {
        char *slash = strrchr(group, '/');
        *(slash ? slash : group) = '\0';
        limit = tighter(limit, read(root, h, group));
    }
    return limit;
}

uint64_t kvern_cgroup_cpus(const char *root)
{
    return tighter(
        tighter(limit_of(root, &unified, read_cpus_v2), limit_of(root, &hybrid, read_cpus_v2)),
        limit_of(root, &cpu_v1, read_cpus_v1));
}

uint64_t kvern_cgroup_memory(const char *root)
{
    return tighter(
        tighter(limit_of(root, &unified, read_memory_v2), limit_of(root, &hybrid, read_memory_v2)),
        limit_of(root, &memory_v1, read_memory_v1));
}
