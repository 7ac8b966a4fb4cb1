// SPDX-License-Identifier: MIT
// A store on disk: what is found, what goes, and what is set aside.
//
// Fault J6 of other systems (a hash that is trusted) cannot be forced here: a file's name is a hash
// that nothing is looked up by. What is found are words of a trie, and what is lent is the file
// whose tokens were put there. Fault J4 (a content's identity cut short) is the caller's to avoid:
// all bytes of a field are compared (tests/unit/test_fault_store.c).
#include "tests/support/check.h"
#include "tests/support/disk_bed.h"
#include "tests/support/folder.h"
#include "tests/support/hybrid_state.h"

#include <fcntl.h>
#include <kvern/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH 100

static int32_t one[2 * LENGTH], two[2 * LENGTH];

static int set_up(void **state)
{
    (void)state;
    folder_make();
    memset(&disk_reported, 0, sizeof disk_reported);
    store_repeat(one, LENGTH, 1);
    store_repeat(one + LENGTH, LENGTH, 2);
    store_repeat(two, LENGTH / 2, 1);
    store_repeat(two + LENGTH / 2, 2 * LENGTH - LENGTH / 2, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    folder_remove();
    return 0;
}

static kvern_disk_store *reopen(const store_bed *b, kvern_disk_store *d)
{
    kvern_disk_store_close(d);
    return disk_open(b, "d", NULL, NULL);
}

// ---- What is found ----

static void an_entry_outlives_its_store(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    kvern_state *s;
    assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, NULL, one, LENGTH));
    disk_expect_sound(d);
    d = reopen(b, d);
    assert_int_equal(1, disk_stats(d).entries);
    kvern_disk_hit hit = disk_find(b, d, NULL, one, LENGTH);
    assert_int_equal(KVERN_STORE_ALL, hit.why);
    kvern_disk_store_release(d, &hit);
    assert_int_equal(LENGTH - 1, disk_lend(b, d, NULL, one, LENGTH, &s)); // I1
    store_expect_goes_on(b, s, 0, one, 2 * LENGTH);
    kvern_state_destroy(s);
    assert_int_equal(LENGTH / 2, disk_lend(b, d, NULL, two, 2 * LENGTH, &s));
    kvern_disk_store_close(d); // a row outlives it
    store_expect_goes_on(b, s, 0, two, 2 * LENGTH);
    kvern_state_destroy(s);
    store_bed_close(b);
}

