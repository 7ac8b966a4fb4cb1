// SPDX-License-Identifier: MIT
// A Redis server that is killed (SIGKILL) behind each of the commands of a write and of a fetch,
// the answer to the last one given or not, and that comes back with nothing or with what it had on
// its disk. Whatever is lent is right, an entry is whole or not there, and a prompt goes on.
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/remote_bed.h"
#include "tests/support/remote_proxy.h"

#include <string.h>
#include <unistd.h>

#define LENGTH 140
#define MOST_COMMANDS 400
#define SHORT_STEP 9 // commands between two kills, but in the long form

static int32_t tokens[2 * LENGTH];

// One way to be killed.
typedef struct way {
    bool keeps_data; // a log on the disk, written before each answer
    bool keeps_last; // the last command's answer does not arrive
    uint64_t budget;
} way;

static const way ways[] = {
    {.keeps_data = true},
    {.keeps_data = true, .keeps_last = true, .budget = 1000000},
    {.keeps_last = true},
    {.budget = 1000000},
};
#define WAYS (sizeof ways / sizeof ways[0])

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_forget_reports();
    store_repeat(tokens, LENGTH, 1);
    store_repeat(tokens + LENGTH, LENGTH, 2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remote_kill();
    folder_remove();
    return 0;
}

// What was written to the log before an answer outlives the process, without being flushed to the
// disk, which may take seconds on a busy machine.
static void start(const way *w)
{
    static const char *const logged[] = {"--appendonly", "yes", "--appendfsync", "no", NULL};
    remote_start(w->keeps_data ? logged : NULL);
    for (bool loads = true; loads;) { // it answers before it has read its log
        redisReply *reply = remote_ask("PING");
        loads = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
    }
}

// What is lent of it is right; returns how much.
static int64_t expect_right(const store_bed *b, kvern_remote_store *r)
{
    kvern_state *s;
    const int64_t lent = remote_lend(b, r, NULL, tokens, 2 * LENGTH, &s);
    store_expect_goes_on(b, s, 0, tokens, 2 * LENGTH);
    kvern_state_destroy(s);
    return lent;
}

static kvern_remote_store *open_at_proxy(const store_bed *b, const way *w)
{
    kvern_remote_store_options options = remote_options();
    options.budget_bytes = w->budget;
    return remote_open(b, remote_proxy_url(), &options);
}

// The server is there again, and the store has found that. What follows a fetch, that nobody waits
// for, may be what it is killed in.
static void restart(const way *w, remote_proxy *proxy, kvern_remote_store *r)
{
    for (int i = 0; i < 2000 && !atomic_load(&proxy->has_killed); i++)
        usleep(5000);
    assert_true(atomic_load(&proxy->has_killed));
    remote_kill();
    start(w);
    atomic_store(&proxy->kill_after, -1);
    atomic_store(&proxy->has_killed, false);
    for (int i = 0; i < 2000 && !remote_stats(r).is_reachable; i++)
        usleep(5000);
    assert_true(remote_stats(r).is_reachable);
}

static void empty(void)
{
    freeReplyObject(remote_ask("FLUSHALL"));
}

// The commands of a write, or of a fetch, that is not disturbed.
static long count_commands(const store_bed *b, const way *w, bool writes)
{
    remote_proxy proxy = {.kill_after = -1};
    remote_proxy_begin(&proxy);
    kvern_remote_store *r = open_at_proxy(b, w);
    if (writes)
        remote_put(b, r, NULL, tokens, LENGTH);
    else
        assert_int_equal(LENGTH, expect_right(b, r));
    kvern_remote_store_close(r);
    remote_proxy_end(&proxy);
    const long count = atomic_load(&proxy.commands);
    assert_in_range(count, 10, MOST_COMMANDS);
    return count;
}

