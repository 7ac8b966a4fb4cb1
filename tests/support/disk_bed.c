// SPDX-License-Identifier: MIT
#include "tests/support/disk_bed.h"

#include "tests/support/check.h"
#include "tests/support/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

disk_reports disk_reported;

static void count_report(void *user, kvern_disk_event event, const char *name, const char *why)
{
    (void)user;
    (void)name;
    __atomic_fetch_add(&disk_reported.events[event], 1, __ATOMIC_RELAXED);
    snprintf(disk_reported.why, sizeof disk_reported.why, "%s", why);
}

static int no_sync(void *user, int file)
{
    (void)user;
    (void)file;
    return 0;
}

kvern_disk_store_options disk_options(void)
{
    kvern_disk_store_options options = kvern_disk_store_options_default();
    options.create = 1;
    options.report = count_report;
    return options;
}

kvern_disk_store *disk_open(const store_bed *b, const char *folder,
                            const kvern_disk_store_options *given, const kvern_disk_calls *calls)
{
    const kvern_disk_store_options options = given ? *given : disk_options();
    kvern_disk_calls own = kvern_system_disk;
    kvern_disk_store *d;
    own.sync = no_sync;
    assert_ok(kvern_disk_store_open_by(calls ? calls : &own, b->context, folder_path(folder),
                                       &options, &d));
    return d;
}

kvern_disk_outcome disk_put(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                            const int32_t *tokens, size_t count)
{
    kvern_disk_outcome outcome;
    kvern_state *s = store_cold(b, tokens, (int64_t)count);
    assert_ok(kvern_disk_store_publish(d, key, tokens, count, s, 0, &outcome));
    kvern_state_destroy(s);
    kvern_disk_store_flush(d);
    return outcome;
}

kvern_disk_hit disk_find(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                         const int32_t *tokens, size_t count)
{
    kvern_disk_hit hit = kvern_disk_hit_default();
    assert_ok(kvern_disk_store_find(d, key, b->composition, tokens, count, &hit));
    return hit;
}

int64_t disk_found(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                   const int32_t *tokens, size_t count)
{
    kvern_disk_hit hit = disk_find(b, d, key, tokens, count);
    const int64_t positions = hit.positions;
    kvern_disk_store_release(d, &hit);
    return positions;
}

int64_t disk_lend(const store_bed *b, kvern_disk_store *d, const kvern_store_key *key,
                  const int32_t *tokens, size_t count, kvern_state **out)
{
    kvern_disk_hit hit = disk_find(b, d, key, tokens, count);
    int64_t lent = 0;
    *out = store_state(b, 1);
    if (hit.positions) {
        assert_ok(kvern_disk_store_lend(d, &hit, *out, 0, &lent));
        assert_true(lent == 0 || lent == hit.positions);
    }
    assert_int_equal(lent, kvern_state_length(*out, 0));
    kvern_disk_store_release(d, &hit);
    return lent;
}

kvern_disk_store_stats disk_stats(kvern_disk_store *d)
{
    kvern_disk_store_stats stats = kvern_disk_store_stats_default();
    assert_ok(kvern_disk_store_get_stats(d, &stats));
    return stats;
}

// Whether each entry's file is there with its bytes, and no file besides.
void disk_expect_sound(kvern_disk_store *d)
{
    const kvern_disk_store_stats stats = disk_stats(d);
    uint64_t files = 0, bytes = 0;
    const char *wrong = kvern_disk_walk(d);
    DIR *directory = opendir(d->directory);
    assert_non_null(directory);
    for (const struct dirent *found; (found = readdir(directory));) {
        char path[KVERN_DISK_PATH_BYTES];
        struct stat facts;
        assert_false(kvern_disk_is_temporary(found->d_name));
        if (!kvern_disk_is_name(found->d_name))
            continue;
        kvern_disk_path(d, NULL, found->d_name, path);
        assert_int_equal(0, lstat(path, &facts));
        assert_non_null(kvern_disk_find_name(d, found->d_name));
        files++;
        bytes += (uint64_t)facts.st_size;
    }
    closedir(directory);
    assert_true(!wrong);
    assert_int_equal(files, stats.entries);
    assert_int_equal(bytes, stats.bytes);
    assert_true(!stats.budget_bytes || stats.bytes <= stats.budget_bytes);
}

static int take_name(void *user, const kvern_disk_entry_facts *facts)
{
    snprintf(user, KVERN_DISK_NAME_BYTES, "%s", facts->name);
    return 1;
}

const char *disk_only_file(kvern_disk_store *d)
{
    static char path[KVERN_DISK_PATH_BYTES];
    char name[KVERN_DISK_NAME_BYTES];
    assert_int_equal(1, disk_stats(d).entries);
    assert_int_equal(1, kvern_disk_store_each(d, take_name, name));
    kvern_disk_path(d, NULL, name, path);
    return path;
}
