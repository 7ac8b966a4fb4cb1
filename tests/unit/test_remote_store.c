// SPDX-License-Identifier: MIT
// A store that machines share: what is found and fetched, what is shared, what stays for how long,
// and what is refused. Fault J6 of other systems (a hash that is trusted): what lies under a name
// is compared with what was asked for.
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/remote_bed.h"

#include <kvern/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH 200

static int32_t one[2 * LENGTH], two[2 * LENGTH];

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_forget_reports();
    store_repeat(one, LENGTH, 1);
    store_repeat(one + LENGTH, LENGTH, 2);
    store_repeat(two, LENGTH / 2, 1);
    store_repeat(two + LENGTH / 2, 2 * LENGTH - LENGTH / 2, 3);
    remote_start(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remote_kill();
    folder_remove();
    return 0;
}

// ---- What is found ----

static void a_row_is_fetched_by_another(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0), *other = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL), *q = remote_open(other, NULL, NULL);
    kvern_state *s;
    assert_int_equal(KVERN_REMOTE_QUEUED, remote_put(b, r, NULL, one, LENGTH));
    const kvern_remote_found found = remote_find(other, q, NULL, one, LENGTH);
    assert_int_equal(LENGTH - 1, found.positions);
    assert_int_equal(KVERN_STORE_ALL, found.why);
    assert_int_equal(LENGTH, found.common);
    assert_true(found.bytes > 0);
    assert_int_equal(LENGTH, remote_lend(other, q, NULL, one, 2 * LENGTH, &s));
    kvern_remote_store_close(q); // a row outlives it
    store_expect_goes_on(other, s, 0, one, 2 * LENGTH);
    kvern_state_destroy(s);
    kvern_remote_store_close(r);
    store_bed_close(other);
    store_bed_close(b);
}