// From there on the store is as it was before.
static void expect_works(const store_bed *b, kvern_remote_store *r)
{
    const uint64_t written = remote_stats(r).publications;
    assert_int_equal(KVERN_REMOTE_QUEUED, remote_put(b, r, NULL, tokens, LENGTH));
    assert_int_equal(written + 1, remote_stats(r).publications);
    assert_int_equal(LENGTH, expect_right(b, r));
    assert_int_equal(0, remote_stats(r).damaged + remote_stats(r).failures);
    assert_true(remote_stats(r).outages <= 2); // of the writer and of the reader
    kvern_remote_store_close(r);
}

// Returns what the server has of the entry that was being written.
static int64_t kill_a_write(const store_bed *b, const way *w, long after)
{
    remote_proxy proxy = {.kill_after = after, .keeps_last = w->keeps_last};
    remote_proxy_begin(&proxy);
    kvern_remote_store *r = open_at_proxy(b, w);
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(after, atomic_load(&proxy.commands));
    assert_int_equal(0, expect_right(b, r)); // nothing is there, and the prompt goes on
    restart(w, &proxy, r);
    const int64_t lent = expect_right(b, r);
    assert_true(lent == 0 || (lent == LENGTH && w->keeps_data));
    expect_works(b, r);
    remote_proxy_end(&proxy);
    empty();
    return lent;
}

static void kill_a_fetch(const store_bed *b, const way *w, long after, long all)
{
    kvern_remote_store *direct = remote_open(b, NULL, NULL);
    remote_put(b, direct, NULL, tokens, LENGTH);
    kvern_remote_store_close(direct);
    remote_proxy proxy = {.kill_after = after, .keeps_last = w->keeps_last};
    remote_proxy_begin(&proxy);
    kvern_remote_store *r = open_at_proxy(b, w);
    const int64_t lent = expect_right(b, r);
    assert_true(lent == 0 || lent == LENGTH);
    assert_true(lent == LENGTH || after < all || w->keeps_last);
    restart(w, &proxy, r);
    assert_int_equal(w->keeps_data ? LENGTH : 0, expect_right(b, r));
    expect_works(b, r);
    remote_proxy_end(&proxy);
    empty();
}

// The ways take turns, or each is gone for each command.
static bool is_tried(long after, long all, size_t w)
{
    if (check_is_long())
        return true;
    return after == all || after % SHORT_STEP == (long)(w * SHORT_STEP / WAYS);
}

static void kill_writes(const way *w, size_t index)
{
    store_bed *b = store_bed_small(0);
    bool nothing = false, all_of_it = false;
    start(w);
    const long all = count_commands(b, w, true);
    empty();
    for (long after = 0; after <= all; after++) {
        if (!is_tried(after, all, index))
            continue;
        const int64_t lent = kill_a_write(b, w, after);
        nothing = nothing || lent == 0;
        all_of_it = all_of_it || lent == LENGTH;
    }
    assert_true(nothing);
    assert_int_equal(w->keeps_data, all_of_it); // the last command was done
    store_bed_close(b);
    remote_kill();
}

static void a_server_may_be_killed_behind_each_command_of_a_write(void **state)
{
    (void)state;
    for (size_t w = 0; w < WAYS; w++) {
        kill_writes(&ways[w], w);
        tear_down(NULL);
        set_up(NULL);
    }
}

static void kill_fetches(const way *w, size_t index)
{
    store_bed *b = store_bed_small(0);
    start(w);
    kvern_remote_store *direct = remote_open(b, NULL, NULL);
    remote_put(b, direct, NULL, tokens, LENGTH);
    kvern_remote_store_close(direct);
    const long all = count_commands(b, w, false);
    empty();
    for (long after = 0; after <= all; after++) {
        if (is_tried(after, all, index))
            kill_a_fetch(b, w, after, all);
    }
    store_bed_close(b);
    remote_kill();
}

static void a_server_may_be_killed_behind_each_command_of_a_fetch(void **state)
{
    (void)state;
    for (size_t w = 0; w < WAYS; w++) {
        kill_fetches(&ways[w], w);
        tear_down(NULL);
        set_up(NULL);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_server_may_be_killed_behind_each_command_of_a_write),
        TEST(a_server_may_be_killed_behind_each_command_of_a_fetch),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
