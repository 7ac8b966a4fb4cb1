// SPDX-License-Identifier: MIT
// A store on disk when things fail: killed at every write, a full disk, no memory, processes that
// use one directory. Faults F12, F13 and T3 of other systems.
#include "tests/support/bad_disk.h"
#include "tests/support/check.h"
#include "tests/support/disk_bed.h"
#include "tests/support/folder.h"
#include "tests/support/random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHORT 50
#define LONG 90
#define PROMPTS 6

static int32_t tokens[2 * LONG];

static int set_up(void **state)
{
    (void)state;
    folder_make();
    memset(&disk_reported, 0, sizeof disk_reported);
    store_repeat(tokens, 2 * LONG, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    folder_remove();
    return 0;
}

static int status_of(pid_t child)
{
    int status;
    assert_int_equal(child, waitpid(child, &status, 0));
    return status;
}

// Opens a store and publishes the first `count` tokens.
static void write_entry(const kvern_disk_calls *calls, size_t count)
{
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, calls);
    disk_put(b, d, NULL, tokens, count);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void remove_all(void)
{
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    assert_ok(kvern_disk_store_prune(d, 0));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Whatever happened: what is found is right, and nothing is left over. Returns what is found.
static int64_t expect_whole(uint64_t most_left_over)
{
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    kvern_state *s;
    const int64_t found = disk_lend(b, d, NULL, tokens, 2 * LONG, &s);
    store_expect_goes_on(b, s, 0, tokens, 2 * LONG);
    kvern_state_destroy(s);
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_true(stats.is_writer);
    assert_true(stats.left_over <= most_left_over);
    assert_int_equal(0, stats.aside + stats.passed_over + stats.damaged + stats.gone);
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
    return found;
}

// ---- Killed ----

static void a_writer_that_is_killed_leaves_the_old_or_the_new(void **state)
{
    (void)state;
    bool ended = false;
    int kills = 0, news = 0;
    write_entry(NULL, SHORT);
    for (int at = 0; !ended; at++) {
        const pid_t child = fork();
        if (child == 0) {
            bad_disk disk = {.fail_at = at, .kills = true};
            const kvern_disk_calls calls = bad_disk_calls(&disk);
            write_entry(&calls, LONG);
            _exit(0);
        }
        const int status = status_of(child);
        ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        assert_true(ended || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        const int64_t found = expect_whole(1);
        assert_true(found == SHORT || found == LONG);
        kills += !ended;
        news += found == LONG;
        if (found == LONG && !ended) { // between its name and its directory's sync
            remove_all();
            write_entry(NULL, SHORT);
        }
    }
    assert_true(kills >= 4 && news >= 2); // writes, sync, rename; the directory's sync, and the end
}

// A process that publishes prompts without end, under a budget.
static void publish_without_end(void)
{
    store_bed *b = store_bed_small(0);
    kvern_disk_store_options options = disk_options();
    options.budget_bytes = 40000;
    kvern_disk_store *d = disk_open(b, "d", &options, NULL);
    for (size_t i = 0;; i++) {
        int32_t prompt[LONG];
        store_repeat(prompt, LONG, (int32_t)(i % PROMPTS));
        disk_put(b, d, NULL, prompt, LONG - i % 7);
    }
}

static void a_writer_that_is_killed_at_any_time_leaves_what_is_whole(void **state)
{
    (void)state;
    test_random random = test_random_seed(5);
    for (int round = 0; round < 20; round++) {
        const pid_t child = fork();
        if (child == 0)
            publish_without_end();
        usleep((useconds_t)test_random_below(&random, 60000));
        assert_int_equal(0, kill(child, SIGKILL));
        assert_true(WIFSIGNALED(status_of(child)));
        (void)expect_whole(1);
    }
}

// ---- The disk ----

static void each_disk_call_that_fails_is_reported(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    bad_disk disk = {.fail_at = -1};
    const kvern_disk_calls calls = bad_disk_calls(&disk);
    kvern_disk_store *d = disk_open(b, "d", NULL, &calls);
    disk_put(b, d, NULL, tokens, SHORT);
    const int all = disk.call;
    assert_true(all >= 4);
    for (int at = 0; at < all; at++) {
        int32_t prompt[LONG];
        store_repeat(prompt, LONG, at + 2);
        disk = (bad_disk){.fail_at = at};
        const kvern_disk_store_stats before = disk_stats(d);
        disk_put(b, d, NULL, prompt, SHORT);
        const kvern_disk_store_stats after = disk_stats(d);
        const bool there = at == all - 1; // only the directory's sync failed
        assert_int_equal(before.failures + 1, after.failures);
        assert_int_equal(before.entries + there, after.entries);
        assert_int_equal(after.failures, disk_reported.events[KVERN_DISK_NOT_WRITTEN]);
        assert_int_equal(there ? SHORT - 1 : 0, disk_found(b, d, NULL, prompt, SHORT));
        assert_int_equal(SHORT - 1, disk_found(b, d, NULL, tokens, SHORT));
        disk_expect_sound(d);
    }
    disk_put(b, d, NULL, tokens, LONG);
    assert_int_equal(LONG - 1, disk_found(b, d, NULL, tokens, LONG));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(0, getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes;
    assert_int_equal(0, setrlimit(RLIMIT_FSIZE, &limit));
}

// Files may have no more bytes. The writing thread leaves SIGXFSZ to others, so that the process
// need not know of it.
static void write_to_a_full_disk(void)
{
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    for (rlim_t bytes = 0; bytes < 9000; bytes += 1500) {
        limit_files(bytes);
        disk_put(b, d, NULL, tokens, LONG);
        limit_files(RLIM_INFINITY);
        assert_int_equal(1, disk_stats(d).entries);
        assert_int_equal(SHORT, disk_found(b, d, NULL, tokens, LONG));
        disk_expect_sound(d);
    }
    assert_int_equal(6, disk_stats(d).failures);
    disk_put(b, d, NULL, tokens, LONG);
    assert_int_equal(LONG - 1, disk_found(b, d, NULL, tokens, LONG));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void a_full_disk_costs_the_entry_alone(void **state)
{
    (void)state;
    write_entry(NULL, SHORT);
    const pid_t child = fork();
    if (child == 0) {
        write_to_a_full_disk();
        _exit(0);
    }
    assert_int_equal(0, status_of(child));
    assert_int_equal(LONG, expect_whole(0));
}

// A disk of so many bytes, of which entries and temporary files take some.
typedef struct small_disk {
    uint64_t capacity;
    bool filled; // by others
    int refused;
} small_disk;

static uint64_t bytes_in(const char *folder)
{
    uint64_t bytes = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (const struct dirent *found; (found = readdir(directory));) {
        struct stat facts;
        assert_int_equal(0, fstatat(dirfd(directory), found->d_name, &facts, AT_SYMLINK_NOFOLLOW));
        bytes += S_ISREG(facts.st_mode) ? (uint64_t)facts.st_size : 0;
    }
    closedir(directory);
    return bytes;
}

static bool is_too_much(small_disk *disk, uint64_t bytes)
{
    if (!disk->filled && bytes_in(folder_path("d")) + bytes <= disk->capacity)
        return false;
    disk->refused++;
    errno = ENOSPC;
    return true;
}

static ssize_t small_write(void *user, int file, const void *data, size_t bytes)
{
    return is_too_much(user, bytes) ? -1 : write(file, data, bytes);
}

static ssize_t any_write(void *user, int file, const void *data, size_t bytes)
{
    (void)user;
    return write(file, data, bytes);
}

static int small_reserve(void *user, int file, uint64_t bytes)
{
    (void)file;
    return is_too_much(user, bytes) ? -1 : 0;
}

static int no_sync(void *user, int file)
{
    (void)user;
    (void)file;
    return 0;
}

static int any_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to);
}

static uint64_t small_free_bytes(void *user, const char *directory)
{
    const small_disk *disk = user;
    return disk->filled ? 0 : disk->capacity - bytes_in(directory);
}

// `reserves`: the space is asked for before the first byte is written.
static kvern_disk_calls calls_of_small(small_disk *disk, bool reserves)
{
    return (kvern_disk_calls){.user = disk,
                              .write = reserves ? any_write : small_write,
                              .sync = no_sync,
                              .rename = any_rename,
                              .reserve = reserves ? small_reserve : NULL,
                              .free_bytes = reserves ? small_free_bytes : NULL};
}

// Room for three entries, and six that are written.
static void a_full_disk_takes_the_space_of_the_oldest_entries(void **state)
{
    (void)state;
    for (int reserves = 0; reserves < 2; reserves++) {
        small_disk disk = {.capacity = UINT64_MAX};
        const kvern_disk_calls calls = calls_of_small(&disk, reserves);
        store_bed *b = store_bed_small(0);
        kvern_disk_store *d = disk_open(b, "d", NULL, &calls);
        int32_t prompt[LONG];
        for (int32_t i = 0; i < 6; i++) {
            store_repeat(prompt, LONG, i + 2);
            disk_put(b, d, NULL, prompt, LONG);
            disk.capacity = 3 * disk_stats(d).bytes / disk_stats(d).entries + 100;
        }
        const kvern_disk_store_stats stats = disk_stats(d);
        assert_int_equal(6, stats.publications);
        assert_int_equal(3, stats.evictions);
        assert_int_equal(0, stats.failures + disk_reported.events[KVERN_DISK_NOT_WRITTEN]);
        assert_int_equal(3, disk.refused);
        for (int32_t i = 0; i < 6; i++) {
            store_repeat(prompt, LONG, i + 2);
            assert_int_equal(i < 3 ? 0 : LONG - 1, disk_found(b, d, NULL, prompt, LONG));
        }
        disk_expect_sound(d);
        assert_ok(kvern_disk_store_prune(d, 0));
        kvern_disk_store_close(d);
        store_bed_close(b);
    }
}

// As many as are needed go, and not as many bytes as the new one has: most are of one size, or
// nearly.
static void a_full_disk_takes_no_more_than_is_missing(void **state)
{
    (void)state;
    small_disk disk = {.capacity = UINT64_MAX};
    const kvern_disk_calls calls = calls_of_small(&disk, true);
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, &calls);
    int32_t prompt[LONG];
    for (int32_t i = 0; i < 3; i++) {
        store_repeat(prompt, LONG, i + 2);
        disk_put(b, d, NULL, prompt, LONG - 3);
    }
    disk.capacity = disk_stats(d).bytes + 100;
    disk_put(b, d, NULL, tokens, LONG); // some tokens more
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_int_equal(1, disk.refused);
    assert_int_equal(1, stats.evictions);
    assert_int_equal(3, stats.entries);
    assert_true(stats.bytes > disk.capacity - 100 && stats.bytes <= disk.capacity);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Where others fill it, the store does not go on until it is empty.
static void a_disk_that_stays_full_is_reported_after_four_attempts(void **state)
{
    (void)state;
    small_disk disk = {.capacity = UINT64_MAX};
    const kvern_disk_calls calls = calls_of_small(&disk, true);
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, &calls);
    int32_t prompt[LONG];
    for (int32_t i = 0; i < 9; i++) {
        store_repeat(prompt, LONG, i + 2);
        disk_put(b, d, NULL, prompt, LONG);
    }
    disk.filled = true;
    disk_put(b, d, NULL, tokens, LONG);
    kvern_disk_store_stats stats = disk_stats(d);
    assert_int_equal(5, disk.refused);
    assert_int_equal(4, stats.evictions);
    assert_int_equal(5, stats.entries);
    assert_int_equal(1, stats.failures);
    assert_int_equal(1, disk_reported.events[KVERN_DISK_NOT_WRITTEN]);
    assert_non_null(strstr(disk_reported.why, strerror(ENOSPC)));
    disk_expect_sound(d);
    assert_ok(kvern_disk_store_prune(d, 0));
    disk.refused = 0;
    disk_put(b, d, NULL, tokens, LONG); // nothing can go
    assert_int_equal(1, disk.refused);
    assert_int_equal(2, disk_stats(d).failures);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// ---- Processes ----

// The lock goes with its process; whoever comes next writes.
static void a_killed_writer_leaves_the_lock(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    assert_int_equal(0, pipe(ready));
    const pid_t child = fork();
    if (child == 0) {
        store_bed *b = store_bed_small(0);
        kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
        disk_put(b, d, NULL, tokens, SHORT);
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(1);
    }
    assert_int_equal(1, read(ready[0], &byte, 1));
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    assert_false(disk_stats(d).is_writer);
    assert_int_equal(SHORT, disk_found(b, d, NULL, tokens, LONG));
    kvern_disk_store_close(d);
    assert_int_equal(0, kill(child, SIGKILL));
    (void)status_of(child);
    d = disk_open(b, "d", NULL, NULL);
    assert_true(disk_stats(d).is_writer);
    kvern_disk_store_close(d);
    store_bed_close(b);
    close(ready[0]);
    close(ready[1]);
}

// Whoever reads and looks again is the next one, with all that a writer has to do first.
static void a_reader_writes_when_the_writer_was_killed(void **state)
{
    (void)state;
    int ready[2];
    char byte;
    assert_int_equal(0, pipe(ready));
    const pid_t child = fork();
    if (child == 0) {
        bad_disk disk = {.fail_at = -1};
        const kvern_disk_calls calls = bad_disk_calls(&disk);
        store_bed *b = store_bed_small(0);
        kvern_disk_store *d = disk_open(b, "d", NULL, &calls);
        disk_put(b, d, NULL, tokens, SHORT);
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(1);
    }
    assert_int_equal(1, read(ready[0], &byte, 1));
    store_bed *b = store_bed_small(0);
    kvern_disk_store_options options = disk_options();
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    options.read_only = 1;
    kvern_disk_store *r = disk_open(b, "d", &options, NULL);
    // As a writer leaves them that is killed while it writes; a reader has nothing to do with them.
    folder_write("d/0123456789abcdef0123456789abcdef.kvern.tmp-0", "x", 1);
    folder_write("d/0123456789abcdef0123456789abcdef.kvern", "x", 1);
    assert_ok(kvern_disk_store_rescan(d));
    assert_false(disk_stats(d).is_writer);
    assert_int_equal(1, disk_stats(d).passed_over);
    assert_int_equal(KVERN_DISK_READER, disk_put(b, d, NULL, tokens, LONG));
    assert_int_equal(0, kill(child, SIGKILL));
    (void)status_of(child);
    assert_ok(kvern_disk_store_rescan(r));
    assert_false(disk_stats(r).is_writer);
    assert_ok(kvern_disk_store_rescan(d));
    assert_true(disk_stats(d).is_writer);
    assert_int_equal(1, disk_stats(d).left_over);
    assert_int_equal(1, disk_stats(d).aside);
    assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, NULL, tokens, LONG));
    assert_int_equal(LONG - 1, disk_found(b, d, NULL, tokens, LONG));
    disk_expect_sound(d);
    kvern_disk_store_close(r);
    kvern_disk_store_close(d);
    store_bed_close(b);
    close(ready[0]);
    close(ready[1]);
}

// One process publishes and evicts, another one reads: it gets what the tokens say, or nothing.
static void a_reader_sees_whole_entries_while_another_process_writes(void **state)
{
    (void)state;
    write_entry(NULL, SHORT); // the directory is there
    const pid_t child = fork();
    if (child == 0)
        publish_without_end();
    store_bed *b = store_bed_small(0);
    kvern_disk_store_options options = disk_options();
    options.read_only = 1;
    kvern_disk_store *d = disk_open(b, "d", &options, NULL);
    uint64_t lent = 0;
    for (int round = 0; round < 4000 && lent < 200; round++) {
        int32_t prompt[LONG];
        kvern_state *s;
        store_repeat(prompt, LONG, round % PROMPTS);
        if (round % 3 == 0)
            assert_ok(kvern_disk_store_rescan(d));
        lent += disk_lend(b, d, NULL, prompt, LONG, &s) > 0;
        store_expect_goes_on(b, s, 0, prompt, LONG);
        kvern_state_destroy(s);
    }
    assert_int_equal(0, kill(child, SIGKILL));
    (void)status_of(child);
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_true(lent > 0 && lent == stats.lookups.loans);
    assert_int_equal(0, stats.damaged + stats.passed_over);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// ---- Memory ----

static void each_allocation_refused_to_an_open_store_leaves_files(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, tokens, SHORT);
    kvern_disk_store_close(d);
    const kvern_disk_store_options options = disk_options();
    bool refused = true;
    for (int64_t at = 0; refused; at++) {
        ledger_refuse(&b->books, at);
        kvern_status status = kvern_disk_store_open(b->context, folder_path("d"), &options, &d);
        refused = ledger_relent(&b->books);
        assert_status(refused ? KVERN_ERR_MEMORY : KVERN_OK, status);
        assert_true(!refused || !d);
    }
    assert_int_equal(0, disk_stats(d).aside + disk_stats(d).passed_over);
    assert_int_equal(SHORT - 1, disk_found(b, d, NULL, tokens, SHORT));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void each_allocation_refused_to_a_publication_costs_it_alone(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    kvern_state *s = store_cold(b, tokens, SHORT);
    bool refused = true;
    uint64_t failed = 0;
    for (int64_t at = 0; refused; at++) {
        ledger_refuse(&b->books, at);
        kvern_status status = kvern_disk_store_publish(d, NULL, tokens, SHORT, s, 0, NULL);
        kvern_disk_store_flush(d);
        refused = ledger_relent(&b->books);
        failed += status == KVERN_ERR_MEMORY;
        assert_true(!status || (refused && status == KVERN_ERR_MEMORY));
        const kvern_disk_store_stats stats = disk_stats(d);
        assert_int_equal(refused ? 0 : 1, stats.entries);
        assert_int_equal((uint64_t)at + 1, failed + stats.failures + stats.publications);
        disk_expect_sound(d);
    }
    assert_true(failed > 2 && disk_stats(d).failures > 5);
    kvern_state_destroy(s);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void each_allocation_refused_to_a_loan_leaves_the_row(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, tokens, SHORT);
    kvern_disk_hit hit = disk_find(b, d, NULL, tokens, LONG);
    kvern_state *s = store_state(b, 1);
    bool refused = true;
    int64_t lent = -1;
    for (int64_t at = 0; refused; at++) {
        ledger_refuse(&b->books, at);
        kvern_status status = kvern_disk_store_lend(d, &hit, s, 0, &lent);
        refused = ledger_relent(&b->books);
        assert_status(refused ? KVERN_ERR_MEMORY : KVERN_OK, status);
        assert_int_equal(refused ? -1 : SHORT, lent);
        assert_int_equal(refused ? 0 : SHORT, kvern_state_length(s, 0));
    }
    store_expect_goes_on(b, s, 0, tokens, LONG);
    assert_int_equal(0, disk_stats(d).damaged + disk_stats(d).aside);
    kvern_disk_store_release(d, &hit);
    kvern_state_destroy(s);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Neither rows that were written nor entries that have gone leave anything in memory.
static void what_has_gone_takes_no_memory(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, tokens, SHORT); // buffers of the context's stay
    assert_ok(kvern_disk_store_prune(d, 0));
    const uint64_t before = b->books.held_bytes;
    for (size_t count = SHORT; count < LONG; count += 7)
        disk_put(b, d, NULL, tokens, count);
    assert_true(b->books.held_bytes > before);
    assert_ok(kvern_disk_store_prune(d, 0));
    assert_int_equal(before, b->books.held_bytes);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_writer_that_is_killed_leaves_the_old_or_the_new),
        TEST(a_writer_that_is_killed_at_any_time_leaves_what_is_whole),
        TEST(each_disk_call_that_fails_is_reported),
        TEST(a_full_disk_costs_the_entry_alone),
        TEST(a_full_disk_takes_the_space_of_the_oldest_entries),
        TEST(a_full_disk_takes_no_more_than_is_missing),
        TEST(a_disk_that_stays_full_is_reported_after_four_attempts),
        TEST(a_killed_writer_leaves_the_lock),
        TEST(a_reader_writes_when_the_writer_was_killed),
        TEST(a_reader_sees_whole_entries_while_another_process_writes),
        TEST(each_allocation_refused_to_an_open_store_leaves_files),
        TEST(each_allocation_refused_to_a_publication_costs_it_alone),
        TEST(each_allocation_refused_to_a_loan_leaves_the_row),
        TEST(what_has_gone_takes_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