// Also where the prompts part within a block of tokens.
static void a_prefix_is_fetched_alone(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_state *s;
    remote_put(b, r, NULL, one, 2 * LENGTH);
    const uint64_t whole = remote_find(b, r, NULL, one, 2 * LENGTH).bytes;
    assert_int_equal(LENGTH / 2, remote_lend(b, r, NULL, two, 2 * LENGTH, &s));
    store_expect_goes_on(b, s, 0, two, 2 * LENGTH);
    kvern_state_destroy(s);
    const kvern_remote_found found = remote_find(b, r, NULL, two, 2 * LENGTH);
    assert_int_equal(KVERN_STORE_TOKENS, found.why);
    assert_true(found.bytes < whole / 2);                             // two pages of seven
    assert_int_equal(20, remote_find(b, r, NULL, one, 21).positions); // less than a block
    assert_int_equal(KVERN_STORE_SHORT_PROMPT, remote_find(b, r, NULL, one, 1).why);
    assert_int_equal(0, remote_find(b, r, NULL, two + LENGTH, LENGTH).positions);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void keys_and_layers_are_kept_apart(void **state)
{
    (void)state;
    const kvern_store_field a = {"salt", "a", 1}, none = {"salt", "", 0};
    const kvern_store_key key = {&a, 1}, other = {&none, 1};
    const kvern_layer wider = kvern_layer_default(1, 128);
    store_bed *b = store_bed_small(0), *w = store_bed_open(&wider, 1, 0, 0);
    kvern_remote_store *r = remote_open(b, NULL, NULL), *q = remote_open(w, NULL, NULL);
    remote_put(b, r, &key, one, LENGTH);
    assert_int_equal(LENGTH - 1, remote_find(b, r, &key, one, LENGTH).positions);
    assert_int_equal(0, remote_find(b, r, &other, one, LENGTH).positions);
    assert_int_equal(0, remote_find(b, r, NULL, one, LENGTH).positions);
    assert_int_equal(0, remote_find(w, q, &key, one, LENGTH).positions);
    kvern_remote_store_close(q);
    kvern_remote_store_close(r);
    store_bed_close(w);
    store_bed_close(b);
}

// Of two that part behind their beginning both are found, and of many that end in one block those
// of different lengths.
static void entries_with_one_beginning_are_all_found(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, one, 2 * LENGTH);
    remote_put(b, r, NULL, two, 2 * LENGTH);
    assert_int_equal(2 * LENGTH - 1, remote_find(b, r, NULL, one, 2 * LENGTH).positions);
    assert_int_equal(2 * LENGTH - 1, remote_find(b, r, NULL, two, 2 * LENGTH).positions);
    assert_int_equal(0, remote_stats(r).gone + remote_stats(r).damaged);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void recurrent_rows_are_found_where_they_end_and_at_checkpoints(void **state)
{
    (void)state;
    const kvern_layer layers[] = {kvern_layer_default(1, 64), kvern_layer_delta(1, 2, 16, 16, 4)};
    store_bed *b = store_bed_open(layers, 2, 0, 0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_state *s = store_state(b, 1);
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_MAX));
    store_serve(s, 0, one, 70, NULL);
    assert_ok(kvern_state_checkpoint(s, 0));
    store_serve(s, 0, one, 75, NULL);
    assert_ok(kvern_remote_store_publish(r, NULL, one, 75, s, 0, NULL));
    store_serve(s, 0, one, LENGTH, NULL);
    assert_ok(kvern_remote_store_publish(r, NULL, one, LENGTH, s, 0, NULL));
    kvern_state_destroy(s);
    kvern_remote_store_flush(r);
    static const size_t asked[] = {70, 71, 75, 76, LENGTH, LENGTH + 1},
                        got[] = {0, 70, 70, 75, 75, LENGTH};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        assert_int_equal(got[i], remote_lend(b, r, NULL, one, asked[i], &s));
        store_expect_goes_on(b, s, 0, one, 2 * LENGTH);
        kvern_state_destroy(s);
    }
    assert_int_equal(KVERN_STORE_CHECKPOINT, remote_find(b, r, NULL, one, LENGTH).why);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void what_is_not_worth_it_is_not_fetched(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_remote_fetch *f;
    remote_put(b, r, NULL, one, LENGTH);
    for (int64_t least = LENGTH - 1; least <= LENGTH; least++) {
        kvern_remote_found found = kvern_remote_found_default();
        assert_ok(kvern_remote_store_begin(r, NULL, b->composition, one, LENGTH, least, 0, &f));
        assert_true(kvern_remote_store_wait(r, f, 60000, &found));
        assert_int_equal(least < LENGTH ? LENGTH - 1 : 0, found.positions);
        assert_int_equal(least<LENGTH, found.bytes> 0);
        kvern_remote_store_end(r, f);
    }
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// ---- What is there ----

static void beginnings_share_their_blocks(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, one, LENGTH);
    const kvern_remote_store_stats before = remote_stats(r);
    const size_t blocks = remote_keys('b');
    assert_int_equal(blocks, before.blocks);
    assert_int_equal(0, before.shared_blocks);
    remote_put(b, r, NULL, one, 2 * LENGTH);
    const kvern_remote_store_stats after = remote_stats(r);
    assert_int_equal(LENGTH / 64, after.shared_blocks); // the last page goes on
    assert_int_equal(2, after.publications);
    assert_int_equal(after.blocks - after.shared_blocks, remote_keys('b'));
    remote_put(b, r, NULL, one, 2 * LENGTH); // nothing new but the entry itself
    assert_int_equal(after.blocks - after.shared_blocks, remote_keys('b'));
    assert_true(remote_stats(r).written_bytes - after.written_bytes < 20000);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// A page that the server has evicted takes nothing along but what is behind it.
static void what_is_in_front_of_a_lost_page_serves(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    char keys[LENGTH / 64 + 1][KVERN_REMOTE_KEY_BYTES];
    unsigned seen = 0;
    remote_put(b, r, NULL, one, LENGTH);
    assert_int_equal(LENGTH / 64 + 1, remote_keys('b'));
    for (size_t i = 0; i < LENGTH / 64 + 1; i++)
        snprintf(keys[i], sizeof keys[i], "%s", remote_key('b', i));
    for (size_t i = 0; i < LENGTH / 64 + 1; i++) {
        kvern_state *s;
        remote_number("DEL %s", keys[i]);
        const kvern_remote_found found = remote_find(b, r, NULL, one, LENGTH);
        assert_int_equal(KVERN_STORE_GONE, found.why);
        assert_int_equal(0, found.positions % 64);
        assert_int_equal(found.positions, remote_lend(b, r, NULL, one, LENGTH, &s));
        store_expect_goes_on(b, s, 0, one, LENGTH);
        kvern_state_destroy(s);
        seen |= 1u << found.positions / 64;
        remote_put(b, r, NULL, one, LENGTH); // makes it whole again
        assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, one, LENGTH).positions);
    }
    assert_int_equal((1u << (LENGTH / 64 + 1)) - 1, seen);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// Nothing of ours stays for ever.
