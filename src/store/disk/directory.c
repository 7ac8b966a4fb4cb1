// SPDX-License-Identifier: MIT
// The directory: who writes it, what lies in it, and what goes.
#include "src/store/disk/disk_store.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

// A directory's time may be that of a clock that is behind by as much: what changes right after a
// scan is not seen by it.
#define UNSURE_NANOSECONDS INT64_C(2000000000)

void kvern_disk_path(const kvern_disk_store *store, const char *folder, const char *name,
                     char path[KVERN_DISK_PATH_BYTES])
{
    const char *parts[] = {store->directory, folder ? "/" : "", folder ? folder : "", "/", name};
    size_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const size_t bytes = strlen(parts[i]);
        memcpy(path + at, parts[i], bytes);
        at += bytes;
    }
    path[at] = '\0';
}

// ---- Opening ----

static kvern_status find_directory(kvern_disk_store *store, const char *directory)
{
    struct stat facts;
    if (store->options.create && mkdir(directory, 0700) && errno != EEXIST)
        return kvern_fail(KVERN_ERR_IO, "%s cannot be made: %s", directory, strerror(errno));
    char *path = realpath(directory, NULL);
    if (!path || stat(path, &facts) || (!S_ISDIR(facts.st_mode) && (errno = ENOTDIR))) {
        free(path);
        return kvern_fail(KVERN_ERR_IO, "%s: %s", directory, strerror(errno));
    }
    // A name and a folder come behind it.
    const size_t bytes = strlen(path);
    const bool fits = bytes + 2 * (NAME_MAX + 2) < sizeof store->directory;
    if (fits)
        memcpy(store->directory, path, bytes + 1);
    free(path);
    return fits ? KVERN_OK : kvern_fail(KVERN_ERR_IO, "%s: its path is too long", directory);
}

kvern_status kvern_disk_directory_open(kvern_disk_store *store, const char *directory)
{
    return find_directory(store, directory);
}

// Where there is no permission, or no lock, others may write.
bool kvern_disk_directory_lock(kvern_disk_store *store)
{
    char path[KVERN_DISK_PATH_BYTES];
    if (store->options.read_only)
        return false;
    kvern_disk_path(store, NULL, KVERN_DISK_LOCK, path);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
        store->lock_file = file;
    else if (file >= 0)
        close(file);
    return store->lock_file >= 0;
}

void kvern_disk_directory_unlock(kvern_disk_store *store)
{
    if (store->lock_file >= 0)
        close(store->lock_file);
    store->lock_file = -1;
}

// ---- What is no entry ----

static void count_passed_over(kvern_disk_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->lock);
    store->stats.passed_over++;
    store->stats.other_bytes += bytes;
    pthread_mutex_unlock(&store->lock);
}

// What is no regular file is not removed either.
static uint64_t bytes_of(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) || !S_ISREG(facts.st_mode) ? 0 : (uint64_t)facts.st_size;
}

static void pass_over(kvern_disk_store *store, const char *name, const char *why)
{
    char path[KVERN_DISK_PATH_BYTES];
    kvern_disk_path(store, NULL, name, path);
    count_passed_over(store, bytes_of(path));
    kvern_disk_report(store, KVERN_DISK_PASSED_OVER, name, why);
}

static void add_aside_bytes(kvern_disk_store *store, uint64_t more, uint64_t less)
{
    pthread_mutex_lock(&store->lock);
    store->stats.aside_bytes += more - less;
    pthread_mutex_unlock(&store->lock);
}

static bool move_aside(kvern_disk_store *store, const char *name)
{
    char from[KVERN_DISK_PATH_BYTES], folder[KVERN_DISK_PATH_BYTES], to[KVERN_DISK_PATH_BYTES];
    kvern_disk_path(store, NULL, name, from);
    kvern_disk_path(store, NULL, KVERN_DISK_ASIDE, folder);
    kvern_disk_path(store, KVERN_DISK_ASIDE, name, to);
    if (mkdir(folder, 0700) && errno != EEXIST)
        return false;
    const uint64_t older = bytes_of(to);
    if (rename(from, to))
        return false;
    add_aside_bytes(store, bytes_of(to), older);
    return true;
}

