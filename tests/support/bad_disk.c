// SPDX-License-Identifier: MIT
#include "tests/support/bad_disk.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static bool is_bad(void *user)
{
    bad_disk *disk = user;
    if (disk->call++ != disk->fail_at)
        return false;
    if (disk->kills)
        kill(getpid(), SIGKILL);
    errno = EIO;
    return true;
}

static ssize_t bad_write(void *user, int file, const void *data, size_t bytes)
{
    const bad_disk *disk = user;
    if (is_bad(user))
        return -1;
    if (disk->shortens && bytes > 1)
        bytes /= 2;
    return write(file, data, disk->most && bytes > disk->most ? disk->most : bytes);
}

static int bad_sync(void *user, int file)
{
    (void)file;
    return is_bad(user) ? -1 : 0;
}

static int bad_rename(void *user, const char *from, const char *to)
{
    return is_bad(user) ? -1 : rename(from, to);
}

kvern_disk_calls bad_disk_calls(bad_disk *disk)
{
    return (kvern_disk_calls){
        .user = disk, .write = bad_write, .sync = bad_sync, .rename = bad_rename};
}