static void everything_expires(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    options.ttl_seconds = 100;
    options.budget_bytes = 10000000;
    kvern_remote_store *r = remote_open(b, NULL, &options);
    remote_put(b, r, NULL, one, LENGTH);
    redisReply *keys = remote_ask("KEYS *");
    assert_true(keys->elements > 6);
    for (size_t i = 0; i < keys->elements; i++) {
        const long long left = remote_number("PTTL %s", keys->element[i]->str);
        assert_true(left > 50000 && left <= 200000);
    }
    // Whoever uses it puts that off, once half of the time is over.
    for (size_t i = 0; i < keys->elements; i++)
        remote_number("PEXPIRE %s 30000", keys->element[i]->str);
    assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, one, LENGTH).positions);
    kvern_remote_store_close(r); // it is done behind the fetch
    for (size_t i = 0; i < keys->elements; i++)
        assert_true(remote_number("PTTL %s", keys->element[i]->str) > 50000);
    freeReplyObject(keys);
    store_bed_close(b);
}

static uint64_t bytes_there(void)
{
    uint64_t bytes = 0;
    for (int kind = 0; kind < 2; kind++) {
        const size_t count = remote_keys("be"[kind]);
        for (size_t i = 0; i < count; i++)
            bytes += (uint64_t)remote_number("STRLEN %s", remote_key("be"[kind], i));
    }
    return bytes;
}

static long long noted(void)
{
    redisReply *reply = remote_ask("ZSCORE kvern1:ledger %s", "");
    assert_int_equal(REDIS_REPLY_STRING, reply->type);
    const long long sum = -atoll(reply->str);
    freeReplyObject(reply);
    return sum;
}

// The one that was unused for the longest goes; what another one shares stays with that.
static void a_budget_is_kept(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    int32_t tokens[LENGTH];
    remote_put(b, r, NULL, one, LENGTH);
    const uint64_t each = bytes_there();
    kvern_remote_store_close(r);
    freeReplyObject(remote_ask("FLUSHALL"));
    options.budget_bytes = 3 * each + each / 2;
    r = remote_open(b, NULL, &options);
    for (int32_t i = 0; i < 8; i++) {
        store_repeat(tokens, LENGTH, 10 + i);
        remote_put(b, r, NULL, tokens, LENGTH);
        assert_true(bytes_there() <= options.budget_bytes);
        assert_int_equal(bytes_there(), noted());
        usleep(2000); // the server's clock
        store_repeat(tokens, LENGTH, 10);
        assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, tokens, LENGTH).positions);
        kvern_remote_store_flush(r);
        usleep(20000); // what was used is noted behind the fetch
    }
    store_repeat(tokens, LENGTH, 12);
    assert_int_equal(0, remote_find(b, r, NULL, tokens, LENGTH).positions);
    store_repeat(tokens, LENGTH, 17);
    assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, tokens, LENGTH).positions);
    assert_true(remote_stats(r).evictions > 0);
    assert_int_equal(8, remote_stats(r).publications);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void an_entry_above_the_budget_is_refused(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    options.budget_bytes = 10000;
    kvern_remote_store *r = remote_open(b, NULL, &options);
    remote_put(b, r, NULL, one, LENGTH);
    remote_put(b, r, NULL, two, LENGTH);
    assert_int_equal(2, remote_stats(r).refused);
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_NOT_WRITTEN]); // told once
    assert_int_equal(0, remote_number("DBSIZE"));
    assert_true(remote_stats(r).is_reachable);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// ---- Calls ----