void kvern_disk_set_aside(kvern_disk_store *store, const char *name, const char *why)
{
    if (store->lock_file < 0 || !move_aside(store, name)) {
        pass_over(store, name, why);
        return;
    }
    pthread_mutex_lock(&store->lock);
    store->stats.aside++;
    pthread_mutex_unlock(&store->lock);
    kvern_disk_report(store, KVERN_DISK_MOVED_ASIDE, name, why);
}

// ---- One file ----

static kvern_status add_file(kvern_disk_store *store, const char *name, const kvern_file *file,
                             const struct stat *file_facts, kvern_disk_entry **added)
{
    kvern_disk_facts facts;
    kvern_status status = kvern_disk_facts_read(file, &facts);
    if (!status && strcmp(facts.name, name) != 0)
        status = kvern_fail(KVERN_ERR_FORMAT, "its name is not that of what is in it");
    if (status)
        return status;
    pthread_mutex_lock(&store->lock);
    status = kvern_disk_index_add(store, file, &facts, file_facts, added);
    pthread_mutex_unlock(&store->lock);
    return status;
}

// What a failure says of the file. Memory is not its fault.
static kvern_status judge(kvern_disk_store *store, const char *name, const char *path,
                          kvern_status status)
{
    if (status == KVERN_ERR_MEMORY || status == KVERN_ERR_BUDGET)
        return status;
    if (status != KVERN_ERR_IO)
        kvern_disk_set_aside(store, name, kvern_error_detail());
    else if (access(path, F_OK) == 0)
        pass_over(store, name, kvern_error_detail());
    return KVERN_OK;
}

kvern_status kvern_disk_look(kvern_disk_store *store, const char *name, kvern_disk_entry **added)
{
    char path[KVERN_DISK_PATH_BYTES];
    struct stat facts;
    kvern_file *file = NULL;
    *added = NULL;
    kvern_disk_path(store, NULL, name, path);
    if (lstat(path, &facts))
        return KVERN_OK;
    kvern_status status = KVERN_OK;
    if (!S_ISREG(facts.st_mode))
        status = kvern_fail(KVERN_ERR_FORMAT, "it is not a regular file");
    if (!status)
        status = kvern_file_open(store->context, path, &file);
    if (!status)
        status = add_file(store, name, file, &facts, added);
    kvern_file_close(file);
    return status ? judge(store, name, path, status) : KVERN_OK;
}

// ---- All files ----

// Whether the file of an entry is the one that is known.
static bool is_known(kvern_disk_store *store, const char *name)
{
    char path[KVERN_DISK_PATH_BYTES];
    struct stat facts;
    kvern_disk_path(store, NULL, name, path);
    const bool there = lstat(path, &facts) == 0;
    pthread_mutex_lock(&store->lock);
    kvern_disk_entry *entry = kvern_disk_find_name(store, name);
    bool same =
        there && entry && entry->inode == facts.st_ino && entry->bytes == (uint64_t)facts.st_size;
    if (same) {
        entry->is_seen = true;
        entry->used = kvern_max_i64(entry->used, kvern_disk_time(&facts.st_mtim));
    }
    kvern_disk_rest rest = {0};
    if (entry && !same)
        kvern_disk_index_drop(store, entry, &rest);
    pthread_mutex_unlock(&store->lock);
    kvern_disk_rest_free(store, &rest);
    return same;
}

static void remove_left_over(kvern_disk_store *store, const char *name)
{
    char path[KVERN_DISK_PATH_BYTES];
    kvern_disk_path(store, NULL, name, path);
    if (unlink(path)) {
        pass_over(store, name, strerror(errno));
        return;
    }
    pthread_mutex_lock(&store->lock);
    store->stats.left_over++;
    pthread_mutex_unlock(&store->lock);
}