// Faults J1 and J3: a field is never taken for another one, whatever is in it, also after it has
// been text.
static void keys_are_kept_apart(void **state)
{
    (void)state;
    const kvern_store_field fields[][2] = {
        {{"adapter", "S", 1}, {"salt", "", 0}},
        {{"adapter", "", 0}, {"salt", "S", 1}},
        {{"adapter", "S", 1}, {"user.salt", "", 0}},
        {{"model", "a%b\0c", 5}, {"x y", "\xff", 1}},
        {{"model", "a%b", 3}, {"x y", "\xff", 1}},
        {{"model", "a%25b", 5}, {"x%20y", "%FF", 3}},
        {{"ab", "c", 1}, {"d", "", 0}},
        {{"a", "bc", 2}, {"d", "", 0}},
    };
    const size_t count = sizeof fields / sizeof fields[0];
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        const kvern_store_key key = {fields[i], 2};
        kvern_disk_hit hit = disk_find(b, d, &key, one, LENGTH);
        assert_int_equal(KVERN_STORE_NO_KEY, hit.why);
        assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, &key, one, LENGTH));
    }
    d = reopen(b, d);
    assert_int_equal(count, disk_stats(d).entries);
    for (size_t i = 0; i < count; i++) {
        const kvern_store_key key = {fields[i], 2}, part = {fields[i], 1};
        assert_int_equal(LENGTH - 1, disk_found(b, d, &key, one, LENGTH));
        assert_int_equal(0, disk_found(b, d, &part, one, LENGTH));
    }
    assert_int_equal(0, disk_found(b, d, NULL, one, LENGTH));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void names_that_are_no_text_are_refused(void **state)
{
    (void)state;
    char name[203];
    memset(name, 'n', sizeof name);
    name[201] = '\0';
    const kvern_store_field fields[] = {{"", "v", 1}, {name, "v", 1}};
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    kvern_state *s = store_cold(b, one, LENGTH);
    for (size_t i = 0; i < 2; i++) {
        const kvern_store_key key = {&fields[i], 1};
        assert_status(KVERN_ERR_RANGE, kvern_disk_store_publish(d, &key, one, LENGTH, s, 0, NULL));
    }
    assert_status(KVERN_ERR_RANGE, kvern_disk_store_publish(d, NULL, one, 5, s, 0, NULL));
    kvern_state_destroy(s);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void other_layers_are_not_found(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_layer layer = kvern_layer_default(1, 32);
    kvern_composition *other;
    assert_ok(kvern_composition_create(b->context, &layer, 1, &other));
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    kvern_disk_hit hit = kvern_disk_hit_default();
    assert_ok(kvern_disk_store_find(d, NULL, other, one, LENGTH, &hit)); // J7
    assert_int_equal(0, hit.positions);
    assert_int_equal(KVERN_STORE_SIGNATURE, hit.why);
    hit = disk_find(b, d, NULL, one, LENGTH);
    kvern_state *s;
    int64_t lent = 7;
    assert_ok(kvern_state_create(other, 1, &s));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_disk_store_lend(d, &hit, s, 0, &lent));
    assert_int_equal(7, lent);
    kvern_disk_store_release(d, &hit);
    kvern_state_destroy(s);
    kvern_composition_release(other);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Fault I8: a window that has gone on serves what it still has.
static void a_window_serves_what_it_holds(void **state)
{
    (void)state;
    kvern_layer layer = kvern_layer_window(1, 16, 8);
    layer.slack = 1;
    store_bed *b = store_bed_open(&layer, 1, 0, 0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    d = reopen(b, d);
    assert_int_equal(LENGTH, disk_found(b, d, NULL, one, 2 * LENGTH));
    assert_int_equal(LENGTH - 1, disk_found(b, d, NULL, one, LENGTH));
    kvern_disk_hit hit = disk_find(b, d, NULL, one, LENGTH - 10);
    assert_int_equal(0, hit.positions);
    assert_int_equal(KVERN_STORE_WINDOW, hit.why);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// ---- Checkpoints ----

static store_bed *recurrent_bed(void)
{
    const kvern_layer layer = kvern_layer_delta(1, 2, 16, 16, 4);
    return store_bed_open(&layer, 1, 0, 0);
}

// A row with checkpoints at 40 and 60.
static void put_with_checkpoints(const store_bed *b, kvern_disk_store *d, const int32_t *tokens,
                                 int64_t length)
{
    kvern_state *s = store_state(b, 1);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    for (int64_t at = 40; at <= 60; at += 20) {
        store_serve(s, 0, tokens, at, NULL);
        assert_ok(kvern_state_checkpoint(s, 0));
    }
    store_serve(s, 0, tokens, length, NULL);
    assert_ok(kvern_disk_store_publish(d, NULL, tokens, (size_t)length, s, 0, NULL));
    kvern_state_destroy(s);
    kvern_disk_store_flush(d);
}

static void recurrent_rows_are_served_from_checkpoints(void **state)
{
    (void)state;
    store_bed *b = recurrent_bed();
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    kvern_state *s;
    put_with_checkpoints(b, d, one, LENGTH);
    d = reopen(b, d);
    kvern_disk_hit hit = disk_find(b, d, NULL, one, LENGTH);
    assert_int_equal(60, hit.positions);
    assert_int_equal(KVERN_STORE_CHECKPOINT, hit.why);
    kvern_disk_store_release(d, &hit);
    assert_int_equal(40, disk_lend(b, d, NULL, two, 2 * LENGTH, &s));
    store_expect_goes_on(b, s, 0, two, LENGTH);
    kvern_state_destroy(s);
    assert_int_equal(LENGTH, disk_lend(b, d, NULL, one, 2 * LENGTH, &s));
    store_expect_goes_on(b, s, 0, one, 2 * LENGTH);
    kvern_state_destroy(s);
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Two files have a checkpoint at the same tokens; either serves it when the other has gone.
static void a_checkpoint_of_two_files_outlives_one(void **state)
{
    (void)state;
    store_bed *b = recurrent_bed();
    for (int first = 0; first < 2; first++) {
        kvern_disk_store *d = disk_open(b, first ? "d1" : "d0", NULL, NULL);
        put_with_checkpoints(b, d, first ? two : one, LENGTH);
        put_with_checkpoints(b, d, first ? one : two, LENGTH + 1);
        assert_int_equal(2, disk_stats(d).entries);
        disk_expect_sound(d);
        assert_ok(kvern_disk_store_prune(d, disk_stats(d).bytes - 1));
        assert_int_equal(1, disk_stats(d).entries);
        disk_expect_sound(d);
        assert_int_equal(40, disk_found(b, d, NULL, first ? two : one, 50));
        assert_ok(kvern_disk_store_prune(d, 0));
        assert_int_equal(0, disk_found(b, d, NULL, one, 50));
        disk_expect_sound(d);
        kvern_disk_store_close(d);
    }
    store_bed_close(b);
}

// ---- What is written, and what goes for it ----

static void what_is_served_is_not_written(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, NULL, one, LENGTH));
    assert_int_equal(KVERN_DISK_STORED, disk_put(b, d, NULL, one, LENGTH));
    assert_int_equal(KVERN_DISK_STORED, disk_put(b, d, NULL, one, 30));
    assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, NULL, one, LENGTH + 20)); // serves all
    assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, NULL, two, LENGTH));
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_int_equal(2, stats.entries);
    assert_int_equal(3, stats.publications);
    assert_int_equal(2, stats.stored_already);
    assert_int_equal(1, stats.served_by_longer);
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Somebody removes a file: the entry is written again when its tokens are served again.
static void a_file_that_was_removed_is_written_again(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    kvern_state *s;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(KVERN_DISK_QUEUED, disk_put(b, d, NULL, one, LENGTH + (size_t)i % 2));
        disk_expect_sound(d);
        assert_int_equal(0, unlink(disk_only_file(d)));
        assert_int_equal(0, disk_lend(b, d, NULL, one, LENGTH, &s));
        kvern_state_destroy(s);
    }
    assert_int_equal(3, disk_stats(d).gone);
    disk_put(b, d, NULL, one, LENGTH);
    assert_int_equal(0, unlink(disk_only_file(d)));
    disk_put(b, d, NULL, one, LENGTH + 1); // over a beginning whose file is not there
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void a_recurrent_row_does_not_serve_its_beginnings(void **state)
{
    (void)state;
    store_bed *b = recurrent_bed();
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, 40);
    disk_put(b, d, NULL, one, 50);
    assert_int_equal(2, disk_stats(d).entries);
    put_with_checkpoints(b, d, one, LENGTH); // serves that of 40
    assert_int_equal(2, disk_stats(d).entries);
    assert_int_equal(50, disk_found(b, d, NULL, one, 55));
    assert_int_equal(40, disk_found(b, d, NULL, one, 45));
    assert_int_equal(KVERN_DISK_STORED, disk_put(b, d, NULL, one, 60));
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// What the directory takes at every write, against its budget.
typedef struct watch {
    kvern_disk_store *store;
    uint64_t budget, most;
} watch;

