// SPDX-License-Identifier: MIT
// How many processors and how much memory a process may use: masks of any size, and the limits of
// containers, from files as Linux writes them.
#include "src/base/machine.h"

#include "tests/support/check.h"

#include "src/base/cgroup.h"

#include <kvern/context.h>
#include <kvern/cpu.h>

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- A machine with many processors ----

// Stands in for the kernel's: one of 2048 processors, of which the last `usable` may be used.
static int usable = 2;

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask)
{
    (void)pid;
    if (bytes < 2048 / 8) {
        errno = EINVAL;
        return -1;
    }
    memset(mask, 0, bytes);
    for (int i = 0; i < usable; i++)
        CPU_SET_S((size_t)(2047 - i), bytes, mask);
    return 0;
}

static size_t default_threads(void)
{
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    const size_t threads = kvern_context_executor(context).threads;
    kvern_context_release(context);
    return threads;
}

static void test_more_than_1024_processors(void **state)
{
    (void)state;
    usable = 3;
    assert_int_equal(3, kvern_machine_cpus("/nowhere"));
    usable = 2048;
    assert_int_equal(2048, kvern_machine_cpus("/nowhere"));
    usable = 3; // of this machine's own limits, none can be below 1
    assert_true(kvern_cpu_count() >= 1 && kvern_cpu_count() <= 3);
    assert_int_equal(kvern_cpu_count(), default_threads());
}

// ---- Containers ----

static char root[] = "/tmp/kvern-machine-XXXXXX";

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static int make_root(void **state)
{
    (void)state;
    memcpy(root + strlen(root) - 6, "XXXXXX", 6);
    usable = 8;
    return mkdtemp(root) ? 0 : -1;
}

// Writes a file below the root, its folders too.
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        (void)mkdir(whole, 0700);
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// A quota is time per period: two and a half processors are three threads.
static void test_version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    put("/sys/fs/cgroup/memory.max", "536870912\n");
    assert_int_equal(3, kvern_machine_cpus(root));
    assert_int_equal(536870912, kvern_machine_memory(root));
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_int_equal(1, kvern_machine_cpus(root));
    put("/sys/fs/cgroup/cpu.max", "1000 100000\n");
    assert_int_equal(1, kvern_machine_cpus(root));
    put("/sys/fs/cgroup/cpu.max", "9900000 100000\n"); // more than there are
    assert_int_equal(8, kvern_machine_cpus(root));
}

static void test_version_2_without_limits(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user.slice\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    assert_int_equal(8, kvern_machine_cpus(root));
    assert_int_equal(kvern_machine_memory("/nowhere"), kvern_machine_memory(root));
    assert_true(kvern_machine_memory(root) > 0);
}

// The tightest limit on the way to the outermost group counts.
static void test_groups_in_groups(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pods/one/job\n");
    put("/sys/fs/cgroup/pods/cpu.max", "600000 100000\n");
    put("/sys/fs/cgroup/pods/one/cpu.max", "200000 100000\n");
    put("/sys/fs/cgroup/pods/one/job/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/pods/memory.max", "1000000\n");
    put("/sys/fs/cgroup/pods/one/job/memory.max", "2000000\n");
    assert_int_equal(2, kvern_machine_cpus(root));
    assert_int_equal(1000000, kvern_machine_memory(root));
}

static void test_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/x\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "350000\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "268435456\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "100000\n"); // of another hierarchy's path
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(4, kvern_machine_cpus(root));
    assert_int_equal(268435456, kvern_machine_memory(root));
}

// In a container the paths may be those of the host, while its own group is what is mounted.
static void test_version_1_in_a_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpuacct,cpu:/docker/abc\n5:memory:/docker/abc\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    assert_int_equal(2, kvern_machine_cpus(root));
    assert_int_equal(1048576, kvern_machine_memory(root));
}

static void test_version_1_without_limits(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu,cpuacct:/\n5:memory:/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(0, kvern_cgroup_cpus(root));
    assert_int_equal(0, kvern_cgroup_memory(root));
}

// Both versions at once, as systemd once had it.
static void test_hybrid(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/b\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "500000\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/unified/b/cpu.max", "400000 100000\n");
    assert_int_equal(4, kvern_machine_cpus(root));
}

// What cannot be read limits nothing, and nothing outside of the mount is read.
static void test_odd_files(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "\n",
                                        "max",
                                        "-5 100000\n",
                                        "100000\n",
                                        "x y\n",
                                        "100000 0",
                                        "0 100000\n",
                                        "99999999999999999999999999 1\n"};
    char path[3000];
    put("/proc/self/cgroup", "0::/../../other\n");
    put("/other/cpu.max", "100000 100000\n");
    put("/sys/other/cpu.max", "100000 100000\n");
    assert_int_equal(0, kvern_cgroup_cpus(root));
    put("/proc/self/cgroup", "nonsense\n:\n::\n0::\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put("/sys/fs/cgroup/cpu.max", texts[i]);
        assert_int_equal(8, kvern_machine_cpus(root));
    }
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    char line[sizeof path + 8];
    snprintf(line, sizeof line, "0::%s\n", path);
    put("/proc/self/cgroup", line);
    assert_int_equal(2, kvern_machine_cpus(root));
}

#define IN_A_CONTAINER(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_1024_processors),
        IN_A_CONTAINER(test_version_2),
        IN_A_CONTAINER(test_version_2_without_limits),
        IN_A_CONTAINER(test_groups_in_groups),
        IN_A_CONTAINER(test_version_1),
        IN_A_CONTAINER(test_version_1_in_a_container),
        IN_A_CONTAINER(test_version_1_without_limits),
        IN_A_CONTAINER(test_hybrid),
        IN_A_CONTAINER(test_odd_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