static kvern_status scan_name(kvern_disk_store *store, const char *name)
{
    kvern_disk_entry *added;
    if (kvern_disk_is_name(name))
        return is_known(store, name) ? KVERN_OK : kvern_disk_look(store, name, &added);
    if (kvern_disk_is_temporary(name) && store->lock_file >= 0)
        remove_left_over(store, name);
    return KVERN_OK;
}

static kvern_status scan_names(kvern_disk_store *store)
{
    DIR *directory = opendir(store->directory);
    if (!directory)
        return kvern_fail(KVERN_ERR_IO, "%s: %s", store->directory, strerror(errno));
    kvern_status status = KVERN_OK;
    const struct dirent *found;
    while (!status && (found = readdir(directory)))
        status = scan_name(store, found->d_name);
    closedir(directory);
    return status;
}

// Under the lock: nothing has been seen yet.
static void begin_scan(kvern_disk_store *store)
{
    store->stats.scans++;
    store->stats.other_bytes = 0;
    for (size_t b = 0; b < KVERN_DISK_BUCKETS; b++) {
        for (kvern_disk_entry *e = store->buckets[b]; e; e = e->next_named)
            e->is_seen = false;
    }
}

static void forget_unseen(kvern_disk_store *store)
{
    kvern_disk_rest rest = {0};
    pthread_mutex_lock(&store->lock);
    for (size_t b = 0; b < KVERN_DISK_BUCKETS; b++) {
        for (kvern_disk_entry *e = store->buckets[b], *next; e; e = next) {
            next = e->next_named;
            if (!e->is_seen)
                kvern_disk_index_drop(store, e, &rest);
        }
    }
    pthread_mutex_unlock(&store->lock);
    kvern_disk_rest_free(store, &rest);
}

kvern_status kvern_disk_scan(kvern_disk_store *store)
{
    struct stat facts;
    struct timespec now;
    if (stat(store->directory, &facts))
        return kvern_fail(KVERN_ERR_IO, "%s: %s", store->directory, strerror(errno));
    if (store->stats.scans && kvern_disk_time(&facts.st_mtim) == kvern_disk_time(&store->scanned))
        return KVERN_OK;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&store->lock);
    begin_scan(store);
    pthread_mutex_unlock(&store->lock);
    store->scanned = (struct timespec){0};
    kvern_status status = scan_names(store);
    if (status)
        return status;
    forget_unseen(store);
    if (kvern_disk_time(&now) - kvern_disk_time(&facts.st_mtim) > UNSURE_NANOSECONDS)
        store->scanned = facts.st_mtim;
    return KVERN_OK;
}

// ---- What was set aside ----

// Calls `visit` for each file with an entry's name until it returns false.
static void each_aside(kvern_disk_store *store,
                       bool (*visit)(kvern_disk_store *store, const char *path, void *user),
                       void *user)
{
    char path[KVERN_DISK_PATH_BYTES];
    const struct dirent *found;
    bool goes_on = true;
    kvern_disk_path(store, NULL, KVERN_DISK_ASIDE, path);
    DIR *directory = opendir(path);
    if (!directory)
        return;
    while (goes_on && (found = readdir(directory))) {
        if (!kvern_disk_is_name(found->d_name))
            continue;
        kvern_disk_path(store, KVERN_DISK_ASIDE, found->d_name, path);
        goes_on = visit(store, path, user);
    }
    closedir(directory);
}

static bool add_aside(kvern_disk_store *store, const char *path, void *user)
{
    (void)user;
    add_aside_bytes(store, bytes_of(path), 0);
    return true;
}

void kvern_disk_count_aside(kvern_disk_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->stats.aside_bytes = 0;
    pthread_mutex_unlock(&store->lock);
    each_aside(store, add_aside, NULL);
}

// ---- Room ----

void kvern_disk_remove(kvern_disk_store *store, kvern_disk_rest *rest)
{
    char path[KVERN_DISK_PATH_BYTES];
    for (const kvern_disk_entry *entry = rest->entries; entry; entry = entry->next) {
        kvern_disk_path(store, NULL, entry->name, path);
        if (unlink(path) && errno != ENOENT)
            pass_over(store, entry->name, strerror(errno));
    }
    kvern_disk_rest_free(store, rest);
}