static uint64_t directory_bytes(const kvern_disk_store *d)
{
    char command[KVERN_DISK_PATH_BYTES + 64];
    unsigned long long bytes = 0;
    snprintf(command, sizeof command, "cat '%s'/*.kvern* 2>/dev/null | wc -c", d->directory);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(1, fscanf(pipe, "%llu", &bytes));
    pclose(pipe);
    return bytes;
}

static ssize_t watched_write(void *user, int file, const void *data, size_t bytes)
{
    watch *w = user;
    const ssize_t done = write(file, data, bytes);
    const uint64_t now = directory_bytes(w->store);
    w->most = now > w->most ? now : w->most;
    return done;
}

static void the_budget_holds_at_every_write(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    watch w = {.budget = 40000};
    kvern_disk_calls calls = kvern_system_disk;
    kvern_disk_store_options options = disk_options();
    calls.user = &w;
    calls.write = watched_write;
    options.budget_bytes = w.budget;
    kvern_disk_store *d = w.store = disk_open(b, "d", &options, &calls);
    int32_t tokens[LENGTH];
    for (int32_t i = 0; i < 12; i++) {
        store_repeat(tokens, LENGTH, i);
        disk_put(b, d, NULL, tokens, LENGTH);
        assert_int_equal(LENGTH - 1, disk_found(b, d, NULL, tokens, LENGTH));
        disk_expect_sound(d);
    }
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_true(stats.evictions > 0 && stats.entries >= 2);
    assert_true(w.most > w.budget / 2 && w.most <= w.budget);
    int32_t *large = malloc(4000 * sizeof *large);
    assert_non_null(large);
    store_repeat(large, 4000, 99);
    disk_put(b, d, NULL, large, 4000); // fits no directory of that size: all stays
    assert_int_equal(1, disk_stats(d).refused);
    assert_int_equal(stats.entries, disk_stats(d).entries);
    assert_int_equal(1, disk_reported.events[KVERN_DISK_NOT_WRITTEN]);
    free(large);
    kvern_disk_store_close(d);
    options.budget_bytes = 20000; // a smaller one evicts at once
    d = disk_open(b, "d", &options, NULL);
    assert_true(disk_stats(d).evictions > 0);
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// The one that was unused for the longest goes; another process's use is in the file's time. A
// pinned one stays.
static void what_was_used_stays(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    int32_t tokens[4][LENGTH];
    char paths[4][KVERN_DISK_PATH_BYTES];
    kvern_state *s;
    for (int32_t i = 0; i < 4; i++) {
        store_repeat(tokens[i], LENGTH, i);
        disk_put(b, d, NULL, tokens[i], LENGTH);
        kvern_disk_hit hit = disk_find(b, d, NULL, tokens[i], LENGTH);
        kvern_disk_path(d, NULL, hit.entry->name, paths[i]);
        const struct timespec past[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        assert_int_equal(0, utimensat(AT_FDCWD, paths[i], past, 0));
        kvern_disk_store_release(d, &hit);
    }
    d = reopen(b, d);
    assert_int_equal(LENGTH - 1, disk_lend(b, d, NULL, tokens[0], LENGTH, &s));
    kvern_state_destroy(s);
    assert_int_equal(0, utimensat(AT_FDCWD, paths[1], NULL, 0)); // another process
    kvern_disk_hit pinned = disk_find(b, d, NULL, tokens[2], LENGTH);
    assert_ok(kvern_disk_store_prune(d, disk_stats(d).bytes - 1));
    assert_int_equal(0, disk_found(b, d, NULL, tokens[3], LENGTH));
    assert_int_equal(3, disk_stats(d).entries);
    assert_ok(kvern_disk_store_prune(d, 0));
    assert_int_equal(1, disk_stats(d).entries);
    s = store_state(b, 1);
    int64_t lent;
    assert_ok(kvern_disk_store_lend(d, &pinned, s, 0, &lent));
    assert_int_equal(LENGTH - 1, lent);
    kvern_state_destroy(s);
    kvern_disk_store_release(d, &pinned);
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// ---- The queue ----

// A disk that waits at its syncs until it is told to go on.
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, waits;
} gate;

static int gated_sync(void *user, int file)
{
    gate *g = user;
    (void)file;
    pthread_mutex_lock(&g->lock);
    g->waits = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static void set_gate(gate *g, bool open)
{
    pthread_mutex_lock(&g->lock);
    g->open = open;
    pthread_cond_broadcast(&g->changed);
    while (!open && !g->waits)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

// A store whose writes wait at a gate, which is shut. Both outlive what is made of them.
static kvern_disk_store *open_gated(const store_bed *b, const char *name, gate *g,
                                    const kvern_disk_store_options *options)
{
    kvern_disk_calls calls = kvern_system_disk;
    *g = (gate){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
    calls.user = g;
    calls.sync = gated_sync;
    return disk_open(b, name, options, &calls);
}

static kvern_disk_outcome publish(const store_bed *b, kvern_disk_store *d, int32_t token,
                                  size_t count)
{
    int32_t tokens[2 * LENGTH];
    kvern_disk_outcome outcome;
    store_repeat(tokens, count, token);
    kvern_state *s = store_cold(b, tokens, (int64_t)count);
    assert_ok(kvern_disk_store_publish(d, NULL, tokens, count, s, 0, &outcome));
    kvern_state_destroy(s);
    return outcome;
}

static void a_full_queue_drops_and_does_not_wait(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    gate g;
    kvern_disk_store_options options = disk_options();
    options.queue_entries = 3;
    kvern_disk_store *d = open_gated(b, "d", &g, &options);
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 1, LENGTH));
    set_gate(&g, false); // it is being written
    assert_int_equal(KVERN_DISK_STORED, publish(b, d, 1, LENGTH));
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 2, 50));
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 2, 60)); // in place of its beginning
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 3, LENGTH));
    assert_int_equal(KVERN_DISK_DROPPED, publish(b, d, 4, LENGTH));
    kvern_disk_store_stats stats = disk_stats(d);
    assert_int_equal(3, stats.queued);
    assert_int_equal(1, stats.dropped);
    assert_int_equal(1, stats.served_by_longer);
    assert_true(stats.queued_bytes > 0 && stats.publications == 0);
    set_gate(&g, true);
    kvern_disk_store_flush(d);
    stats = disk_stats(d);
    assert_int_equal(3, stats.publications);
    assert_int_equal(0, stats.queued + stats.queued_bytes);
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void bytes_bound_the_queue_but_one_is_taken(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    gate g;
    kvern_disk_store_options options = disk_options();
    options.queue_bytes = 1;
    options.drop_at_close = 1;
    kvern_disk_store *d = open_gated(b, "d", &g, &options);
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 1, LENGTH));
    assert_int_equal(KVERN_DISK_DROPPED, publish(b, d, 2, LENGTH));
    set_gate(&g, true);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// A row that finds no room leaves those that begin it: less is kept, but not nothing.