static void who_only_reads_writes_nothing(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    options.read_only = 1;
    kvern_remote_store *r = remote_open(b, NULL, &options);
    assert_int_equal(KVERN_REMOTE_READ_ONLY, remote_put(b, r, NULL, one, LENGTH));
    assert_int_equal(0, remote_number("DBSIZE"));
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void a_closing_store_writes_what_is_queued(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_state *s = store_cold(b, one, LENGTH);
    assert_ok(kvern_remote_store_publish(r, NULL, one, LENGTH, s, 0, NULL));
    kvern_state_destroy(s);
    kvern_remote_store_close(r);
    assert_int_equal(1, remote_keys('e'));
    r = remote_open(b, NULL, NULL);
    assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, one, LENGTH).positions);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void loans_are_checked(void **state)
{
    (void)state;
    const kvern_layer wider = kvern_layer_default(1, 128);
    store_bed *b = store_bed_small(0), *w = store_bed_open(&wider, 1, 0, 0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_remote_fetch *f, *none;
    remote_put(b, r, NULL, one, LENGTH);
    assert_ok(kvern_remote_store_begin(r, NULL, b->composition, one, LENGTH, 0, 0, &f));
    assert_ok(kvern_remote_store_begin(r, NULL, b->composition, two + LENGTH, 50, 0, 0, &none));
    assert_true(kvern_remote_store_wait(r, none, 60000, NULL));
    assert_true(kvern_remote_store_wait(r, f, 60000, NULL));
    kvern_state *s = store_cold(b, two, 5), *other = store_state(w, 1);
    assert_status(KVERN_ERR_BUSY, kvern_remote_store_lend(r, f, s, 0));
    assert_status(KVERN_ERR_RANGE, kvern_remote_store_lend(r, f, s, 1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_remote_store_lend(r, f, other, 0));
    assert_ok(kvern_state_reset(s, 0));
    assert_status(KVERN_ERR_ARGUMENT, kvern_remote_store_lend(r, none, s, 0));
    assert_ok(kvern_remote_store_lend(r, f, s, 0));
    kvern_remote_store_end(r, none);
    kvern_remote_store_end(r, f);
    store_expect_goes_on(b, s, 0, one, LENGTH);
    kvern_state_destroy(s);
    kvern_state_destroy(other);
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_remote_store_begin(r, NULL, w->composition, one, LENGTH, 0, 0, &f));
    kvern_remote_store_close(r);
    store_bed_close(w);
    store_bed_close(b);
}

// A fetch that is ended early is given up, and its memory comes back.
static void a_fetch_can_be_ended_at_any_time(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    kvern_remote_fetch *f[20];
    remote_put(b, r, NULL, one, LENGTH);
    for (size_t i = 0; i < 20; i++)
        assert_ok(kvern_remote_store_begin(r, NULL, b->composition, one, LENGTH, 0, 0, &f[i]));
    for (size_t i = 0; i < 20; i++) {
        if (i % 5 == 0)
            usleep(1000);
        kvern_remote_store_end(r, f[19 - i]);
    }
    assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, one, LENGTH).positions);
    assert_int_equal(0, remote_stats(r).fetching);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// What an operator reads: seconds, bytes of the connections, reasons.