// Under the lock. What can go: the entry that was unused for the longest; NULL: none.
static kvern_disk_entry *next_to_go(const kvern_disk_store *store)
{
    kvern_disk_entry *next = NULL;
    for (size_t b = 0; b < KVERN_DISK_BUCKETS; b++) {
        for (kvern_disk_entry *e = store->buckets[b]; e; e = e->next_named) {
            if (!e->pins && (!next || e->used < next->used))
                next = e;
        }
    }
    return next;
}

// Under the lock. Another process may have used it since: that is in the file's time.
static bool was_used_since(const kvern_disk_store *store, kvern_disk_entry *entry)
{
    char path[KVERN_DISK_PATH_BYTES];
    struct stat facts;
    kvern_disk_path(store, NULL, entry->name, path);
    if (lstat(path, &facts) || kvern_disk_time(&facts.st_mtim) <= entry->used)
        return false;
    entry->used = kvern_disk_time(&facts.st_mtim);
    return true;
}

// Under the lock.
static uint64_t all_bytes(const kvern_disk_store *store)
{
    return store->stats.bytes + store->stats.other_bytes + store->stats.aside_bytes;
}

// Under the lock. Bytes that stay whatever goes.
static uint64_t staying_bytes(const kvern_disk_store *store)
{
    uint64_t bytes = store->stats.other_bytes;
    for (size_t b = 0; b < KVERN_DISK_BUCKETS; b++) {
        for (const kvern_disk_entry *e = store->buckets[b]; e; e = e->next_named)
            bytes += e->pins ? e->bytes : 0;
    }
    return bytes;
}

static bool fits(uint64_t bytes, uint64_t more, uint64_t most)
{
    return more <= most && bytes <= most - more;
}

// What room is made for.
typedef struct room {
    uint64_t more, most;
} room;

// Whether something has to go, and may.
static bool is_wanted(kvern_disk_store *store, const room *r)
{
    pthread_mutex_lock(&store->lock);
    const bool wanted = !fits(all_bytes(store), r->more, r->most) &&
                        (r->more == 0 || fits(staying_bytes(store), r->more, r->most));
    pthread_mutex_unlock(&store->lock);
    return wanted;
}

static bool remove_aside(kvern_disk_store *store, const char *path, void *user)
{
    const uint64_t bytes = bytes_of(path);
    if (!is_wanted(store, user))
        return false;
    if (bytes && unlink(path) == 0)
        add_aside_bytes(store, 0, bytes);
    return true;
}

static bool evict(kvern_disk_store *store, const room *r)
{
    kvern_disk_rest rest = {0};
    kvern_disk_entry *entry;
    pthread_mutex_lock(&store->lock);
    const bool can = fits(staying_bytes(store) + store->stats.aside_bytes, r->more, r->most);
    // Where nothing is to be written all goes that can.
    while ((can || r->more == 0) && !fits(all_bytes(store), r->more, r->most) &&
           (entry = next_to_go(store))) {
        if (was_used_since(store, entry))
            continue;
        kvern_disk_index_drop(store, entry, &rest);
        store->stats.evictions++;
    }
    pthread_mutex_unlock(&store->lock);
    kvern_disk_remove(store, &rest);
    return can;
}

bool kvern_disk_make_room(kvern_disk_store *store, uint64_t more, uint64_t most)
{
    room r = {more, most};
    if (is_wanted(store, &r))
        each_aside(store, remove_aside, &r);
    return evict(store, &r);
}

static uint64_t bytes_now(kvern_disk_store *store)
{
    pthread_mutex_lock(&store->lock);
    const uint64_t bytes = all_bytes(store);
    pthread_mutex_unlock(&store->lock);
    return bytes;
}

bool kvern_disk_give_up(kvern_disk_store *store, uint64_t bytes)
{
    const uint64_t before = bytes_now(store);
    (void)kvern_disk_make_room(store, 0, before > bytes ? before - bytes : 0);
    return bytes_now(store) < before;
}