static void what_a_full_queue_drops_leaves_its_beginnings(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    gate g;
    kvern_disk_store_options options = disk_options();
    kvern_disk_store *d = open_gated(b, "d", &g, &options);
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 1, LENGTH));
    set_gate(&g, false); // it is being written
    assert_int_equal(KVERN_DISK_QUEUED, publish(b, d, 2, 50));
    d->options.queue_bytes = disk_stats(d).queued_bytes + 1;
    assert_int_equal(KVERN_DISK_DROPPED, publish(b, d, 2, 2 * LENGTH));
    kvern_disk_store_stats stats = disk_stats(d);
    assert_int_equal(2, stats.queued);
    assert_int_equal(1, stats.dropped);
    assert_int_equal(0, stats.served_by_longer);
    set_gate(&g, true);
    kvern_disk_store_flush(d);
    int32_t tokens[LENGTH];
    store_repeat(tokens, LENGTH, 2);
    assert_int_equal(50, disk_found(b, d, NULL, tokens, LENGTH));
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

static void *close_store(void *store)
{
    kvern_disk_store_close(store);
    return NULL;
}

static void closing_writes_what_is_queued_or_drops_it(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    for (uint32_t drops = 0; drops < 2; drops++) {
        gate g;
        kvern_disk_store_options options = disk_options();
        options.drop_at_close = drops;
        kvern_disk_store *d = open_gated(b, drops ? "d1" : "d0", &g, &options);
        publish(b, d, 1, LENGTH);
        set_gate(&g, false);
        publish(b, d, 2, LENGTH);
        publish(b, d, 3, LENGTH);
        assert_int_equal(3, disk_stats(d).queued);
        pthread_t closer;
        assert_int_equal(0, pthread_create(&closer, NULL, close_store, d));
        if (drops)
            usleep(50000);
        set_gate(&g, true);
        pthread_join(closer, NULL);
        d = disk_open(b, drops ? "d1" : "d0", NULL, NULL);
        assert_int_equal(drops ? 1 : 3, disk_stats(d).entries);
        kvern_disk_store_close(d);
    }
    store_bed_close(b);
}