static void what_happened_is_counted(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_find(b, r, NULL, one, LENGTH);
    kvern_remote_store_stats stats = remote_stats(r);
    assert_int_equal(1, stats.lookups.misses);
    assert_int_equal(1, stats.lookups.why_missed[KVERN_STORE_TOKENS]);
    assert_int_equal(1, stats.connections);
    const double asked = stats.fetch_seconds;
    assert_true(asked >= 0 && stats.hit_seconds == 0);
    remote_put(b, r, NULL, one, LENGTH);
    stats = remote_stats(r);
    assert_int_equal(2, stats.connections);
    assert_true(stats.sent_bytes > stats.written_bytes && stats.written_bytes > 0);
    assert_true(stats.publish_seconds < 60);
    const uint64_t before = stats.received_bytes;
    assert_int_equal(LENGTH - 1, remote_find(b, r, NULL, one, LENGTH).positions);
    stats = remote_stats(r);
    assert_int_equal(1, stats.lookups.full_hits);
    assert_true(stats.received_bytes - before > stats.fetched_bytes && stats.fetched_bytes > 0);
    assert_true(stats.fetch_seconds >= asked && stats.hit_seconds <= stats.fetch_seconds);
    for (size_t i = 0; i < KVERN_REMOTE_ERRORS; i++)
        assert_int_equal(0, stats.errors[i]);
    assert_true(stats.down_seconds == 0 && stats.probe_in_seconds == 0);
    remote_kill();
    remote_find(b, r, NULL, one, LENGTH);
    stats = remote_stats(r);
    assert_int_equal(1, stats.errors[KVERN_REMOTE_ERROR_CLOSED]);
    assert_true(stats.errors[KVERN_REMOTE_ERROR_CONNECT] >= 1); // and probes
    assert_int_equal(1, stats.lookups.why_missed[KVERN_STORE_OFFLINE]);
    while (remote_stats(r).down_seconds == 0)
        usleep(1000);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static kvern_status address_of(const char *text, kvern_remote_address *a)
{
    return kvern_remote_address_read(text, a);
}

static void urls_are_read_or_refused(void **state)
{
    (void)state;
    kvern_remote_address a;
    assert_ok(address_of("redis://h", &a));
    assert_string_equal("h", a.host);
    assert_int_equal(6379, a.port);
    assert_ok(address_of("redis://u:p@10.0.0.1:7000/3", &a));
    assert_string_equal("10.0.0.1", a.host);
    assert_string_equal("u", a.user);
    assert_string_equal("p", a.password);
    assert_int_equal(7000, a.port);
    assert_int_equal(3, a.database);
    assert_ok(address_of("redis://:p@[::1]:7000/", &a));
    assert_string_equal("::1", a.host);
    assert_string_equal("", a.user);
    assert_ok(address_of("unix:/tmp/s", &a));
    assert_string_equal("/tmp/s", a.host);
    assert_int_equal(0, a.port);
    assert_false(a.is_secure);
    assert_ok(address_of("rediss://:a%20b%2F%40%3a%c3%A9@h", &a));
    assert_true(a.is_secure);
    assert_string_equal("a b/@:\xc3\xa9", a.password);
    assert_int_equal(6379, a.port);
    static const char *const bad[] = {"",
                                      "h:1",
                                      "redis://",
                                      "redis://:1",
                                      "redis://h:",
                                      "redis://h:0",
                                      "redis://h:x",
                                      "redis://h/x",
                                      "unix:",
                                      "redis://h:99999",
                                      "redis://[h",
                                      "redis://u@h",
                                      "redis://:%@h",
                                      "redis://:%2@h",
                                      "redis://:%2g@h",
                                      "redis://:a%00b@h",
                                      "redis://h%41",
                                      "redis://h,i:7000",
                                      "redis://a b",
                                      "redis://u:p@q@h",
                                      "redis://h/1/2",
                                      "redis:///1",
                                      "redis://h/-1",
                                      "rediss://",
                                      "valkey://h",
                                      "redis://[h]x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_status(KVERN_ERR_ARGUMENT, address_of(bad[i], &a));
    static const char *const unknown[] = {"redis://h?db=1", "redis://h/1?ssl=true", "redis://h#x",
                                          "rediss://u:p@h:1/2?ca=x"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_status(KVERN_ERR_UNSUPPORTED, address_of(unknown[i], &a));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_row_is_fetched_by_another),
        TEST(a_prefix_is_fetched_alone),
        TEST(keys_and_layers_are_kept_apart),
        TEST(entries_with_one_beginning_are_all_found),
        TEST(recurrent_rows_are_found_where_they_end_and_at_checkpoints),
        TEST(what_is_not_worth_it_is_not_fetched),
        TEST(beginnings_share_their_blocks),
        TEST(what_is_in_front_of_a_lost_page_serves),
        TEST(everything_expires),
        TEST(a_budget_is_kept),
        TEST(an_entry_above_the_budget_is_refused),
        TEST(who_only_reads_writes_nothing),
        TEST(a_closing_store_writes_what_is_queued),
        TEST(loans_are_checked),
        TEST(a_fetch_can_be_ended_at_any_time),
        TEST(what_happened_is_counted),
        cmocka_unit_test(urls_are_read_or_refused),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