// ---- Readers ----

static void the_first_writes_and_others_read(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *writer = disk_open(b, "d", NULL, NULL);
    kvern_disk_store *reader = disk_open(b, "d", NULL, NULL);
    kvern_state *s;
    assert_true(disk_stats(writer).is_writer && !disk_stats(reader).is_writer);
    assert_int_equal(KVERN_DISK_READER, disk_put(b, reader, NULL, one, LENGTH));
    assert_status(KVERN_ERR_BUSY, kvern_disk_store_prune(reader, 0));
    disk_put(b, writer, NULL, one, LENGTH);
    assert_int_equal(0, disk_found(b, reader, NULL, one, LENGTH));
    assert_ok(kvern_disk_store_rescan(reader));
    assert_int_equal(LENGTH - 1, disk_lend(b, reader, NULL, one, LENGTH, &s));
    assert_ok(kvern_disk_store_prune(writer, 0)); // under the row, and the reader's index
    store_expect_goes_on(b, s, 0, one, LENGTH);
    kvern_state_destroy(s);
    assert_int_equal(0, disk_lend(b, reader, NULL, one, LENGTH, &s));
    kvern_state_destroy(s);
    assert_int_equal(1, disk_stats(reader).gone);
    assert_int_equal(0, disk_stats(reader).entries);
    disk_put(b, writer, NULL, two, LENGTH);
    assert_ok(kvern_disk_store_rescan(reader));
    assert_int_equal(LENGTH - 1, disk_found(b, reader, NULL, two, LENGTH));
    kvern_disk_store_close(writer);
    kvern_disk_store *next = disk_open(b, "d", NULL, NULL);
    assert_true(disk_stats(next).is_writer);
    kvern_disk_store_close(next);
    kvern_disk_store_close(reader);
    store_bed_close(b);
}

static void a_directory_that_did_not_change_is_not_read_again(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    kvern_disk_store_close(d);
    const struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    kvern_disk_store_options options = disk_options();
    options.read_only = 1;
    assert_int_equal(0, utimensat(AT_FDCWD, folder_path("d"), past, 0));
    d = disk_open(b, "d", &options, NULL);
    for (int i = 0; i < 3; i++)
        assert_ok(kvern_disk_store_rescan(d));
    assert_int_equal(1, disk_stats(d).scans);
    folder_write("d/other", "", 0);
    for (int i = 0; i < 3; i++) // what changed just now may change again in the same tick
        assert_ok(kvern_disk_store_rescan(d));
    assert_int_equal(4, disk_stats(d).scans);
    assert_int_equal(1, disk_stats(d).entries);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// ---- What is set aside ----

static void put_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    folder_write(path, data, bytes);
}

static void foreign_files_are_moved_aside(void **state)
{
    (void)state;
    static const char name[] = "0123456789abcdef0123456789abcdef.kvern";
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    disk_put(b, d, NULL, two, LENGTH);
    kvern_disk_store_close(d);
    kvern_state *s = store_cold(b, one, LENGTH);
    assert_ok(kvern_file_save(s, NULL, folder_path("d/00000000000000000000000000000001.kvern")));
    kvern_state_destroy(s);
    put_file("d", name, "not a file of rows", 18);
    put_file("d", "mine.kvern", "x", 1);                                 // nobody's
    put_file("d", "notes.txt", "x", 1);                                  // likewise
    put_file("d", "0123456789abcdef0123456789abcdef.kvern.bak", "x", 1); // likewise
    put_file("d", "0123456789abcdef0123456789abcdef.kvern.tmp-3", "x", 1);
    assert_int_equal(0, mkdir(folder_path("d/0000000000000000000000000000000a.kvern"), 0700));
    kvern_disk_store_options options = disk_options();
    options.read_only = 1;
    d = disk_open(b, "d", &options, NULL);
    assert_int_equal(3, disk_stats(d).passed_over);
    assert_int_equal(2, disk_stats(d).entries);
    kvern_disk_store_close(d);
    d = disk_open(b, "d", NULL, NULL);
    const kvern_disk_store_stats stats = disk_stats(d);
    assert_int_equal(3, stats.aside);
    assert_int_equal(1, stats.left_over);
    assert_int_equal(0, stats.passed_over);
    assert_int_equal(3, disk_reported.events[KVERN_DISK_MOVED_ASIDE]);
    assert_int_equal(2, stats.entries);
    assert_true(folder_has("d/mine.kvern"));
    assert_true(folder_has("d/aside/0123456789abcdef0123456789abcdef.kvern"));
    assert_true(folder_has("d/notes.txt"));
    assert_true(folder_has("d/0123456789abcdef0123456789abcdef.kvern.bak"));
    assert_false(folder_has("d/0123456789abcdef0123456789abcdef.kvern.tmp-3"));
    disk_expect_sound(d);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// It goes before any entry does, and no further than has to be; other files there are nobody's.
static void what_is_set_aside_counts_in_the_budget_and_goes_first(void **state)
{
    (void)state;
    static const char *const names[] = {"d/00000000000000000000000000000001.kvern",
                                        "d/00000000000000000000000000000002.kvern"};
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    const size_t bytes = disk_stats(d).bytes; // of an entry
    unsigned char *junk = calloc(1, bytes);
    kvern_disk_store_close(d);
    for (int round = 0; round < 2; round++) { // those of the second are in place of the first's
        for (size_t i = 0; i < 2; i++)
            folder_write(names[i], junk, bytes);
        d = disk_open(b, "d", NULL, NULL);
        assert_int_equal(2, disk_stats(d).aside);
        assert_int_equal(2 * bytes, disk_stats(d).aside_bytes);
        kvern_disk_store_close(d);
    }
    folder_write("d/aside/mine", "x", 1);
    kvern_disk_store_options options = disk_options();
    options.budget_bytes = 3 * bytes + 100;
    d = disk_open(b, "d", &options, NULL);
    for (size_t more = 0; more < 3; more++) {
        const size_t left = more < 2 ? 2 - more : 0;
        assert_int_equal(left * bytes, disk_stats(d).aside_bytes);
        assert_int_equal(0, disk_stats(d).evictions);
        int32_t tokens[LENGTH];
        store_repeat(tokens, LENGTH, (int32_t)more + 5);
        disk_put(b, d, NULL, tokens, LENGTH);
        disk_expect_sound(d);
    }
    assert_int_equal(1, disk_stats(d).evictions);
    assert_int_equal(3, disk_stats(d).entries);
    assert_true(folder_has("d/aside/mine"));
    kvern_disk_store_close(d);
    folder_write(names[0], junk, bytes);
    d = disk_open(b, "d", NULL, NULL);
    assert_ok(kvern_disk_store_prune(d, 3 * bytes));
    assert_int_equal(3, disk_stats(d).entries);
    assert_int_equal(0, disk_stats(d).aside_bytes);
    kvern_disk_store_close(d);
    free(junk);
    store_bed_close(b);
}

// A file whose name is that of another entry would be found in no place.
static void a_renamed_entry_is_moved_aside(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    const char *path = disk_only_file(d);
    kvern_disk_store_close(d);
    assert_int_equal(0, rename(path, folder_path("d/0123456789abcdef0123456789abcdef.kvern")));
    d = disk_open(b, "d", NULL, NULL);
    assert_int_equal(0, disk_stats(d).entries);
    assert_int_equal(1, disk_stats(d).aside);
    assert_non_null(strstr(disk_reported.why, "name"));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// Faults F1 and F2: each cut of a file is found when the directory is opened.
static void torn_files_are_moved_aside(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, 10);
    char path[KVERN_DISK_PATH_BYTES];
    snprintf(path, sizeof path, "%s", disk_only_file(d));
    const char *name = strrchr(path, '/') - 1; // in "d"
    kvern_disk_store_close(d);
    size_t bytes;
    unsigned char *data = folder_read(name, &bytes);
    for (size_t cut = 0; cut < bytes; cut += 1 + cut / 16) {
        folder_write(name, data, cut);
        d = disk_open(b, "d", NULL, NULL);
        assert_int_equal(0, disk_stats(d).entries);
        assert_int_equal(1, disk_stats(d).aside);
        assert_int_equal(0, disk_found(b, d, NULL, one, 10));
        kvern_disk_store_close(d);
    }
    folder_write(name, data, bytes);
    d = disk_open(b, "d", NULL, NULL);
    assert_int_equal(9, disk_found(b, d, NULL, one, 10));
    kvern_disk_store_close(d);
    free(data);
    store_bed_close(b);
}

// The first byte of the first page.
static void damage_page(const char *path)
{
    unsigned char byte;
    const int file = open(path, O_RDWR);
    uint64_t header;
    assert_true(file >= 0);
    assert_int_equal(8, pread(file, &header, 8, 0));
    assert_int_equal(1, pread(file, &byte, 1, (off_t)(8 + header)));
    byte ^= 1;
    assert_int_equal(1, pwrite(file, &byte, 1, (off_t)(8 + header)));
    close(file);
}

static void a_damaged_page_is_a_miss(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    for (int reads = 0; reads < 2; reads++) {
        kvern_disk_store *writer = disk_open(b, reads ? "d1" : "d0", NULL, NULL);
        disk_put(b, writer, NULL, one, LENGTH);
        damage_page(disk_only_file(writer));
        kvern_disk_store *d = reads ? disk_open(b, "d1", NULL, NULL) : writer;
        kvern_state *s;
        assert_int_equal(0, disk_lend(b, d, NULL, one, LENGTH, &s));
        store_expect_goes_on(b, s, 0, one, LENGTH); // as if nothing had been there
        kvern_state_destroy(s);
        const kvern_disk_store_stats stats = disk_stats(d);
        assert_int_equal(1, stats.damaged);
        assert_int_equal(0, stats.entries + stats.pinned + stats.lookups.loans);
        assert_int_equal(1, reads ? stats.passed_over : stats.aside);
        assert_non_null(strstr(disk_reported.why, "page"));
        if (reads)
            kvern_disk_store_close(d);
        kvern_disk_store_close(writer);
    }
    store_bed_close(b);
}

static void a_newer_version_is_moved_aside(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    disk_put(b, d, NULL, one, LENGTH);
    const char *name = strrchr(disk_only_file(d), '/') - 1;
    size_t bytes;
    unsigned char *data = folder_read(name, &bytes);
    kvern_disk_store_close(d);
    static const char version[] = "\"version\":\"1\"", spaced[] = "\"version\": \"1\"";
    unsigned char *at = memmem(data, bytes, version, sizeof version - 1);
    size_t digit = sizeof version - 3;
    if (!at) {
        at = memmem(data, bytes, spaced, sizeof spaced - 1);
        digit = sizeof spaced - 3;
    }
    assert_non_null(at);
    at[digit] = '2';
    folder_write(name, data, bytes);
    free(data);
    d = disk_open(b, "d", NULL, NULL);
    assert_int_equal(1, disk_stats(d).aside);
    assert_non_null(strstr(disk_reported.why, "version"));
    kvern_disk_store_close(d);
    store_bed_close(b);
}

// ---- Options ----

static void wrong_options_are_refused(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store_options options = disk_options();
    kvern_disk_store *d;
    options.create = 0;
    assert_status(KVERN_ERR_IO,
                  kvern_disk_store_open(b->context, folder_path("none"), &options, &d));
    assert_null(d);
    options.create = 2;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_disk_store_open(b->context, folder_path("d"), &options, &d));
    folder_write("file", "x", 1);
    options.create = 1;
    assert_status(KVERN_ERR_IO,
                  kvern_disk_store_open(b->context, folder_path("file"), &options, &d));
    assert_status(KVERN_ERR_ARGUMENT, kvern_disk_store_open(b->context, NULL, &options, &d));
    store_bed_close(b);
}

static void a_directory_is_its_owners_alone(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_disk_store *d = disk_open(b, "d", NULL, NULL);
    struct stat facts;
    disk_put(b, d, NULL, one, LENGTH);
    assert_int_equal(0, stat(folder_path("d"), &facts));
    assert_int_equal(0, facts.st_mode & 077);
    assert_int_equal(0, stat(disk_only_file(d), &facts));
    assert_int_equal(0, facts.st_mode & 077);
    kvern_disk_store_close(d);
    store_bed_close(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_entry_outlives_its_store),
        TEST(keys_are_kept_apart),
        TEST(names_that_are_no_text_are_refused),
        TEST(other_layers_are_not_found),
        TEST(a_window_serves_what_it_holds),
        TEST(recurrent_rows_are_served_from_checkpoints),
        TEST(a_checkpoint_of_two_files_outlives_one),
        TEST(what_is_served_is_not_written),
        TEST(a_file_that_was_removed_is_written_again),
        TEST(a_recurrent_row_does_not_serve_its_beginnings),
        TEST(the_budget_holds_at_every_write),
        TEST(what_was_used_stays),
        TEST(a_full_queue_drops_and_does_not_wait),
        TEST(bytes_bound_the_queue_but_one_is_taken),
        TEST(what_a_full_queue_drops_leaves_its_beginnings),
        TEST(closing_writes_what_is_queued_or_drops_it),
        TEST(the_first_writes_and_others_read),
        TEST(a_directory_that_did_not_change_is_not_read_again),
        TEST(foreign_files_are_moved_aside),
        TEST(what_is_set_aside_counts_in_the_budget_and_goes_first),
        TEST(a_renamed_entry_is_moved_aside),
        TEST(torn_files_are_moved_aside),
        TEST(a_damaged_page_is_a_miss),
        TEST(a_newer_version_is_moved_aside),
        TEST(wrong_options_are_refused),
        TEST(a_directory_is_its_owners_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
